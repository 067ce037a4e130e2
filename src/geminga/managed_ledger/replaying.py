"""A log is read forward to bring back what its entries tell, past entries that can not be read.

What is passed over is a *gap*, noted in ``StoredList.gaps``: who replays says what it does not know for it, and the
topic is loaded anew once the gap can be read or was given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.rules.unreadable import Gap, is_lost
from geminga.managed_ledger.shared.entry import Entry
from geminga.managed_ledger.shared.ports import Ledger
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import LedgerClosedError, LedgerFencedError, MetadataError, StorageError
from geminga.model.position import Position
from geminga.runtime import again, answer_of, get_logger, next_turn

#: Ledgers out of reach, in the lake or on bookies, until no further one is asked there: each may take a time-out, and a
#: topic is waited for.
OUT_OF_REACH_MAX: Final = 2
_log = get_logger(__name__)


class ReplayedLog(Protocol):
    """The log."""

    name: str
    stored: StoredList
    reader: LogReader


async def replay(
    log: ReplayedLog,
    first: Position,
    take: Callable[[Sequence[Entry]], None],
    holed: Callable[[Gap], None],
    *,
    entries_max: int,
    bytes_max: int,
) -> None:
    """Give ``take`` every entry from ``first`` on, readable or not by clients, and ``holed`` what can not be read, in
    order. Raises LedgerClosedError, LedgerFencedError, MetadataError.

    ``entries_max`` and ``bytes_max``: of one read.
    """
    out_of_reach: dict[bool, list[StorageError]] = {True: [], False: []}
    position = log.stored.ledgers.at_or_after(first)
    while (info := log.stored.ledgers.find(position.ledger_id)) is not None and position.entry_id < info.entries:
        count = min(entries_max, info.entries - position.entry_id)
        entries: Sequence[Entry] = ()
        failure: StorageError | None = None
        of_place = out_of_reach[info.is_offloaded]
        if len(of_place) >= OUT_OF_REACH_MAX:
            failure = again(of_place[-1])
        else:
            try:
                entries = await log.reader.read_range(position, count, bytes_max, is_limited=False)
            except (LedgerClosedError, LedgerFencedError, MetadataError):
                raise
            except StorageError as error:
                failure = again(error)
                if not is_lost(error):
                    of_place.append(failure)
        if failure is not None:
            gap = Gap(info.ledger_id, position.entry_id, info.entries - 1, count, bytes_max, failure)
            log.stored.gaps[info.ledger_id] = gap
            told = f"entries {gap.first} to {gap.last} of ledger {gap.ledger_id}"
            _log.error("%s: %s can not be read, what they tell is not known: %s", log.name, told, failure)
            holed(gap)
            position = log.stored.ledgers.next_position(Position(info.ledger_id, gap.last))
            continue
        if not entries:
            return
        await next_turn()  # what is in memory is read within the call
        take(entries)
        position = log.stored.ledgers.next_position(entries[-1].position)


async def is_closed_again(log: ReplayedLog, services: StorageServices) -> bool:
    """Whether what a replay passed over can be read now, or is in the list no more. Raises LedgerClosedError."""
    for gap in tuple(log.stored.gaps.values()):
        info = log.stored.ledgers.find(gap.ledger_id)
        if info is None:
            continue
        try:
            # Not by the log's own reads: they may withhold it until the log is opened anew.
            ledger = await services.open_to_read(log.name, info, is_bookkeeper_first=log.reader.is_bookkeeper_first)
            await _read(ledger, gap.last, gap.last, 1)
            # What failed, as it was asked for: else the next load would come to the same gap.
            await _read(ledger, gap.first, min(gap.last, gap.first + gap.asked_entries - 1), gap.asked_bytes)
        except LedgerClosedError:
            raise
        except StorageError:
            return False
    return bool(log.stored.gaps)


async def _read(ledger: Ledger, first: int, last: int, bytes_max: int) -> Sequence[bytes]:
    return await answer_of(lambda done: ledger.read(first, last, done, bytes_max=bytes_max))
