"""Transactions: coordinators, what topics and subscriptions have of them, and ends by administrators."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Call, Publish, Story, Until, get, post, put
from tools.interop.rest.transacting import Acknowledge, Begin, End, Send

_BASE: Final = "/admin/v3/transactions"
_TOPIC: Final = "persistent://{ns}/t"
_LONG_MAX: Final = (1 << 63) - 1
#: What is no number of a coordinator, or one that there is not.
_NO_COORDINATORS: Final = ("18", "-1", "2147483647", "2147483648", "x", "", "1.5", "%30", "+0", "0x0")
#: Ids of transactions that there are not.
_NO_IDS: Final = (
    "0/0",
    "0/-1",
    "-1/0",
    "18/0",
    f"0/{_LONG_MAX}",
    f"0/{_LONG_MAX + 1}",
    "2147483648/0",
    f"{_LONG_MAX + 1}/0",
    "x/0",
    "0/x",
    "0/1.0",
)
_TOPICS: Final = (
    "{ns}/t",
    "{ns}/nothing",
    "{ns}/parts",
    "{ns}/parts-partition-0",
    "{ns}/parts-partition-9",
    "{ns}/with%2Fslash",
    "{ns}/nothing%20there",
    "{ns}/%zz",
    "{ns}/%C3%A9",
    "public/nowhere/t",
    "nobody/nowhere/t",
    "public/no%2Fname/t",
)


def _state_of(place: str) -> Call:
    return get(f"{_BASE}/positionStatsInPendingAck/{place}", values=["state"])


def _about_topics() -> list[Call]:
    calls: list[Call] = []
    for topic in _TOPICS:
        calls += [
            get(f"{_BASE}/transactionBufferStats/{topic}"),
            get(f"{_BASE}/transactionBufferInternalStats/{topic}"),
            get(f"{_BASE}/transactionInBufferStats/{topic}/0/0"),
        ]
        calls += _about_subscription(f"{topic}/s")
    return calls


def _about_subscription(place: str, txn: str = "0/0") -> list[Call]:
    return [
        get(f"{_BASE}/pendingAckStats/{place}"),
        get(f"{_BASE}/pendingAckInternalStats/{place}"),
        get(f"{_BASE}/transactionInPendingAckStats/{place}/{txn}"),
        _state_of(f"{place}/0/0"),
    ]


_COUNTS: Final = ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
_BUFFER: Final = ("state", "ongoingTxnSize", "totalAbortedTransactions", "snapshotType")


def _buffer(transactions: str = "") -> list[Call]:
    """Everything about the topic ``t``, and what it has of transactions."""
    return [
        get(f"{_BASE}/transactionBufferStats/{{ns}}/t?lowWaterMarks=true&segmentStats=true", values=_BUFFER),
        get(f"{_BASE}/transactionBufferInternalStats/{{ns}}/t", values=["snapshotType"]),
        *(get(f"{_BASE}/transactionInBufferStats/{{ns}}/t/{{{name}}}", values=["aborted"]) for name in transactions),
        get("persistent/{ns}/t/stats", values=_COUNTS),
    ]


def _metadata(name: str) -> Call:
    return get(f"{_BASE}/transactionMetadata/{{{name}}}", values=["txnId", "status"])


#: Coordinators after the first story. A client begins a transaction with each of them in turn.
_COORDINATORS: Final = 18
_BAD_COUNTS: Final[tuple[object, ...]] = ("x", {}, [], True, 2147483648)

STORIES: Final = [
    # At the beginning: Apache's standalone has one coordinator, Geminga's as many as other clusters.
    Story(
        "more coordinators",
        post(f"{_BASE}/transactionCoordinator/replicas", _COORDINATORS - 1),
        *(post(f"{_BASE}/transactionCoordinator/replicas", body) for body in (16, 1, 0, -1, "17", 17.0)),
        *(post(f"{_BASE}/transactionCoordinator/replicas", body) for body in _BAD_COUNTS),
        post(f"{_BASE}/transactionCoordinator/replicas"),
        post(f"{_BASE}/transactionCoordinator/replicas", raw=b"", headers={"Content-Type": "application/json"}),
        post(f"{_BASE}/transactionCoordinator/replicas", raw=b"19", headers={"Content-Type": "text/plain"}),
        post(f"{_BASE}/transactionCoordinator/replicas", str(_COORDINATORS)),
        get(f"{_BASE}/coordinators"),
        get("persistent/pulsar/system/transaction_coordinator_assign/partitions", values=["partitions"]),
    ),
    Story(
        "coordinators",
        get(f"{_BASE}/coordinatorStats?coordinatorId=0"),
        get(f"{_BASE}/coordinatorInternalStats/0"),
        get(f"{_BASE}/transactionMetadata/0/0"),
        *(Begin(f"t{number}") for number in range(_COORDINATORS)),
        get(f"{_BASE}/coordinatorStats", values=["0.state", "0.leastSigBits", "0.lowWaterMark", "0.ongoingTxnSize"]),
        *(End(f"t{number}", is_commit=bool(number % 2)) for number in range(_COORDINATORS)),
        get(f"{_BASE}/coordinators"),
        get(f"{_BASE}/coordinatorStats", values=["0.state", "15.state", "0.ongoingTxnSize", "0.lowWaterMark"]),
        get(f"{_BASE}/coordinatorStats?coordinatorId=0", values=["state", "leastSigBits", "lowWaterMark"]),
        get(f"{_BASE}/coordinatorStats?coordinatorId=15&authoritative=true"),
        *(get(f"{_BASE}/coordinatorStats?coordinatorId={number}") for number in _NO_COORDINATORS),
        get(f"{_BASE}/coordinatorInternalStats/0"),
        get(f"{_BASE}/coordinatorInternalStats/0?metadata=true"),
        *(get(f"{_BASE}/coordinatorInternalStats/{number}") for number in _NO_COORDINATORS),
        *(get(f"{_BASE}/slowTransactions/{number}") for number in ("0", "60000", "-1", str(_LONG_MAX), "x", "1.5")),
        get(f"{_BASE}/slowTransactions/{_LONG_MAX + 1}"),
        *(get(f"{_BASE}/slowTransactions/0?coordinatorId={number}") for number in ("0", *_NO_COORDINATORS)),
    ),
    Story(
        "transactions that there are not",
        *(get(f"{_BASE}/transactionMetadata/{txn}") for txn in _NO_IDS),
        *(post(f"{_BASE}/abortTransaction/{txn}") for txn in _NO_IDS),
        Call("PUT", f"{_BASE}/abortTransaction/0/0"),
        Call("GET", f"{_BASE}/abortTransaction/0/0"),
        get(f"{_BASE}/nothing"),
    ),
    Story(
        "topics without transactions",
        put("persistent/{ns}/t"),
        put("persistent/{ns}/t/subscription/s", "earliest"),
        put("persistent/{ns}/with%2Fslash"),
        put("persistent/{ns}/with%2Fslash/subscription/s", "earliest"),
        put("persistent/{ns}/parts/partitions", 2),
        *_about_topics(),
        *_about_subscription("{ns}/t/nothing"),
        *_about_subscription("{ns}/t/s%2Fs"),
        *(get(f"{_BASE}/transactionInBufferStats/{{ns}}/t/{txn}") for txn in _NO_IDS[1:]),
        *(get(f"{_BASE}/transactionInPendingAckStats/{{ns}}/t/s/{txn}") for txn in _NO_IDS[1:]),
        get(f"{_BASE}/transactionBufferStats/{{ns}}/t?lowWaterMarks=x&segmentStats=x"),
        get("persistent/{ns}/t/stats", values=_COUNTS),
    ),
    Story(
        "a transaction",
        put("persistent/{ns}/t"),
        put("persistent/{ns}/other"),
        Publish("persistent://{ns}/other", 3),
        Begin("a"),
        _metadata("a"),
        Send("a", _TOPIC, 2),
        Acknowledge("a", "persistent://{ns}/other", "s"),
        _metadata("a"),
        *_buffer("a"),
        *_about_subscription("{ns}/other/s", "{a}"),
        get(f"{_BASE}/pendingAckStats/{{ns}}/other/s?lowWaterMarks=true", values=["state", "ongoingTxnSize"]),
        get(f"{_BASE}/pendingAckInternalStats/{{ns}}/other/s?metadata=true"),
        get(f"{_BASE}/transactionInPendingAckStats/{{ns}}/other/nothing/{{a}}"),
        _state_of("{ns}/other/s/{acked}"),
        _state_of("{ns}/other/s/{acked}?batchIndex=0"),
        get(f"{_BASE}/slowTransactions/0", values=["(a).status"]),
        get(f"{_BASE}/slowTransactions/3600000"),
        End("a"),
        Until(f"{_BASE}/transactionMetadata/{{a}}", 404),
        _metadata("a"),
        *_buffer("a"),
        *_about_subscription("{ns}/other/s", "{a}"),
        _state_of("{ns}/other/s/{acked}"),
        get(f"{_BASE}/slowTransactions/0"),
        post(f"{_BASE}/abortTransaction/{{a}}"),
    ),
    Story(
        "transactions aborted",
        put("persistent/{ns}/t"),
        Begin("a"),
        Begin("b"),
        Begin("c", timeout_s=3),
        Send("a", _TOPIC, 2),
        Send("b", _TOPIC),
        Send("c", _TOPIC),
        *_buffer("abc"),
        End("a", is_commit=False),
        Until(f"{_BASE}/transactionMetadata/{{a}}", 404),
        *_buffer("abc"),
        post(f"{_BASE}/abortTransaction/{{b}}"),
        Until(f"{_BASE}/transactionMetadata/{{b}}", 404),
        post(f"{_BASE}/abortTransaction/{{b}}"),
        Until(f"{_BASE}/transactionMetadata/{{c}}", 404),
        *_buffer("abc"),
    ),
    Story(
        "positions held by transactions",
        put("persistent/{ns}/t"),
        Publish(_TOPIC, 6, {"batching_enabled": False}),
        Begin("a"),
        Acknowledge("a", _TOPIC, "s"),
        _state_of("{ns}/t/s/{acked}"),
        *(
            _state_of(f"{{ns}}/t/s/{{ledger}}/{entry}")
            for entry in ("1", "5", "6", "999", "-1", str(_LONG_MAX), str(_LONG_MAX + 1), "x")
        ),
        *(
            _state_of(f"{{ns}}/t/s/{ledger}/0")
            for ledger in ("-1", "0", "999999", str(_LONG_MAX), str(_LONG_MAX + 1), "x")
        ),
        *(_state_of(f"{{ns}}/t/s/{{acked}}?batchIndex={index}") for index in ("0", "5", "-1", "2147483648", "x", "")),
        Acknowledge("", _TOPIC, "s"),
        _state_of("{ns}/t/s/{acked}"),
        End("a", is_commit=False),
    ),
    Story(
        "a cumulative acknowledgment",
        put("persistent/{ns}/t"),
        Publish(_TOPIC, 3),
        Begin("a"),
        Begin("b"),
        Acknowledge("a", _TOPIC, "s", is_cumulative=True),
        get(f"{_BASE}/transactionInPendingAckStats/{{ns}}/t/s/{{a}}"),
        get(f"{_BASE}/transactionInPendingAckStats/{{ns}}/t/s/{{b}}"),
        get(f"{_BASE}/pendingAckStats/{{ns}}/t/s", values=["state", "ongoingTxnSize"]),
        _state_of("{ns}/t/s/{acked}"),
        _metadata("a"),
        End("a", is_commit=False),
        Until(f"{_BASE}/transactionMetadata/{{a}}", 404),
        get(f"{_BASE}/transactionInPendingAckStats/{{ns}}/t/s/{{a}}"),
        get(f"{_BASE}/pendingAckStats/{{ns}}/t/s?lowWaterMarks=true", values=["state", "ongoingTxnSize"]),
        End("b", is_commit=False),
    ),
    Story(
        "partitions in transactions",
        put("persistent/{ns}/parts/partitions", 2),
        get("persistent/{ns}/parts/partitioned-stats", values=_COUNTS),
        Begin("a"),
        Begin("b"),
        Send("a", "persistent://{ns}/parts-partition-0"),
        Send("a", "persistent://{ns}/parts-partition-1"),
        Send("b", "persistent://{ns}/parts-partition-1"),
        _metadata("a"),
        get("persistent/{ns}/parts/partitioned-stats?perPartition=false", values=_COUNTS),
        get(f"{_BASE}/transactionBufferStats/{{ns}}/parts"),
        get(f"{_BASE}/transactionBufferStats/{{ns}}/parts-partition-1", values=_BUFFER),
        End("a"),
        Until(f"{_BASE}/transactionMetadata/{{a}}", 404),
        get("persistent/{ns}/parts/partitioned-stats?perPartition=false", values=_COUNTS),
        End("b", is_commit=False),
        Until(f"{_BASE}/transactionMetadata/{{b}}", 404),
        get("persistent/{ns}/parts/partitioned-stats?perPartition=false", values=_COUNTS),
    ),
    # Geminga's brokers ask each other so.
    Story(
        "snapshots of others",
        get(f"{_BASE}/bufferSnapshot/{{ns}}/t", keys=False),
        Call("PUT", f"{_BASE}/bufferSnapshot/{{ns}}/t", keys=False),
        Call("DELETE", f"{_BASE}/bufferSnapshot/{{ns}}/t", keys=False),
    ),
]
