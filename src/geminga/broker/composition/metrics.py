"""``/metrics``: Prometheus text with Pulsar's metric names.

Everything is read when somebody scrapes; nothing is counted for its sake alone. With
``exposeTopicLevelMetricsInPrometheus`` there is a series per topic and subscription, otherwise per namespace.
Names and labels are those that Pulsar's dashboards use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from geminga.broker.compaction.part import TopicCompaction
from geminga.broker.composition.metric_levels import (
    BY_TOPIC,
    LATENCY_ENDINGS,
    ONLY_SUMMED,
    SIZE_ENDINGS,
    MetricLevels,
    Row,
    consumer_rows,
    cursor_rows,
    ledger_rows,
    producer_rows,
)
from geminga.broker.statistics.replication import REPLICATION_METRICS, replicated_subscription_counts, replication_stats
from geminga.broker.statistics.topics import TopicStatistics, backlog_bytes, totals_out
from geminga.broker.subscription.rates import Rates
from geminga.broker.subscription.stats import subscription_counts
from geminga.broker.topic.delays import delays_stats
from geminga.broker.topic.persistent import PersistentTopic
from geminga.model.histogram import Spread
from geminga.runtime import AskedTogether, Turns, get_logger

if TYPE_CHECKING:
    from geminga.broker.admission.topic_schemas import Schemas
    from geminga.broker.composition.metric_labels import TopicLabels
    from geminga.broker.composition.service import Broker
    from geminga.broker.topic.base import Topic
    from geminga.model.exposition import Labels, Page, Source
    from geminga.model.histogram import Quantiles

    #: What another process said: labels, and values by name.
    Said = Iterable[tuple[Labels, Mapping[str, float | Quantiles]]]

#: ``SubscriptionStats``.
Stats = dict[str, object]

#: Subscription metrics: name -> field of ``SubscriptionStats``.
SUBSCRIPTION_METRICS: Final = {
    "pulsar_subscription_back_log": "msgBacklog",
    "pulsar_subscription_back_log_no_delayed": "msgBacklogNoDelayed",
    "pulsar_subscription_delayed": "msgDelayed",
    "pulsar_subscription_msg_rate_redeliver": "msgRateRedeliver",
    "pulsar_subscription_unacked_messages": "unackedMessages",
    "pulsar_subscription_blocked_on_unacked_messages": "blockedSubscriptionOnUnackedMsgs",
    "pulsar_subscription_msg_drop_rate": "msgDropRate",
    "pulsar_subscription_msg_rate_out": "msgRateOut",
    "pulsar_subscription_msg_throughput_out": "msgThroughputOut",
    "pulsar_subscription_msg_ack_rate": "messageAckRate",
    "pulsar_subscription_in_replay": "msgInReplay",
    "pulsar_subscription_last_expire_timestamp": "lastExpireTimestamp",
    "pulsar_subscription_msg_rate_expired": "msgRateExpired",
    "pulsar_subscription_total_msg_expired": "totalMsgExpired",
    "pulsar_subscription_last_acked_timestamp": "lastAckedTimestamp",
    "pulsar_subscription_last_consumed_timestamp": "lastConsumedTimestamp",
    "pulsar_subscription_last_consumed_flow_timestamp": "lastConsumedFlowTimestamp",
    "pulsar_subscription_last_mark_delete_advanced_timestamp": "lastMarkDeleteAdvancedTimestamp",
    "pulsar_subscription_delayed_message_index_size_bytes": "delayedMessageIndexSizeInBytes",
    "pulsar_subscription_filter_processed_msg_count": "filterProcessedMsgCount",
    "pulsar_subscription_filter_accepted_msg_count": "filterAcceptedMsgCount",
    "pulsar_subscription_filter_rejected_msg_count": "filterRejectedMsgCount",
    "pulsar_subscription_filter_rescheduled_msg_count": "filterRescheduledMsgCount",
}
#: Of a topic, and without a sum over the topics of a namespace.
OF_ONE_TOPIC: Final = frozenset(
    ("pulsar_average_msg_size", "pulsar_storage_backlog_quota_limit", "pulsar_storage_backlog_quota_limit_time")
)
#: Transactions of a topic that are open, aborted and committed.
OF_TRANSACTION_BUFFERS: Final = (
    "pulsar_txn_tb_active_total",
    "pulsar_txn_tb_aborted_total",
    "pulsar_txn_tb_committed_total",
)
#: As Pulsar has them for ``pulsar_broker_publish_latency``.
PUBLISH_QUANTILES: Final = (0.0, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)
#: Totals that have a series for each subscription where there are series for each topic, as in Pulsar.
BY_SUBSCRIPTION: Final = {"pulsar_out_messages_total": "msgOutCounter", "pulsar_out_bytes_total": "bytesOutCounter"}
#: What is summed over topics and told of something else.
NOT_OF_TOPICS: Final = ONLY_SUMMED.union(BY_SUBSCRIPTION)

#: Topics and subscriptions of one turn at most, where their time does not end it sooner.
STEPS_PER_TURN: Final = 64
#: Of topics without labels of their own.
NO_LABELS: Final[Mapping[str, Labels]] = MappingProxyType({})

_log = get_logger(__name__)


class Metrics:
    """Writes the text; made once per process."""

    __slots__ = (
        "_broker",
        "_bundle_rows",
        "_cache_rates",
        "_cluster",
        "_elsewhere",
        "_health",
        "_levels",
        "_load_rows",
        "_pages",
        "_rows",
        "_said_left_out",
        "_sources",
        "_statistics",
        "_topic_labels",
    )

    def __init__(
        self,
        broker: Broker,
        statistics: TopicStatistics,
        *,
        cluster: str,
        levels: MetricLevels = BY_TOPIC,
        sources: Iterable[Source] = (),
        labelled: Iterable[tuple[Labels, Source]] = (),
        elsewhere: Callable[[], Awaitable[Said]] | None = None,
        rows: Callable[[], Iterable[Row]] = tuple,
        load_rows: Callable[[], Iterable[Row]] = tuple,
        bundle_rows: Callable[[], Iterable[Row]] = tuple,
        health: Callable[[], bool] | None = None,
    ) -> None:
        """``labelled``: sources of which there may be several with the same names, and what tells them apart.

        ``elsewhere``: asks for what such sources say in a process that belongs to this one. ``rows``: samples with
        labels that are not known before; ``load_rows`` and ``bundle_rows``: the same, of this broker and its bundles.
        ``health``: whether it serves and has bookies to write to.
        """
        self._broker = broker
        self._statistics = statistics
        self._cluster = cluster
        self._levels = levels
        self._load_rows = load_rows
        self._bundle_rows = bundle_rows
        self._health = health
        self._said_left_out = False
        #: Properties of topics; None: they are not wanted, or nobody has asked yet.
        self._topic_labels: TopicLabels | None = None
        self._cache_rates = Rates()
        self._sources = (*(((), source) for source in sources), *labelled)
        self._elsewhere = elsewhere
        self._rows = rows
        self._pages: AskedTogether[None, bytes] = AskedTogether()

    async def page(self) -> bytes:
        """All metrics as they are now, here and elsewhere; who asks while they are written shares the next page."""
        return await self._pages.ask(None, self._write)

    async def _write(self) -> bytes:
        if self._levels.properties and self._topic_labels is None:
            from geminga.broker.composition.metric_labels import TopicLabels  # only where they are wanted

            self._topic_labels = TopicLabels(self._broker)
        own = await self._topic_labels.now() if self._topic_labels is not None else {}
        walk = self._topic_by_topic(await self._elsewhere() if self._elsewhere is not None else (), own)
        turns = Turns(self._broker.runtime.clock, steps_max=STEPS_PER_TURN)
        for whole in walk:
            # Some 60 series a topic, 30 a subscription: a thousand at once would hold up everybody for a large part of
            # a second.
            if whole is None and turns.is_over():
                await turns.next()
        return (whole or "").encode()

    def text(self) -> str:
        """All metrics as they are now in this process, at once."""
        return [*self._topic_by_topic((), NO_LABELS)][-1] or ""

    def _topic_by_topic(self, elsewhere: Said, own: Mapping[str, Labels]) -> Iterator[str | None]:
        """None before each topic and subscription, then the text. ``elsewhere``: what other processes said; ``own``: of
        topics."""
        from geminga.model.exposition import Page  # not at a start, for nobody has asked

        page, levels, left_out = Page(), self._levels, 0
        cluster: Labels = (("cluster", self._cluster),)
        totals: dict[str, float] = {}
        by_namespace: dict[str, dict[str, float]] = {}
        by_remote: dict[tuple[str, str], dict[str, float]] = {}
        loaded = self._broker.topics
        for name, topic in list(loaded.items()):
            yield None
            is_told = page.series < levels.series_max
            of_topic = (*levels.labels_of(topic.name), *own.get(name, ()))
            labels = (*cluster, ("namespace", topic.name.namespace), *of_topic)
            rates_out = [0.0, 0.0]
            yield from self._subscription_by_subscription(page if is_told else None, topic, labels, rates_out)
            if loaded.get(name) is not topic:
                continue  # it went meanwhile
            left_out += not is_told
            values = self._topic_values(topic, *rates_out)
            replication = replication_stats(topic, self._broker.runtime.clock)
            for remote, document in replication.items():
                of_remote = by_remote.setdefault((topic.name.namespace, remote), {})
                for metric, field in REPLICATION_METRICS.items():
                    of_remote[metric] = of_remote.get(metric, 0) + _number_of(document, field)
            of_namespace = by_namespace.setdefault(topic.name.namespace, {"pulsar_topics_count": 0})
            of_namespace["pulsar_topics_count"] += 1
            for metric, value in values.items():
                of_namespace[metric] = of_namespace.get(metric, 0) + value
            if is_told and levels.topics:
                page.add_all({metric: value for metric, value in values.items() if metric not in NOT_OF_TOPICS}, labels)
                for remote, document in replication.items():
                    for metric, field in REPLICATION_METRICS.items():
                        page.add(metric, (*labels, ("remote_cluster", remote)), _number_of(document, field))
                if levels.producers:
                    yield from _rows_in_turns(page, labels, producer_rows(topic, self._statistics))
            if is_told and levels.cursors:
                yield from _rows_in_turns(page, cluster, cursor_rows(topic))
        self._add_sums(page, cluster, by_namespace, by_remote, totals)
        self._add_broker(page, cluster, totals)
        self._add_transactions(page, cluster)
        self._add_schemas(page, cluster)
        self._add_authorization(page, cluster)
        for labels, source in self._sources:
            page.add_source(source, (*cluster, *labels))
        _add_rows(page, cluster, self._rows())
        of_broker = (*cluster, ("broker", self._host))
        _add_rows(page, of_broker, self._load_rows())
        if levels.bundles:
            _add_rows(page, of_broker, self._bundle_rows())
        for labels, said in elsewhere:
            page.add_said(said, (*cluster, *labels))
        self._tell_left_out(page, cluster, left_out)
        yield None
        yield page.text()

    def _add_sums(
        self,
        page: Page,
        cluster: Labels,
        by_namespace: Mapping[str, Mapping[str, float]],
        by_remote: Mapping[tuple[str, str], Mapping[str, float]],
        totals: dict[str, float],
    ) -> None:
        """Of namespaces, and of clusters that they are copied to; ``totals`` gets the broker's."""
        levels = self._levels
        if not levels.topics:
            for (namespace, remote), values in by_remote.items():
                page.add_all(values, (*cluster, ("namespace", namespace), ("remote_cluster", remote)))
        for namespace, values in by_namespace.items():
            labels = (*cluster, ("namespace", namespace))
            # Series with and without a topic label must not be mixed: a sum over them would count twice.
            page.add("pulsar_topics_count", labels, values["pulsar_topics_count"])
            if levels.managed_ledgers:
                _add_rows(page, cluster, ledger_rows(namespace, values))
            if not levels.topics:
                self._add_namespace(page, labels, values)
            for name, value in values.items():
                totals[name] = totals.get(name, 0) + value

    @property
    def _host(self) -> str:
        """As Pulsar names a broker in a label."""
        return self._broker.web_url.partition("://")[2].rpartition(":")[0]

    def _tell_left_out(self, page: Page, cluster: Labels, left_out: int) -> None:
        """How many series there are, and how many topics have none because there would be too many."""
        if left_out and not self._said_left_out:
            self._said_left_out = True
            _log.warning(
                "metrics: %d topics have no series, for there are gemingaMetricsSeriesMax=%d already; totals of the "
                "broker are of all; exposeTopicLevelMetricsInPrometheus=false has series for each namespace instead",
                left_out,
                self._levels.series_max,
            )
        page.add("geminga_metrics_topics_left_out", cluster, left_out)
        page.add("geminga_metrics_series", cluster, page.series + 1)

    def _subscription_by_subscription(
        self, page: Page | None, topic: Topic, labels: Labels, rates_out: list[float]
    ) -> Iterator[None]:
        """Their series, and consumers', where they are wanted; ``rates_out`` gets the sums of messages and bytes."""
        levels = self._levels
        for name, subscription in [*topic.subscriptions.items()]:
            yield None
            if topic.subscriptions.get(name) is not subscription:
                continue  # it went meanwhile
            stats = subscription_counts(subscription)
            for index, field in enumerate(("msgRateOut", "msgThroughputOut")):
                rates_out[index] += _number_of(stats, field)
            if page is None or not levels.topics:
                continue
            own = (*labels, ("subscription", name))
            _add_subscription(page, own, len(subscription.consumers), stats)
            if levels.subscription_backlog_size:
                page.add("geminga_subscription_backlog_bytes", own, _number_of(stats, "backlogSize"))
            if levels.consumers:
                yield from _rows_in_turns(page, own, consumer_rows(subscription))

    @staticmethod
    def _add_namespace(page: Page, labels: Labels, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name == "pulsar_msg_backlog":
                page.add(name, (*labels, ("remote_cluster", "local")), value)
            elif name != "pulsar_topics_count" and name not in OF_ONE_TOPIC and name not in ONLY_SUMMED:
                page.add(name, labels, value)

    def _add_broker(self, page: Page, cluster: Labels, totals: Mapping[str, float]) -> None:
        for name in (
            "topics_count",
            "subscriptions_count",
            "producers_count",
            "consumers_count",
            "rate_in",
            "throughput_in",
            "rate_out",
            "throughput_out",
            "storage_size",
            "storage_logical_size",
            "storage_write_rate",
            "storage_read_rate",
            "storage_read_cache_misses_rate",
            "msg_backlog",
        ):
            page.add(f"pulsar_broker_{name}", cluster, totals.get(f"pulsar_{name}", 0))
        broker = self._broker
        latency = broker.publish_latency.quantiles(broker.runtime.clock.monotonic(), PUBLISH_QUANTILES)
        page.add_summary("pulsar_broker_publish_latency", cluster, latency)
        page.add("pulsar_version_info", (*cluster, ("version", broker.version), ("commit", "")), 1)
        if self._health is not None:
            of_health = (*cluster, ("broker", self._host), ("metric", "broker_health"))
            page.add("pulsar_health", of_health, float(self._health()))
        opened, active = broker.connections.opened_count, len(broker.connections.open)
        refused = broker.connections.refused_count
        of_broker = (*cluster, ("broker", self._host), ("metric", "broker_connection"))
        page.add("pulsar_connection_create_success_count", of_broker, opened - refused)
        page.add("pulsar_connection_create_fail_count", of_broker, refused)
        page.add("pulsar_active_connections", of_broker, active)
        page.add_said(replicated_subscription_counts(), cluster)
        page.add_all(broker.entry_filters.counts(), cluster)
        for labels, values in broker.groups.rows():
            page.add_all(values, (*cluster, *labels))
        page.add("pulsar_connection_created_total_count", of_broker, opened)
        page.add("pulsar_connection_closed_total_count", of_broker, opened - active)
        for is_system in (False, True):
            topics = [topic for topic in broker.topics.values() if topic.name.is_system is is_system]
            told = "true" if is_system else "false"
            bytes_in = sum(topic.publishing.bytes_in for topic in topics)
            page.add("pulsar_broker_in_bytes_total", (*cluster, ("system_topic", told)), bytes_in)
            # Of subscriptions that the broker makes for itself, which it has none of.
            bytes_out = 0 if is_system else totals.get("pulsar_out_bytes_total", 0)
            page.add("pulsar_broker_out_bytes_total", (*cluster, ("system_subscription", told)), bytes_out)
        cache = broker.ledgers.cache
        page.add(
            "pulsar_ml_count", cluster, sum(isinstance(topic, PersistentTopic) for topic in broker.topics.values())
        )
        page.add("pulsar_ml_cache_used_size", cluster, cache.size_bytes)
        page.add("pulsar_ml_cache_evictions", cluster, cache.evictions)
        hits, misses = self._cache_rates.update(broker.runtime.clock.monotonic(), (cache.hits, cache.misses))
        page.add("pulsar_ml_cache_hits_rate", cluster, hits)
        page.add("pulsar_ml_cache_misses_rate", cluster, misses)
        for part, count in broker.failures.counts.items():
            page.add("geminga_failures_total", (*cluster, ("part", part)), count)
        page.add("geminga_policies_not_followed", cluster, broker.policies.topics.retries.count)

    def _add_transactions(self, page: Page, cluster: Labels) -> None:
        broker = self._broker
        if broker.late_transactions.used is None:
            return  # there was none yet
        from geminga.broker.transactions.metrics import pending_ack_metrics, transaction_metrics

        for labels, values in transaction_metrics(broker.use_transactions(), broker.runtime.clock.monotonic()):
            page.add_all(values, (*cluster, *labels))
        if self._levels.topics:
            for labels, values in pending_ack_metrics(broker.topics.values()):
                page.add_all(values, (*cluster, *labels))

    def _add_schemas(self, page: Page, cluster: Labels) -> None:
        # As long as nobody asked for any they are not loaded, nor are they for this.
        schemas: Schemas | None = vars(self._broker).get("schemas")
        if schemas is not None:
            for namespace, said in schemas.registry.operations.metrics():
                page.add_said(said, (*cluster, ("namespace", namespace)))

    def _add_authorization(self, page: Page, cluster: Labels) -> None:
        authorization = self._broker.authorization
        if authorization is not None:
            for kind, count in authorization.refused.items():
                page.add("geminga_authorization_refused_total", (*cluster, ("kind", kind)), count)
            page.add("geminga_authorization_sent_away_total", cluster, authorization.lost_rights.sent_away)

    def _storage_values(self, topic: PersistentTopic) -> dict[str, float]:
        """Rates of entries, and how long and how large they were; the latter only of what was published to."""
        now_s = self._broker.runtime.clock.monotonic()
        appender = topic.ledger.appender
        stats = appender.stats if appender is not None else None
        reads = [item.cursor.reading.entries_read for item in topic.subscriptions.values()]
        if topic.storage_rates is None:
            topic.storage_rates = Rates()
        counters = (
            stats.sizes.count if stats is not None else 0,
            sum(entries for entries, _ in reads),
            sum(misses for _, misses in reads),
            int(stats.sizes.total) if stats is not None else 0,
        )
        rates = topic.storage_rates.update(now_s, counters)
        values: dict[str, float] = {
            "pulsar_storage_write_rate": rates[0],
            "pulsar_storage_read_rate": rates[1],
            "pulsar_storage_read_cache_misses_rate": rates[2],
            "write_bytes_rate": rates[3],
            "written_entries": counters[0],
        }
        if stats is not None:
            written, of_ledger = stats.latencies(now_s)
            values |= _spread_values("pulsar_entry_size", stats.sizes.window(now_s), SIZE_ENDINGS)
            values |= _spread_values("pulsar_storage_write_latency", written, LATENCY_ENDINGS)
            values |= _spread_values("pulsar_storage_ledger_write_latency", of_ledger, LATENCY_ENDINGS)
        return values

    def _topic_values(self, topic: Topic, rate_out: float, throughput_out: float) -> dict[str, float]:
        rate_in, throughput_in = self._statistics.rates_in(topic)
        messages_out, bytes_out = totals_out(topic)
        subscriptions = topic.subscriptions
        values: dict[str, float] = {
            "pulsar_subscriptions_count": len(subscriptions),
            "pulsar_producers_count": len(topic.producers),
            "pulsar_consumers_count": sum(len(item.consumers) for item in subscriptions.values()),
            "pulsar_rate_in": rate_in,
            "pulsar_rate_out": rate_out,
            "pulsar_throughput_out": throughput_out,
            "pulsar_throughput_in": throughput_in,
            "pulsar_in_messages_total": topic.publishing.messages_in,
            "pulsar_in_bytes_total": topic.publishing.bytes_in,
            "pulsar_out_messages_total": messages_out,
            "pulsar_out_bytes_total": bytes_out,
            "pulsar_average_msg_size": throughput_in / rate_in if rate_in else 0.0,
        }
        if isinstance(topic, PersistentTopic):
            values["pulsar_storage_size"] = topic.ledger.ledgers.size_bytes
            values["pulsar_storage_logical_size"] = topic.ledger.ledgers.size_bytes
            values["pulsar_storage_backlog_size"] = backlog_bytes(topic)
            values["pulsar_storage_offloaded_size"] = topic.ledger.ledgers.offloaded_bytes
            values["pulsar_publish_rate_limit_times"] = topic.throttles.publish_limited_times
            values["pulsar_delayed_message_index_size_bytes"] = delays_stats(topic).get("memoryBytes", 0)
            values |= _quota_values(topic)
            values |= self._storage_values(topic)
            values |= _compaction_values(topic, self._broker.runtime.clock.monotonic())
            if topic.services.has_transactions:
                buffer = topic.transaction_buffer
                counts = buffer.state.counts() if buffer is not None and buffer.state is not None else (0, 0, 0)
                values |= zip(OF_TRANSACTION_BUFFERS, counts, strict=True)
            values["pulsar_msg_backlog"] = sum(item.cursor.backlog_count for item in topic.subscriptions.values())
        return values


def _quota_values(topic: PersistentTopic) -> dict[str, float]:
    size, age = topic.rules.size_quota, topic.rules.age_quota
    return {
        "pulsar_storage_backlog_quota_limit": size.limit if size is not None else -1,
        "pulsar_storage_backlog_quota_limit_time": age.limit // 1000 if age is not None else -1,
    }


def _compaction_values(topic: PersistentTopic, now_s: float) -> dict[str, float]:
    """Of a topic that was compacted, or could not be, since it was loaded; what is served also of others."""
    part = topic.parts.find(TopicCompaction)
    values: dict[str, float] = {}
    if part is not None and part.record is not None:
        values, latencies = part.record.metrics(now_s)
        values |= _spread_values("pulsar_compaction_latency", latencies, LATENCY_ENDINGS)
        values["geminga_compaction_failures_in_a_row"] = part.record.failures_in_a_row
    served = part.served if part is not None else None
    if served is not None and served.info is not None:
        values["pulsar_compaction_compacted_entries_count"] = served.info.entries
        values["pulsar_compaction_compacted_entries_size"] = served.info.size_bytes
    return values


def _spread_values(name: str, spread: Spread, endings: Iterable[str]) -> dict[str, float]:
    """As Pulsar tells it: each count is of its own bucket, of the window before the question."""
    counts, total = spread
    values: dict[str, float] = {f"{name}_{ending}": count for ending, count in zip(endings, counts, strict=True)}
    values[f"{name}_count"] = sum(counts)
    values[f"{name}_sum"] = round(total)
    return values


def _add_subscription(page: Page, labels: Labels, consumers: int, stats: Stats) -> None:
    page.add("pulsar_subscription_consumers_count", labels, consumers)
    for metric, field in (*SUBSCRIPTION_METRICS.items(), *BY_SUBSCRIPTION.items()):
        page.add(metric, labels, _number_of(stats, field))
    for metric, kind in (("msg", "Msg"), ("bytes", "Bytes")):
        for level in ("Subscription", "Topic", "Broker"):
            count = _number_of(stats, f"dispatchThrottled{kind}EventsBy{level}Limit")
            if count:  # six more series for each subscription, of which most never are held
                reason = (*labels, ("reason", level.lower()))
                page.add(f"pulsar_subscription_dispatch_throttled_{metric}_events", reason, count)


def _add_rows(page: Page, labels: Labels, rows: Iterable[Row]) -> None:
    for own, values in rows:
        page.add_all(values, (*labels, *own))


def _rows_in_turns(page: Page, labels: Labels, rows: Iterable[Row]) -> Iterator[None]:
    for own, values in rows:
        page.add_all(values, (*labels, *own))
        yield None


def _number_of(stats: Mapping[str, object], field: str) -> float:
    value = stats.get(field)
    return value if isinstance(value, int | float) else 0
