"""Waiting of journal groups in a small world of producers and a disk: what it saves, and that it slows nobody down."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from geminga.bookie.core.group_pacing import ARRIVALS_MIN, ENTRIES_ENOUGH, FREE_GROUPS, REST_MAX_S, GroupPacing

WAIT_S = 0.001


@dataclass
class World:
    """One disk, whose syncs take ``sync_s``; producers by the time from a receipt to their next record, 0: open."""

    sync_s: float
    pacing: GroupPacing | None
    events: list = field(default_factory=list)
    filling: list = field(default_factory=list)
    in_flight: list = field(default_factory=list)
    now: float = 0.0
    timer_at: float = -1.0
    syncs: int = 0
    records: int = 0
    longest_wait: float = 0.0
    waits: int = 0

    def run(self, think_s, open_times, until):
        for number, think in enumerate(think_s):
            heapq.heappush(self.events, (number * 1e-5, 0, think))
        for at in open_times:
            heapq.heappush(self.events, (at, 0, 0.0))
        while self.events and self.events[0][0] < until:
            self.now, kind, think = heapq.heappop(self.events)
            if kind == 0:
                self.filling.append((self.now, think))
            elif kind == 1:
                if self.pacing is not None:
                    self.pacing.durable(len(self.in_flight) + len(self.filling))
                for _, again in self.in_flight:
                    self.records += 1
                    if again:
                        heapq.heappush(self.events, (self.now + again, 0, again))
                self.in_flight = []
            self.look()
        return self

    def look(self):
        if self.in_flight or not self.filling:
            return
        left = self.pacing.wait_s(self.now, len(self.filling), len(self.filling)) if self.pacing is not None else 0.0
        if left > 0:
            assert left <= WAIT_S
            self.waits += 1
            if self.timer_at <= self.now:
                self.timer_at = self.now + left + 1e-9
                heapq.heappush(self.events, (self.timer_at, 2, 0.0))
            return
        self.longest_wait = max(self.longest_wait, self.now - self.filling[0][0])
        if self.pacing is not None:
            self.pacing.begun(self.now, len(self.filling))
        self.in_flight, self.filling = self.filling, []
        self.syncs += 1
        heapq.heappush(self.events, (self.now + self.sync_s, 1, 0.0))


def paced(sync_s, think_s=(), open_times=(), until=1.01):
    return World(sync_s, GroupPacing(WAIT_S)).run(think_s, open_times, until)


def unpaced(sync_s, think_s=(), open_times=(), until=1.01):
    return World(sync_s, None).run(think_s, open_times, until)


SYNCS = st.sampled_from([0.00005, 0.0001, 0.00015, 0.0004, 0.002, 0.01])
THINKS = st.sampled_from([0.00002, 0.0001, 0.0002, 0.0005, 0.001, 0.003, 0.02])


@settings(max_examples=25)
@given(SYNCS, THINKS)
def test_one_producer_that_awaits_each_receipt_never_waits(sync_s, think_s):
    world = paced(sync_s, [think_s])
    assert (world.waits, world.longest_wait) == (0, 0)
    assert world.records == unpaced(sync_s, [think_s]).records


@settings(max_examples=25)
@given(SYNCS, st.lists(THINKS, min_size=2, max_size=24))
@example(0.00015, [0.0001] * 3 + [0.0005])
@example(0.00015, [0.0001] * 16)
@example(0.00005, [0.00002, 0.001])
def test_producers_that_await_their_receipts_are_hardly_slower(sync_s, think_s):
    """Whoever is slower with waiting stops it soon: the first second has the most of that."""
    assert paced(sync_s, think_s, until=1.0).records >= 0.75 * unpaced(sync_s, think_s, until=1.0).records


@given(st.integers(2, 24), st.sampled_from([0.0001, 0.00015, 0.0003]))
@settings(max_examples=10)
def test_producers_in_step_share_syncs_and_are_not_slower(count, think_s):
    together, alone = (run(0.00015, [think_s] * count, until=0.5) for run in (paced, unpaced))
    assert together.records >= 0.98 * alone.records
    assert together.syncs <= alone.syncs


@settings(max_examples=25)
@given(st.sampled_from([0.00005, 0.0001, 0.0003]), st.integers(100, 2_000), st.integers(0, 10_000))
def test_records_that_come_seldom_never_wait(sync_s, rate, jitter):
    """Fewer than some within the longest wait, evenly or two together."""
    times = [number / rate + (jitter * number % 97) / 97 * 0.2 / rate for number in range(rate)]
    assert paced(sync_s, open_times=times).waits == 0


@settings(max_examples=25)
@given(
    st.sampled_from([0.00015, 0.0003]),
    st.integers(8_000, 20_000),
    st.lists(st.floats(0, 1), min_size=50, max_size=50),
)
def test_records_that_come_densely_share_syncs_and_wait_at_most_as_said(sync_s, rate, jitter):
    times = sorted((number + jitter[number % 50]) / rate for number in range(rate))
    world = paced(sync_s, open_times=times)
    assert world.longest_wait <= WAIT_S + sync_s + 1e-6
    assert world.records >= 0.99 * rate
    assert world.syncs < 0.75 * unpaced(sync_s, open_times=times).syncs


def test_even_records_share_the_sync_of_their_millisecond():
    times = [number / 10_000 for number in range(10_000)]
    assert unpaced(0.00015, open_times=times).syncs > 6_000
    assert paced(0.00015, open_times=times).syncs < 1_250


def test_group_that_is_large_or_old_does_not_wait():
    pacing = GroupPacing(WAIT_S)
    now = 0.0
    for _ in range(FREE_GROUPS + 1):
        now += 0.0002
        pacing.begun(now, ARRIVALS_MIN)
        pacing.durable(2 * ARRIVALS_MIN)
    assert 0 < pacing.wait_s(now + 0.0002, 1, 1) <= WAIT_S - 0.0002 + 1e-9
    assert pacing.wait_s(now + 0.0002, 1, ENTRIES_ENOUGH) == 0
    assert pacing.wait_s(now + 0.0002, 2 * ARRIVALS_MIN, 1) == 0
    assert pacing.wait_s(now + WAIT_S, 1, 1) == 0
    assert pacing.wait_s(now + 0.5, 1, 1) == 0
    for _ in range(FREE_GROUPS - 2):  # now they come seldom, though many have no answer yet
        now += 0.0009
        pacing.begun(now, 1)
        pacing.durable(2 * ARRIVALS_MIN)
    assert pacing.wait_s(now + 0.0002, 1, 1) == 0


def test_waiting_that_slows_down_is_tried_ever_more_seldom():
    """Five who answer at once and one who takes his time: those who wait for him do half as much."""
    pacing, now, held, tried = GroupPacing(WAIT_S), 0.0, False, []
    while now < 130:
        wait = pacing.wait_s(now + 0.00025, 1, 1)
        if bool(wait) != held:
            held = bool(wait)
            tried.append(now) if held else None
        now += 0.0011 if held else 0.00025
        pacing.begun(now, 5)
        pacing.durable(6)
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[-1] >= REST_MAX_S / 2
    assert len(tried) <= 10
