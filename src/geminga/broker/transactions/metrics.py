"""Transactions in ``/metrics``: coordinators and pending acknowledgments, by Pulsar's names, and what is held back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic
from geminga.broker.transactions.service import TransactionService
from geminga.transaction.coordinator import EXECUTION_BOUNDS_MS, TransactionCoordinator

Labels = tuple[tuple[str, str], ...]

#: Names of the buckets of how long transactions took.
EXECUTION_ENDINGS: Final = (*(f"le_{bound}" for bound in EXECUTION_BOUNDS_MS), "le_overflow")


def transaction_metrics(service: TransactionService, now_s: float) -> Iterator[tuple[Labels, Mapping[str, float]]]:
    """Labels, and the values that have them."""
    for number, coordinator in service.coordinators.open.items():
        yield (("coordinator_id", str(number)),), _of_coordinator(coordinator, now_s)
    held = service.alarm.now()
    values = {
        "geminga_txn_alarms_total": service.alarm.alarm_count,
        "geminga_txn_held_back_topics": held.topics,
        "geminga_txn_held_back_subscriptions": held.subscriptions,
        "geminga_txn_held_back_longest_seconds": held.longest_ms / 1000,
    }
    yield (), values


def _of_coordinator(coordinator: TransactionCoordinator, now_s: float) -> Mapping[str, float]:
    stats = coordinator.stats
    counts, _ = coordinator.execution_ms.window(now_s)
    totals = {
        "created": stats.begun,
        "committed": stats.committed,
        "aborted": stats.aborted,
        "timeout": stats.timed_out,
        "append_log": stats.appended,
    }
    return {
        "pulsar_txn_active_count": stats.active,
        **{f"pulsar_txn_{name}_total": count for name, count in totals.items()},
        # As older ones had them, which boards ask for still.
        **{f"pulsar_txn_{name}_count": count for name, count in totals.items()},
        **{
            f"pulsar_txn_execution_latency_{ending}": count
            for ending, count in zip(EXECUTION_ENDINGS, counts, strict=True)
        },
        "geminga_txn_ending_count": stats.telling,
    }


def pending_ack_metrics(topics: Iterable[Topic]) -> Iterator[tuple[Labels, Mapping[str, float]]]:
    """The same of each subscription that acknowledged in a transaction."""
    for topic in topics:
        for name, subscription in topic.subscriptions.items():
            acks = subscription.transactions.used if isinstance(subscription, Subscription) else None
            if acks is None or not any(acks.ended):
                continue
            labels = (("namespace", topic.name.namespace), ("topic", str(topic.name)), ("subscription", name))
            committed, aborted = acks.ended
            values = {
                "pulsar_txn_tp_committed_count_total": committed,
                "pulsar_txn_tp_aborted_count_total": aborted,
            }
            yield (*labels, ("status", "succeed")), values
