"""The newest complete state of a cursor that was there before: in its node, or in the cursor ledger that names."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from geminga.managed_ledger.rules.acked_entries import MakeAckedEntries
from geminga.managed_ledger.rules.cursor_format import Recovered, recovery, state_of_record
from geminga.managed_ledger.rules.positions import LedgerList
from geminga.managed_ledger.shared.ports import Ledger, Ledgers
from geminga.model.errors import CorruptionError, MetadataError, NoSuchEntryError, NoSuchLedgerError, StorageError
from geminga.runtime import get_logger
from geminga.wire.managed_ledger import CursorInfoRecord

#: Behind the reason why a topic can not be loaded.
GIVE_UP: Final = ". It is tried again; what is lost for good is given up by geminga lake skip-hole --end"

_log = get_logger(__name__)


class FoundCursor(NamedTuple):
    """A state, and the cursor ledger that it was found in; None: in the node."""

    recovered: Recovered
    source: Ledger | None
    #: Read of it.
    read_bytes: int = 0


async def recover_cursor(
    record: CursorInfoRecord,
    log: LedgerList,
    ledgers: Ledgers,
    *,
    name: str,
    make: MakeAckedEntries,
    room_bytes: int,
) -> FoundCursor:
    """The newest complete state of the cursor whose node has ``record``, over the ledgers ``log``.

    ``name`` is for the log; ``room_bytes``: what it may take in memory, the rest is put away. Raises StorageError.
    """
    of_node = Recovered(state_of_record(record, log, make), {})
    of_node.state.forget_missing(log)
    if record.cursor_ledger_id < 0:
        return FoundCursor(of_node, None)
    try:
        source = await ledgers.open_ledger(record.cursor_ledger_id, recover=True)
    except NoSuchLedgerError:
        _log.error("%s: its ledger %d does not exist", name, record.cursor_ledger_id)
        return FoundCursor(of_node, None)
    except MetadataError:
        raise
    except StorageError as error:
        told = "%s: where the subscription's ledger %d ends can not be told: %s%s"
        _log.error(told, name, record.cursor_ledger_id, error, GIVE_UP)
        raise
    found, read_bytes = await _run(source, recovery(source.last_add_confirmed, log, make, memory_bytes_max=room_bytes))
    if found is None:
        _log.error("%s: no state in its ledger %d", name, record.cursor_ledger_id)
        return FoundCursor(of_node, None)
    return FoundCursor(found, source, read_bytes)


async def _run(
    source: Ledger, steps: Generator[tuple[int, int], Sequence[bytes | None], Recovered | None]
) -> tuple[Recovered | None, int]:
    """Feed ``rules.cursor_format.recovery`` with entries; damaged and missing ones as None, other errors are raised.

    And how many bytes were read.
    """
    read_bytes = 0
    try:
        first, last = next(steps)
        while True:
            payloads: list[bytes | None] = []
            for entry_id in range(first, last + 1):
                try:
                    payloads.extend(await source.read_entries(entry_id, entry_id))
                except (CorruptionError, NoSuchEntryError) as error:
                    _log.error("cursor ledger %d: entry %d: %s", source.ledger_id, entry_id, error)
                    payloads.append(None)
            read_bytes += sum(len(payload) for payload in payloads if payload is not None)
            first, last = steps.send(payloads)
    except StopIteration as stop:
        found: Recovered | None = stop.value
        return found, read_bytes
