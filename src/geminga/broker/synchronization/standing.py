"""How it stands with what is kept alike: what was told and followed last, what differs, what came to nothing.

For ``geminga doctor --configuration`` and metrics; of the broker that leads, since it does. What differs is remembered
in records, and found again by each walk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.core.coercion import Document, Json
from geminga.broker.synchronization.core.records import NOTHING, PathRecord

if TYPE_CHECKING:
    from geminga.broker.synchronization.core.stamps import Stamp
    from geminga.runtime import Clock

#: Paths that are known to differ; of more only that there are.
DIFFERING_MAX: Final = 10_000
#: Of these, how many are told by name.
NAMED_MAX: Final = 20
#: Sentences about what came to nothing; older ones are in the log.
GIVEN_UP_MAX: Final = 20
SENTENCE_CHARACTERS_MAX: Final = 500


@dataclass(slots=True)
class SyncCounts:
    """Since the broker's start."""

    published: int = 0
    made: int = 0
    #: Changes that came to nothing without having been seen by who made the other.
    undone: int = 0
    #: Changes of others that are not made here, or not yet.
    held: int = 0
    #: Messages that are no events to be followed.
    skipped: int = 0
    #: Changes here that can not be told.
    unsendable: int = 0
    failed: int = 0

    def metrics(self) -> Mapping[str, float]:
        """Under names of our own."""
        return {
            "geminga_configuration_sync_published_total": self.published,
            "geminga_configuration_sync_made_total": self.made,
            "geminga_configuration_sync_undone_total": self.undone,
            "geminga_configuration_sync_held_total": self.held,
            "geminga_configuration_sync_skipped_total": self.skipped,
            "geminga_configuration_sync_unsendable_total": self.unsendable,
            "geminga_configuration_sync_failed_total": self.failed,
        }


class _Event(NamedTuple):
    path: str
    stamp: Stamp
    at_ms: int


class SyncStanding:
    """See the module."""

    __slots__ = (
        "_clock",
        "_differing",
        "_followed",
        "_given_up",
        "_is_more",
        "_told",
        "_troubles",
        "_unsendable",
        "counts",
        "since_ms",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts = SyncCounts()
        #: When this broker began to lead, milliseconds since the epoch; 0: it does not.
        self.since_ms = 0
        self._told: _Event | None = None
        self._followed: _Event | None = None
        #: Path -> why it is not as another cluster's.
        self._differing: dict[str, str] = {}
        #: Path -> why others can not be told of it.
        self._unsendable: dict[str, str] = {}
        self._is_more = False
        self._given_up: deque[tuple[int, str]] = deque(maxlen=GIVEN_UP_MAX)
        #: What does not go on -> why.
        self._troubles: dict[str, str] = {}

    @property
    def differing(self) -> int:
        """Paths that are known to differ."""
        return len(self._differing.keys() | self._unsendable.keys())

    # ---- what happens

    def told(self, path: str, stamp: Stamp) -> None:
        """A change of this cluster."""
        self.counts.published += 1
        self._unsendable.pop(path, None)
        self._told = _Event(path, stamp, self._clock.wall_ms())

    def followed(self, path: str, stamp: Stamp) -> None:
        """What another cluster said of a path has been looked at."""
        self._followed = _Event(path, stamp, self._clock.wall_ms())

    def remembered(self, path: str, record: PathRecord | None, *, is_told: bool = False) -> None:
        """What is remembered of a path by now: it differs, or does not. ``is_told``: there is nothing to be told."""
        if is_told:
            self._unsendable.pop(path, None)
        self._note(self._differing, path, "" if record is None else _difference(record))

    def unsendable(self, path: str, why: str) -> None:
        """A change of this cluster can not be told."""
        self.counts.unsendable += 1
        self._note(self._unsendable, path, f"it is not told to other clusters: {why}")

    def _note(self, noted: dict[str, str], path: str, why: str) -> None:
        if not why:
            noted.pop(path, None)
        elif path in noted or len(noted) < DIFFERING_MAX:
            noted[path] = why
        else:
            self._is_more = True

    def given_up(self, what: str) -> None:
        """A change that comes to nothing, in a sentence."""
        self._given_up.append((self._clock.wall_ms(), what[:SENTENCE_CHARACTERS_MAX]))

    def trouble(self, what: str, why: str) -> None:
        """Something (``lead``, ``tell``, ``receive``, ``follow``) does not go on; an empty ``why``: it does."""
        if why:
            self._troubles[what] = why[:SENTENCE_CHARACTERS_MAX]
        else:
            self._troubles.pop(what, None)

    # ---- what is told of it

    def document(self) -> Document:
        """As JSON."""
        named: dict[str, Json] = dict(sorted((self._unsendable | self._differing).items())[:NAMED_MAX])
        troubles: dict[str, Json] = {**self._troubles}
        counts: dict[str, Json] = {
            name.removeprefix("geminga_configuration_sync_").removesuffix("_total"): int(value)
            for name, value in self.counts.metrics().items()
        }
        return {
            "leadingSinceMs": self.since_ms,
            "lastTold": _event(self._told),
            "lastFollowed": _event(self._followed),
            "differing": {"count": self.differing, "areMore": self._is_more, "paths": named},
            "givenUp": [{"atMs": at_ms, "what": what} for at_ms, what in self._given_up],
            "troubles": troubles,
            "counts": counts,
        }


def _difference(record: PathRecord) -> str:
    if record.held is not None and record.held != record.digest:
        what = "was deleted" if record.digest == NOTHING else "was changed"
        return f"it {what} in cluster {record.stamp.cluster} ({record.stamp}), and stays as it is here"
    if record.differs:
        here = "is deleted here" if record.digest == NOTHING else "is another one here"
        return f"cluster {record.differs} had one before both were kept alike, and it {here}"
    return ""


def _event(event: _Event | None) -> Json:
    if event is None:
        return None
    return {"path": event.path, "cluster": event.stamp.cluster, "changedMs": event.stamp.time_ms, "atMs": event.at_ms}
