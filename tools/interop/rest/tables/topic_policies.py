"""Policies of a topic: each with good, odd and wrong values, and on each kind of topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from typing import Any, Final

from tools.interop.rest.calls import Call, Story, delete, get, post, put
from tools.interop.rest.tables.topics import KINDS, prepared

_NUMBERS: Final = [0, 20, "20", " 7 ", "x", -1, -2, 2.0, (1 << 31) - 1, None, "2.0", 1 << 31, True, [], {}, "", 2.5]
_BOOLEANS: Final = [True, False, "true", "false", "TRUE", "yes", 1, 0, 2, None, [], {}, ""]
_TYPES: Final = [
    ["Shared"],
    ["Shared", "Exclusive", "Key_Shared", "Failover"],
    ["Shared", "Shared"],
    [],
    ["shared"],
    ["Fanout"],
    [""],
    [None],
    [1],
    "Shared",
    "",
    5,
    {},
    None,
]


def retention(minutes: object, size: object) -> dict[str, Any]:
    """A policy."""
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}


def retentions(*times_and_sizes: tuple[object, object]) -> list[object]:
    """So many minutes and megabytes each; behind them those that say less, more, or nothing that is one."""
    return [
        *starmap(retention, times_and_sizes),
        {"retentionTimeInMinutes": 5},
        {"retentionSizeInMB": 5},
        {**retention(5, 5), "other": 1},
        {},
        3,
        "text",
        [],
        None,
    ]


_RETENTIONS: Final = retentions(
    *((10, 20), ("10", "20"), (10.0, 20.0), (-1, -1), (0, 0), (-2, 5), (0, 5), (5, 0), (-1, 0)),
    *((1 << 31, 5), ("x", 5), (None, 5)),
)
_DELAYS: Final = [
    {"tickTime": 100, "active": True},
    {"tickTime": 100, "active": True, "maxDeliveryDelayInMillis": 0},
    {"tickTime": "100", "active": "true"},
    {"tickTime": 100.0, "active": 1},
    {"tickTime": 100},
    {"active": True},
    {"tickTime": 0, "active": True},
    {"tickTime": -1, "active": True},
    {"tickTime": "x", "active": True},
    {"tickTime": 1, "active": "x"},
    {},
    3,
    [],
    None,
]
_QUOTAS: Final = [
    {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"},
    {"limitSize": "1000", "limitTime": "-1", "policy": "producer_exception"},
    {"limitSize": 1000.0, "policy": "producer_exception"},
    {"limit": 1000, "policy": "producer_request_hold"},
    {"limitSize": 1000},
    {"policy": "producer_exception"},
    {"limitSize": -1, "policy": "producer_exception"},
    {"limitSize": 0, "limitTime": 0, "policy": "producer_exception"},
    {"limitSize": 1000, "policy": "none"},
    {"limitSize": 1000, "policy": None},
    {"limitSize": 1000, "policy": 1},
    {"limitSize": "x", "policy": "producer_exception"},
    {"limitTime": 60, "policy": "consumer_backlog_eviction"},
    {},
    3,
    "text",
    [],
    None,
]
_COUNTS: Final = [3, 0, "20", " 7 ", "x", -1, 2.0, (1 << 31) - 1, 1 << 31, True, [], {}]
_NO_COUNTS: Final = [None, "", 2.5]
_SIZES: Final = [1024, 0, "20", " 7 ", "x", -1, 2.0, 5 << 20, (5 << 20) + 1, 1 << 31, True, [], {}]
_STRATEGIES: Final = ["FORWARD", "ALWAYS_COMPATIBLE", "UNDEFINED", None, "full", "SIDEWAYS", "", 1, [], {}]
SUBSCRIPTION_CREATIONS: Final = (
    {"allowAutoSubscriptionCreation": False},
    {"allowAutoSubscriptionCreation": True},
    {"allowAutoSubscriptionCreation": "false"},
    {"allowAutoSubscriptionCreation": "maybe"},
    {"allowAutoSubscriptionCreation": 1},
    {"allowAutoSubscriptionCreation": True, "other": 1},
)
_CREATIONS: Final = [
    *SUBSCRIPTION_CREATIONS,
    {},
    3,
    [],
    True,
    None,
]


def _inactive(delete: object, mode: object, seconds: object) -> dict[str, Any]:
    return {
        "deleteWhileInactive": delete,
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": seconds,
    }


INACTIVES: Final = [
    _inactive(True, "delete_when_subscriptions_caught_up", 60),
    _inactive(False, "delete_when_no_subscriptions", 1),
    _inactive("true", "delete_when_no_subscriptions", "5"),
    _inactive(True, "delete_when_no_subscriptions", 0),
    _inactive(True, "delete_when_no_subscriptions", -1),
    _inactive(True, "delete_when_no_subscriptions", 1 << 31),
    _inactive(True, "whenever", 5),
    _inactive(True, None, 5),
    _inactive("perhaps", "delete_when_no_subscriptions", 5),
    {"deleteWhileInactive": True, "maxInactiveDurationSeconds": 5},
    {**_inactive(True, "delete_when_no_subscriptions", 5), "other": 1},
    {},
    3,
    "text",
    [],
    None,
]


def _dispatch(messages: object, size: object, period: object = 1, **more: object) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period,
        **more,
    }


DISPATCH_RATES: Final = [
    _dispatch(10, 1000, relativeToPublishRate=False),
    _dispatch(-1, -1, 10, relativeToPublishRate=True),
    _dispatch("10", "1000", "2"),
    _dispatch(0, 0),
    _dispatch(-5, -5),
    _dispatch(10, 1000, 0),
    _dispatch(10, 1000, -1),
    _dispatch(1 << 31, 5),
    _dispatch(5, 1 << 63),
    _dispatch("x", 5),
    _dispatch(5, 5, other=1),
    {"dispatchThrottlingRateInMsg": 5},
    {},
    3,
    "text",
    [],
    None,
]
PUBLISH_RATES: Final = [
    {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000},
    {"publishThrottlingRateInMsg": "10", "publishThrottlingRateInByte": -1},
    {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 0},
    {"publishThrottlingRateInMsg": -5},
    {"publishThrottlingRateInMsg": 1 << 31},
    {"publishThrottlingRateInMsg": "x"},
    {"publishThrottlingRateInByte": 5, "other": 1},
    {},
    3,
    "text",
    [],
    None,
]
SUBSCRIBE_RATES: Final = [
    {"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 30},
    {"subscribeThrottlingRatePerConsumer": "10", "ratePeriodInSecond": "5"},
    {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 0},
    {"subscribeThrottlingRatePerConsumer": -5, "ratePeriodInSecond": -1},
    {"subscribeThrottlingRatePerConsumer": 1 << 31},
    {"subscribeThrottlingRatePerConsumer": "x"},
    {"subscribeThrottlingRatePerConsumer": 5, "other": 1},
    {},
    3,
    "text",
    [],
    None,
]


def _persistence(ensemble: object, write: object, ack: object, rate: object = 0) -> dict[str, Any]:
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


PERSISTENCES: Final = [
    _persistence(1, 1, 1, 10.5),
    _persistence(3, 2, 2),
    _persistence("2", "2", "1", "1.5"),
    _persistence(1, 2, 1),
    _persistence(2, 1, 2),
    _persistence(0, 0, 0),
    _persistence(1, 1, 0),
    _persistence(-1, -1, -1),
    _persistence(1, 1, 1, -1),
    _persistence(1 << 31, 1, 1),
    _persistence("x", 1, 1),
    _persistence(1, 1, 1, "x"),
    {**_persistence(1, 1, 1), "managedLedgerStorageClassName": "bookkeeper"},
    {**_persistence(1, 1, 1), "managedLedgerStorageClassName": "other"},
    {"bookkeeperEnsemble": 1},
    {},
    3,
    "text",
    [],
    None,
]
_T: Final = "persistent/{ns}/t"
#: Path, values.
_POLICIES: Final[tuple[tuple[str, list[Any]], ...]] = (
    ("retention", _RETENTIONS),
    ("deduplicationEnabled", _BOOLEANS),
    ("deduplicationSnapshotInterval", _NUMBERS),
    ("maxUnackedMessagesOnConsumer", _NUMBERS),
    ("maxUnackedMessagesOnSubscription", _NUMBERS),
    ("subscriptionTypesEnabled", _TYPES),
    ("delayedDelivery", _DELAYS),
    ("maxProducers", _COUNTS),
    ("maxConsumers", _COUNTS),
    ("maxConsumersPerSubscription", _COUNTS),
    ("maxSubscriptionsPerTopic", _COUNTS),
    ("maxMessageSize", _SIZES),
    ("schemaCompatibilityStrategy", _STRATEGIES),
    ("schemaValidationEnforced", _BOOLEANS),
    ("autoSubscriptionCreation", _CREATIONS),
    ("inactiveTopicPolicies", INACTIVES),
    ("subscriptionExpirationTime", _NUMBERS),
    ("persistence", PERSISTENCES),
    ("publishRate", PUBLISH_RATES),
    ("dispatchRate", DISPATCH_RATES),
    ("subscriptionDispatchRate", DISPATCH_RATES),
    ("replicatorDispatchRate", DISPATCH_RATES),
    ("subscribeRate", SUBSCRIBE_RATES),
    ("compactionThreshold", _NUMBERS),
    ("entryFilters", [{"entryFilterNames": "f"}, {"entryFilterNames": ""}, {}, 3, None]),
    ("dispatcherPauseOnAckStatePersistent", [None]),
    ("offloadPolicies", [{"managedLedgerOffloadDriver": "filesystem"}, {}, None]),
)
#: What is set with PUT.
_PUT: Final = {"schemaCompatibilityStrategy"}
_TTLS: Final = ("0", "20", "-1", "-2", "x", "", "2.0", "2147483648", "%2020")
#: One good value of each, for all kinds of topics.
_GOOD: Final = {path: values[0] for path, values in _POLICIES}


#: What both read in the same way.
_PLAIN: Final = [
    *(True, False, "true", "false", "TRUE", 0, 20, "20", " 7 ", -1, 2.0, (1 << 31) - 1, None, ["Shared"]),
    *_RETENTIONS[:4],
    *_DELAYS[:4],
    *INACTIVES[:3],
    *_CREATIONS[:2],
    *_STRATEGIES[:2],
    *DISPATCH_RATES[:2],
    *PUBLISH_RATES[:2],
    *SUBSCRIBE_RATES[:2],
    *PERSISTENCES[:2],
]


def _set(path: str, *value: object) -> Call:
    return (put if path in _PUT else post)(f"{_T}/{path}", *value)


def _read_again(value: object, path: str) -> Iterator[Call]:
    # What is taken from one broker to the next differs where the value is refused here.
    if value in _PLAIN:
        yield get(path, exact=True)


def _life(path: str, values: list[Any]) -> Iterator[Call]:
    yield put(_T)
    yield get(f"{_T}/{path}", exact=True)
    # The interval of ticks is set for tests.
    yield get(f"{_T}/{path}?applied=true", exact=path != "delayedDelivery")
    yield delete(f"{_T}/{path}")
    for value in values:
        yield _set(path, value)
        yield from _read_again(value, f"{_T}/{path}")
    yield replace(_set(path, 0), body=b"{")
    yield _set(path, values[0])
    yield _set(path)
    yield get(f"{_T}/{path}", exact=True)
    yield _set(path, values[0])
    yield get(f"{_T}/{path}?applied=true", exact=True)
    yield delete(f"{_T}/{path}")
    yield get(f"{_T}/{path}", exact=True)
    yield delete(f"{_T}/{path}")


def _on_all_kinds(path: str, setter: Call) -> Iterator[Call]:
    for kind in KINDS:
        name = setter.path.partition("/{ns}/t/")[2]
        yield get(f"{kind}/{path}", exact=True)
        yield replace(setter, path=f"{kind}/{name}")
        yield get(f"{kind}/{path}", exact=True)
        yield delete(f"{kind}/{name.partition('?')[0]}")


STORIES: Final = [
    *(Story(f"topic policy {path}", *_life(path, values)) for path, values in _POLICIES),
    Story(
        "dispatch rates of single subscriptions",
        put(_T),
        get(f"{_T}/s/dispatchRate", exact=True),
        get(f"{_T}/s/dispatchRate?applied=true", exact=True),
        delete(f"{_T}/s/dispatchRate"),
        *(
            call
            for value in DISPATCH_RATES
            for call in (post(f"{_T}/s/dispatchRate", value), *_read_again(value, f"{_T}/s/dispatchRate"))
        ),
        post(f"{_T}/s/dispatchRate", DISPATCH_RATES[0]),
        post(f"{_T}/s/dispatchRate"),
        get(f"{_T}/s/dispatchRate", exact=True),
        post(f"{_T}/subscriptionDispatchRate", DISPATCH_RATES[0]),
        get(f"{_T}/other/dispatchRate", exact=True),
        get(f"{_T}/other/dispatchRate?applied=true", exact=True),
        post(f"{_T}/a%2Fb/dispatchRate", DISPATCH_RATES[0]),
        get(f"{_T}/a%2Fb/dispatchRate", exact=True),
        delete(f"{_T}/s/dispatchRate"),
        get(f"{_T}/s/dispatchRate", exact=True),
        get(f"{_T}/s/dispatchRate?applied=true", exact=True),
        *(
            call
            for name in ("persistent/{ns}/m", "persistent/public/nowhere/m", "persistent/{ns}/t-partition-0")
            for call in (
                get(f"{name}/s/dispatchRate"),
                post(f"{name}/s/dispatchRate", DISPATCH_RATES[0]),
                delete(f"{name}/s/dispatchRate"),
            )
        ),
    ),
    Story(
        "topic policies that are kept",
        put(_T),
        *(
            call
            for path in ("replication", "shadowTopics")
            for call in (get(f"{_T}/{path}", keys=False), delete(f"{_T}/{path}"))
        ),
        post(f"{_T}/maxProducers", 3),
        post(f"{_T}/messageTTL?messageTTL=3"),
        delete(f"{_T}/policies"),
        get(f"{_T}/maxProducers", exact=True),
        get(f"{_T}/messageTTL", exact=True),
        delete(f"{_T}/policies"),
        delete("persistent/{ns}/m/policies"),
        delete("persistent/{ns}/t-partition-0/policies"),
    ),
    Story(
        "topic policy messageTTL",
        put(_T),
        get(f"{_T}/messageTTL", exact=True),
        get(f"{_T}/messageTTL?applied=true", exact=True),
        delete(f"{_T}/messageTTL"),
        post(f"{_T}/messageTTL"),
        post(f"{_T}/messageTTL", 20),
        *(
            call
            for text in _TTLS
            for call in (post(f"{_T}/messageTTL?messageTTL={text}"), get(f"{_T}/messageTTL", exact=True))
        ),
        delete(f"{_T}/messageTTL"),
        get(f"{_T}/messageTTL", exact=True),
        post("namespaces/{ns}/messageTTL", 7),
        get(f"{_T}/messageTTL", exact=True),
        get(f"{_T}/messageTTL?applied=true", exact=True),
    ),
    Story(
        "topic policy backlogQuota",
        put(_T),
        get(f"{_T}/backlogQuotaMap", exact=True),
        get(f"{_T}/backlogQuotaMap?applied=true"),
        delete(f"{_T}/backlogQuota"),
        *(
            call
            for number, value in enumerate(_QUOTAS)
            for call in (
                post(f"{_T}/backlogQuota", value),
                *([get(f"{_T}/backlogQuotaMap", exact=True)] if number < 4 else []),
            )
        ),
        post(f"{_T}/backlogQuota"),
        post(f"{_T}/backlogQuota?backlogQuotaType=message_age", _QUOTAS[-6]),
        post(f"{_T}/backlogQuota?backlogQuotaType=destination_storage", _QUOTAS[0]),
        post(f"{_T}/backlogQuota?backlogQuotaType=nothing", _QUOTAS[0]),
        post(f"{_T}/backlogQuota?backlogQuotaType=", _QUOTAS[0]),
        get(f"{_T}/backlogQuotaMap", exact=True),
        delete(f"{_T}/backlogQuota?backlogQuotaType=nothing"),
        delete(f"{_T}/backlogQuota?backlogQuotaType=message_age"),
        get(f"{_T}/backlogQuotaMap", exact=True),
        delete(f"{_T}/backlogQuota"),
        get(f"{_T}/backlogQuotaMap", exact=True),
    ),
    *(
        Story(f"topics with {path}", *prepared(subscriptions=False), *_on_all_kinds(path, _set(path, value)))
        for path, value in _GOOD.items()
    ),
    Story(
        "topics with messageTTL",
        *prepared(subscriptions=False),
        *_on_all_kinds("messageTTL", post(f"{_T}/messageTTL?messageTTL=5")),
    ),
    Story(
        "topics with backlogQuota",
        *prepared(subscriptions=False),
        *_on_all_kinds("backlogQuotaMap", post(f"{_T}/backlogQuota", _QUOTAS[0])),
    ),
]
