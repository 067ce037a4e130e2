"""Numbers of a coordinator's transactions: none is given twice, whichever broker had the log before, whatever it lost.

They are written ahead: into a property of the log, and into its entries, for Pulsar's coordinator goes on behind what
the last entry says, and asks the property only where the last ledger is empty. (docs/formats/transactions.md)
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.model.position import Position
from geminga.transaction.core.coordinator import CoordinatorState, highest_number
from geminga.transaction.ports import RecordLog
from geminga.wire.pulsar.transaction_log import decode_transaction_records

#: Property of the log: no number above it was ever given.
NUMBER_PROPERTY: Final = "max_local_txn_id"
#: Numbers made sure of with one write of the property.
NUMBERS_AT_ONCE: Final = 1_000


class ReservedNumbers:
    """Those of one coordinator, whose state has the last one and how many are reserved."""

    __slots__ = ("_lock", "_log", "_noted", "_state")

    def __init__(self, log: RecordLog, state: CoordinatorState) -> None:
        """``state`` has what the property says."""
        self._log = log
        self._state = state
        self._lock = asyncio.Lock()
        #: No number above it is given before an entry is stored that has it.
        self._noted = state.last_number

    async def find(self) -> None:
        """Which were given, by whoever had the log before. Raises StorageError.

        Pulsar's coordinator writes the property with a new ledger only, and says the rest in its entries, which may all
        be deleted by now, and soon be trimmed: the property has to say it before.
        """
        state = self._state
        found = state.last_number

        def look(data: bytes, _position: Position) -> None:
            nonlocal found
            found = max(found, *map(highest_number, decode_transaction_records(data)))

        await self._log.newest(look)
        if found > state.last_number:
            await self._save(found)
        state.last_number = state.reserved = self._noted = found

    @property
    def are_there(self) -> bool:
        """Whether one may be given at once."""
        return self._state.last_number < self._noted

    async def reserve(self) -> None:
        """Until one may be given, if that is stored in an entry first. Raises StorageError."""
        state = self._state
        while state.last_number >= state.reserved:
            async with self._lock:
                if state.last_number < state.reserved:
                    return
                reserved = state.last_number + NUMBERS_AT_ONCE
                await self._save(reserved)
                state.reserved = reserved

    def stored(self, reserved: int) -> None:
        """An entry is that was made when so many were reserved."""
        self._noted = max(self._noted, reserved)

    async def _save(self, number: int) -> None:
        await self._log.add_properties({NUMBER_PROPERTY: str(number)})
