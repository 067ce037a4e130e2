"""Which ledgers are garbage that a crash left behind, told from looks at all ledgers and all lists. Pure.

A ledger may be deleted only if all of this holds:

1. its custom metadata name this installation: on a shared BookKeeper the ledgers of others are in no list of ours;
2. its metadata node is over an hour old by the store's own clock: a young one may be about to be listed;
3. no list named it in two looks an hour apart by the monotonic clock (the wall clock may jump), in which its
   metadata did not change: nobody is at work on it;
4. not too many are garbage at once: crashes leave a few, lists that were restored from an older backup leave many.

Everything else is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

#: Age of the metadata node from which on a ledger can be garbage, milliseconds.
AGE_MS: Final = 3_600_000
#: Time between the end of the first look and the beginning of the second, seconds.
APART_S: Final = 3600.0
#: Ledgers remembered from one look to the next; the newest are left to later looks.
SUSPECTS_MAX: Final = 100_000


class SeenLedger(NamedTuple):
    """What a look finds out about one ledger."""

    ledger_id: int
    #: Of its metadata node.
    version: int
    #: When the node was made, ms since the epoch.
    created_ms: int
    #: What its custom metadata name; None: nothing (Apache's brokers, older ledgers, metadata that can not be read).
    installation: bytes | None


class OrphanVerdict(NamedTuple):
    """What a look comes to; each sequence ascends by ledger id."""

    #: Garbage: to be deleted.
    garbage: Sequence[SeenLedger] = ()
    #: Garbage by the first three rules, but too much of it.
    held: Sequence[SeenLedger] = ()
    #: Ours, in no list, and not yet known to be garbage: another look will tell.
    waiting: Sequence[int] = ()
    #: In no list, and of no installation.
    unclaimed: Sequence[int] = ()
    #: Of other installations.
    foreign: Sequence[int] = ()


class _Suspect(NamedTuple):
    version: int
    since_s: float


class OrphanLooks:
    """Remembers from look to look which ledgers no list named. A look that could not be finished is none."""

    __slots__ = ("_age_ms", "_apart_s", "_at_once_max", "_installation", "_suspects")

    def __init__(
        self, installation: bytes, *, at_once_max: int, age_ms: int = AGE_MS, apart_s: float = APART_S
    ) -> None:
        self._installation = installation
        self._at_once_max = at_once_max
        self._age_ms = age_ms
        self._apart_s = apart_s
        self._suspects: dict[int, _Suspect] = {}

    def look(
        self,
        ledgers: Iterable[SeenLedger],
        named: AbstractSet[int],
        *,
        began_s: float,
        ended_s: float,
        wall_ms: int,
    ) -> OrphanVerdict:
        """``ledgers``: all there are, seen before ``named`` was read: the ids in any list.

        ``began_s``, ``ended_s``: monotonic seconds before the first and after the last read; ``wall_ms``: the time of
        day now.
        """
        garbage: list[SeenLedger] = []
        waiting: list[int] = []
        unclaimed: list[int] = []
        foreign: list[int] = []
        suspects: dict[int, _Suspect] = {}
        for ledger in sorted(ledgers):
            ledger_id = ledger.ledger_id
            if ledger_id in named:
                continue
            if ledger.installation != self._installation:
                (unclaimed if ledger.installation is None else foreign).append(ledger_id)
                continue
            before = self._suspects.get(ledger_id)
            is_known = before is not None and before.version == ledger.version
            suspect = before if before is not None and is_known else _Suspect(ledger.version, ended_s)
            if len(suspects) < SUSPECTS_MAX:
                suspects[ledger_id] = suspect
            is_apart = is_known and began_s - suspect.since_s >= self._apart_s
            if is_apart and wall_ms - ledger.created_ms >= self._age_ms:
                garbage.append(ledger)
            else:
                waiting.append(ledger_id)
        self._suspects = suspects
        if len(garbage) > self._at_once_max:
            return OrphanVerdict((), garbage, waiting, unclaimed, foreign)
        return OrphanVerdict(garbage, (), waiting, unclaimed, foreign)
