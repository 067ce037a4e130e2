"""Policies of topics by REST, and backlog quotas as the official client meets them."""

from __future__ import annotations

import pulsar
import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

QUOTA = {"limit": 10_000, "limitSize": 10_000, "limitTime": -1, "policy": "producer_exception"}


@pytest.fixture
def path(rest: Rest, namespace: str) -> str:
    rest.put(f"persistent/{namespace}/topic")
    return f"persistent/{namespace}/topic"


@pytest.mark.parametrize(
    ("policy", "value", "applied"),
    [
        (
            "retention",
            {"retentionTimeInMinutes": 5, "retentionSizeInMB": 7},
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        ),
        ("deduplicationEnabled", True, False),
        ("deduplicationSnapshotInterval", 60, 120),
        ("maxUnackedMessagesOnConsumer", 0, 50_000),
        ("maxUnackedMessagesOnSubscription", 7, 200_000),
        ("subscriptionTypesEnabled", ["Failover", "Key_Shared"], ["Exclusive", "Shared", "Failover", "Key_Shared"]),
    ],
)
def test_policy_is_unset_then_set_then_removed(
    rest: Rest, path: str, policy: str, value: object, applied: object
) -> None:
    unset = rest.get(f"{path}/{policy}")
    assert (unset.status, unset.body) == (204 if policy == "subscriptionTypesEnabled" else 200, b"")
    assert rest.get(f"{path}/{policy}?applied=true").json == applied
    assert rest.post(f"{path}/{policy}", value).status == 204
    assert rest.get(f"{path}/{policy}").json == value
    assert rest.get(f"{path}/{policy}?applied=true").json == value
    assert rest.delete(f"{path}/{policy}").status == 204
    assert rest.get(f"{path}/{policy}").body == b""


def test_time_to_live_comes_in_the_query(rest: Rest, path: str) -> None:
    assert rest.post(f"{path}/messageTTL?messageTTL=60").status == 204
    assert rest.get(f"{path}/messageTTL").json == 60
    assert rest.delete(f"{path}/messageTTL").status == 204
    assert rest.get(f"{path}/messageTTL").body == b""
    refused = rest.post(f"{path}/messageTTL?messageTTL=soon")
    assert refused.status == 404
    assert "whole number" in refused.reason
    assert rest.post(f"{path}/messageTTL?messageTTL=-1").reason == "Invalid value for message TTL"
    assert rest.post(f"{path}/messageTTL?messageTTL=7").status == 204
    assert rest.post(f"{path}/messageTTL").status == 204
    assert rest.get(f"{path}/messageTTL").body == b""


@pytest.mark.parametrize("policy", ["deduplicationEnabled", "maxUnackedMessagesOnConsumer", "delayedDelivery"])
@pytest.mark.parametrize("raw", [b"", b"null"])
def test_nothing_instead_of_a_value_takes_a_policy_away(rest: Rest, path: str, policy: str, raw: bytes) -> None:
    value = {"tickTime": 100, "active": True} if policy == "delayedDelivery" else 1
    assert rest.post(f"{path}/{policy}", value).status == 204
    assert rest.get(f"{path}/{policy}").body
    assert rest.call("POST", f"{path}/{policy}", raw=raw).status == 204
    assert rest.get(f"{path}/{policy}").body == b""


def test_a_partition_has_no_policies_of_its_own(rest: Rest, namespace: str) -> None:
    assert rest.put(f"persistent/{namespace}/p/partitions", 2).status == 204
    for method in ("GET", "POST", "DELETE"):
        refused = rest.call(method, f"persistent/{namespace}/p-partition-0/deduplicationEnabled", True)
        assert (refused.status, refused.reason) == (412, "Not allowed to set/get topic policy for a partition")


def test_backlog_quotas_are_kept_by_type(rest: Rest, path: str) -> None:
    assert rest.get(f"{path}/backlogQuotaMap").json == {}
    assert rest.post(f"{path}/backlogQuota", QUOTA).status == 204
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    assert rest.post(f"{path}/backlogQuota?backlogQuotaType=message_age", age).status == 204
    found = rest.get(f"{path}/backlogQuotaMap").json
    assert found["destination_storage"]["limitSize"] == 10_000
    assert found["message_age"]["policy"] == "consumer_backlog_eviction"
    assert rest.delete(f"{path}/backlogQuota?backlogQuotaType=message_age").status == 204
    assert set(rest.get(f"{path}/backlogQuotaMap").json) == {"destination_storage"}


def test_applied_quota_is_the_namespace_s_when_the_topic_has_none(rest: Rest, namespace: str, path: str) -> None:
    assert rest.post(f"namespaces/{namespace}/backlogQuota", QUOTA).status == 204
    assert rest.get(f"{path}/backlogQuotaMap").json == {}
    applied = rest.get(f"{path}/backlogQuotaMap?applied=true").json
    assert applied["destination_storage"]["limitSize"] == 10_000


@pytest.mark.parametrize(
    ("policy", "body"),
    [
        ("retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0}),
        ("retention", {"retentionTimeInMinutes": 1 << 31, "retentionSizeInMB": 1}),
        ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1 << 63}),
        ("retention", {"retentionTimeInMinutes": True, "retentionSizeInMB": True}),
        ("backlogQuota", {"limitSize": 5, "policy": "forget_everything"}),
        ("backlogQuota", {"limitSize": 1 << 63, "policy": "producer_exception"}),
        ("backlogQuota", {"limitTime": 1 << 31, "policy": "producer_exception"}),
        ("delayedDelivery", {"active": True, "tickTime": 1 << 63}),
        ("backlogQuota", {"limitSize": -7, "policy": "producer_exception"}),
        ("deduplicationEnabled", "perhaps"),
        ("maxUnackedMessagesOnConsumer", -1),
        ("maxUnackedMessagesOnSubscription", 1.5),
        ("subscriptionTypesEnabled", ["Exclusive", "Fanout"]),
        ("subscriptionTypesEnabled", {"Exclusive": True}),
    ],
)
def test_senseless_policy_is_refused_with_what_was_expected(rest: Rest, path: str, policy: str, body: object) -> None:
    answer = rest.post(f"{path}/{policy}", body)
    assert answer.status in (400, 412)
    assert len(answer.json["reason"]) > 20


@pytest.mark.parametrize("level", ["namespace", "topic"])
def test_fields_that_a_policy_has_not_are_passed_over(rest: Rest, namespace: str, path: str, level: str) -> None:
    """Stored with the others they made the event of a topic's policies one that could not be written."""
    path = path if level == "topic" else f"namespaces/{namespace}"
    assert rest.post(f"{path}/retention", {"ledgerId": 0}).status == 204
    assert rest.get(f"{path}/retention").json == {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    assert rest.post(f"{path}/backlogQuota", {**QUOTA, "x": [1], "other": None}).status == 204
    assert rest.get(f"{path}/backlogQuotaMap").json == {"destination_storage": QUOTA}


def test_policies_of_a_topic_that_is_not_there_are_refused(rest: Rest, namespace: str) -> None:
    assert rest.get(f"persistent/{namespace}/nowhere/retention").status == 404
    assert rest.post(f"persistent/{namespace}/nowhere/deduplicationEnabled", True).status == 404
    assert rest.post(f"non-persistent/{namespace}/nowhere/deduplicationEnabled", True).status == 404
    # What is missing is said before what is wrong.
    assert rest.post(f"persistent/{namespace}/nowhere/retention?isGlobal=true", {}).status == 404
    assert rest.post(f"persistent/{namespace}/nowhere/compactionThreshold", 5).status == 404


@pytest.mark.parametrize(
    ("at_namespace", "at_topic"),
    [
        ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"),
        ("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"),
    ],
)
def test_limit_is_followed_by_a_consumer_that_stands_still(
    rest: Rest, namespace: str, path: str, client: pulsar.Client, at_namespace: str, at_topic: str
) -> None:
    """Set by the namespace before it connects, raised for the topic while it stands still, then taken away again."""
    assert rest.post(f"namespaces/{namespace}/{at_namespace}", 5).status == 204
    assert rest.get(f"{path}/{at_topic}?applied=true").json == 5
    topic = path.replace("/", "://", 1)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number)
    held = [consumer.receive(10_000) for _ in range(5)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    stats = rest.get(f"{path}/stats").json["subscriptions"]["s"]
    assert stats["unackedMessages"] == 5
    assert stats["blockedSubscriptionOnUnackedMsgs"] is (at_topic == "maxUnackedMessagesOnSubscription")
    assert stats["consumers"][0]["blockedConsumerOnUnackedMsgs"] is (at_topic == "maxUnackedMessagesOnConsumer")
    assert rest.post(f"{path}/{at_topic}", 8).status == 204
    held += [consumer.receive(10_000) for _ in range(3)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(300)
    assert rest.post(f"{path}/{at_topic}", 0).status == 204
    held += [consumer.receive(10_000) for _ in range(12)]
    assert [message.data() for message in held] == [b"%d" % number for number in range(20)]


def test_subscription_types_are_refused_by_topic_and_namespace(
    rest: Rest, namespace: str, path: str, client: pulsar.Client
) -> None:
    topic = path.replace("/", "://", 1)
    assert rest.post(f"{path}/subscriptionTypesEnabled", ["Shared"]).status == 204
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", pulsar.ConsumerType.Failover)
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared).close()
    assert rest.post(f"{path}/subscriptionTypesEnabled", []).status == 204
    assert rest.get(f"{path}/subscriptionTypesEnabled").body == b""
    client.subscribe(topic, "s", pulsar.ConsumerType.Failover).close()
    assert rest.post(f"namespaces/{namespace}/subscriptionTypesEnabled", ["Exclusive"]).status == 204
    assert rest.get(f"{path}/subscriptionTypesEnabled?applied=true").json == ["Exclusive"]
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", pulsar.ConsumerType.Failover)


def fill(client: pulsar.Client, topic: str) -> None:
    """More than the quota, for a subscription that reads nothing."""
    client.subscribe(topic, "idle", initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(topic, send_timeout_millis=2000)
    with pytest.raises(pulsar.PulsarException):
        for _ in range(100):
            producer.send(b"x" * 1000)
    producer.close()


def test_official_client_is_told_that_the_quota_is_used_up(rest: Rest, path: str, client: pulsar.Client) -> None:
    rest.post(f"{path}/backlogQuota", QUOTA)
    topic = path.replace("/", "://", 1)
    fill(client, topic)
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(topic)
    rest.post(f"{path}/subscription/idle/skip_all")
    producer = client.create_producer(topic)
    producer.send(b"room again")
    producer.close()


def test_policies_for_all_clusters_are_beside_the_topic_s_own(rest: Rest, path: str) -> None:
    """Set, told, applied and removed one by one, whatever their kind; the topic's own stay."""
    retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 7}
    for policy, query, value in (
        ("retention", "", retention),
        ("backlogQuota", "", QUOTA),
        ("a/dispatchRate", "", {"dispatchThrottlingRateInMsg": 9, "ratePeriodInSecond": 1}),
        ("messageTTL", "&messageTTL=60", None),
    ):
        assert rest.post(f"{path}/{policy}?isGlobal=true{query}", value).status == 204, policy
        told = {"backlogQuota": "backlogQuotaMap"}.get(policy, policy)
        mine, all_of = rest.get(f"{path}/{told}"), rest.get(f"{path}/{told}?isGlobal=true").json
        assert mine.body in (b"", b"{}"), policy
        assert all_of, policy
        assert rest.get(f"{path}/{told}?applied=true").json or policy == "a/dispatchRate"
        assert rest.delete(f"{path}/{policy}?isGlobal=true").status == 204
        assert rest.get(f"{path}/{told}?isGlobal=true").body in (b"", b"{}"), policy
    refused = rest.post(f"{path}/replication?isGlobal=true", ["standalone"])
    assert (refused.status, "namespace-level replication is not enabled" in refused.reason) == (412, True)
    assert rest.post(f"{path}/maxProducers?isGlobal=true", 2).status == 204
    assert rest.get(f"{path}/maxProducers?applied=true").json == 2
    assert rest.post(f"{path}/maxProducers", 3).status == 204
    answers = [rest.get(f"{path}/maxProducers?{query}").json for query in ("isGlobal=false", "isGlobal=true")]
    assert [*answers, rest.get(f"{path}/maxProducers?applied=true").json] == [3, 2, 3]
    assert rest.get(f"{path}/maxProducers?applied=true&isGlobal=true").json == 2
    assert rest.delete(f"{path}/policies").status == 204
    assert rest.get(f"{path}/maxProducers?isGlobal=true").body == b""


def test_policies_of_a_non_persistent_topic(rest: Rest, namespace: str, client: pulsar.Client) -> None:
    producer = client.create_producer(f"non-persistent://{namespace}/direct")
    path = f"non-persistent/{namespace}/direct"
    assert rest.post(f"{path}/maxProducers", 1).status == 204
    assert rest.get(f"{path}/maxProducers").json == 1
    with pytest.raises(pulsar.PulsarException, match="ProducerBusy"):
        client.create_producer(f"non-persistent://{namespace}/direct")
    assert rest.post(f"{path}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 7}).status == 204
    assert rest.get(f"{path}/retention?applied=true").json["retentionSizeInMB"] == 7
    assert rest.delete(f"{path}/maxProducers").status == 204
    client.create_producer(f"non-persistent://{namespace}/direct").close()
    producer.close()
    assert rest.put(f"non-persistent/{namespace}/parts/partitions", 2).status == 204
    assert rest.post(f"non-persistent/{namespace}/parts/publishRate", {"publishThrottlingRateInMsg": 9}).status == 204
    assert rest.get(f"non-persistent/{namespace}/parts/publishRate").json["publishThrottlingRateInMsg"] == 9
