"""The administration client against a broker: what it sets is told back, errors have their kinds, threads share it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import geminga.admin
import geminga.admin.blocking
from geminga.admin.calls.policies import NAMESPACE_POLICIES, TOPIC_POLICIES
from geminga.admin.calls.row import WireType
from geminga.client import blocking

pytestmark = pytest.mark.integration

VALUES: dict[str, Any] = {
    "retention": {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100},
    "persistence": {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1},
    "compaction_threshold": 1 << 40,
    "delayed_delivery": {"active": True, "tickTime": 2000},
    "inactive_topics": {
        "deleteWhileInactive": True,
        "maxInactiveDurationSeconds": 60,
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    },
    "auto_subscription_creation": {"allowAutoSubscriptionCreation": False},
    "auto_topic_creation": {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    },
    "dispatch_rate": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 2},
    "subscription_dispatch_rate": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 2},
    "publish_rate": {"publishThrottlingRateInMsg": 7},
    "subscribe_rate": {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 9},
    "subscription_types_enabled": ["Shared"],
    "schema_compatibility_strategy": "FULL",
    "schema_auto_update_compatibility_strategy": "Full",
    "replication_clusters": ["standalone"],
    "allowed_clusters": ["standalone"],
    "anti_affinity_group": "apart",
    "max_message_size": 1000,
    "topic_property_keys_for_metrics": ["team"],
}
#: Their features are not built, what they need is not here, or they are told in other words.
LEFT_OUT = {
    "entry_filters", "replicator_dispatch_rate", "offload", "bookie_affinity_group", "subscription_auth_mode",
    "offload_threshold", "offload_threshold_s", "offload_deletion_lag_ms",
    "schema_auto_update_compatibility_strategy",
}  # fmt: skip


@pytest.fixture
def admin(broker):
    with geminga.admin.blocking.connect(broker.web_service_url) as client:
        yield client


def _is_told(found: Any, value: Any) -> bool:
    """What was set, and perhaps more members with what they are by default."""
    if isinstance(value, dict):
        return isinstance(found, dict) and all(found.get(key) == each for key, each in value.items())
    return bool(found == value)


@pytest.mark.parametrize("policies", [TOPIC_POLICIES, NAMESPACE_POLICIES], ids=lambda one: one.name)
def test_policies_are_set_and_removed(admin, namespace, policies) -> None:
    owner = namespace
    if policies is TOPIC_POLICIES:
        owner = f"persistent://{namespace}/one"
        admin.topics.create(owner)
    tried = 0
    for row in policies.policies:
        if row.name in LEFT_OUT:
            continue
        value = VALUES.get(row.name, True if row.kind is WireType.BOOL else 5)
        policy = getattr(getattr(admin, policies.name), row.name)
        before = policy.get(owner)
        policy.set(owner, value)
        assert _is_told(policy.get(owner), value), row.name
        if row.is_removable:
            policy.remove(owner)
            assert policy.get(owner) == before, row.name
        # The clusters of all clusters are refused where the namespace is in one.
        if policies is TOPIC_POLICIES and row.name != "replication_clusters":
            policy.set(owner, value, for_all_clusters=True)
            assert policy.get(owner) == before, row.name
            assert _is_told(policy.get(owner, for_all_clusters=True), value), row.name
            policy.remove(owner, for_all_clusters=True)
            assert policy.get(owner, for_all_clusters=True) == before, row.name
        tried += 1
    assert tried >= 17


def test_what_no_request_says_is_refused_before_it_is_sent(admin, namespace) -> None:
    pause = admin.namespace_policies.dispatcher_pause_on_ack_state_persistent
    with pytest.raises(ValueError, match="remove"):
        pause.set(namespace, False)
    for call in (pause.get, pause.remove, lambda owner, **given: pause.set(owner, True, **given)):
        with pytest.raises(ValueError, match="for topics"):
            call(namespace, for_all_clusters=True)


def test_topics_subscriptions_and_what_is_in_them(admin, broker, namespace) -> None:
    topic, whole = f"persistent://{namespace}/a b+c", f"persistent://{namespace}/whole"
    admin.topics.create(topic)
    admin.topics.create_partitioned(whole, 3)
    assert admin.topics.list_partitioned(namespace) == [whole]
    assert admin.topics.partitioned_metadata(whole)["partitions"] == 3
    admin.subscriptions.create(topic, "s+1 / 2", "earliest")
    assert admin.subscriptions.list(topic) == ["s+1 / 2"]
    with blocking.connect(broker.service_url) as client, client.create_producer(topic) as producer:
        sent = [producer.send(b"%d" % number, properties={"n": str(number)}) for number in range(3)]
    stored = admin.messages.get(topic, sent[1].ledger_id(), sent[1].entry_id())
    assert b"1" in stored.payload
    assert admin.messages.peek(topic, "s+1 / 2", "1").headers["x-pulsar-message-id"].endswith(":0")
    assert admin.messages.last_message_id(topic)["entryId"] == 2
    stats = admin.topics.stats(topic, precise_backlog=True)
    assert stats["subscriptions"]["s+1 / 2"]["msgBacklog"] == 3
    admin.subscriptions.skip(topic, "s+1 / 2", 2)
    assert admin.subscriptions.analyze_backlog(topic, "s+1 / 2")["entries"] == 1
    admin.subscriptions.delete(topic, "s+1 / 2")
    assert admin.topics.terminate(topic)["entryId"] == 2
    admin.topics.delete(topic)
    admin.topics.delete_partitioned(whole)
    assert admin.topics.list(namespace) == []
    assert admin.brokers.ready() == "ok"
    assert admin.brokers.version()
    with pytest.raises(geminga.admin.NotFoundError, match="404") as error:
        admin.topics.stats(topic)
    assert error.value.status == 404
    assert "not found" in error.value.reason.lower()
    admin.namespace_policies.encryption_required.set(namespace, True)
    assert admin.namespace_policies.encryption_required.get(namespace) is True
    with pytest.raises(geminga.admin.AdminError, match="Entry filter 'f' not found"):
        admin.namespace_policies.entry_filters.set(namespace, {"entryFilterNames": "f"})


def test_many_ask_at_once(broker, admin, namespace) -> None:
    names = [f"persistent://{namespace}/t{number}" for number in range(40)]

    async def ask() -> None:
        async with geminga.admin.connect(broker.web_service_url) as client:
            await asyncio.gather(*(client.topics.create(name) for name in names))
            found = await asyncio.gather(*(client.topics.stats(name) for name in names))
            assert [one["msgInCounter"] for one in found] == [0] * len(names)
            with pytest.raises(geminga.admin.ConflictError):
                await client.topics.create(names[0])

    asyncio.run(ask())
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(admin.topics.stats, names))
    assert len(found) == len(names)


def test_nobody_listens() -> None:
    with (
        geminga.admin.blocking.connect("http://127.0.0.1:1") as admin,
        pytest.raises(geminga.admin.UnreachableError, match=r"^GET http://127\.0\.0\.1:1/admin/v2/tenants: no answer"),
    ):
        admin.tenants.list()
