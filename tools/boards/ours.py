"""Geminga's own Grafana boards, from which ``deploy/grafana/*.json`` are written. Pure.

Each is rows of panels; a panel is its title, its unit as Grafana has it, and queries with their legends.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

#: Of all panels.
WIDTH, HEIGHT = 8, 7
COLUMNS: Final = 24 // WIDTH


class P(NamedTuple):
    """A panel: queries as (query, legend)."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


class Board(NamedTuple):
    """A board: title, file, panels; ``variables``: name -> query of the values to choose from."""

    file: str
    title: str
    variables: dict[str, str]
    panels: tuple[P, ...]


CLUSTER = {"cluster": "label_values(pulsar_version_info, cluster)"}
C = 'cluster=~"$cluster"'
T = f'{C}, namespace=~"$namespace", topic=~"$topic"'
R = "[$__rate_interval]"
SNAPSHOTS = "pulsar_replicated_subscriptions"
GROUPS = "sum by (resource_group, monitoring_class)"
GROUP = "{{resource_group}} {{monitoring_class}}"
TOPICS = {
    **CLUSTER,
    "namespace": 'label_values(pulsar_topics_count{cluster=~"$cluster"}, namespace)',
    "topic": 'label_values(pulsar_rate_in{cluster=~"$cluster", namespace=~"$namespace"}, topic)',
}

BOARDS: Final = (
    Board(
        "geminga-overview",
        "Geminga: overview",
        CLUSTER,
        (
            P("Brokers that are well", "none", ((f"sum(pulsar_health{{{C}}})", "well"),)),
            P("Bookies that take entries", "none", ((f"sum(bookie_SERVER_STATUS{{{C}}})", "writable"),)),
            P("Topics", "none", ((f"sum(pulsar_broker_topics_count{{{C}}})", "topics"),)),
            P(
                "Messages a second",
                "cps",
                (
                    (f"sum(pulsar_broker_rate_in{{{C}}})", "in"),
                    (f"sum(pulsar_broker_rate_out{{{C}}})", "out"),
                ),
            ),
            P(
                "Bytes a second",
                "Bps",
                (
                    (f"sum(pulsar_broker_throughput_in{{{C}}})", "in"),
                    (f"sum(pulsar_broker_throughput_out{{{C}}})", "out"),
                ),
            ),
            P("Backlog, entries", "short", ((f"sum(pulsar_broker_msg_backlog{{{C}}})", "backlog"),)),
            P(
                "Publish latency",
                "ms",
                (
                    (f'max(pulsar_broker_publish_latency{{{C}, quantile="0.5"}})', "half"),
                    (f'max(pulsar_broker_publish_latency{{{C}, quantile="0.99"}})', "99 of 100"),
                ),
            ),
            P("Journal sync", "ms", ((f'max(bookie_journal_JOURNAL_SYNC{{{C}, quantile="0.99"}})', "99 of 100"),)),
            P("Stored", "bytes", ((f"sum(pulsar_broker_storage_size{{{C}}})", "stored"),)),
            P("Connections", "none", ((f"sum(pulsar_active_connections{{{C}}})", "open"),)),
            P(
                "CPU",
                "percentunit",
                ((f"rate(process_cpu_seconds_total{{{C}}}{R})", "{{job}} {{kubernetes_pod_name}}{{instance}}"),),
            ),
            P(
                "Memory",
                "bytes",
                ((f"process_resident_memory_bytes{{{C}}}", "{{job}} {{kubernetes_pod_name}}{{instance}}"),),
            ),
        ),
    ),
    Board(
        "geminga-topic",
        "Geminga: topics",
        TOPICS,
        (
            P("Published messages a second", "cps", ((f"sum by (topic) (pulsar_rate_in{{{T}}})", "{{topic}}"),)),
            P(
                "Delivered messages a second",
                "cps",
                (
                    (
                        f"sum by (topic, subscription) (pulsar_subscription_msg_rate_out{{{T}}})",
                        "{{topic}} {{subscription}}",
                    ),
                ),
            ),
            P(
                "Acknowledged messages a second",
                "cps",
                (
                    (
                        f"sum by (topic, subscription) (pulsar_subscription_msg_ack_rate{{{T}}})",
                        "{{topic}} {{subscription}}",
                    ),
                ),
            ),
            P(
                "Backlog, entries",
                "short",
                (
                    (
                        f"sum by (topic, subscription) (pulsar_subscription_back_log{{{T}}})",
                        "{{topic}} {{subscription}}",
                    ),
                ),
            ),
            P(
                "Unacknowledged messages",
                "short",
                (
                    (
                        f"sum by (topic, subscription) (pulsar_subscription_unacked_messages{{{T}}})",
                        "{{topic}} {{subscription}}",
                    ),
                ),
            ),
            P(
                "Redelivered messages a second",
                "cps",
                (
                    (
                        f"sum by (topic, subscription) (pulsar_subscription_msg_rate_redeliver{{{T}}})",
                        "{{topic}} {{subscription}}",
                    ),
                ),
            ),
            P(
                "Producers and consumers",
                "none",
                (
                    (f"sum(pulsar_producers_count{{{T}}})", "producers"),
                    (f"sum(pulsar_consumers_count{{{T}}})", "consumers"),
                ),
            ),
            P("Stored", "bytes", ((f"sum by (topic) (pulsar_storage_size{{{T}}})", "{{topic}}"),)),
            P("Backlog", "bytes", ((f"sum by (topic) (pulsar_storage_backlog_size{{{T}}})", "{{topic}}"),)),
            P(
                "Bytes a second",
                "Bps",
                (
                    (f"sum(pulsar_throughput_in{{{T}}})", "in"),
                    (f"sum(pulsar_throughput_out{{{T}}})", "out"),
                ),
            ),
            P("Entries stored a second", "cps", ((f"sum(pulsar_storage_write_rate{{{T}}})", "entries"),)),
            P(
                "Entries read a second",
                "cps",
                (
                    (f"sum(pulsar_storage_read_rate{{{T}}})", "read"),
                    (f"sum(pulsar_storage_read_cache_misses_rate{{{T}}})", "of these from bookies"),
                ),
            ),
            P(
                "Compactions",
                "short",
                (
                    (f"sum by (topic) (pulsar_compaction_succeed_count{{{T}}})", "{{topic}} succeeded"),
                    (f"sum by (topic) (pulsar_compaction_failed_count{{{T}}})", "{{topic}} failed"),
                ),
            ),
            P(
                "Compaction, bytes a second",
                "Bps",
                (
                    (f"sum(pulsar_compaction_read_throughput{{{T}}})", "read"),
                    (f"sum(pulsar_compaction_write_throughput{{{T}}})", "written"),
                ),
            ),
            P(
                "Compacted",
                "bytes",
                ((f"sum by (topic) (pulsar_compaction_compacted_entries_size{{{T}}})", "{{topic}}"),),
            ),
        ),
    ),
    Board(
        "geminga-bookie",
        "Geminga: bookies and auto-recovery",
        CLUSTER,
        (
            P(
                "Entries a second",
                "cps",
                (
                    (f"sum(rate(bookkeeper_server_ADD_ENTRY_count{{{C}}}{R}))", "added"),
                    (f"sum(rate(bookkeeper_server_READ_ENTRY_count{{{C}}}{R}))", "read"),
                ),
            ),
            P(
                "Add",
                "ms",
                (
                    (f'max(bookkeeper_server_ADD_ENTRY{{{C}, quantile="0.5"}})', "half"),
                    (f'max(bookkeeper_server_ADD_ENTRY{{{C}, quantile="0.99"}})', "99 of 100"),
                ),
            ),
            P("Read", "ms", ((f'max(bookkeeper_server_READ_ENTRY{{{C}, quantile="0.99"}})', "99 of 100"),)),
            P(
                "Journal: groups a second, bytes a second",
                "short",
                (
                    (f"sum(rate(bookie_journal_JOURNAL_SYNC_count{{{C}}}{R}))", "groups"),
                    (f"sum(rate(bookie_journal_JOURNAL_WRITE_BYTES{{{C}}}{R}))", "bytes"),
                ),
            ),
            P("Write cache", "bytes", ((f"sum by (instance) (bookie_write_cache_size{{{C}}})", "{{instance}}"),)),
            P(
                "Reads by where they were found, a second",
                "cps",
                (
                    (f"sum(rate(bookie_write_cache_hits{{{C}}}{R}))", "write cache"),
                    (f"sum(rate(bookie_read_cache_hits{{{C}}}{R}))", "read cache"),
                    (f"sum(rate(bookie_read_cache_misses{{{C}}}{R}))", "disk"),
                ),
            ),
            P(
                "Ledgers and entries",
                "short",
                (
                    (f"sum(bookie_ledgers_count{{{C}}})", "ledgers"),
                    (f"sum(bookie_entries_count{{{C}}})", "entries"),
                ),
            ),
            P(
                "Entry logs",
                "bytes",
                ((f"sum by (instance) (bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES{{{C}}})", "{{instance}}"),),
            ),
            P(
                "Given back a second",
                "Bps",
                (
                    (f"sum(rate(bookie_RECLAIMED_DELETION_SPACE_BYTES{{{C}}}{R}))", "logs without entries"),
                    (f"sum(rate(bookie_RECLAIMED_COMPACTION_SPACE_BYTES{{{C}}}{R}))", "compaction"),
                ),
            ),
            P(
                "Ledgers marked for auto-recovery",
                "none",
                (
                    (f"sum(auditor_NUM_UNDER_REPLICATED_LEDGERS_count{{{C}}})", "marked"),
                    (f"sum(replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED{{{C}}})", "done"),
                ),
            ),
            P("Copied a second", "Bps", ((f"sum(rate(replication_worker_NUM_BYTES_WRITTEN_sum{{{C}}}{R}))", "bytes"),)),
            P("Flushed a second", "Bps", ((f"sum(rate(bookie_flushed_bytes{{{C}}}{R}))", "bytes"),)),
        ),
    ),
    Board(
        "geminga-cluster",
        "Geminga: brokers of a cluster",
        CLUSTER,
        (
            P("Bundles owned", "none", ((f"geminga_owned_bundles{{{C}}}", "{{instance}}"),)),
            P("Topics", "none", ((f"pulsar_broker_topics_count{{{C}}}", "{{instance}}"),)),
            P("CPU in use, percent", "percent", ((f"pulsar_lb_cpu_usage{{{C}}}", "{{instance}}"),)),
            P(
                "Busiest resource of each broker",
                "percentunit",
                ((f'pulsar_lb_resource_usage{{{C}, feature="max_ema"}}', "{{instance}}"),),
            ),
            P(
                "Bundles moved and split",
                "none",
                (
                    (f"sum(pulsar_lb_unload_bundle_total{{{C}}})", "moved"),
                    (f"sum(pulsar_lb_bundles_split_total{{{C}}})", "split"),
                ),
            ),
            P(
                "Lookups a second",
                "cps",
                (
                    (f"sum(rate(pulsar_broker_lookup_answers_total{{{C}}}{R}))", "here"),
                    (f"sum(rate(pulsar_broker_lookup_redirects_total{{{C}}}{R}))", "elsewhere"),
                    (f"sum(rate(pulsar_broker_lookup_failures_total{{{C}}}{R}))", "failed"),
                ),
            ),
            P("Topic loads, 99 of 100", "ms", ((f'max(pulsar_topic_load_times{{{C}, quantile="0.99"}})', "load"),)),
            P(
                "Connections made a second",
                "cps",
                (
                    (f"sum(rate(pulsar_connection_created_total_count{{{C}}}{R}))", "made"),
                    (f"sum(rate(pulsar_connection_closed_total_count{{{C}}}{R}))", "closed"),
                ),
            ),
            P(
                "Transactions a second",
                "cps",
                (
                    (f"sum(rate(pulsar_txn_committed_total{{{C}}}{R}))", "committed"),
                    (f"sum(rate(pulsar_txn_aborted_total{{{C}}}{R}))", "aborted"),
                ),
            ),
        ),
    ),
    Board(
        "geminga-geo-replication",
        "Geminga: geo-replication",
        {**TOPICS, "remote": 'label_values(pulsar_replication_backlog{cluster=~"$cluster"}, remote_cluster)'},
        tuple(
            P(
                title,
                unit,
                tuple(
                    (
                        f'sum by (cluster, remote_cluster) ({metric}{{{T}, remote_cluster=~"$remote"}})',
                        "{{cluster}} and {{remote_cluster}}" + legend,
                    )
                    for metric, legend in metrics
                ),
            )
            for title, unit, metrics in (
                (
                    "Messages a second",
                    "cps",
                    (("pulsar_replication_rate_out", ", out"), ("pulsar_replication_rate_in", ", in")),
                ),
                (
                    "Bytes a second",
                    "Bps",
                    (
                        ("pulsar_replication_throughput_out", ", out"),
                        ("pulsar_replication_throughput_in", ", in"),
                    ),
                ),
                ("Backlog, entries", "short", (("pulsar_replication_backlog", ""),)),
                ("Topics that are connected", "none", (("pulsar_replication_connected_count", ""),)),
                ("Delay, summed over topics", "s", (("pulsar_replication_delay_in_seconds", ""),)),
            )
        )
        + (
            P(
                "Snapshots of replicated subscriptions a second",
                "cps",
                (
                    (f"sum by (cluster) (rate({SNAPSHOTS}_snapshot_ms_count{{{C}}}{R}))", "{{cluster}}, made"),
                    (
                        f"sum by (cluster) (rate({SNAPSHOTS}_timedout_snapshots_total{{{C}}}{R}))",
                        "{{cluster}}, given up",
                    ),
                ),
            ),
            P(
                "Until a snapshot is made, mean",
                "ms",
                (
                    (
                        f"sum by (cluster) (rate({SNAPSHOTS}_snapshot_ms_sum{{{C}}}{R}))"
                        f" / sum by (cluster) (rate({SNAPSHOTS}_snapshot_ms_count{{{C}}}{R}))",
                        "{{cluster}}",
                    ),
                ),
            ),
            P(
                "Topics that can make no snapshot",
                "none",
                ((f"sum by (cluster) (geminga_replicated_subscriptions_held_topics{{{C}}})", "{{cluster}}"),),
            ),
        ),
    ),
    Board(
        "geminga-clients",
        "Geminga: entry filters, resource groups, WebSockets, proxies",
        CLUSTER,
        (
            P(
                "Entry filters: messages a second",
                "cps",
                tuple(
                    (f"sum(rate(pulsar_subscription_filter_{what}_msg_count{{{C}}}{R}))", what)
                    for what in ("accepted", "rejected", "rescheduled")
                ),
            ),
            P(
                "Entry filters: processes",
                "none",
                (
                    (f"sum(geminga_entry_filter_processes{{{C}}})", "there"),
                    (f"sum(rate(geminga_entry_filter_starts_total{{{C}}}{R}))", "started a second"),
                    (f"sum(rate(geminga_entry_filter_cut_off_total{{{C}}}{R}))", "cut off a second"),
                ),
            ),
            P(
                "Entry filters: batches",
                "short",
                (
                    (f"sum(rate(geminga_entry_filter_batches_total{{{C}}}{R}))", "answered a second"),
                    (f"sum(geminga_entry_filter_waiting_batches{{{C}}})", "wait"),
                ),
            ),
            P("Entry filters that fail", "none", ((f"sum(geminga_entry_filter_failing{{{C}}})", "chains"),)),
            P(
                "Resource groups: messages a second",
                "cps",
                ((f"{GROUPS} (rate(pulsar_resource_group_messages_used{{{C}}}{R}))", GROUP),),
            ),
            P(
                "Resource groups: bytes a second",
                "Bps",
                ((f"{GROUPS} (rate(pulsar_resource_group_bytes_used{{{C}}}{R}))", GROUP),),
            ),
            P(
                "Resource groups: messages a second that each broker may pass",
                "cps",
                ((f"pulsar_resource_group_calculated_messages_quota{{{C}}}", GROUP + " {{instance}}"),),
            ),
            P(
                "Resource groups: bytes a second that each broker may pass",
                "Bps",
                ((f"pulsar_resource_group_calculated_bytes_quota{{{C}}}", GROUP + " {{instance}}"),),
            ),
            P(
                "WebSockets",
                "none",
                (
                    (f"sum(geminga_websocket_connections{{{C}}})", "open"),
                    (f"sum(geminga_websocket_clients{{{C}}})", "clients behind them"),
                    (f"sum(geminga_websocket_waiting_producers{{{C}}})", "wait until there is room"),
                ),
            ),
            P(
                "WebSockets: messages a second",
                "cps",
                (
                    (f"sum(rate(geminga_websocket_messages_in_total{{{C}}}{R}))", "in"),
                    (f"sum(rate(geminga_websocket_messages_out_total{{{C}}}{R}))", "out"),
                    (f"sum(rate(geminga_websocket_acknowledged_total{{{C}}}{R}))", "acknowledged"),
                ),
            ),
            P(
                "WebSockets: bytes a second",
                "Bps",
                (
                    (f"sum(rate(geminga_websocket_bytes_in_total{{{C}}}{R}))", "in"),
                    (f"sum(rate(geminga_websocket_bytes_out_total{{{C}}}{R}))", "out"),
                ),
            ),
            P(
                "WebSockets: until a receipt, mean",
                "s",
                (
                    (
                        f"sum(rate(geminga_websocket_publish_seconds_total{{{C}}}{R}))"
                        f" / sum(rate(geminga_websocket_messages_in_total{{{C}}}{R}))",
                        "from message to receipt",
                    ),
                ),
            ),
            P(
                "WebSockets: published and not answered",
                "bytes",
                ((f"sum(geminga_websocket_published_unanswered_bytes{{{C}}})", "bytes"),),
            ),
            P(
                "WebSockets: refused a second",
                "cps",
                (
                    (f"sum(rate(geminga_websocket_refused_total{{{C}}}{R}))", "sockets"),
                    (f"sum(rate(geminga_websocket_messages_refused_total{{{C}}}{R}))", "messages"),
                ),
            ),
            P("Proxies: connections", "none", ((f"sum(pulsar_proxy_active_connections{{{C}}})", "open"),)),
            P(
                "Proxies: connections a second",
                "cps",
                (
                    (f"sum(rate(pulsar_proxy_new_connections{{{C}}}{R}))", "new"),
                    (f"sum(rate(pulsar_proxy_rejected_connections{{{C}}}{R}))", "refused"),
                ),
            ),
            P(
                "Proxies: bytes a second",
                "Bps",
                ((f"sum(rate(pulsar_proxy_binary_bytes{{{C}}}{R}))", "passed on"),),
            ),
            P(
                "Proxies: requests a second",
                "cps",
                (
                    (f"sum(rate(pulsar_proxy_lookup_requests{{{C}}}{R}))", "lookups"),
                    (f"sum(rate(pulsar_proxy_partitions_metadata_requests{{{C}}}{R}))", "partitions"),
                    (f"sum(rate(pulsar_proxy_rejected_lookup_requests{{{C}}}{R}))", "lookups refused"),
                ),
            ),
        ),
    ),
    Board(
        "geminga-spark",
        "Geminga: what Spark reads and writes",
        TOPICS,
        (
            P(
                "Published by Spark, messages a second",
                "cps",
                ((f'sum by (topic) (pulsar_producer_msg_rate_in{{{T}, producer_name=~".+:.+-[0-9]+"}})', "{{topic}}"),),
            ),
            P(
                "Committed transactions a second",
                "cps",
                ((f"sum(rate(pulsar_txn_committed_total{{{C}}}{R}))", "committed"),),
            ),
            P("Aborted transactions a second", "cps", ((f"sum(rate(pulsar_txn_aborted_total{{{C}}}{R}))", "aborted"),)),
            P(
                "Read from bookies, entries a second",
                "cps",
                ((f"sum(rate(bookkeeper_server_READ_ENTRY_count{{{C}}}{R}))", "entries"),),
            ),
            P("Delivered, bytes a second", "Bps", ((f"sum by (topic) (pulsar_throughput_out{{{T}}})", "{{topic}}"),)),
            P("In the lake", "bytes", ((f"sum by (topic) (pulsar_storage_offloaded_size{{{T}}})", "{{topic}}"),)),
        ),
    ),
)


def document(board: Board) -> dict[str, Any]:
    """As Grafana imports it: any Prometheus can be chosen as its source."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "source", "type": "datasource", "query": "prometheus"}
    ]
    variables += [
        {
            "name": name,
            "type": "query",
            "datasource": source,
            "query": query,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }
        for name, query in board.variables.items()
    ]
    return {
        "uid": board.file,
        "title": board.title,
        "tags": ["geminga"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {
                    "x": number % COLUMNS * WIDTH,
                    "y": number // COLUMNS * HEIGHT,
                    "w": WIDTH,
                    "h": HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + index), "datasource": source, "expr": query, "legendFormat": legend}
                    for index, (query, legend) in enumerate(panel.queries)
                ],
            }
            for number, panel in enumerate(board.panels)
        ],
    }


def text(board: Board) -> str:
    """Of its file."""
    return json.dumps(document(board), indent=2) + "\n"
