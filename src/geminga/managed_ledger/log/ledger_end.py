"""Where a ledger ends whose last write failed: closed by who wrote it, or recovered."""

from __future__ import annotations

from typing import Protocol

from geminga.managed_ledger.rules.positions import LedgerInfo
from geminga.managed_ledger.shared import crash_points as points
from geminga.managed_ledger.shared.ports import Ledger, Ledgers, OpenLedger
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError, StorageError
from geminga.runtime import crash_point, get_logger

_log = get_logger(__name__)


class RecoveredLog(Protocol):
    """The managed ledger that it is of."""

    name: str

    def on_fenced(self, error: LedgerFencedError) -> None:
        """Another owner took over."""
        ...

    def on_recovered(self, info: LedgerInfo) -> None:
        """Recovery found where a ledger ends; it may have more entries than were confirmed to us."""
        ...


class LedgerEnd:
    """Of one ledger that failed; made when its end is first to be fixed."""

    __slots__ = ("_is_recovering", "_ledgers", "_log")

    def __init__(self, log: RecoveredLog, ledgers: Ledgers) -> None:
        self._log = log
        self._ledgers = ledgers
        #: It could not be closed, and its recovery is not through.
        self._is_recovering = False

    async def fix(self, handle: OpenLedger, info: LedgerInfo) -> Ledger:
        """Fix the end; the ledger that reads up to it. Raises StorageError; a later call goes on."""
        ledger: Ledger = handle
        if not self._is_recovering:
            try:
                await handle.close()
            except LedgerFencedError as error:
                self._log.on_fenced(error)
                raise error
            except StorageError as error:
                _log.warning("%s: recovering ledger %d: %s", self._log.name, info.ledger_id, error)
                # Should it be cut short: a ledger that we left in recovery is not one that another owner has.
                self._is_recovering = True
        if self._is_recovering:
            # What was not confirmed to us may be found: the old handle would not read it.
            ledger = await self._ledgers.open_ledger(info.ledger_id, recover=True)
            info.entries = ledger.last_add_confirmed + 1
            info.size_bytes = ledger.length_bytes
            self._log.on_recovered(info)
            self._is_recovering = False
        crash_point(points.FAILED_LEDGER_CLOSED)
        return ledger


async def close_quietly(ledger: Ledger) -> None:
    """Close a ledger whose end the list knows already; left open, it is closed by whoever reads it."""
    try:
        await ledger.close()
    except NoSuchLedgerError:
        # Trimmed already.
        return
    except StorageError as error:
        _log.warning("ledger %d was not closed: %s", ledger.ledger_id, error)
