"""``LedgerNotes``: what the journal has of ledgers beside their entries: that they are known, and that they are fenced.

A ledger's note is written in front of its first add or fence, and once more if that failed. A fence is done when it is
durable; until then nobody is told where the ledger ends.
"""

from __future__ import annotations

from collections.abc import Callable

from geminga.bookie.core.journal_format import encode_fence, encode_ledger
from geminga.bookie.core.ledger_states import KEY_BYTES_MAX, KEYS_MAX, LedgerStates
from geminga.bookie.journal import Journal
from geminga.model.bookie_port import IDS_END, FenceDone
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError, StorageError, WrongMasterKeyError


class LedgerNotes:
    """See the module."""

    __slots__ = ("_fencing", "_journal", "_saw", "_states", "_volatile_fences", "unjournaled")

    def __init__(self, states: LedgerStates, journal: Journal, saw: Callable[[int], None]) -> None:
        """``saw`` is told of each ledger that was not known before."""
        self._states = states
        self._journal = journal
        self._saw = saw
        #: Known ledgers that are in neither journal nor checkpoint for certain (the disk was full). Read by every add.
        self.unjournaled: set[int] = set()
        #: Ledgers whose fence is being made durable, with those who wait for it.
        self._fencing: dict[int, list[FenceDone]] = {}
        #: Ledgers whose fence could not be made durable.
        self._volatile_fences: set[int] = set()

    def refusal(self, ledger_id: int, master_key: bytes, *, recovery: bool) -> StorageError | None:
        """Why an add to the ledger may not go in; None if it may, a ledger first heard of being noted then."""
        states = self._states
        known_key = states.master_keys.get(ledger_id)
        if known_key is None:
            refused = self.unknowable(ledger_id, master_key)
            if refused is not None:
                return refused
            if ledger_id in states.limbo and not recovery:
                return LedgerFencedError(f"ledger {ledger_id} is in limbo: it may have been fenced")
            self._know(ledger_id, master_key)
            return None
        if not recovery and ledger_id in states.limbo:
            return LedgerFencedError(f"ledger {ledger_id} is in limbo: it may have been fenced")
        if known_key != master_key and ledger_id not in states.limbo:
            return WrongMasterKeyError(f"ledger {ledger_id} has another master key")
        if ledger_id in self.unjournaled:
            self._note(ledger_id, master_key)
        if not recovery and ledger_id in states.fenced:
            return LedgerFencedError(f"ledger {ledger_id} is fenced")
        return None

    def unknowable(self, ledger_id: int, master_key: bytes, *, is_deleted_fine: bool = False) -> StorageError | None:
        """Why a ledger that is not known can not become so; None if it can."""
        if not 0 <= ledger_id < IDS_END:
            return StorageError(f"{ledger_id} is no ledger id")
        if ledger_id in self._states.deleted and not is_deleted_fine:
            return NoSuchLedgerError(f"ledger {ledger_id} was deleted")
        if len(master_key) > KEY_BYTES_MAX:
            return StorageError(f"ledger {ledger_id}: a master key of {len(master_key)} bytes")
        if not self._states.has_room_for(master_key):
            return StorageError(f"ledger {ledger_id}: this bookie has {KEYS_MAX} master keys already")
        return None

    def fence(self, ledger_id: int, master_key: bytes, done: FenceDone) -> None:
        """Refuse ordinary adds from now on; ``done`` when that is durable. One never heard of is noted as fenced."""
        states = self._states
        known_key = states.master_keys.get(ledger_id)
        refused = self.unknowable(ledger_id, master_key) if known_key is None else None
        if refused is not None:
            done(refused)
            return
        if known_key is not None and known_key != master_key and ledger_id not in states.limbo:
            done(WrongMasterKeyError(f"ledger {ledger_id} has another master key"))
            return
        if self.after_fence(ledger_id, done):
            return
        if ledger_id in states.fenced and ledger_id not in self._volatile_fences:
            done(None)
            return
        if known_key is None:
            self._know(ledger_id, master_key)
        elif ledger_id in self.unjournaled:
            self._note(ledger_id, master_key)
        states.fence(ledger_id)
        self._fencing[ledger_id] = [done]
        record = encode_fence(ledger_id)
        self._journal.add(record, (), len(record), (), lambda _, error: self._fenced(ledger_id, error))

    def after_fence(self, ledger_id: int, done: FenceDone) -> bool:
        """Whether a fence of the ledger is under way: then ``done`` is called with its outcome."""
        waiters = self._fencing.get(ledger_id)
        if waiters is None:
            return False
        waiters.append(done)
        return True

    def _fenced(self, ledger_id: int, error: StorageError | None) -> None:
        if error is None:
            self._volatile_fences.discard(ledger_id)
        else:
            self._volatile_fences.add(ledger_id)
        for done in self._fencing.pop(ledger_id):
            done(error)

    def _know(self, ledger_id: int, master_key: bytes) -> None:
        self._states.know(ledger_id, master_key)
        self._saw(ledger_id)
        self._note(ledger_id, master_key)

    def _note(self, ledger_id: int, master_key: bytes) -> None:
        """Write the ledger to the journal, in front of its first add or fence; once more if that failed."""
        self.unjournaled.discard(ledger_id)
        record = encode_ledger(ledger_id, master_key)
        self._journal.add(record, (), len(record), (), lambda _, error: self._noted(ledger_id, error))

    def _noted(self, ledger_id: int, error: StorageError | None) -> None:
        if error is not None:
            self.unjournaled.add(ledger_id)
