"""What metrics of our own are, as ``# HELP`` says it; those of Pulsar and BookKeeper have none there either. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HELP: Final[Mapping[str, str]] = {
    "geminga_authorization_refused_total": "Requests that a role had no right to, by kind.",
    "geminga_authorization_sent_away_total": "Producers and consumers closed because their role lost a right.",
    "geminga_bookie_connections": "Open connections to this bookie.",
    "geminga_bookie_half_frame_bytes": "Bytes kept of frames that have not come whole.",
    "geminga_bookie_unanswered_bytes": "Bytes of requests that are not answered yet.",
    "geminga_bookie_unread_bytes": "Bytes of answers that clients have not read.",
    "geminga_cluster_brokers": "Brokers that are registered.",
    "geminga_cluster_is_leader": "1 at the broker that leads load management.",
    "geminga_compaction_failures_in_a_row": "Compactions that failed since the last one that did not.",
    "geminga_entry_filter_batches_total": "Batches of entries that entry filters answered.",
    "geminga_entry_filter_cut_off_total": "Processes of entry filters that took too long or broke, and were ended.",
    "geminga_entry_filter_failing": "Chains of entry filters whose last answer was none in time.",
    "geminga_entry_filter_processes": "Processes of entry filters that run or start.",
    "geminga_entry_filter_starts_total": "Processes of entry filters that were started.",
    "geminga_entry_filter_waiting_batches": "Batches of entries that wait for a process of entry filters.",
    "geminga_failures_total": "What broke and should not have, by the part that broke; the log says what.",
    "geminga_foreign_ledgers": "Ledgers that are not of this cluster's brokers.",
    "geminga_lookups_waiting": "Lookups that wait for a broker that was killed to be given up.",
    "geminga_metrics_series": "Series on this page.",
    "geminga_metrics_topics_left_out": "Topics without series, for there are gemingaMetricsSeriesMax already.",
    "geminga_orphan_ledgers_deleted_total": "Ledgers that belonged to nothing and were deleted.",
    "geminga_orphan_ledgers_held": "Ledgers that belong to nothing and that something keeps from being deleted.",
    "geminga_orphan_ledgers_unclaimed": "Ledgers of which nothing says whose they are.",
    "geminga_orphan_ledgers_waiting": "Ledgers that belong to nothing and are looked at again before they are deleted.",
    "geminga_owned_bundles": "Bundles that this broker owns.",
    "geminga_proxy_requests_under_way": "Requests of clients that brokers are being asked.",
    "geminga_replicated_subscriptions_held_topics": "Topics that can make no snapshot of replicated subscriptions now.",
    "geminga_subscription_backlog_bytes": "Bytes that the subscription has not acknowledged.",
    "geminga_topic_loads_waiting": "Loads of topics that wait for their turn.",
    "geminga_txn_alarms_total": "How often the log told of readers that open transactions hold back.",
    "geminga_txn_ending_count": "Transactions that ended and whose topics are being told.",
    "geminga_txn_held_back_longest_seconds": "How long an open transaction has held readers back.",
    "geminga_txn_held_back_subscriptions": "Subscriptions whose readers open transactions hold back.",
    "geminga_txn_held_back_topics": "Topics whose readers open transactions hold back.",
    "process_cpu_seconds_total": "CPU seconds of the process.",
    "process_max_fds": "File descriptors that the process may have open.",
    "process_open_fds": "File descriptors that the process has open.",
    "process_resident_memory_bytes": "Resident memory of the process.",
    "process_start_time_seconds": "When the process started, seconds since the epoch.",
    "process_virtual_memory_bytes": "Virtual memory of the process.",
}
