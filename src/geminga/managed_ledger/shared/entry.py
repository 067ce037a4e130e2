"""What goes in and out of a managed ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import Position


class Entry:
    """An entry as read: one message or one batch, as the producer sent it."""

    __slots__ = ("data", "entry_id", "ledger_id")

    def __init__(self, ledger_id: int, entry_id: int, data: bytes) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.data = data

    @property
    def position(self) -> Position:
        """Where it lies."""
        return Position(self.ledger_id, self.entry_id)

    def __repr__(self) -> str:
        return f"Entry({self.ledger_id}:{self.entry_id}, {len(self.data)} bytes)"


class AppendResult(NamedTuple):
    """What became of ``count`` consecutive entries of one append call, those from ``index`` on."""

    ledger_id: int
    first_entry_id: int
    index: int  # type: ignore[assignment]  # the names hide tuple's methods, which nobody needs here
    count: int  # type: ignore[assignment]
    #: None: durable. Otherwise they may or may not be stored; ledger and entry id may be -1 then.
    error: GemingaError | None


AppendDone = Callable[[AppendResult], None]
#: None once the cursor's state is durable, or the error.
AckDone = Callable[[StorageError | None], None]
