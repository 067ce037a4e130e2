"""Policies of a namespace over HTTP."""

from __future__ import annotations

import pytest

from geminga.client import ProducerBusy
from geminga.client.blocking import connect
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

#: What Pulsar answers where nothing is set, if not nothing.
UNSET = {"schemaCompatibilityStrategy": "UNDEFINED", "maxTopicsPerNamespace": 0}


@pytest.mark.parametrize(
    ("policy", "method", "value"),
    [
        ("deduplication", "POST", True),
        ("messageTTL", "POST", 3600),
        ("retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}),
        ("schemaCompatibilityStrategy", "PUT", "FORWARD"),
        (
            "autoTopicCreation",
            "POST",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        ),
        ("autoSubscriptionCreation", "POST", {"allowAutoSubscriptionCreation": False}),
        ("deduplicationSnapshotInterval", "POST", 60),
        ("subscriptionExpirationTime", "POST", 30),
        ("maxTopicsPerNamespace", "POST", 100),
        ("maxProducersPerTopic", "POST", 3),
        ("maxConsumersPerTopic", "POST", 4),
        ("maxConsumersPerSubscription", "POST", 0),
        ("maxSubscriptionsPerTopic", "POST", 2),
        ("maxUnackedMessagesPerConsumer", "POST", 5),
        ("maxUnackedMessagesPerSubscription", "POST", 0),
    ],
)
def test_policy_is_set_read_and_removed(rest: Rest, namespace: str, policy: str, method: str, value) -> None:
    path = f"namespaces/{namespace}/{policy}"
    assert rest.call(method, path, value).status == 204
    assert rest.get(path).json == value
    assert rest.delete(path).status == 204
    answer = rest.get(path)
    assert (answer.status, answer.json) == (200, UNSET.get(policy))
    assert rest.call(method, f"namespaces/public/nowhere/{policy}", value).status == 404


@pytest.mark.parametrize(
    ("policy", "method", "value", "status"),
    [
        ("deduplication", "POST", "yes", 400),
        ("maxProducersPerTopic", "POST", -1, 412),
        ("maxConsumersPerTopic", "POST", 1 << 31, 400),
        ("maxSubscriptionsPerTopic", "POST", "3.5", 400),
        ("messageTTL", "POST", -1, 412),
        ("maxUnackedMessagesPerConsumer", "POST", -1, 412),
        ("maxUnackedMessagesPerSubscription", "POST", "many", 400),
        ("subscriptionTypesEnabled", "POST", ["Shared", "Broadcast"], 400),
        ("subscriptionTypesEnabled", "POST", "Shared", 400),
        ("subscriptionTypesEnabled", "POST", [["Shared"]], 400),
        ("retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 0}, 400),
        ("retention", "POST", 3, 400),
        ("schemaCompatibilityStrategy", "PUT", "SIDEWAYS", 400),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "round"}, 412),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 412),
        ("autoSubscriptionCreation", "POST", {}, 400),
    ],
)
def test_policy_that_makes_no_sense_is_refused(rest: Rest, namespace: str, policy, method, value, status) -> None:
    answer = rest.call(method, f"namespaces/{namespace}/{policy}", value)
    assert answer.status == status
    assert answer.reason


def test_backlog_quota_is_set_by_type(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/backlogQuota"
    quota = {"limit": 1000, "limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    assert rest.post(path, quota).status == 204
    assert rest.post(f"{path}?backlogQuotaType=message_age", {**quota, "limitTime": 9}).status == 204
    assert rest.get(f"{path}Map").json == {"destination_storage": quota, "message_age": {**quota, "limitTime": 9}}
    assert rest.delete(f"{path}?backlogQuotaType=message_age").status == 204
    assert list(rest.get(f"{path}Map").json) == ["destination_storage"]
    assert rest.post(f"{path}?backlogQuotaType=what", quota).status == 404
    assert rest.post(path, {"policy": "none"}).status == 400


def test_subscription_types_are_a_set_that_is_empty_when_none_is_named(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/subscriptionTypesEnabled"
    assert rest.get(path).json == []
    assert rest.post(path, ["Key_Shared", "Shared", "Shared"]).status == 204
    assert rest.get(path).json == ["Shared", "Key_Shared"]
    assert rest.delete(path).status == 204
    assert rest.get(path).json == []


def test_loaded_topics_follow_as_soon_as_the_answer_is_there(rest: Rest, broker, namespace: str) -> None:
    partitions = 300  # so many that the last one follows some time after the first
    assert rest.put(f"persistent/{namespace}/followed/partitions", partitions).status == 204
    topic = f"persistent://{namespace}/followed"
    with connect(broker.service_url) as client:
        first = client.create_producer(topic)
        for _ in range(3):
            assert rest.post(f"namespaces/{namespace}/maxProducersPerTopic", 1).status == 204
            with pytest.raises(ProducerBusy):
                client.create_producer(f"{topic}-partition-{partitions - 1}")
            assert rest.delete(f"namespaces/{namespace}/maxProducersPerTopic").status == 204
            client.create_producer(f"{topic}-partition-{partitions - 1}").close()
        first.close()
