"""A bookie beside a metadata store that is restored from backups, of any age and at any time.

The oracle is the list of ledgers whose deletion somebody asked for: nothing else may ever be forgotten, and what was
deleted in the sight of the process is forgotten at the next look. Beside a store that was never restored nothing is
kept at all, whatever was deleted between the last look and a kill.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from geminga.bookie.core.deletion_guard import (
    BELIEVED_MAX,
    DeletionGuard,
    Quarantine,
    decode_mark,
    decode_quarantine,
    encode_mark,
    encode_quarantine,
    lineage,
)

INSTANCE = b"0123456789abcdef"
NUMBER = st.integers(0, 1000)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(1, 30)),
        st.tuples(st.just("delete"), st.lists(NUMBER, min_size=1, max_size=30)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("killed at the mark"), st.just(0)),
        st.tuples(st.just("backup"), st.just(0)),
        st.tuples(st.just("restore"), NUMBER),
        st.tuples(st.just("restore under way"), NUMBER),
    ),
    max_size=30,
)


class Bookie:
    """The bookie, the metadata store, its backups, and what was asked for."""

    def __init__(self, share_max: float) -> None:
        self.share_max = share_max
        self.live: set[int] = set()
        self.next_id = 0
        self.known: set[int] = set()
        self.newest = -1
        self.asked: set[int] = set()
        #: Deleted since they were made, or listed, in this process.
        self.in_sight: set[int] = set()
        self.seen: set[int] = set()
        #: In the store, and noted by the bookie.
        self.mark: int | None = None
        self.noted: int | None = None
        self.was_restored = False
        self.backups: list[tuple[set[int], int, int | None]] = [(set(), 0, None)]
        self.guard = DeletionGuard(Quarantine(BitMap64()), share_max)
        self.look()

    def create(self, count: int) -> None:
        for _ in range(count):
            self.live.add(self.next_id)
            self.known.add(self.next_id)
            self.seen.add(self.next_id)
            self.guard.saw(self.next_id)
            self.newest = self.next_id
            self.next_id += 1

    def delete(self, numbers: list[int]) -> None:
        for number in numbers:
            if self.live:
                ledger_id = sorted(self.live)[number % len(self.live)]
                self.live.discard(ledger_id)
                self.asked.add(ledger_id)
                if ledger_id in self.seen:
                    self.in_sight.add(ledger_id)

    def look(self, *, is_killed: bool = False) -> None:
        judgement = self.guard.judge(self.known, self.live, self.next_id, lineage(self.noted, self.mark))
        self.mark = max(self.noted or 0, self.mark or 0) + 1
        if not is_killed:
            self.noted = decode_mark(encode_mark(self.mark, INSTANCE), INSTANCE)
        self.seen |= self.known & self.live
        forgotten = set(judgement.deleted)
        assert forgotten <= self.known - self.live
        assert forgotten <= self.asked, "a ledger is forgotten that nobody deleted"
        self.known -= forgotten
        assert not self.in_sight & self.known, "what was deleted in sight stays"
        assert set(self.guard.quarantine.ledger_ids) <= self.known - self.live
        if self.share_max >= 1 or not self.was_restored:
            assert self.known <= self.live
        # As a start does: ids under which entries are stored are not given out again.
        self.next_id = max(self.next_id, self.newest + 1)

    def restart(self) -> None:
        again = decode_quarantine(encode_quarantine(self.guard.quarantine, INSTANCE), INSTANCE)
        assert again == self.guard.quarantine
        self.guard = DeletionGuard(again, self.share_max)
        self.seen, self.in_sight = set(), set()
        self.look()

    def restore(self, number: int) -> None:
        self.was_restored = True
        live, self.next_id, self.mark = self.backups[number % len(self.backups)]
        self.live = set(live)
        self.in_sight = set()


@given(steps, st.sampled_from([0.0, 0.2, 0.9]))
def test_only_what_somebody_deleted_is_ever_forgotten(story, share_max):
    bookie = Bookie(share_max)
    for action, argument in story:
        if action == "create":
            bookie.create(argument)
        elif action == "delete":
            bookie.delete(argument)
        elif action == "backup":
            bookie.backups.append((set(bookie.live), bookie.next_id, bookie.mark))
        elif action == "restart":
            bookie.restart()
        elif action == "killed at the mark":
            bookie.look(is_killed=True)
            bookie.restart()
        elif action == "restore":
            bookie.restore(argument)
            bookie.restart()
        elif action == "restore under way":
            bookie.restore(argument)
            bookie.look()
        else:
            bookie.look()


@given(st.sets(st.integers(0, 400)), st.sets(st.integers(0, 400)), st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_without_a_counter_a_large_share_of_what_was_never_seen_stays_until_told(known, live, share_max):
    guard = DeletionGuard(Quarantine(BitMap64()), share_max)
    dead = known - live
    judgement = guard.judge(known, live, None)
    believed = share_max >= 1 or len(dead) <= max(BELIEVED_MAX, int(share_max * len(known)))
    assert set(judgement.deleted) == (dead if believed else set())
    assert judgement.quarantined == (0 if believed else len(dead))
    if believed:
        return
    # Ledgers that are made since do not make it a smaller share.
    more = set(range(1000, 1000 + 20 * len(dead)))
    for ledger_id in more:
        guard.saw(ledger_id)
    assert not guard.judge(known | more, live | more, None).deleted
    # If most come back, the rest was deleted; or the operator says so.
    few = set(sorted(dead)[:BELIEVED_MAX])
    assert set(guard.judge(known | more, (known - few) | live | more, None).deleted) == few
    told = DeletionGuard(guard.quarantine, 1.0)
    assert set(told.judge(known, live, None).deleted) == dead
    assert not told.quarantine.ledger_ids
