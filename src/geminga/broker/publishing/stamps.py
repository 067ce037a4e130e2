"""Broker entry metadata in front of entries: when they came, and the number of their last message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from geminga.managed_ledger.rules.unreadable import SKIPPED_PROPERTY
from geminga.model.errors import StorageError
from geminga.runtime import get_logger
from geminga.wire.pulsar.metadata import broker_entry_metadata, encode_broker_entry_metadata, peek_metadata
from geminga.wire.pulsar.numbers import batch_size

if TYPE_CHECKING:
    from geminga.managed_ledger import ManagedLedger

_log = get_logger(__name__)

#: Property of the managed ledger that has the index of the newest message as of the last change of the ledger list
#: (Pulsar's name): it counts where no entry is left to tell it.
INDEX_PROPERTY: Final = "index"


class EntryStamps:
    """See the module."""

    __slots__ = ("_has_index", "_has_time", "index")

    def __init__(self, *, has_time: bool, has_index: bool) -> None:
        self._has_time = has_time
        self._has_index = has_index
        #: Number of the newest message; -1: there is none.
        self.index = -1

    def stamped(self, entries: Sequence[bytes], now_ms: int) -> list[bytes]:
        """The entries as they are stored."""
        time_ms = now_ms if self._has_time else None
        if not self._has_index:
            prefix = encode_broker_entry_metadata(broker_timestamp_ms=time_ms, index=None)
            return [prefix + entry for entry in entries]
        stamped = []
        for entry in entries:
            self.index += message_count(entry)
            stamped.append(encode_broker_entry_metadata(broker_timestamp_ms=time_ms, index=self.index) + entry)
        return stamped

    async def follow(self, ledger: ManagedLedger) -> None:
        """Number messages on behind those of a log, which notes the newest number from now on. Raises StorageError."""
        if self._has_index:
            self.index = await last_index(ledger)
            ledger.stored.noted = self._noted

    def _noted(self) -> dict[str, str]:
        return {INDEX_PROPERTY: str(self.index)} if self.index >= 0 else {}


def message_count(entry: bytes) -> int:
    """Messages in an entry; 1 if that can not be told."""
    metadata = peek_metadata(entry)
    return batch_size(metadata, len(entry)) if metadata is not None else 1


async def last_index(ledger: ManagedLedger) -> int:
    """The number of the newest message of a log; -1 if there is none. Raises StorageError."""
    last = ledger.extent.last_confirmed_position
    try:
        entries = await ledger.reader.read([last], is_limited=False) if last.entry_id >= 0 else []
    except StorageError as error:
        info = ledger.ledgers.find(last.ledger_id)
        if info is None or not info.is_offloaded or INDEX_PROPERTY not in ledger.stored.properties:
            raise
        # It was offloaded by a change of the list, which has the index of its newest message.
        _log.error("%s: its newest entry can not be read, the index goes on as noted: %s", ledger.name, error)
        entries = []
    metadata = broker_entry_metadata(entries[0].data) if entries else None
    told = ledger.stored.properties.get(INDEX_PROPERTY, "")
    noted = int(told) if re.fullmatch(r"[0-9]{1,18}", told) else -1
    if metadata is not None and metadata.HasField("index"):
        # Behind the newest entry there may have been a ledger that was given up: no number is given twice.
        return max(metadata.index, noted) if SKIPPED_PROPERTY in ledger.stored.properties else metadata.index
    if noted >= 0:
        return noted
    # Entries from before indexing was on: one message each is the least there can be.
    return ledger.ledgers.entry_count - 1
