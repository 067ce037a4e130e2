"""Ledgers of a log that can not be read as a whole: found, and given up one by one by an operator who knows what goes.

Giving one up is one change of the ledger list, which notes what it had (``rules.unreadable``). From then on every
position in it is one of a ledger that is gone, as after a trim: cursors, readers and retention go on behind it.
Nothing is given up that can be read. What is only out of reach needs a word of its own, and so does a ledger of which
some entries can be read. A damaged file stays in the lake, where nothing names it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from geminga.managed_ledger.log.reader import LogReader
from geminga.managed_ledger.log.stored_list import StoredList
from geminga.managed_ledger.log.tenure import Tenure
from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.rules.unreadable import Hole, Skipped, is_lost, with_skipped
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.ports import Ledger
from geminga.managed_ledger.shared.services import StorageServices
from geminga.model.errors import LedgerClosedError, NotFoundError, PreconditionFailedError, StorageError
from geminga.runtime import again, answer_of, crash_point, get_logger

#: Entries, and bytes, of one read of an examination.
EXAMINED_ENTRIES: Final = 1000
EXAMINED_BYTES: Final = 1024 * 1024
_log = get_logger(__name__)


class HoledLog(Protocol):
    """A managed ledger, as far as it concerns this."""

    name: str
    stored: StoredList
    tenure: Tenure
    reader: LogReader

    def on_trimmed(self, ledger_ids: Sequence[int]) -> None:
        """The list without these ledgers is written: memory follows."""
        ...


async def find_holes(log: HoledLog, services: StorageServices, ledger_ids: Collection[int] = ()) -> list[Hole]:
    """Ledgers that can not be read, oldest first: of ``ledger_ids``, which are read whole, or, without any, of all. Of
    those only the first and the last entry are read, unless a read failed before. Raises NotFoundError,
    PreconditionFailedError, LedgerClosedError."""
    found: list[Hole] = []
    for info in [_find(log, each) for each in sorted(ledger_ids)] if ledger_ids else tuple(log.stored.ledgers.infos):
        if not info.closed_ms or not info.entries:
            continue
        is_suspect = info.ledger_id in ledger_ids or info.ledger_id in log.stored.failures
        hole = await _examine(log, services, info, is_whole=is_suspect)
        if hole is not None and not is_suspect:
            hole = await _examine(log, services, info, is_whole=True)
        if hole is not None:
            found.append(hole)
    return found


async def skip_hole(
    log: HoledLog, services: StorageServices, ledger_id: int, *, is_forced: bool = False, is_whole: bool = False
) -> Hole:
    """Give up a ledger; what it had. ``is_forced``: also if it is only out of reach; ``is_whole``: also if some of its
    entries can be read.

    Raises NotFoundError, PreconditionFailedError, StorageError: then nothing is changed.
    """
    hole = await _examine(log, services, _find(log, ledger_id), is_whole=True)
    if hole is None:
        log.stored.failures.pop(ledger_id, None)
        raise PreconditionFailedError("The ledger can be read, all of it: there is nothing to skip")
    if not hole.is_lost and not is_forced:
        raise PreconditionFailedError("The ledger is out of reach, which may pass: if it is lost for good, force it")
    if hole.readable and not is_whole:
        raise PreconditionFailedError(
            "Some of the ledger's entries can be read, and are lost with it for who has not read them yet: say that "
            "the whole of it is to be skipped"
        )
    async with log.stored.lock():
        if log.tenure.is_over:
            raise LedgerClosedError(f"{log.name} is closed")
        _find(log, ledger_id)  # it may have been trimmed meanwhile
        skipped = Skipped(
            ledger_id, hole.entries, hole.size_bytes, hole.closed_ms, services.clock.wall_ms(), hole.error
        )
        kept = [info for info in log.stored.ledgers.infos if info.ledger_id != ledger_id]
        is_in_lake = any(info.offload_context for info in log.stored.ledgers.infos)
        await log.stored.put(kept, properties=with_skipped(log.stored.properties, [skipped]))
        crash_point(points.HOLE_SKIPPED)
        log.on_trimmed([ledger_id])
        await log.stored.delete_ledgers([ledger_id])
    told = f"{hole.entries} entries, {hole.size_bytes} bytes"
    _log.error("%s: ledger %d was given up by command, %s: %s", log.name, ledger_id, told, hole.error)
    if is_in_lake:
        await _write_manifests(log, services)
    return hole


async def _write_manifests(log: HoledLog, services: StorageServices) -> None:
    from geminga.managed_ledger.offload import manifests

    try:
        await manifests.write(log.stored, services)
    except StorageError as error:
        _log.warning("%s: the manifest names a ledger that was given up until the next load: %s", log.name, error)


def _find(log: HoledLog, ledger_id: int) -> LedgerInfo:
    info = log.stored.ledgers.find(ledger_id)
    if info is None:
        raise NotFoundError("The topic has no such ledger")
    if not info.closed_ms:
        raise PreconditionFailedError("The ledger is open, messages are written to it: it is no hole")
    return info


async def _examine(log: HoledLog, services: StorageServices, info: LedgerInfo, *, is_whole: bool) -> Hole | None:
    """Read a ledger, or its ends; None: it can be read. Raises LedgerClosedError."""
    log.reader.forget(info.ledger_id)
    failures: list[StorageError] = []
    readable = 0
    try:
        ledger = await services.open_to_read(log.name, info, is_bookkeeper_first=log.reader.is_bookkeeper_first)
        if ledger.last_add_confirmed + 1 < info.entries:
            there = ledger.last_add_confirmed + 1
            raise StorageError(f"ledger {info.ledger_id} has {there} entries, the list says {info.entries}")
        entry_ids: Iterable[range] = (
            [range(info.entries)] if is_whole else [range(1), range(info.entries - 1, info.entries)]
        )
        for span in entry_ids:
            readable += await _read_all(ledger, span, failures)
    except LedgerClosedError:
        raise
    except StorageError as error:
        failures.append(error)
    if not failures:
        return None
    # Of several the one that is not certain counts: the other may pass with it.
    told = again(next((each for each in failures if not is_lost(each)), failures[0]))
    failures.clear()  # see runtime's value_of
    return Hole(info.ledger_id, info.entries, info.size_bytes, info.closed_ms, str(told), is_lost(told), readable)


async def _read_all(ledger: Ledger, span: range, failures: list[StorageError]) -> int:
    """How many of the entries could be read, at least: fewer are asked for until one alone fails; behind it more are
    left out each time until one can be read."""
    entry_id, count, wanted, left_out = span.start, 0, EXAMINED_ENTRIES, 1
    while entry_id < span.stop:
        last = min(span.stop, entry_id + wanted) - 1
        try:
            payloads = await _read(ledger, entry_id, last)
        except LedgerClosedError:
            raise
        except StorageError as error:
            if last > entry_id:
                wanted = (last - entry_id + 1) // 2
                continue
            failures.append(error)
            entry_id, left_out = entry_id + left_out, 2 * left_out
            continue
        count, entry_id = count + len(payloads), entry_id + len(payloads)
        wanted, left_out = min(EXAMINED_ENTRIES, 2 * wanted), 1
    return count


async def _read(ledger: Ledger, first: int, last: int) -> Sequence[bytes]:
    return await answer_of(lambda done: ledger.read(first, last, done, bytes_max=EXAMINED_BYTES))
