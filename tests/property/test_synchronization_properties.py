"""Clusters that are kept alike: any interleaving of changes, events, crashes and repetitions ends in one tree.

The oracle knows which changes each value stands on: an administrator's change that is in no history of what holds in
the end must have been told as undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.synchronization.core.deciding import (
    Announcement,
    Decision,
    Objections,
    Outcome,
    Stored,
    ThisCluster,
    change_here,
    decide,
)
from geminga.broker.synchronization.core.events import SyncEvent
from geminga.broker.synchronization.core.records import PathRecord, decode, encode
from geminga.broker.synchronization.paths import digest_at

NAMES = ("east", "north", "south", "west")
PATHS = ("/admin/policies/a", "/admin/policies/b")
#: Rounds after which everybody has heard everything, many times over.
ROUNDS_MAX = 60
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("change", "delete", "look", "look", "copy", "copy", "deliver", "deliver", "again")),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 1),
        # After so many writes the power goes.
        st.sampled_from((1, 2, 9, 9, 9)),
        # Milliseconds that pass.
        st.integers(0, 3),
    ),
    max_size=60,
)


class PowerLossError(Exception):
    """The leader is gone in the midst of a step."""


@dataclass
class Node:
    value: bytes | None
    version: int
    created_ms: int
    modified_ms: int
    #: The change that it is of.
    change: int


@dataclass
class Cluster:
    name: str
    skew_ms: int
    nodes: dict[str, Node] = field(default_factory=dict)
    #: As they are stored.
    records: dict[str, bytes] = field(default_factory=dict)
    #: The topic here.
    log: list[SyncEvent] = field(default_factory=list)
    acknowledged: int = 0
    #: Of the others' own events, how many were copied here.
    copied: dict[str, int] = field(default_factory=dict)
    #: What was last in the place of what is not there: the deletion.
    gone: dict[str, int] = field(default_factory=dict)


class Mesh:
    def __init__(self, skews_ms: Iterable[int]) -> None:
        self.now_ms = 10_000
        self.clusters = [Cluster(name, skew_ms) for name, skew_ms in zip(NAMES, skews_ms, strict=False)]
        #: Change -> those that it stands on.
        self.parents: dict[int, set[int]] = {}
        self.of_stamp: dict[tuple[str, object], int] = {}
        self.told: set[int] = set()
        self.left = 0

    # ---- what happens

    def write(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerLossError

    def change(self, cluster: Cluster, path: str, is_deletion: bool) -> None:
        node = cluster.nodes.get(path)
        if is_deletion and node is None:
            return
        number = len(self.parents)
        before = cluster.gone.get(path) if node is None else node.change
        self.parents[number] = set() if before is None else {before}
        if is_deletion and path not in cluster.records:
            self.told.add(number)  # nobody ever heard of what it deletes
        value = None if is_deletion else b'{"n":%d}' % number
        self.put(cluster, path, value, number)

    def put(self, cluster: Cluster, path: str, value: bytes | None, change: int) -> None:
        now_ms = self.now_ms + cluster.skew_ms
        node = cluster.nodes.pop(path, None)
        if value is None:
            cluster.gone[path] = change
            return
        version, created_ms = (0, now_ms) if node is None else (node.version + 1, node.created_ms)
        cluster.nodes[path] = Node(value, version, created_ms, now_ms, change)

    def state(self, cluster: Cluster, path: str) -> tuple[PathRecord | None, Stored, int | None]:
        node, record = cluster.nodes.get(path), cluster.records.get(path)
        found = None if record is None else decode(record)
        if node is None:
            return found, Stored("", -1), cluster.gone.get(path)
        stored = Stored(digest_at(path, node.value), node.version, node.created_ms, node.modified_ms)
        return found, stored, node.change

    def here(self, cluster: Cluster) -> ThisCluster:
        return ThisCluster(cluster.name, self.now_ms + cluster.skew_ms, 0)

    def look(self, cluster: Cluster, path: str) -> None:
        record, stored, change = self.state(cluster, path)
        found = change_here(record, stored, self.here(cluster))
        if isinstance(found, Announcement):
            node = cluster.nodes.get(path)
            assert change is not None
            assert self.of_stamp.setdefault((path, found.stamp), change) == change
            self.write()
            cluster.records[path] = encode(found.record)
            self.write()
            value = None if node is None else node.value
            cluster.log.append(
                SyncEvent(path, value, found.stamp, found.record.is_first, found.replaces, tells_replaced=True)
            )
            self.write()
            cluster.records[path] = encode(found.record.settled())
        elif found is not None:
            self.write()
            cluster.records[path] = encode(found)

    def copy(self, source: Cluster, target: Cluster, *, again: bool = False) -> None:
        own = [event for event in source.log if event.stamp.cluster == source.name]
        done = target.copied.get(source.name, 0)
        if again:
            done = max(0, done - 2)
        if source is not target and done < len(own):
            target.log.append(own[done])
            target.copied[source.name] = done + 1

    def deliver(self, cluster: Cluster) -> None:
        if cluster.acknowledged >= len(cluster.log):
            return
        event = cluster.log[cluster.acknowledged]
        if event.stamp.cluster == cluster.name:
            cluster.acknowledged += 1
            return
        record, stored, change = self.state(cluster, event.path)
        digest = digest_at(event.path, event.value)
        found = decide(record, stored, event, digest, self.here(cluster), Objections())
        self.follow(cluster, event, found, change, is_same=digest == stored.digest)
        cluster.acknowledged += 1

    def follow(self, cluster: Cluster, event: SyncEvent, found: Decision, change: int | None, *, is_same: bool) -> None:
        theirs = self.of_stamp[event.path, event.stamp]
        if found.undone is not None:
            assert change is not None
            self.told.add(theirs if found.outcome is Outcome.OLD else change)
        if is_same and change is not None and found.outcome in (Outcome.NOTED, Outcome.OLD) and change != theirs:
            # Both say the same: whoever sees one sees the other.
            self.parents[theirs].add(change)
            self.parents[change].add(theirs)
        if found.record is not None:
            self.write()
            cluster.records[event.path] = encode(found.record)
        if found.outcome is Outcome.MADE:
            assert found.record is not None
            self.write()
            self.put(cluster, event.path, event.value, theirs)
            self.write()
            cluster.records[event.path] = encode(found.record.settled())
        elif found.outcome is Outcome.NOTED:
            if event.path in cluster.nodes:
                cluster.nodes[event.path].change = theirs
            else:
                cluster.gone[event.path] = theirs

    def step(self, what: str, cluster: Cluster, other: Cluster, path: str, writes: int) -> None:
        self.left = writes
        try:
            if what in ("change", "delete"):
                self.change(cluster, path, what == "delete")
            elif what == "look":
                self.look(cluster, path)
            elif what == "deliver":
                self.deliver(cluster)
            elif what == "copy":
                self.copy(other, cluster, again=writes < 9)
            else:
                cluster.acknowledged = max(0, cluster.acknowledged - 2)
        except PowerLossError:
            pass

    def come_to_rest(self) -> None:
        for _ in range(ROUNDS_MAX):
            self.now_ms += 1
            before = sum(len(cluster.log) for cluster in self.clusters)
            self.left = 1 << 30
            for cluster in self.clusters:
                for path in PATHS:
                    self.look(cluster, path)
                for other in self.clusters:
                    for _ in range(len(other.log)):
                        self.copy(other, cluster)
                while cluster.acknowledged < len(cluster.log):
                    self.deliver(cluster)
            if before == sum(len(cluster.log) for cluster in self.clusters):
                return
        raise AssertionError("it goes on for ever")

    def seen_by(self, change: int) -> set[int]:
        found: set[int] = set()
        waiting = [change]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.parents[one]
        return found


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=4), STEPS)
def test_clusters_end_alike_and_no_change_is_lost_without_a_word(skews_ms: list[int], steps: list[tuple]) -> None:
    mesh = Mesh(skews_ms)
    of_path: dict[int, str] = {}
    count = len(mesh.clusters)
    for what, first, second, which, writes, ms in steps:
        mesh.now_ms += ms
        before = len(mesh.parents)
        mesh.step(what, mesh.clusters[first % count], mesh.clusters[second % count], PATHS[which], writes)
        of_path.update(dict.fromkeys(range(before, len(mesh.parents)), PATHS[which]))
    mesh.come_to_rest()
    for path in PATHS:
        values = {None if (node := cluster.nodes.get(path)) is None else node.value for cluster in mesh.clusters}
        assert len(values) == 1
        last = {change for cluster in mesh.clusters if (change := mesh.state(cluster, path)[2]) is not None}
        # Who is told of a change knows what it stood on.
        seen = set[int]().union(*(mesh.seen_by(change) for change in last | mesh.told))
        lost = {change for change, place in of_path.items() if place == path} - seen
        assert not lost
        records = [decode(cluster.records[path]) for cluster in mesh.clusters if path in cluster.records]
        assert all(record is not None and record == record.settled() for record in records)
