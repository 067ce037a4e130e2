"""A ledger that is in the lake alone comes back to bookies: under its id, entry by entry, read back and compared.

What a crash between two steps leaves is in docs/formats/lake.md. Nothing here changes what the topic's list says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from geminga.lake.service import LakeFile, StopSignal
from geminga.managed_ledger.rules.persistence import Persistence
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.ports import Ledger, Ledgers, OpenLedger
from geminga.managed_ledger.shared.services import placed_within
from geminga.model.errors import StorageError
from geminga.runtime import crash_point, value_of

#: Bytes of entries on their way to bookies.
WRITE_BYTES_MAX: Final = 1024 * 1024
#: Reads some entries of a ledger, at least one: (ledger, first, last).
ReadSome = Callable[[Ledger, int, int], Awaitable[Sequence[bytes]]]


class RestoreStatus(NamedTuple):
    """How the last restore went, or goes."""

    status: str = "NOT_RUN"
    #: Ledgers that left the lake.
    restored: int = 0
    last_error: str = ""


async def bring_back(
    ledgers: Ledgers, file: LakeFile, persistence: Persistence, read: ReadSome, stop: StopSignal
) -> None:
    """The ledger of a file is on bookies, closed, with every entry of the file. Raises StorageError.

    Nothing of it may be left there. Compressed entries are the same behind compression.
    """
    facts = file.facts
    ledger = await ledgers.readmit_ledger(
        facts.ledger_id,
        ensemble_size=persistence.ensemble_size,
        write_quorum=persistence.write_quorum,
        ack_quorum=persistence.ack_quorum,
        custom_metadata=placed_within(facts.custom_metadata, persistence.groups),
    )
    for group in range(file.group_count):
        await _append(ledger, await file.group(group, stop), stop)
    await ledger.close()
    crash_point(points.RESTORE_WRITTEN)
    there = await ledgers.open_ledger(facts.ledger_id, recover=False)
    if there.last_add_confirmed + 1 != facts.entries:
        raise StorageError(f"{file.where}: {there.last_add_confirmed + 1} of {facts.entries} entries came back")
    for group in range(file.group_count):
        stored: list[bytes] = []
        ids = file.entries_of(group)
        while len(stored) < len(ids):
            stored += await read(there, ids.start + len(stored), ids.stop - 1)
        await file.compare(group, stored, stop)
    crash_point(points.RESTORE_VERIFIED)


async def _append(ledger: OpenLedger, entries: Sequence[bytes], stop: StopSignal) -> None:
    """In portions, one after the other. Raises StorageError."""
    at = 0
    while at < len(entries):
        end, size = at, 0
        while end < len(entries) and (end == at or size + len(entries[end]) <= WRITE_BYTES_MAX):
            size += len(entries[end])
            end += 1
        errors: list[StorageError | None] = []

        def begin(
            done: Callable[[], None],
            portion: Sequence[bytes] = entries[at:end],
            errors: list[StorageError | None] = errors,
        ) -> None:
            def appended(first: int, count: int, error: StorageError | None) -> None:
                errors.append(error)
                done()

            ledger.append(portion, appended)

        await stop.wait(begin)
        value_of(errors.pop())
        at = end
