"""``Tenure``: whether a log is this owner's to write, until it is closed or another owner is found to have it."""

from __future__ import annotations

from collections.abc import Callable

from geminga.model.errors import LedgerClosedError, LedgerFencedError, StorageError
from geminga.runtime import Part, get_logger

_log = get_logger(__name__)


class Tenure:
    """Of one managed ledger, from its opening on. It ends once, and does not begin again: the log is opened anew."""

    __slots__ = ("is_closed", "is_fenced", "name", "part", "when_fenced")

    def __init__(self, name: str) -> None:
        #: Of the managed ledger.
        self.name = name
        #: What is closed if cursors, reads or trimming break; None: the process ends.
        self.part: Part | None = None
        #: Another owner took over: everything fails.
        self.is_fenced = False
        #: Called once when that is found.
        self.when_fenced: Callable[[], None] | None = None
        self.is_closed = False

    @property
    def is_over(self) -> bool:
        """Whether nothing of the log is to be changed any more."""
        return self.is_closed or self.is_fenced

    def refusal(self) -> StorageError | None:
        """Why nothing can be written; None: it can."""
        if self.is_fenced:
            return LedgerFencedError(f"{self.name} has another owner")
        if self.is_closed:
            return LedgerClosedError(f"{self.name} is closed")
        return None

    def check_writable(self) -> None:
        """Raises LedgerFencedError, LedgerClosedError."""
        refusal = self.refusal()
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # see runtime's value_of

    def lose(self, error: LedgerFencedError) -> bool:
        """Another owner took over; False if that was known. Who is to be told hears of it by :meth:`tell_lost`."""
        if self.is_fenced:
            return False
        _log.error("%s: fenced, another owner has it: %s", self.name, error)
        self.is_fenced = True
        return True

    def tell_lost(self) -> None:
        """Appends fail by now: tell who wanted to hear of it."""
        if self.when_fenced is not None:
            self.when_fenced()
