"""Every named crash point of the schema registry (``runtime.crash_point``), so that tests can prove each was hit."""

from __future__ import annotations

from typing import Final

LEDGER_CREATED: Final = "schema.ledger.created"
ENTRY_WRITTEN: Final = "schema.entry.written"
LEDGER_CLOSED: Final = "schema.ledger.closed"
LOCATOR_WRITTEN: Final = "schema.locator.written"
LOCATOR_DELETED: Final = "schema.locator.deleted"
LEDGERS_DELETED: Final = "schema.ledgers.deleted"

ALL: Final = tuple(sorted(value for name, value in tuple(globals().items()) if name.isupper()))
