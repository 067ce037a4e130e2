"""Policies of a namespace: each with good, odd and wrong values, and last those that only Geminga refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tools.interop.rest.calls import Call, Story, delete, get, post, put
from tools.interop.rest.tables.topic_policies import (
    DISPATCH_RATES,
    INACTIVES,
    PERSISTENCES,
    PUBLISH_RATES,
    SUBSCRIBE_RATES,
    SUBSCRIPTION_CREATIONS,
    retention,
    retentions,
)

_SMALL: Final = [0, 1, 20, "20", " 7 ", "+5", "x", -1, -2, 2.0, "2.0", (1 << 31) - 1, 1 << 31, 1 << 63, True, "true"]
_SHAPES: Final = [[], {}, [3], {"a": 1}]
_NUMBERS: Final = [*_SMALL, *_SHAPES]
_NO_NUMBERS: Final = ["", 2.5, None]
_BOOLEANS: Final = [True, False, "true", "false", "True", "TRUE", " true ", "yes", 1, 0, 2, 1.0, *_SHAPES]
_NO_BOOLEANS: Final = ["", None]


_RETENTIONS: Final = retentions(
    *((10, 20), ("10", "20"), (10.0, 20.0), (-1, -1), (0, 0), (-2, 5), (5, -2), (0, 5), (5, 0), (-1, 0), (0, -1)),
    *((1 << 31, 5), (5, 1 << 40), (5, 1 << 63), ("x", 5), (None, 5), ("5", "-1"), (True, 5), ([], 5)),
)
_QUOTAS: Final = [
    {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"},
    {"limitSize": "1000", "limitTime": "-1", "policy": "producer_exception"},
    {"limitSize": 1000.0, "policy": "producer_exception"},
    {"limit": 1000, "policy": "producer_request_hold"},
    {"limit": "1000", "policy": "consumer_backlog_eviction"},
    {"limitSize": 1000},
    {"policy": "producer_exception"},
    {"limitSize": -1, "policy": "producer_exception"},
    {"limitSize": 0, "limitTime": 0, "policy": "producer_exception"},
    {"limitTime": 10, "policy": "producer_request_hold"},
    {"limitTime": 1 << 31, "policy": "producer_exception"},
    {"limitSize": 1 << 63, "policy": "producer_exception"},
    {"limitSize": "x", "policy": "producer_exception"},
    {"limitSize": 1000, "policy": "none"},
    {"limitSize": 1000, "policy": None},
    {"limitSize": 1000, "policy": 3},
    {"limitSize": 1000, "policy": "producer_exception", "other": 1},
    {},
    3,
    [],
    "text",
    None,
]
_NO_QUOTAS: Final = [
    {"limitSize": -5, "policy": "producer_exception"},
    {"limitSize": 2.5, "policy": "producer_exception"},
    {"limitSize": "", "policy": "producer_exception"},
    {"limitSize": 1000, "policy": 1},
    {"limitSize": 1000, "policy": "1"},
]
_TYPES: Final = [
    ["Shared"],
    ["Key_Shared", "Shared", "Shared"],
    ["Exclusive", "Failover", "Shared", "Key_Shared"],
    [],
    ["Broadcast"],
    ["shared"],
    ["Shared", "Broadcast"],
    [["Shared"]],
    [None],
    "Shared",
    {"a": 1},
    None,
]
_TOPIC_CREATIONS: Final = [
    {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    {"allowAutoTopicCreation": "true", "topicType": "partitioned", "defaultNumPartitions": "3"},
    {"allowAutoTopicCreation": True, "topicType": "partitioned"},
    {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
    {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": -3},
    {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
    {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 0},
    {"allowAutoTopicCreation": True, "topicType": "round"},
    {"allowAutoTopicCreation": True, "topicType": 3},
    {"allowAutoTopicCreation": True},
    {"allowAutoTopicCreation": False},
    {"allowAutoTopicCreation": False, "topicType": "round"},
    {"allowAutoTopicCreation": "maybe"},
    {"allowAutoTopicCreation": 3},
    {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "other": 1},
    None,
    3,
    [],
    True,
]
_SUBSCRIPTION_CREATIONS: Final = [
    *SUBSCRIPTION_CREATIONS,
    None,
    3,
    [],
    True,
]
_DELAYS: Final = [
    {"tickTime": 100, "active": True, "maxDeliveryDelayInMillis": 0},
    {"tickTime": "100", "active": "true"},
    {"tickTime": 100.0, "active": True},
    {"tickTime": 100, "active": False},
    {"tickTime": 1 << 63, "active": True},
    {"tickTime": "x", "active": True},
    {"tickTime": 100, "active": 1},
    {"tickTime": 100, "active": "maybe"},
    {"tickTime": 100, "active": True, "other": 1},
    None,
    3,
    [],
]
_NO_DELAYS: Final = [
    {"tickTime": 100},
    {"active": True},
    {"tickTime": None, "active": True},
    {"tickTime": 100, "active": None},
    {"tickTime": 2.5, "active": True},
    {"tickTime": 0, "active": True},
    {"tickTime": -5, "active": True},
    {"tickTime": 100, "active": True, "maxDeliveryDelayInMillis": 5000},
    {"tickTime": 100, "active": True, "maxDeliveryDelayInMillis": -5},
    {},
]
_STRATEGIES: Final = [
    "FULL",
    "FORWARD",
    "BACKWARD_TRANSITIVE",
    "ALWAYS_COMPATIBLE",
    "UNDEFINED",
    None,
    *_SHAPES,
]
_OLD_STRATEGIES: Final = ["Full", "Forward", "BackwardTransitive", "AutoUpdateDisabled", *_SHAPES]
_NO_STRATEGIES: Final = ["full", "SIDEWAYS", "", 1, "1", 99]
#: Path -> what Geminga refuses though Apache's broker takes it for something.
_SENSELESS: Final[dict[str, list[Any]]] = {
    "deduplication": _NO_BOOLEANS,
    "delayedDelivery": _NO_DELAYS,
    "retention": [retention(10.5, 20), retention("", "")],
    "schemaCompatibilityStrategy": _NO_STRATEGIES,
    "schemaAutoUpdateCompatibilityStrategy": [*_NO_STRATEGIES, "FULL", None],
    "schemaValidationEnforced": _NO_BOOLEANS,
    "isAllowAutoUpdateSchema": _NO_BOOLEANS,
    "autoTopicCreation": [{"allowAutoTopicCreation": None}, {}],
    "autoSubscriptionCreation": [{"allowAutoSubscriptionCreation": None}, {}],
    "subscriptionTypesEnabled": [[1]],
}
#: What Pulsar has no path to remove.
_NEVER_REMOVED: Final = {
    "deduplicationSnapshotInterval",
    "schemaCompatibilityStrategy",
    "schemaAutoUpdateCompatibilityStrategy",
    "schemaValidationEnforced",
    "isAllowAutoUpdateSchema",
}
#: Path -> method that sets it, values.
_POLICIES: Final[dict[str, tuple[str, list[Any]]]] = {
    "deduplication": ("POST", _BOOLEANS),
    "deduplicationSnapshotInterval": ("POST", _NUMBERS),
    "messageTTL": ("POST", _NUMBERS),
    "delayedDelivery": ("POST", _DELAYS),
    "retention": ("POST", _RETENTIONS),
    "subscriptionExpirationTime": ("POST", _NUMBERS),
    "schemaCompatibilityStrategy": ("PUT", _STRATEGIES),
    "schemaAutoUpdateCompatibilityStrategy": ("PUT", _OLD_STRATEGIES),
    "schemaValidationEnforced": ("POST", _BOOLEANS),
    "isAllowAutoUpdateSchema": ("POST", _BOOLEANS),
    "autoTopicCreation": ("POST", _TOPIC_CREATIONS),
    "autoSubscriptionCreation": ("POST", _SUBSCRIPTION_CREATIONS),
    "maxTopicsPerNamespace": ("POST", _NUMBERS),
    "maxProducersPerTopic": ("POST", _NUMBERS),
    "maxConsumersPerTopic": ("POST", _NUMBERS),
    "maxUnackedMessagesPerConsumer": ("POST", _NUMBERS),
    "maxUnackedMessagesPerSubscription": ("POST", _NUMBERS),
    "subscriptionTypesEnabled": ("POST", _TYPES),
    "maxConsumersPerSubscription": ("POST", _NUMBERS),
    "maxSubscriptionsPerTopic": ("POST", _NUMBERS),
    "inactiveTopicPolicies": ("POST", INACTIVES),
    "persistence": ("POST", PERSISTENCES),
    "publishRate": ("POST", PUBLISH_RATES),
    "dispatchRate": ("POST", DISPATCH_RATES),
    "subscriptionDispatchRate": ("POST", DISPATCH_RATES),
    "replicatorDispatchRate": ("POST", DISPATCH_RATES),
    "subscribeRate": ("POST", SUBSCRIBE_RATES),
    "compactionThreshold": ("PUT", _NUMBERS),
    "offloadThreshold": ("PUT", [-1, 5, "x"]),
    "offloadThresholdInSeconds": ("PUT", [-1, 5, "x"]),
    "offloadDeletionLagMs": ("PUT", [5, "x"]),
    "encryptionRequired": ("POST", _BOOLEANS),
    "subscriptionAuthMode": ("POST", ["None", "Prefix", "x", None]),
    "entryFilters": ("POST", [{"entryFilterNames": "f"}, {}, 3, None]),
    "dispatcherPauseOnAckStatePersistent": ("POST", [None]),
    "allowedTopicPropertyKeysForMetrics": ("POST", [["team"], [], "x"]),
}


def _calls(path: str, method: str, values: list[Any]) -> Iterator[Call]:
    write = put if method == "PUT" else post
    whole = f"namespaces/{{ns}}/{path}"
    yield get(whole, exact=True)
    yield delete(whole)
    yield get(whole, exact=True)
    for value in values:
        # Each value, then what is there: a refused one changes nothing.
        yield write(whole, value)
        yield get(whole, exact=True)
    for raw in (b"{", b"", b"3 4"):
        yield write(whole, raw=raw)
        yield get(whole, exact=True)
    yield write(whole)
    yield write(whole, values[0], headers={"Content-Type": "text/plain"})
    yield write(f"{whole}/", values[0])
    yield get(f"{whole}/", exact=True)
    if path not in _NEVER_REMOVED:
        yield delete(f"{whole}/")
        yield get(whole, exact=True)
    other = post if method == "PUT" else put
    yield other(whole, values[0])
    for value in _SENSELESS.get(path, _NO_NUMBERS):
        yield write(whole, value)
    for namespace in ("public/nowhere", "nobody/nowhere", "public/no%20good"):
        elsewhere = f"namespaces/{namespace}/{path}"
        yield get(elsewhere)
        yield write(elsewhere, values[0])
        yield delete(elsewhere)


def _quota_calls() -> Iterator[Call]:
    path, listing = "namespaces/{ns}/backlogQuota", "namespaces/{ns}/backlogQuotaMap"
    yield get(listing, exact=True)
    yield delete(path)
    for quota in _QUOTAS:
        yield post(path, quota)
        yield get(listing, exact=True)
    for kind in ("destination_storage", "message_age", "what", ""):
        yield post(f"{path}?backlogQuotaType={kind}", _QUOTAS[0])
        yield get(listing, exact=True)
    for kind in ("message_age", "what", ""):
        yield delete(f"{path}?backlogQuotaType={kind}")
        yield get(listing, exact=True)
    yield post(path)
    yield post(path, raw=b"{")
    yield delete(path)
    for quota in _NO_QUOTAS:
        yield post(path, quota)
    yield delete(path)
    yield get(listing, exact=True)
    yield get(path)
    yield put(path, _QUOTAS[0])
    yield post(listing, _QUOTAS[0])
    for namespace in ("public/nowhere", "nobody/nowhere", "public/no%20good"):
        yield get(f"namespaces/{namespace}/backlogQuotaMap")
        yield post(f"namespaces/{namespace}/backlogQuota", _QUOTAS[0])
        yield delete(f"namespaces/{namespace}/backlogQuota")


def _property_calls() -> Iterator[Call]:
    path, one = "namespaces/{ns}/properties", "namespaces/{ns}/property"
    yield get(path, exact=True)
    yield delete(path)
    yield get(f"{one}/a", exact=True)
    yield delete(f"{one}/a")
    yield put(f"{one}/a/1")
    yield get(f"{one}/a", exact=True)
    yield put(f"{one}/a/2")
    yield get(path, exact=True)
    yield put(f"{one}/b%20c/d%2Fe%20f")
    yield get(path, exact=True)
    yield get(f"{one}/b%20c", exact=True)
    yield put(path, {"x": "1", "a": "3"})
    yield get(path, exact=True)
    yield put(path, {"n": 1, "t": True})
    yield get(path, exact=True)
    for body in ({}, {"z": None}, {"z": []}, [], 3, "text", None):
        yield put(path, body)
    yield put(path)
    yield put(path, raw=b"{")
    yield get(path, exact=True)
    yield delete(f"{one}/a")
    yield delete(f"{one}/never")
    yield get(path, exact=True)
    yield post(path, {})
    yield post(f"{one}/a")
    yield put(f"{one}/a")
    yield put(f"{one}/a/b/c")
    yield delete(path)
    yield get(path, exact=True)
    for namespace in ("public/nowhere", "nobody/nowhere", "public/no%20good"):
        yield get(f"namespaces/{namespace}/properties")
        yield put(f"namespaces/{namespace}/properties", {"a": "1"})
        yield delete(f"namespaces/{namespace}/properties")
        yield get(f"namespaces/{namespace}/property/a")
        yield put(f"namespaces/{namespace}/property/a/1")
        yield delete(f"namespaces/{namespace}/property/a")


STORIES: Final = [
    Story("namespace properties", *_property_calls()),
    *(Story(f"namespace {path}", *_calls(path, method, values)) for path, (method, values) in _POLICIES.items()),
    Story("namespace backlogQuota", *_quota_calls()),
    Story(
        "retention and quota",
        post("namespaces/{ns}/retention", retention(10, 1)),
        post("namespaces/{ns}/backlogQuota", {"limitSize": 1 << 30, "policy": "producer_exception"}),
        post(
            "namespaces/{ns}/backlogQuota?backlogQuotaType=message_age",
            {"limitTime": 6000, "policy": "producer_exception"},
        ),
        get("namespaces/{ns}/backlogQuotaMap", exact=True),
        post("namespaces/{ns}/backlogQuota", {"limitSize": 1 << 20, "policy": "producer_exception"}),
        post("namespaces/{ns}/backlogQuota", {"limitSize": (1 << 20) - 1, "policy": "producer_exception"}),
        post("namespaces/{ns}/backlogQuota", {"limitSize": -1, "limitTime": 600, "policy": "producer_exception"}),
        post("namespaces/{ns}/backlogQuota", {"limitSize": -1, "limitTime": 599, "policy": "producer_exception"}),
        post("namespaces/{ns}/retention", retention(1, 1)),
        post("namespaces/{ns}/retention", retention(0, 0)),
        post("namespaces/{ns}/backlogQuota", {"limitSize": 1 << 30, "policy": "producer_exception"}),
        post("namespaces/{ns}/retention", retention(10, 1)),
        get("namespaces/{ns}/retention", exact=True),
    ),
]
