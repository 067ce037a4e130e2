"""The steps of transactions as bookies see them, and what can be made to happen at each: the crash points of the ring.

Everything that a transaction does is an entry somewhere: a record of a coordinator's log, a message or a marker, a
record of a pending-ack log, a snapshot, a cursor's state. :class:`StepBookie` names the entry that is being written, or
the log that is being read again, and lets a fault strike right there: before it is stored, or stored and not answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.memory import MemoryBookie
from geminga.model.bookie_port import AddDone, ReadDone
from geminga.model.errors import StorageError
from geminga.model.topic_name import PENDING_ACK_SUFFIX, TRANSACTION_SNAPSHOTS
from geminga.model.txn_id import TxnId, TxnStatus
from geminga.runtime import is_halted
from geminga.wire.bookkeeper.digest import CRC32C_PREFIX_BYTES
from geminga.wire.pulsar.markers import COMMIT, transaction_of
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.transaction_log import (
    AckOp,
    LogOp,
    decode_pending_ack_records,
    decode_transaction_records,
)

#: Records, in the order in which a transaction comes to them, then what is read when a part comes back.
WRITTEN: Final = (
    "begin",
    "add subscription",
    "add partition",
    "acknowledge",
    "first snapshot",
    "send",
    "committing",
    "commit marker",
    "acks committed",
    "acks in cursor",
    "committed",
    "aborting",
    "timing out",
    "abort marker",
    "acks aborted",
    "aborted",
    "snapshot",
    "log's cursor",
)
READ: Final = ("coordinator's log read", "topic read", "pending acks read")
#: What strikes at a step. "before" and "after": whether the record is stored by then; nobody is answered either way.
AT_RECORDS: Final = (
    "broker before",
    "broker after",
    "bookie before",
    "bookie after",
    "client",
    "taken over",
    "let go",
)
AT_READS: Final = ("broker before", "bookie before", "taken over", "client")
#: Points of managed ledgers and cursors, at which the broker crashes: ledgers begin, are closed, and are trimmed.
LEDGER_POINTS: Final = (
    "ml.ledger.created",
    "ml.ledger.listed",
    "ml.roll.listed",
    "ml.trim.flushed",
    "ml.trim.listed",
    "ml.trim.deleted",
    "cursor.ledger.created",
    "cursor.ledger.written",
    "cursor.ledger.named",
    "cursor.created",
)
#: What a client was at when it died, without a word.
CLIENT_STEPS: Final = ("begin", "add subscription", "acknowledge", "add partition", "send", "end")


class Point(NamedTuple):
    """Where, and what happens there."""

    step: str
    what: str

    def __str__(self) -> str:
        return f"{self.step}: {self.what}"


POINTS: Final = (
    *(Point(step, what) for step in WRITTEN for what in AT_RECORDS),
    *(Point(step, what) for step in READ for what in AT_READS),
    *(Point(label, "broker") for label in LEDGER_POINTS),
    *(Point(f"client's {step}", "client") for step in CLIENT_STEPS),
)

#: Armed as all are, and hardly ever met: the ring's ledgers are rolled only where deduplication finds a failed write,
#: 51 times in 333 seeds. ``tests/simulation/test_cursor_crash.py`` crashes there many times.
BY_CHANCE: Final = frozenset({Point("ml.roll.listed", "broker")})

_TRANSACTION_LOG: Final = "/__transaction_log_"


class ObservedBookKeeper(BookKeeper):
    """Remembers for the story whose ledger is whose."""

    names: dict[int, str]

    async def create_ledger(
        self,
        *,
        ensemble_size: int,
        write_quorum: int,
        ack_quorum: int,
        custom_metadata: Mapping[str, bytes] = {},
        newer_than: int = -1,
        password: bytes | None = None,
    ) -> LedgerHandle:
        handle = await super().create_ledger(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            custom_metadata=custom_metadata,
            newer_than=newer_than,
            password=password,
        )
        name = custom_metadata.get("pulsar/managed-ledger", b"").decode()
        cursor = custom_metadata.get("pulsar/cursor")
        self.names[handle.ledger_id] = name if cursor is None else f"{name}//{cursor.decode()}"
        return handle


class Steps:
    """Counts what is done at storage, and strikes where that was asked for."""

    def __init__(self, strike: Callable[[Point, TxnId | None], bool]) -> None:
        """``strike`` makes it so; False: it can not be now."""
        #: Whose a ledger is.
        self.names: dict[int, str] = {}
        #: Armed: how many more times the step is to be passed first.
        self.armed: dict[Point, int] = {}
        self.passed: Counter[str] = Counter()
        #: Transactions that a client asked to abort; others that are aborted timed out.
        self.asked: set[TxnId] = set()
        #: Whether a broker reads a topic that it has not loaded yet.
        self.is_loading: Callable[[str], bool] = lambda _: False
        self._snapshots_of: set[bytes] = set()
        self._strike = strike

    def at(self, step: str, txn_id: TxnId | None, *, whats: Sequence[str]) -> str | None:
        """The step is being taken; what strikes now, if anything does."""
        for point, left in list(self.armed.items()):
            if point.step == step and point.what in whats:
                if left > 0:
                    self.armed[point] = left - 1
                elif self._strike(point, txn_id):
                    self.armed.pop(point, None)
                    return point.what
        return None

    def written(self, ledger_id: int, entry: bytes) -> tuple[str, TxnId | None] | None:
        """Which step an entry is; None: none of a transaction's."""
        name = self.names.get(ledger_id, "")
        if "//" in name:
            if "/account-" not in name or PENDING_ACK_SUFFIX in name:
                return ("log's cursor", None) if _is_log(name) else None
            return "acks in cursor", None
        payload = entry[CRC32C_PREFIX_BYTES:]
        if _TRANSACTION_LOG in name:
            return self._of_coordinator(payload)
        if PENDING_ACK_SUFFIX in name:
            record = decode_pending_ack_records(payload)[0]
            step = {AckOp.ACK: "acknowledge", AckOp.COMMIT: "acks committed", AckOp.ABORT: "acks aborted"}[record.op]
            return step, record.txn_id
        if "/account-" in name or name.endswith(TRANSACTION_SNAPSHOTS):
            return self._of_topic(name, payload)
        return None

    def _of_coordinator(self, payload: bytes) -> tuple[str, TxnId | None]:
        record = decode_transaction_records(payload)[0]
        if record.op is LogOp.NEW:
            return "begin", record.txn_id
        if record.op is not LogOp.UPDATE:
            return "add partition" if record.op is LogOp.ADD_PARTITION else "add subscription", record.txn_id
        status = record.new_status
        if status is TxnStatus.ABORTING and record.txn_id not in self.asked:
            return "timing out", record.txn_id
        assert status is not None
        return status.name.lower(), record.txn_id

    def _of_topic(self, name: str, payload: bytes) -> tuple[str, TxnId | None] | None:
        metadata = peek_metadata(payload)
        assert metadata is not None
        if name.endswith(TRANSACTION_SNAPSHOTS):
            key = metadata.partition_key.encode()
            is_first = key not in self._snapshots_of
            self._snapshots_of.add(key)
            return "first snapshot" if is_first else "snapshot", None
        txn_id = transaction_of(metadata)
        if metadata.marker_type:
            return "commit marker" if metadata.marker_type == COMMIT else "abort marker", txn_id
        return None if txn_id is None else ("send", txn_id)

    def read(self, ledger_id: int) -> str | None:
        """Which log is being read again; None: something else is read."""
        name = self.names.get(ledger_id, "")
        if "//" in name:
            return None
        if _TRANSACTION_LOG in name:
            return "coordinator's log read"
        if PENDING_ACK_SUFFIX in name:
            return "pending acks read"
        if "/account-" in name and self.is_loading(name):
            return "topic read"
        return None


def _is_log(name: str) -> bool:
    return _TRANSACTION_LOG in name or PENDING_ACK_SUFFIX in name


class StepBookie(MemoryBookie):
    """A bookie whose calls are steps. What a crashed broker still does on its way to its next await is void."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        if is_halted():
            return
        if recovery:
            super().add_entries(ledger_id, entry_ids, entries, master_key=master_key, recovery=True, done=done)
            return
        steps = self._steps
        taken = [found for entry in entries if (found := steps.written(ledger_id, entry)) is not None]
        for step, txn_id in taken:
            steps.passed[step] += 1
            if steps.armed:
                whats = ("broker before", "bookie before", "client", "taken over", "let go")
                struck = steps.at(step, txn_id, whats=whats)
                if struck is not None:
                    break
        if is_halted():
            return
        # The calls below read the switches that a strike may have set.
        super().add_entries(
            ledger_id, entry_ids, entries, master_key=master_key, recovery=False, done=self._late(taken, done)
        )

    def _late(self, taken: list[tuple[str, TxnId | None]], done: AddDone) -> AddDone:
        """The entries are stored by the time that this is called."""
        if not taken or not self._steps.armed or self.add_error is not None:
            return done

        def answer(entry_ids: Sequence[int], error: StorageError | None) -> None:
            if error is None:
                for step, txn_id in taken:
                    struck = self._steps.at(step, txn_id, whats=("broker after", "bookie after"))
                    if struck == "broker after":
                        return
                    if struck == "bookie after":
                        done(entry_ids, self.add_error)
                        return
            done(entry_ids, error)

        return answer

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        if is_halted():
            return
        step = self._steps.read(ledger_id)
        if step is not None:
            self._steps.passed[step] += 1
            if self._steps.armed:
                self._steps.at(step, None, whats=AT_READS)
                if is_halted():
                    return
        super().read_entries(ledger_id, entry_ids, done, bytes_max=bytes_max)
