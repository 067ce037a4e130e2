"""``/metrics``: Prometheus text with Pulsar's metric names.

Everything is read when somebody scrapes; nothing is counted for its sake alone. With
``exposeTopicLevelMetricsInPrometheus`` there is a series per topic and subscription, otherwise per namespace.
Names and labels are those that Pulsar's dashboards use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.rest.stats import TopicStatistics, backlog_bytes, totals_out
from geminga.broker.subscription.stats import non_persistent_subscription_stats, subscription_stats
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic import PersistentTopic
from geminga.broker.topic_base import Topic

if TYPE_CHECKING:
    from geminga.broker.service import Broker

#: Metric -> value, of what another part of the process counts (the process itself, the bookie).
Source = Callable[[], Mapping[str, float]]
#: ``SubscriptionStats``.
Stats = dict[str, object]
Labels = tuple[tuple[str, str], ...]

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
}
#: Totals that have a series for each subscription where there are series for each topic, as in Pulsar.
BY_SUBSCRIPTION: Final = {"pulsar_out_messages_total": "msgOutCounter", "pulsar_out_bytes_total": "bytesOutCounter"}
#: Prometheus types of the names that do not follow from their ending.
COUNTERS: Final = frozenset(("process_cpu_seconds_total",))


class Metrics:
    """Writes the text; made once per process."""

    __slots__ = ("_broker", "_cluster", "_has_topic_level", "_sources", "_statistics")

    def __init__(
        self,
        broker: Broker,
        statistics: TopicStatistics,
        *,
        cluster: str,
        has_topic_level: bool,
        sources: Iterable[Source] = (),
    ) -> None:
        self._broker = broker
        self._statistics = statistics
        self._cluster = cluster
        self._has_topic_level = has_topic_level
        self._sources = tuple(sources)

    def text(self) -> str:
        """All metrics as they are now."""
        page = _Page()
        cluster: Labels = (("cluster", self._cluster),)
        totals: dict[str, float] = {}
        by_namespace: dict[str, dict[str, float]] = {}
        for topic in self._broker.topics.values():
            stats = {
                name: subscription_stats(item)
                if isinstance(item, Subscription)
                else non_persistent_subscription_stats(item)
                for name, item in topic.subscriptions.items()
            }
            values = self._topic_values(topic, stats)
            of_namespace = by_namespace.setdefault(topic.name.namespace, {"pulsar_topics_count": 0})
            of_namespace["pulsar_topics_count"] += 1
            for name, value in values.items():
                of_namespace[name] = of_namespace.get(name, 0) + value
            if self._has_topic_level:
                labels = (*cluster, ("namespace", topic.name.namespace), ("topic", str(topic.name)))
                page.add_all({name: value for name, value in values.items() if name not in BY_SUBSCRIPTION}, labels)
                _add_subscriptions(page, topic, stats, labels)
        for namespace, values in by_namespace.items():
            labels = (*cluster, ("namespace", namespace))
            # Series with and without a topic label must not be mixed: a sum over them would count twice.
            page.add("pulsar_topics_count", labels, values["pulsar_topics_count"])
            if not self._has_topic_level:
                self._add_namespace(page, labels, values)
            for name, value in values.items():
                totals[name] = totals.get(name, 0) + value
        self._add_broker(page, cluster, totals)
        for source in self._sources:
            page.add_all(source(), cluster)
        return page.text()

    @staticmethod
    def _add_namespace(page: _Page, labels: Labels, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            if name == "pulsar_msg_backlog":
                page.add(name, (*labels, ("remote_cluster", "local")), value)
            elif name not in ("pulsar_topics_count", "pulsar_average_msg_size"):
                page.add(name, labels, value)

    def _add_broker(self, page: _Page, cluster: Labels, totals: Mapping[str, float]) -> None:
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
            "msg_backlog",
        ):
            page.add(f"pulsar_broker_{name}", cluster, totals.get(f"pulsar_{name}", 0))
        broker = self._broker
        opened, active = broker.connections_opened, len(broker.connections)
        page.add("pulsar_active_connections", cluster, active)
        page.add("pulsar_connection_created_total_count", cluster, opened)
        page.add("pulsar_connection_closed_total_count", cluster, opened - active)
        for part, count in broker.failures.counts.items():
            page.add("geminga_failures_total", (*cluster, ("part", part)), count)

    def _topic_values(self, topic: Topic, stats: Mapping[str, Stats]) -> dict[str, float]:
        rate_in, throughput_in = self._statistics.rates_in(topic)
        messages_out, bytes_out = totals_out(topic)
        subscriptions = topic.subscriptions
        values: dict[str, float] = {
            "pulsar_subscriptions_count": len(subscriptions),
            "pulsar_producers_count": len(topic.producers),
            "pulsar_consumers_count": sum(len(item.consumers) for item in subscriptions.values()),
            "pulsar_rate_in": rate_in,
            "pulsar_throughput_in": throughput_in,
            "pulsar_in_messages_total": topic.messages_in,
            "pulsar_in_bytes_total": topic.bytes_in,
            "pulsar_out_messages_total": messages_out,
            "pulsar_out_bytes_total": bytes_out,
            "pulsar_average_msg_size": throughput_in / rate_in if rate_in else 0.0,
        }
        values["pulsar_rate_out"] = sum(_number_of(item, "msgRateOut") for item in stats.values())
        values["pulsar_throughput_out"] = sum(_number_of(item, "msgThroughputOut") for item in stats.values())
        if isinstance(topic, PersistentTopic):
            values["pulsar_storage_size"] = topic.ledger.size_bytes
            values["pulsar_storage_logical_size"] = topic.ledger.size_bytes
            values["pulsar_storage_backlog_size"] = backlog_bytes(topic)
            values["pulsar_storage_offloaded_size"] = 0
            values["pulsar_msg_backlog"] = sum(item.cursor.backlog_count for item in topic.subscriptions.values())
        return values


def _add_subscriptions(page: _Page, topic: Topic, stats: Mapping[str, Stats], labels: Labels) -> None:
    for name, subscription in topic.subscriptions.items():
        own = (*labels, ("subscription", name))
        page.add("pulsar_subscription_consumers_count", own, len(subscription.consumers))
        for metric, field in (*SUBSCRIPTION_METRICS.items(), *BY_SUBSCRIPTION.items()):
            page.add(metric, own, _number_of(stats[name], field))


def _number_of(stats: Stats, field: str) -> float:
    value = stats.get(field)
    return value if isinstance(value, int | float) else 0


class _Page:
    """Lines grouped by metric, as the format wants them."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, labels: Labels, value: float) -> None:
        """One sample."""
        text = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels)
        self._lines.setdefault(name, []).append(f"{name}{{{text}}} {_number(value)}")

    def add_all(self, values: Mapping[str, float], labels: Labels) -> None:
        """Samples of the same labels."""
        for name, value in values.items():
            self.add(name, labels, value)

    def text(self) -> str:
        """The page."""
        lines: list[str] = []
        for name, samples in self._lines.items():
            kind = "counter" if name.endswith(("_total", "_total_count")) or name in COUNTERS else "gauge"
            lines.append(f"# TYPE {name} {kind}")
            lines.extend(samples)
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
