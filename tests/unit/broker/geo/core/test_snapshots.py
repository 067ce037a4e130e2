"""Snapshots of replicated subscriptions: what is at or before a position over there is at or before the one here."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga.broker.geo.core.snapshots import AfterAnswer, SnapshotBuilder, SnapshotCache
from geminga.model.position import Position
from geminga.runtime import SystemRng
from geminga.wire.pulsar.subscription_markers import InCluster, Snapshot


def at(entry_id: int) -> Position:
    return Position(1, entry_id)


def snapshot(entry_id: int) -> Snapshot:
    return Snapshot(f"{entry_id}", at(entry_id), (InCluster("west", at(10 * entry_id)),))


def test_one_other_cluster_is_asked_once() -> None:
    builder = SnapshotBuilder("id", ["west"], 0)
    assert builder.missing == {"west"}
    assert builder.answered(InCluster("north", at(1)), at(2)) is AfterAnswer.WAIT
    assert builder.answered(InCluster("west", at(5)), at(7)) is AfterAnswer.COMPLETE
    assert builder.snapshot() == Snapshot("id", at(7), (InCluster("west", at(5)),))


def test_several_are_asked_twice_and_the_first_answers_and_the_last_position_count() -> None:
    builder = SnapshotBuilder("id", ["west", "north"], 0)
    assert builder.answered(InCluster("west", at(5)), at(7)) is AfterAnswer.WAIT
    assert builder.answered(InCluster("west", at(6)), at(8)) is AfterAnswer.WAIT  # a repetition
    assert builder.answered(InCluster("north", at(3)), at(6)) is AfterAnswer.ASK_AGAIN
    assert builder.missing == {"west", "north"}
    # The replicators here read the answers in any order.
    assert builder.answered(InCluster("north", at(9)), at(20)) is AfterAnswer.WAIT
    assert builder.answered(InCluster("west", at(9)), at(12)) is AfterAnswer.COMPLETE
    assert builder.snapshot() == Snapshot("id", at(20), (InCluster("north", at(3)), InCluster("west", at(5))))


def test_the_last_snapshot_that_is_acknowledged_is_told_once() -> None:
    cache = SnapshotCache(30)
    for entry_id in (10, 20, 20, 15, 30):
        cache.add(snapshot(entry_id))
    assert cache.positions == (at(10), at(20), at(30))
    assert cache.acknowledged(at(9)) is None
    assert cache.acknowledged(at(29)) == snapshot(20)
    assert (cache.acknowledged(at(29)), len(cache)) == (None, 1)
    cache.clear()
    assert cache.acknowledged(at(100)) is None


@pytest.mark.parametrize("count", [1, 30, 100, 10_000])
def test_snapshots_that_are_remembered_are_spread_over_the_backlog(count: int) -> None:
    cache = SnapshotCache(30)
    for entry_id in range(count):
        cache.add(snapshot(entry_id))
    found = [position.entry_id for position in cache.positions]
    assert (found[0], found[-1], len(found)) == (0, count - 1, min(count, 30))
    gaps = [after - before for before, after in pairwise(found)]
    # Not further apart than four times what is possible.
    assert max(gaps, default=0) <= max(1, 4 * count // 29)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_small_cache_remembers_the_last_ones(size: int) -> None:
    cache = SnapshotCache(size)
    for entry_id in range(10):
        cache.add(snapshot(entry_id))
    assert len(cache) == size
    assert cache.positions[-1] == at(9)


class Mesh:
    """Topics of clusters that copy to each other over links that deliver whenever they like, in order."""

    def __init__(self, clusters: int, rng: SystemRng) -> None:
        self.rng = rng
        self.names = [f"c{number}" for number in range(clusters)]
        #: (what, where it was published), in order.
        self.logs: dict[str, list[tuple[object, str]]] = {name: [] for name in self.names}
        self.sent: dict[tuple[str, str], int] = {
            (source, target): 0 for source in self.names for target in self.names if source != target
        }
        self.heard: dict[tuple[str, str], int] = dict.fromkeys(self.sent, 0)
        self.builder = SnapshotBuilder("id", self.names[1:], 0)
        self.snapshot: Snapshot | None = None
        self.messages = 0

    def publish(self, name: str, what: object) -> None:
        self.logs[name].append((what, name))

    def step(self, publishing_percent: int = 2) -> None:
        if self.rng.below(100) < publishing_percent:
            self.messages += 1
            self.publish(self.names[self.rng.below(len(self.names))], self.messages)
            return
        source, target = [*self.sent][self.rng.below(len(self.sent))]
        if self.rng.below(2):
            self.copy(source, target)
        else:
            self.hear(source, target)

    def copy(self, source: str, target: str) -> None:
        index = self.sent[source, target]
        if index < len(self.logs[source]):
            self.sent[source, target] += 1
            what, origin = self.logs[source][index]
            if origin == source:
                self.logs[target].append((what, origin))

    def hear(self, source: str, target: str) -> None:
        """``target`` looks at the next entry of its log for markers of ``source``."""
        index = self.heard[source, target]
        if index >= len(self.logs[target]):
            return
        self.heard[source, target] += 1
        what, origin = self.logs[target][index]
        if origin != source:
            return
        if what == "ask":
            self.publish(target, InCluster(target, at(len(self.logs[target]) - 1)))
        elif isinstance(what, InCluster) and target == self.names[0] and self.snapshot is None:
            step = self.builder.answered(what, at(index))
            if step is AfterAnswer.ASK_AGAIN:
                self.publish(target, "ask")
            elif step is AfterAnswer.COMPLETE:
                self.snapshot = self.builder.snapshot()


@settings(max_examples=40)
@given(st.integers(2, 4), st.integers(0, 1 << 32))
def test_who_goes_where_a_snapshot_says_misses_nothing(clusters: int, seed: int) -> None:
    mesh = Mesh(clusters, SystemRng(seed))
    for _ in range(60):
        mesh.step(40)
    mesh.publish(mesh.names[0], "ask")
    for _ in range(20_000):
        if mesh.snapshot is not None:
            break
        mesh.step()
    assert mesh.snapshot is not None
    here = {what for what, _ in mesh.logs[mesh.names[0]][: mesh.snapshot.local.entry_id + 1] if isinstance(what, int)}
    for cluster, position in mesh.snapshot.others:
        there = {what for what, _ in mesh.logs[cluster][: position.entry_id + 1] if isinstance(what, int)}
        assert there <= here, f"{there - here} of {cluster} would be passed over"
