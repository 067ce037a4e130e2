"""Which of the ledgers that exist no more a bookie may forget, and which look as if the metadata had lost them. Pure.

A ledger that is stored here and not in the metadata store was deleted, or the store is not what it was: restored from
an older backup, emptied, another one. What tells them apart:

- This process *saw* the ledger exist: its first entry came just now, or a list named it. Lists do not go back while
  ledger ids are only taken, so it was deleted since, however many at once (a topic, a namespace).
- An id that nobody has taken by the metadata store's own counter: the store is older than the data. No ledger that
  was not seen is forgotten then, be it only one.
- The bookie's *mark* in the store, a number that grows and is noted here too. A store with a smaller one is older than
  the last look; one with the same holds all that was there then. What it does not list and its counter has passed was
  deleted, also by a process that was killed before it looked again: an older list has a counter at or below what it
  lacks.
- Without a mark (the first start of a version that knows them, no counter): of what no list of this process ever
  named, a deletion just before the last end leaves a little; more than a share of all ledgers is not believed.

What is not believed is in *quarantine*: kept, served and compacted as if it existed, also over restarts, until the
ledger is in a list again, or enough are that the others are a small share of what there was, or an operator says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, NamedTuple

from pyroaring import BitMap64

from geminga.bookie.core.checkpoint_format import checked_lines, with_checksum

#: So few missing ledgers are believed to be deleted whatever share they are: a bookie with a handful of topics.
BELIEVED_MAX: Final = 10
#: From this share on everything is believed: the operator's word.
EVERYTHING: Final = 1.0

_TITLE: Final = "geminga bookie quarantine"
_MARK_TITLE: Final = "geminga bookie mark"
FORMAT_VERSION: Final = 1


class Quarantine(NamedTuple):
    """What is kept although no list names it."""

    ledger_ids: BitMap64
    #: Ledgers stored here when it began.
    of: int = 0
    #: Whether the metadata store had not even given out their ids: they do not leave because others came back.
    is_certain: bool = False


class Lineage(Enum):
    """What the marks say of the metadata store."""

    #: It holds all that it held when the bookie last looked.
    SAME = "same"
    #: It is from before that.
    OLDER = "older"
    #: There is no mark to compare.
    UNKNOWN = "unknown"


def lineage(noted: int | None, found: int | None) -> Lineage:
    """Of a store with the mark ``found``, when ``noted`` is the last that was written into it and noted here."""
    if noted is None:
        return Lineage.UNKNOWN
    # A greater one: it was written, and the process ended before it was noted.
    return Lineage.SAME if found is not None and found >= noted else Lineage.OLDER


class Doubt(Enum):
    """Why ledgers went into quarantine."""

    #: One has an id that the metadata store has not given out: it is older than the data.
    IDS = "ids"
    #: The store has not the bookie's last mark.
    MARK = "mark"
    #: Nobody knows what was in quarantine before.
    RECORD = "record"
    #: At the start the list goes on with ledgers behind all of them, which an older one would not.
    DELETED = "deleted"
    #: None of these.
    UNSEEN = "unseen"


class Judgement(NamedTuple):
    """What a look at the metadata store comes to."""

    #: Ids to forget, ascending.
    deleted: list[int]
    #: Number of ledgers that went into quarantine now.
    quarantined: int
    #: Number of ledgers that left it now, to exist again or to be forgotten.
    released: int
    #: Of those that went into quarantine now.
    doubt: Doubt = Doubt.UNSEEN


class DeletionGuard:
    """See the module."""

    __slots__ = ("_has_judged", "_is_record_lost", "_next_id", "_seen", "_share_max", "quarantine")

    def __init__(self, quarantine: Quarantine | None, share_max: float) -> None:
        """``quarantine``: what the last process left; None: its record is lost, nothing unseen is believed at first.

        ``share_max``: see the module.
        """
        self.quarantine = quarantine if quarantine is not None else Quarantine(BitMap64())
        self._is_record_lost = quarantine is None
        self._share_max = share_max
        #: Ledgers that existed at some time since this process began.
        self._seen = BitMap64()
        self._next_id: int | None = None
        #: Ledgers that are listed now may be newer than a restored list.
        self._has_judged = False

    def saw(self, ledger_id: int) -> None:
        """The ledger exists: it was heard of for the first time, and its metadata come before its first entry."""
        self._seen.add(ledger_id)

    def judge(
        self,
        known: AbstractSet[int],
        live: AbstractSet[int],
        next_id: int | None,
        store: Lineage = Lineage.UNKNOWN,
    ) -> Judgement:
        """``known``: ledgers stored here; ``live``, ``next_id``: the list and the counter, read after that.

        ``next_id``: nobody ever had this id or a greater one; None: the metadata store does not tell.
        """
        if next_id is not None and next_id <= max(live, default=-1):
            next_id = None  # somebody chooses ids himself: the counter says nothing
        if next_id is not None:
            if self._next_id is not None and next_id < self._next_id:
                store = Lineage.OLDER
            self._next_id = next_id
        if store is Lineage.OLDER:
            # It may have gone back under us: that it named a ledger before says nothing.
            self._seen.clear()
        self._seen.update(known & live)
        before = self.quarantine
        kept = BitMap64(i for i in before.ledger_ids if i in known and i not in live)
        dead = [i for i in known if i not in live and i not in kept]
        if self._share_max >= EVERYTHING or (not before.is_certain and len(kept) <= self._believed_of(before.of)):
            released, kept = list(kept), BitMap64()
        else:
            released = []
        suspects = [i for i in dead if i not in self._seen or (next_id is not None and i >= next_id)]
        has_untaken_ids = next_id is not None and any(i >= next_id for i in suspects)
        is_certain = self._is_record_lost or has_untaken_ids or store is Lineage.OLDER
        if store is Lineage.SAME and next_id is not None and not is_certain:
            suspects = []
        is_passed = max(known & live, default=-1) > max(suspects, default=-1)
        if has_untaken_ids:
            doubt = Doubt.IDS
        elif store is Lineage.OLDER:
            doubt = Doubt.MARK
        elif self._is_record_lost:
            doubt = Doubt.RECORD
        else:
            doubt = Doubt.DELETED if is_passed and not self._has_judged and not before.ledger_ids else Doubt.UNSEEN
        self._has_judged, self._is_record_lost = True, False
        # While there is a quarantine nothing unseen is believed: what comes bit by bit is as much in the end.
        is_doubtful = is_certain or bool(kept) or len(suspects) > self._believed_of(len(known))
        if suspects and is_doubtful and self._share_max < EVERYTHING:
            doubted = BitMap64(suspects)
            kept |= doubted
            dead = [i for i in dead if i not in doubted]
        else:
            is_certain = False
        added = len(kept - before.ledger_ids)
        if not kept:
            self.quarantine = Quarantine(kept)
        else:
            # Not of what is stored now: ledgers that were made since make those that were lost no smaller a share.
            of = max(before.of, len(known)) if added else before.of
            self.quarantine = Quarantine(kept, of, before.is_certain or is_certain)
        return Judgement(sorted([*dead, *released]), added, len(before.ledger_ids - kept), doubt)

    def _believed_of(self, count: int) -> int:
        return max(BELIEVED_MAX, int(self._share_max * count))


def encode_quarantine(quarantine: Quarantine, instance_id: bytes) -> bytes:
    """The file: readable lines, the last one a checksum (docs/formats/checkpoint.md)."""
    lines = [
        _TITLE,
        f"format-version: {FORMAT_VERSION}",
        f"instance-id: {instance_id.hex()}",
        f"of: {quarantine.of}",
        f"certain: {int(quarantine.is_certain)}",
        f"ledgers: {_runs(quarantine.ledger_ids)}",
    ]
    return with_checksum(lines)


def decode_quarantine(data: bytes, instance_id: bytes) -> Quarantine | None:
    """The inverse; None if the file is damaged or another bookie's."""
    try:
        values = _values(data, instance_id)
        ids = BitMap64()
        for run in filter(None, values["ledgers"].split(",")):
            first, _, last = run.partition("-")
            ids.add_range(int(first), int(last or first) + 1)
        return Quarantine(ids, int(values["of"]), values["certain"] == "1")
    except (KeyError, ValueError):
        return None


def encode_mark(mark: int, instance_id: bytes) -> bytes:
    """The file: lines as in the quarantine's."""
    return with_checksum(
        [_MARK_TITLE, f"format-version: {FORMAT_VERSION}", f"instance-id: {instance_id.hex()}", f"mark: {mark}"]
    )


def decode_mark(data: bytes, instance_id: bytes) -> int | None:
    """The inverse; None if the file is damaged or another bookie's."""
    try:
        return int(_values(data, instance_id)["mark"])
    except (KeyError, ValueError):
        return None


def _values(data: bytes, instance_id: bytes) -> Mapping[str, str]:
    """What the lines of a file of this bookie say; raises KeyError, ValueError if it is none."""
    values = checked_lines(data) or {}
    if (values["format-version"], values["instance-id"]) != (str(FORMAT_VERSION), instance_id.hex()):
        raise ValueError("another format, or another bookie's")
    return values


def _runs(ids: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for i in ids:
        if runs and runs[-1][1] + 1 == i:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
