"""What becomes of a change, here or in another cluster: pure.

A path is in one of three states: as its record says; changed here since, which is to be told; or in the midst of
another cluster's change. Of two changes the later stamp holds, whichever comes first, in every cluster.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from geminga.broker.synchronization.core.events import SyncEvent
from geminga.broker.synchronization.core.records import NOTHING, Before, PathRecord
from geminga.broker.synchronization.core.stamps import Stamp

#: How far ahead of this cluster's clock a change of another one may be: what is later would beat whatever is changed
#: in Apache's clusters until then.
AHEAD_MS_MAX: Final = 10 * 60_000
#: Apache's brokers do not tell which change theirs replaced: one that is made so soon after one of ours may not have
#: seen it.
UNSEEN_MS: Final = 60_000
#: They follow nothing that is older than what they wrote last, and write what they tell of a moment after its time.
WRITTEN_MS: Final = 2_000


class Stored(NamedTuple):
    """A node as it is in the store."""

    digest: str
    #: -1: there is no node.
    version: int
    created_ms: int = 0
    modified_ms: int = 0


ABSENT: Final = Stored(NOTHING, -1)


class ThisCluster(NamedTuple):
    """This cluster, now."""

    cluster: str
    now_ms: int
    #: Since when it is kept alike with others.
    joined_ms: int


class Announcement(NamedTuple):
    """A change of this cluster that others are to hear of."""

    #: As it is to be before they are told; settled, once they are.
    record: PathRecord

    @property
    def stamp(self) -> Stamp:
        """Of the change."""
        return self.record.stamp

    @property
    def replaces(self) -> Stamp | None:
        """What they are told that it replaces: the same each time, as a record is kept and a message may be lost."""
        return self.record.seen


class Objections(NamedTuple):
    """Why another cluster's change can not be made here as it is."""

    #: Why it is kept here what is deleted elsewhere; empty: it need not be.
    keeps: str = ""
    #: It has fewer partitions than are stored here.
    shrinks: bool = False
    #: It takes this cluster out of a namespace's.
    leaves: bool = False
    #: None of these: it has more partitions than are here, so that those stay reachable where it was made.
    grows: bool = False


class Outcome(Enum):
    """What becomes of an event."""

    AHEAD = "ahead"
    OLD = "old"
    KNOWN = "known"
    #: It is only for where there is nothing.
    FIRST = "first"
    #: The node has that value already.
    NOTED = "noted"
    MADE = "made"
    HELD = "held"
    #: More partitions are here: that they are is told anew.
    COUNTERED = "countered"


class Decision(NamedTuple):
    """What becomes of an event, and what is stored for it."""

    outcome: Outcome
    #: To be written before anything else is done, and before the event is acknowledged; None: nothing is.
    record: PathRecord | None = None
    #: The change of one of the two clusters that comes to nothing without having been seen by who made the other.
    undone: Stamp | None = None
    announcement: Announcement | None = None
    reason: str = ""


def change_here(record: PathRecord | None, stored: Stored, here: ThisCluster) -> Announcement | PathRecord | None:
    """What this cluster changed since its record: to be told; a record to be written instead of it; None: nothing."""
    if record is None:
        if stored.digest == NOTHING:
            return None
        stamp = Stamp(max(1, min(stored.modified_ms, here.now_ms)), here.cluster)
        is_first = stored.modified_ms <= here.joined_ms
        return Announcement(PathRecord(stamp, stored.digest, is_untold=True, is_first=is_first))
    if stored.digest == record.digest:
        if record.is_untold:
            return Announcement(record)
        return None if record == record.settled() else record.settled()
    if record.before is not None and record.before == _as_before(stored):
        return None  # its event comes again
    if record.held is not None and record.held == stored.digest:
        return None
    changed_ms = here.now_ms if stored.digest == NOTHING else min(stored.modified_ms, here.now_ms)
    stamp = Stamp(max(changed_ms, record.stamp.time_ms + 1), here.cluster)
    is_unseen = record.before is not None or record.held is not None
    return Announcement(PathRecord(stamp, stored.digest, record.stamp, is_untold=True, is_unseen=is_unseen))


def adopted(record: PathRecord | None, stored: Stored, here: ThisCluster) -> PathRecord | None:
    """What is remembered of a path in a store that was restored, where both were copied at different moments.

    What differs is no change of this cluster's: it is older than whatever others say. None: it is as it should be.
    """
    if record is None:
        return None if stored.digest == NOTHING else PathRecord(Stamp(1, here.cluster), stored.digest, is_first=True)
    if stored.digest in (record.digest, record.held) and record.before is None:
        return None
    if stored.digest == record.digest:
        return record.settled()
    # The change of the record may still come, or be told again.
    return PathRecord(Stamp(max(1, record.stamp.time_ms - 1), here.cluster), stored.digest)


def decide(
    record: PathRecord | None,
    stored: Stored,
    event: SyncEvent,
    digest: str,
    here: ThisCluster,
    objections: Objections,
) -> Decision:
    """What becomes of an event that another cluster sent; ``digest``: of its value."""
    if event.stamp.time_ms > here.now_ms + AHEAD_MS_MAX:
        return Decision(Outcome.AHEAD)
    found = change_here(record, stored, here)
    change = found if isinstance(found, Announcement) else None
    is_under_way = record is not None and record.before is not None and record.before == _as_before(stored)
    if is_under_way and record is not None and event.stamp == record.stamp:
        return Decision(Outcome.MADE, record, reason="it was begun before")
    mine = change.record if change is not None else record
    # What was alike before gets one stamp, so that who changes it next has seen what the other has.
    is_alike = mine is not None and mine.is_first and digest == stored.digest
    # What was deleted is not brought back by who had one of that name, such as a `public/default` of his own.
    is_gone = stored.digest == NOTHING and mine is not None and mine.digest == NOTHING and mine.stamp < event.stamp
    if event.is_first and (is_gone or stored.digest != NOTHING) and not is_alike:
        differs = event.stamp if digest != stored.digest else None
        return Decision(Outcome.FIRST, _noted(record, found), undone=differs)
    ours = None if mine is None else mine.stamp
    if ours is not None and event.stamp <= ours:
        return _late(record, found, stored, event, ours, digest)
    undone = None if digest == stored.digest else _undone(record, change, event, here)
    replaced = None if record is None else record.stamp
    is_unseen = event.tells_replaced and event.replaces != replaced
    following = PathRecord(event.stamp, digest, replaced, is_first=event.is_first, is_unseen=is_unseen)
    if digest == stored.digest:
        return Decision(Outcome.NOTED, following)
    if objections.shrinks:
        return Decision(
            Outcome.COUNTERED,
            announcement=answer_to(event, stored, here),
            reason="more of its partitions are stored here",
        )
    is_mine = mine is not None and mine.digest == stored.digest != NOTHING
    if event.is_creation and is_mine and not objections.grows:
        # Apache's broker tells what it followed as a change of its own, and passes over what was said here since.
        return Decision(
            Outcome.COUNTERED,
            announcement=answer_to(event, stored, here, after_ms=WRITTEN_MS),
            reason="it was made there by who had none, and is here",
        )
    if objections.keeps:
        return Decision(Outcome.HELD, following._replace(held=stored.digest), reason=objections.keeps)
    if objections.leaves and not _is_agreed(record, change, event, here):
        reason = "it would take this cluster out of the namespace, by who had not seen what is said of it here"
        return Decision(Outcome.HELD, following._replace(held=stored.digest), reason=reason)
    return Decision(Outcome.MADE, following._replace(before=_as_before(stored)), undone)


def answer_to(event: SyncEvent, stored: Stored, here: ThisCluster, *, after_ms: int = 1) -> Announcement:
    """That the path stays everywhere as it is here, after an event that can not be made, by so much later."""
    stamp = Stamp(max(here.now_ms, event.stamp.time_ms + after_ms), here.cluster)
    return Announcement(PathRecord(stamp, stored.digest, event.stamp, is_untold=True))


def _late(
    record: PathRecord | None,
    found: Announcement | PathRecord | None,
    stored: Stored,
    event: SyncEvent,
    ours: Stamp,
    digest: str,
) -> Decision:
    """An event that is not later than what holds here."""
    if event.stamp == ours or (record is not None and event.stamp in (record.stamp, record.replaced)):
        return Decision(Outcome.KNOWN, _noted(record, found))
    is_lost = digest != stored.digest and event.stamp.cluster != ours.cluster
    return Decision(Outcome.OLD, _noted(record, found), undone=event.stamp if is_lost else None)


def _noted(record: PathRecord | None, found: Announcement | PathRecord | None) -> PathRecord | None:
    """For whom an event is passed over: a change of this cluster is told even if it is taken back before, and one that
    is made is made for good, though somebody makes the node as it was."""
    if isinstance(found, Announcement):
        return None if found.record == record else found.record
    return found


def _undone(
    record: PathRecord | None, change: Announcement | None, event: SyncEvent, here: ThisCluster
) -> Stamp | None:
    """A change of this cluster that is undone by who did not see it."""
    if change is not None and (record is None or change.stamp != record.stamp):
        return change.stamp
    if record is None or record.stamp.cluster != here.cluster or _is_successor(record, event):
        return None
    return record.stamp


def _is_successor(record: PathRecord, event: SyncEvent) -> bool:
    """Whether who made the change had seen the one that holds here."""
    if event.tells_replaced:
        return event.replaces == record.stamp
    return event.stamp.time_ms - record.stamp.time_ms > UNSEEN_MS


def _is_agreed(record: PathRecord | None, change: Announcement | None, event: SyncEvent, here: ThisCluster) -> bool:
    if record is None or change is not None or record.held is not None:
        return False
    if event.tells_replaced:
        return event.replaces == record.stamp
    return record.stamp.cluster != here.cluster


def _as_before(stored: Stored) -> Before:
    return Before(stored.digest, stored.version, stored.created_ms)
