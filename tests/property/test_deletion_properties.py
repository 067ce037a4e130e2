"""The rules of deletion against lives of a topic and of a subscription, kept as plain lists of what happened when."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.deletion import (
    CAUGHT_UP_MODE,
    Hold,
    SubscriptionFacts,
    TopicFacts,
    why_subscription_stays,
    why_topic_stays,
)
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.rules.trim import has_unread, ledgers_to_trim
from geminga.model.position import Position
from geminga.wire.managed_ledger import LedgerRecord

NOW_MS = 10_000_000
MODES = ("delete_when_no_subscriptions", CAUGHT_UP_MODE)
TIMES = st.integers(0, NOW_MS)
RETENTIONS = st.one_of(st.just(-1), st.just(0), st.integers(1, NOW_MS))


@dataclass(frozen=True)
class Life:
    """A topic's."""

    #: When each client came and went; None: it is there.
    visits: list[tuple[int, int | None]]
    #: When each ledger with entries was closed.
    closings: list[int]
    #: What each subscription has not read; each cursor of the broker's own.
    subscriptions: list[int]
    own_cursors: list[int]
    readers: int
    writes: int
    held_back: bool

    def last_use_ms(self) -> int:
        """The topic was loaded at 0."""
        return max([0, *(NOW_MS if left is None else left for _, left in self.visits)])

    def facts(self) -> TopicFacts:
        return TopicFacts(
            idle_ms=NOW_MS - self.last_use_ms(),
            stored_ms_ago=NOW_MS - max(self.closings) if self.closings else None,
            clients=sum(left is None for _, left in self.visits),
            writes=self.writes,
            held_back=self.held_back,
            subscriptions=len(self.subscriptions),
            readers=self.readers,
            backlog=max(self.subscriptions, default=0),
            internal_backlog=max(self.own_cursors, default=0),
        )


def visit(come_ms: int, stay_ms: int, is_there: bool) -> tuple[int, int | None]:
    return come_ms, None if is_there else min(NOW_MS, come_ms + stay_ms)


SMALL = st.integers(0, 2)
LIVES = st.builds(
    Life,
    visits=st.lists(st.builds(visit, TIMES, TIMES, st.integers(0, 3).map(lambda n: n == 0)), max_size=3),
    closings=st.lists(TIMES, max_size=3),
    subscriptions=st.lists(SMALL, max_size=2),
    own_cursors=st.lists(SMALL, max_size=2),
    readers=st.sampled_from([0, 0, 1]),
    writes=st.sampled_from([0, 0, 1]),
    held_back=st.sampled_from([False, False, True]),
)


@given(life=LIVES, mode=st.sampled_from(MODES), idle_min_ms=TIMES, retention_ms=st.one_of(st.none(), RETENTIONS))
def test_topic_goes_exactly_when_nothing_was_promised(
    life: Life, mode: str, idle_min_ms: int, retention_ms: int | None
) -> None:
    promised = [
        any(left is None for _, left in life.visits),
        life.readers > 0,
        life.writes > 0,
        life.held_back,
        any(life.own_cursors),
        any(life.subscriptions) if mode == CAUGHT_UP_MODE else bool(life.subscriptions),
        any(left is not None and NOW_MS - left < idle_min_ms for _, left in life.visits),
        idle_min_ms > NOW_MS,
        retention_ms is None,
        retention_ms == -1,
    ]
    if retention_ms is not None and retention_ms >= 0:
        promised += [NOW_MS - closed < retention_ms for closed in life.closings]
        promised += [NOW_MS - life.last_use_ms() < retention_ms]
    hold = why_topic_stays(life.facts(), mode=mode, idle_min_ms=idle_min_ms, retention_ms=retention_ms)
    assert (hold is None) == (not any(promised))


@given(life=LIVES, mode=st.sampled_from(MODES), idle_min_ms=TIMES, shorter=RETENTIONS, longer=RETENTIONS)
def test_longer_retention_never_deletes_more(
    life: Life, mode: str, idle_min_ms: int, shorter: int, longer: int
) -> None:
    if longer >= 0 and (shorter < 0 or shorter > longer):
        shorter, longer = longer, shorter
    facts = life.facts()
    if why_topic_stays(facts, mode=mode, idle_min_ms=idle_min_ms, retention_ms=longer) is None:
        assert why_topic_stays(facts, mode=mode, idle_min_ms=idle_min_ms, retention_ms=shorter) is None


@given(life=LIVES, mode=st.sampled_from(MODES), retention_ms=RETENTIONS, cut=st.integers(1, 100))
def test_topic_goes_only_when_every_closed_ledger_of_it_could_be_trimmed(
    life: Life, mode: str, retention_ms: int, cut: int
) -> None:
    """The two rules agree: deletion of a topic takes nothing that trimming would have kept."""
    if why_topic_stays(life.facts(), mode=mode, idle_min_ms=cut, retention_ms=retention_ms) is not None:
        return
    infos = [LedgerInfo(i, 1, 10, closed or 1) for i, closed in enumerate(sorted(life.closings))]
    read = Position(len(infos), 0) if life.subscriptions else None
    trimmed = ledgers_to_trim(infos, read, retention_ms=retention_ms, retention_bytes=-1, now_ms=NOW_MS)
    assert trimmed == [info.ledger_id for info in infos]


@given(
    visits=st.lists(st.builds(visit, TIMES, TIMES, st.integers(0, 3).map(lambda n: n == 0)), min_size=1, max_size=4),
    loaded_ms=TIMES,
    expiry_ms=st.one_of(st.just(0), TIMES),
    settle_ms=TIMES,
    is_durable=st.booleans(),
    is_moving=st.booleans(),
)
def test_subscription_expires_exactly_when_nobody_used_it_for_too_long(
    visits: list[tuple[int, int | None]],
    loaded_ms: int,
    expiry_ms: int,
    settle_ms: int,
    is_durable: bool,
    is_moving: bool,
) -> None:
    there = [left for _, left in visits if left is None]
    last_ms = max((left for _, left in visits if left is not None), default=0)
    facts = SubscriptionFacts(NOW_MS - last_ms, NOW_MS - loaded_ms, is_durable, len(there), is_moving)
    may_go = (
        is_durable
        and not is_moving
        and not there
        and expiry_ms > 0
        and last_ms + expiry_ms < NOW_MS
        and loaded_ms + settle_ms <= NOW_MS
    )
    hold = why_subscription_stays(facts, expiry_ms=expiry_ms, settle_ms=settle_ms)
    assert (hold is None) == may_go
    assert hold is not Hold.CLOSING


def test_topic_that_was_loaded_long_ago_stays_as_long_as_what_it_stored():
    """Its last use was long ago, and a ledger was closed since."""
    facts = TopicFacts(idle_ms=100, stored_ms_ago=10)
    rules = {"mode": "delete_when_no_subscriptions", "idle_min_ms": 60}
    assert why_topic_stays(facts, **rules, retention_ms=11) is Hold.RETENTION
    assert why_topic_stays(facts, **rules, retention_ms=10) is None


@given(
    entries=st.lists(st.integers(0, 3), max_size=5),
    acknowledged=st.integers(0, 15),
    is_open=st.booleans(),
    is_known=st.booleans(),
)
def test_nothing_is_unread_only_where_every_entry_was_acknowledged(
    entries: list[int], acknowledged: int, is_open: bool, is_known: bool
) -> None:
    """A log with its entries as a plain list, of which the first ``acknowledged`` are; the last ledger may be open."""
    log = [Position(7 + number, entry) for number, count in enumerate(entries) for entry in range(count)]
    acknowledged = min(acknowledged, len(log))
    mark = log[acknowledged - 1] if acknowledged else Position(-1, -1)
    ledgers = [
        LedgerRecord(7 + number, 0, 0, 0)
        if is_open and number == len(entries) - 1
        else LedgerRecord(7 + number, n, n, 1)
        for number, n in enumerate(entries)
    ]
    unread = has_unread(ledgers, mark if is_known else None)
    assert unread or acknowledged == len(log), "nothing that is left is missed"
    if not (is_open and entries):
        assert unread == (acknowledged < len(log) or (bool(log) and not is_known))
