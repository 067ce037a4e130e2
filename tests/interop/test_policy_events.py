"""Policies of topics that Apache's broker wrote, edited by Geminga, read again by Apache's classes: nothing is lost."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest
from tools.standalone_process import StandaloneProcess

from support.house.json_differences import differences
from support.house.source_tree import ROOT
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

PROGRAM: Final = Path(__file__).parent / "java" / "PolicyEvents.java"
NAMESPACE: Final = "public/policy-events"
EVENTS: Final = f"persistent://{NAMESPACE}/__change_events"
#: The members of Apache's class.
MEMBERS: Final = set(
    json.loads((ROOT / "tests/samples/policies-4.2.4.json").read_text(encoding="utf-8"))["TopicPolicies"]
)
RATE: Final = {"dispatchThrottlingRateInMsg": 11, "dispatchThrottlingRateInByte": 12, "ratePeriodInSecond": 13}
#: All that Apache's REST sets of a topic: path and value. Geminga has no effect for some of them, and keeps them.
POLICIES: Final[list[tuple[str, Any]]] = [
    ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}),
    ("backlogQuota", {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}),
    ("backlogQuota?backlogQuotaType=message_age", {"limitSize": -1, "limitTime": 90, "policy": "producer_exception"}),
    ("messageTTL?messageTTL=60", None),
    ("maxProducers", 4),
    ("maxConsumers", 5),
    ("maxConsumersPerSubscription", 6),
    ("maxSubscriptionsPerTopic", 7),
    ("maxUnackedMessagesOnConsumer", 8),
    ("maxUnackedMessagesOnSubscription", 9),
    ("maxMessageSize", 100_000),
    ("delayedDelivery", {"active": True, "tickTime": 1001, "maxDeliveryDelayInMillis": 5000}),
    ("persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}),
    ("dispatchRate", RATE),
    ("subscriptionDispatchRate", {**RATE, "dispatchThrottlingRateInMsg": 21}),
    ("replicatorDispatchRate", {**RATE, "dispatchThrottlingRateInMsg": 31}),
    ("some-subscription/dispatchRate", {**RATE, "dispatchThrottlingRateInMsg": 41}),
    ("publishRate", {"publishThrottlingRateInMsg": 51, "publishThrottlingRateInByte": 52}),
    ("subscribeRate", {"subscribeThrottlingRatePerConsumer": 61, "ratePeriodInSecond": 62}),
    ("compactionThreshold", 1 << 40),
    (
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 70,
            "deleteWhileInactive": True,
        },
    ),
    (
        "offloadPolicies",
        {
            "managedLedgerOffloadDriver": "aws-s3",
            "managedLedgerOffloadBucket": "bucket",
            "managedLedgerOffloadThresholdInBytes": 1 << 33,
            "managedLedgerExtraConfigurations": {"some": "thing"},
        },
    ),
    ("deduplicationEnabled", True),
    ("deduplicationSnapshotInterval", 80),
    ("schemaValidationEnforced", True),
    ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
    ("dispatcherPauseOnAckStatePersistent", None),
    ("subscriptionTypesEnabled", ["Shared", "Failover"]),
    ("replication", ["standalone"]),
]
#: Those that Apache's REST takes with PUT.
PUT: Final[list[tuple[str, Any]]] = [
    ("schemaCompatibilityStrategy", "FORWARD_TRANSITIVE"),
    ("shadowTopics", [f"persistent://{NAMESPACE}/two"]),
]
#: What no call sets: it is of namespaces, or needs a filter that is installed.
NOT_SET: Final = {"subscriptionExpirationTimeInMinutes", "entryFilters"}


@pytest.fixture(scope="module")
def written(standalone, judge_is_apache: bool) -> StandaloneProcess:
    """Apache's broker with a topic that has every policy, and one that has those for all clusters, too."""
    if not judge_is_apache:
        pytest.skip("Apache's broker writes the events")
    rest = Rest(standalone.web_url)
    assert rest.put(f"namespaces/{NAMESPACE}").status == 204
    for name in ("one", "two"):
        assert rest.put(f"persistent/{NAMESPACE}/{name}").status == 204
    for method, calls in (("POST", POLICIES), ("PUT", PUT)):
        for path, value in calls:
            answer = rest.call(method, f"persistent/{NAMESPACE}/one/{path}", value)
            assert answer.status == 204, (path, answer)
    assert rest.post(f"persistent/{NAMESPACE}/two/maxProducers", 3).status == 204
    assert rest.post(f"persistent/{NAMESPACE}/two/maxConsumers?isGlobal=true", 2).status == 204
    return standalone


def newest(lines: list[str]) -> dict[str, Any]:
    """By key, the newest event of each topic."""
    return {event["key"]: event["event"] for event in map(json.loads, lines)}


def test_events_of_apaches_broker_edited_here_are_read_again_by_its_classes(written, tmp_path: Path) -> None:
    """1. Apache's broker writes. 2. The same events are Geminga's. 3. Geminga edits one policy. 4. Apache reads all."""
    from tools.interop.java_program import run_java

    with StandaloneProcess(tmp_path / "data", log=tmp_path / "geminga.log") as geminga:
        rest = Rest(geminga.web_url)
        assert rest.put(f"namespaces/{NAMESPACE}").status == 204
        for name in ("one", "two"):
            assert rest.put(f"persistent/{NAMESPACE}/{name}").status == 204
        before = newest(run_java(PROGRAM, written.service_url, EVENTS, geminga.service_url, EVENTS))
        one, two, both = (
            f"{prefix}persistent://{NAMESPACE}/{name}" for prefix, name in (("", "one"), ("", "two"), ("__G__", "two"))
        )
        assert set(before) == {one, two, both}
        held = before[one]["topicPoliciesEvent"]["policies"]
        # What is null is left out.
        assert MEMBERS - held.keys() == NOT_SET, "a policy that this test does not know: give it a value"
        geminga.kill()
        geminga.start()
        assert rest.post(f"persistent/{NAMESPACE}/one/maxConsumers", 77).status == 204
        assert rest.post(f"persistent/{NAMESPACE}/one/messageTTL?messageTTL=61").status == 204
        assert rest.delete(f"persistent/{NAMESPACE}/one/maxProducers").status == 204
        assert rest.post(f"persistent/{NAMESPACE}/two/maxProducers", 33).status == 204
        after = newest(run_java(PROGRAM, geminga.service_url, EVENTS))

    expected = copy.deepcopy(before)
    changed = expected[one]["topicPoliciesEvent"]["policies"]
    changed |= {"maxConsumerPerTopic": 77, "messageTTLInSeconds": 61, "maxProducerPerTopicSet": False}
    del changed["maxProducerPerTopic"]
    expected[two]["topicPoliciesEvent"]["policies"]["maxProducerPerTopic"] = 33
    assert [*differences(expected, after)] == []
