"""Snapshots of replicated subscriptions: how one comes about, and which a subscription remembers. Pure.

A snapshot is a position here and one in each other cluster, such that all that is at or before those is at or before
the position here. Who has acknowledged everything up to it here has, over there, seen all up to there.

Each other cluster is asked by a marker in the topic and answers with the end of its topic then; the answer comes behind
all that was published there before it. With several other clusters that is not enough: what the second published may
have been in the first when that answered, and not be here yet. So all are asked again once all have answered: what the
second answers now comes behind all that the first had. The positions over there are those of the first round, the one
here is the last answer's of the second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import NamedTuple

from geminga.model.position import Position
from geminga.wire.pulsar.subscription_markers import InCluster, Snapshot


class AfterAnswer(Enum):
    """What comes after an answer."""

    WAIT = "wait"
    ASK_AGAIN = "ask again"
    COMPLETE = "complete"


class SnapshotBuilder:
    """One snapshot that is being made."""

    __slots__ = ("_answers", "_is_second_round", "_local", "_missing", "_others", "asked", "snapshot_id", "started_ms")

    def __init__(self, snapshot_id: str, others: Collection[str], started_ms: int) -> None:
        """``others``: the other clusters, one at least. ``started_ms``: on a clock that does not go back."""
        self.snapshot_id = snapshot_id
        self.started_ms = started_ms
        #: Where it was first asked for here, once that is stored.
        self.asked: Position | None = None
        self._others = frozenset(others)
        self._missing = set(others)
        self._answers: dict[str, Position] = {}
        self._is_second_round = len(self._others) == 1
        self._local: Position | None = None

    @property
    def missing(self) -> frozenset[str]:
        """Who has not answered in this round."""
        return frozenset(self._missing)

    def answered(self, answer: InCluster, position: Position) -> AfterAnswer:
        """``position``: of the answer in the topic here. What is no answer to what was asked changes nothing."""
        if answer.cluster not in self._missing:
            return AfterAnswer.WAIT
        self._answers.setdefault(answer.cluster, answer.position)
        self._missing.discard(answer.cluster)
        if self._is_second_round:
            # Answers of several clusters are not read in their order.
            self._local = position if self._local is None else max(self._local, position)
        if self._missing:
            return AfterAnswer.WAIT
        if not self._is_second_round:
            self._is_second_round = True
            self._missing = set(self._others)
            return AfterAnswer.ASK_AGAIN
        return AfterAnswer.COMPLETE

    def snapshot(self) -> Snapshot:
        """The snapshot, after COMPLETE."""
        assert self._local is not None
        others = tuple(InCluster(cluster, self._answers[cluster]) for cluster in sorted(self._answers))
        return Snapshot(self.snapshot_id, self._local, others)


class _Kept(NamedTuple):
    #: Of the snapshots that were added, which one it is.
    number: int
    snapshot: Snapshot


class SnapshotCache:
    """Snapshots that a subscription has read and not acknowledged yet: a bounded number, spread over its backlog.

    Where there are more than that the one goes whose neighbours are closest to each other, and neither the first nor
    the last: a subscription that acknowledges slowly always has one near ahead (apache/pulsar#25044).
    """

    __slots__ = ("_added", "_kept", "_size_max")

    def __init__(self, size_max: int) -> None:
        """``size_max``: snapshots, one at least."""
        self._size_max = size_max
        self._added = 0
        #: Their positions here ascend.
        self._kept: list[_Kept] = []

    def __len__(self) -> int:
        """How many it remembers."""
        return len(self._kept)

    @property
    def positions(self) -> tuple[Position, ...]:
        """Where, in this cluster."""
        return tuple(kept.snapshot.local for kept in self._kept)

    def add(self, snapshot: Snapshot) -> None:
        """One that was read; what is not behind all others was read before, and is known."""
        if self._kept and snapshot.local <= self._kept[-1].snapshot.local:
            return
        self._kept.append(_Kept(self._added, snapshot))
        self._added += 1
        if len(self._kept) > self._size_max:
            self._thin()

    def acknowledged(self, position: Position) -> Snapshot | None:
        """The last one at or before ``position``, up to which all is acknowledged; it and those before are forgotten.
        None: there is none."""
        count = 0
        while count < len(self._kept) and self._kept[count].snapshot.local <= position:
            count += 1
        if not count:
            return None
        found = self._kept[count - 1].snapshot
        del self._kept[:count]
        return found

    def clear(self) -> None:
        """The subscription was moved: it reads again what it has not acknowledged."""
        self._kept.clear()

    def _thin(self) -> None:
        kept = self._kept
        if len(kept) <= 2:
            del kept[0]
            return
        gap: Callable[[int], int] = lambda at: kept[at + 1].number - kept[at - 1].number  # noqa: E731
        del kept[min(range(1, len(kept) - 1), key=gap)]
