"""Findings over any statistics: never an exception, each with its words; nothing is named where nothing is wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminga.app.handles.core.causes import DoctorFacts, findings_of

_COUNTS = st.integers(-1, 3)
_TOPIC = "persistent://public/default/t"


def _documents(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each member is there or not."""
    return st.fixed_dictionaries({}, optional=members)


_CONSUMERS = _documents(
    consumerName=st.sampled_from(["a", "b"]),
    address=st.sampled_from(["", "/10.0.0.1:5"]),
    availablePermits=_COUNTS,
    unackedMessages=_COUNTS,
    blockedConsumerOnUnackedMsgs=st.booleans(),
    drainingHashes=st.lists(
        st.fixed_dictionaries({"hash": _COUNTS, "unackMsgs": _COUNTS, "blockedAttempts": _COUNTS}), max_size=5
    ),
)
_SUBSCRIPTIONS = _documents(
    type=st.sampled_from(["None", "Exclusive", "Shared", "Failover", "Key_Shared"]),
    activeConsumerName=st.sampled_from(["a", "c"]),
    isReplicated=st.booleans(),
    msgBacklog=_COUNTS,
    msgDelayed=_COUNTS,
    msgInReplay=_COUNTS,
    nextDueTimestamp=st.integers(0, 1 << 50),
    blockedSubscriptionOnUnackedMsgs=st.booleans(),
    heldByRate=st.sampled_from(["Broker", "ResourceGroup", "Topic", "Subscription"]),
    filterFailure=_documents(filters=st.just("m:f"), error=st.just("no"), isHeld=st.booleans()),
    readError=st.fixed_dictionaries({"ledgerId": st.integers(0, 5)}, optional={"isLost": st.booleans()}),
    consumers=st.lists(_CONSUMERS, max_size=4),
)
_INTERNAL = _documents(
    state=st.sampled_from(["LedgerOpened", "ClosedLedger", "Terminated", "Fenced"]),
    lastConfirmedEntry=st.sampled_from(["-1:-1", "3:4"]),
    ledgers=st.lists(
        st.fixed_dictionaries(
            {"ledgerId": st.integers(0, 5), "entries": _COUNTS}, optional={"offloaded": st.booleans()}
        ),
        max_size=3,
    ),
    cursors=_documents(s=_documents(readPosition=st.sampled_from(["3:4", "3:5"]), markDeletePosition=st.just("2:0"))),
    geminga=_documents(
        bookies=_documents(available=_COUNTS, ensembleSize=_COUNTS),
        replicatedSubscriptions=_documents(
            reason=st.sampled_from(["", "cluster west can not be reached"]),
            lastCompletedSnapshotTimestamp=st.integers(0, 1 << 50),
        ),
    ),
)
_TRANSACTIONS = st.dictionaries(
    st.sampled_from(["(0,1)", "(0,2)"]),
    _documents(
        openTimestamp=st.integers(0, 1 << 40),
        owner=st.just("jane"),
        producedPartitions=st.just({_TOPIC: {"startPosition": "3:4", "aborted": False}}),
        ackedPartitions=st.just({_TOPIC: {"s": {}}}),
    ),
)


@given(
    st.none() | _documents(subscriptions=_documents(s=_SUBSCRIPTIONS), backlogSize=_COUNTS),
    _INTERNAL,
    _documents(destination_storage=_documents(policy=st.just("producer_exception"), limitSize=_COUNTS)),
    _TRANSACTIONS,
    _documents(maxReadPosition=st.sampled_from(["2:0", "3:4"])),
)
def test_any_statistics_are_read(stats, internal, quotas, transactions, buffer) -> None:
    facts = DoctorFacts(_TOPIC, 1 << 40, stats, "why", internal, quotas, transactions, buffer)
    found = findings_of(facts)
    # One sentence a cause and subject; a transaction holds what was published, and what was acknowledged.
    assert len({(each.cause, each.subscription, each.sentence) for each in found}) == len(found)
    for each in found:
        assert each.sentence.endswith(".")
        assert each.mends.endswith(".")
        assert "None" not in each.mends
    assert set(findings_of(facts, "s")) == set(found)
    assert {each.subscription for each in findings_of(facts, "other")} <= {""}


@given(st.integers(0, 100), st.integers(1, 1000), st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_who_gets_on_has_nothing(backlog: int, permits: int, unacked: list[int]) -> None:
    consumers = [
        {"consumerName": f"c{number}", "availablePermits": permits, "unackedMessages": each}
        for number, each in enumerate(unacked)
    ]
    stats = {
        "backlogSize": 10,
        "subscriptions": {"s": {"type": "Shared", "msgBacklog": backlog, "consumers": consumers}},
    }
    internal = {
        "state": "LedgerOpened",
        "lastConfirmedEntry": "3:4",
        "cursors": {"s": {"readPosition": "3:2"}},
        "geminga": {"bookies": {"available": 1, "ensembleSize": 1}},
    }
    quotas = {"destination_storage": {"limitSize": 11, "limitTime": -1, "policy": "producer_exception"}}
    assert findings_of(DoctorFacts("t", 0, stats, "", internal, quotas)) == []
