"""What a transaction coordinator knows: its transactions, their states, and when they time out.

A change is decided first (:meth:`CoordinatorState.begin` and its like give the record to store), and takes effect when
the record is on stable storage (:meth:`CoordinatorState.stored`, the same at a replay). In between, a transaction whose
end is being stored takes nothing more: of two ends that race, the first to be decided wins, as it does in the log.
A beginning takes effect at once: nothing hangs on a transaction before its first participant, whose record lies behind.

Format and rules: docs/formats/transactions.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from geminga.model.errors import (
    InvalidTopicNameError,
    InvalidTxnStatusError,
    NotAllowedError,
    TooManyRequestsError,
    TransactionNotFoundError,
)
from geminga.model.position import Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import Standing, TxnId, TxnStatus, TxnSubscription
from geminga.wire.pulsar.transaction_log import LogOp, TransactionRecord

#: Topics and subscriptions that one transaction may touch, together.
PARTICIPANTS_MAX: Final = 10_000
#: ... and characters of their names.
PARTICIPANTS_CHARACTERS_MAX: Final = 1 << 20
#: Characters that all open transactions of a coordinator may have, each counted with its names and as many more as
#: the rest of it is worth: what clients may make a coordinator remember.
OPEN_CHARACTERS_MAX: Final = 64 << 20
TRANSACTION_CHARACTERS: Final = 500
#: Transactions that are over whose outcome is still told: a client that lost the answer to its end asks again.
OUTCOMES_MAX: Final = 1_000
#: Superfluous entries of the heap of time-outs before it is made anew.
_STALE_MAX: Final = 1_000

_NEXT: Final = {
    TxnStatus.COMMITTING: TxnStatus.COMMITTED,
    TxnStatus.ABORTING: TxnStatus.ABORTED,
}


class Transaction:
    """One transaction that is not over; topics have the names by which its client told them."""

    __slots__ = (
        "aliases",
        "characters",
        "coming",
        "coming_characters",
        "deadline_ms",
        "expected",
        "is_timed_out",
        "owner",
        "partitions",
        "pending_status",
        "positions",
        "start_ms",
        "status",
        "subscriptions",
        "timeout_ms",
        "txn_id",
    )

    def __init__(self, txn_id: TxnId, start_ms: int, timeout_ms: int, owner: str | None) -> None:
        self.txn_id = txn_id
        self.status = TxnStatus.OPEN
        #: The status whose record is being stored; None: none.
        self.pending_status: TxnStatus | None = None
        self.start_ms = start_ms
        self.timeout_ms = timeout_ms
        self.deadline_ms = start_ms + timeout_ms
        self.owner = owner
        #: Topics it publishes to and subscriptions it acknowledges in; dicts keep their order.
        self.partitions: dict[str, None] = {}
        self.subscriptions: dict[TxnSubscription, None] = {}
        #: Full names of those that were told by short ones: participants ask by these. None: there are none.
        self.aliases: set[str | TxnSubscription] | None = None
        #: Where its records lie in the log; they go when it is over.
        self.positions: list[Position] = []
        self.is_timed_out = False
        #: Of the names of both.
        self.characters = 0
        #: Participants whose records are being stored, and the characters of their names.
        self.coming = self.coming_characters = 0
        #: Which these are; None: none. Their records lie before that of any end.
        self.expected: set[str | TxnSubscription] | None = None


def highest_number(record: TransactionRecord) -> int:
    """No number above it was given when it was made."""
    return max(record.txn_id.number, -1 if record.max_number is None else record.max_number)


class CoordinatorState:
    """See the module. ``active_max``: transactions at a time; 0: no limit."""

    __slots__ = (
        "_outcomes",
        "_timeouts",
        "aborted",
        "active_max",
        "characters",
        "committed",
        "coordinator",
        "heard",
        "last_number",
        "open",
        "reserved",
        "timed_out",
        "timeout_max_ms",
    )

    def __init__(
        self, coordinator: int, *, last_number: int = -1, active_max: int = 0, timeout_max_ms: int = 1 << 62
    ) -> None:
        self.coordinator = coordinator
        #: No transaction has longer, whatever its record says.
        self.timeout_max_ms = timeout_max_ms
        #: The highest number given; -1: none.
        self.last_number = last_number
        #: The highest number that may be given: what records say, for Pulsar's coordinator goes on behind the last one.
        self.reserved = last_number
        self.active_max = active_max
        #: Not over, by number, in ascending order (numbers are given in ascending order, and replayed so).
        self.open: dict[int, Transaction] = {}
        #: How the last ones ended, oldest first.
        self._outcomes: dict[int, TxnStatus] = {}
        #: Ended everywhere, which is not stored yet, by number: over for everybody but the log.
        self.heard: dict[int, Transaction] = {}
        #: (deadline, number); may hold transactions that are over.
        self._timeouts: list[tuple[int, int]] = []
        #: What open transactions and their names come to, names that are being stored included.
        self.characters = 0
        #: Ended since the start.
        self.committed = self.aborted = self.timed_out = 0

    # ---- decisions: the record to store

    def begin(self, timeout_ms: int, now_ms: int, owner: str | None = None) -> TransactionRecord:
        """A new transaction, open from now on; its number is taken, whatever becomes of the record.

        Raises TooManyRequestsError if there are as many as there may be, or they take as much as they may.
        """
        if self.active_max and self.active >= self.active_max:
            raise TooManyRequestsError(
                f"coordinator {self.coordinator} has {self.active} active transactions, as many as it may have"
            )
        self._check_open_characters(TRANSACTION_CHARACTERS)
        self.last_number += 1
        record = TransactionRecord(
            op=LogOp.NEW,
            txn_id=TxnId(self.coordinator, self.last_number),
            timeout_ms=timeout_ms,
            start_ms=now_ms,
            modified_ms=now_ms,
            max_number=max(self.reserved, self.last_number),
            owner=owner,
        )
        self._opened(record)
        return record

    def add_partitions(self, txn_id: TxnId, partitions: Iterable[str], now_ms: int) -> TransactionRecord | None:
        """Topics it is to publish to; None if it has them all. Raises as :meth:`taking`."""
        transaction = self.taking(txn_id)
        added = tuple(dict.fromkeys(each for each in partitions if each not in transaction.partitions))
        if not added:
            return None
        self._take_room(transaction, added, sum(map(len, added)))
        return TransactionRecord(
            op=LogOp.ADD_PARTITION,
            txn_id=txn_id,
            partitions=added,
            modified_ms=now_ms,
            max_number=max(self.reserved, self.last_number),
        )

    def add_subscriptions(
        self, txn_id: TxnId, subscriptions: Iterable[TxnSubscription], now_ms: int
    ) -> TransactionRecord | None:
        """Subscriptions it is to acknowledge in; None if it has them all. Raises as :meth:`taking`."""
        transaction = self.taking(txn_id)
        added = tuple(dict.fromkeys(each for each in subscriptions if each not in transaction.subscriptions))
        if not added:
            return None
        self._take_room(transaction, added, sum(map(_length, added)))
        return TransactionRecord(
            op=LogOp.ADD_SUBSCRIPTION,
            txn_id=txn_id,
            subscriptions=added,
            modified_ms=now_ms,
            max_number=max(self.reserved, self.last_number),
        )

    def end(self, txn_id: TxnId, *, commit: bool, now_ms: int) -> TransactionRecord | None:
        """Decide its end; None if that end is decided already, stored or not yet (whoever asked lost the answer).

        Raises TransactionNotFoundError, InvalidTxnStatusError (the other end).
        """
        wanted = TxnStatus.COMMITTING if commit else TxnStatus.ABORTING
        outcome = self._outcomes.get(txn_id.number) if txn_id.coordinator == self.coordinator else None
        if outcome is not None:
            if outcome is not _NEXT[wanted]:
                raise _wrong_status(txn_id, TxnStatus.OPEN, outcome)
            return None
        transaction = self.find(txn_id)
        if wanted in (transaction.status, transaction.pending_status):
            return None
        if transaction.status is not TxnStatus.OPEN or transaction.pending_status is not None:
            raise _wrong_status(txn_id, TxnStatus.OPEN, transaction.pending_status or transaction.status)
        transaction.pending_status = wanted
        return self._update(txn_id, TxnStatus.OPEN, wanted, now_ms)

    def finish(self, txn_id: TxnId, now_ms: int) -> TransactionRecord | None:
        """Every participant has heard: it is over; None if that is being stored already."""
        if txn_id.coordinator == self.coordinator and txn_id.number in self.heard:
            return None
        transaction = self.find(txn_id)
        if not transaction.status.is_ending:
            raise _wrong_status(txn_id, TxnStatus.COMMITTING, transaction.status)
        status = _NEXT[transaction.status]
        self._forget(transaction)
        self.heard[txn_id.number] = transaction
        self._has_ended(transaction, status)
        return self._update(txn_id, transaction.status, status, now_ms)

    def _update(self, txn_id: TxnId, expected: TxnStatus, new: TxnStatus, now_ms: int) -> TransactionRecord:
        return TransactionRecord(
            op=LogOp.UPDATE,
            txn_id=txn_id,
            expected_status=expected,
            new_status=new,
            modified_ms=now_ms,
            max_number=max(self.reserved, self.last_number),
        )

    # ---- effects

    def read_again(self, record: TransactionRecord, position: Position) -> Transaction | None:
        """As :meth:`stored`, of a record that was stored before: the numbers that it names were given."""
        self.last_number = max(self.last_number, highest_number(record))
        return self.stored(record, position)

    def stored(self, record: TransactionRecord, position: Position) -> Transaction | None:
        """A record is on stable storage; the transaction if it is over now, else None.

        A record that does not fit says nothing, so that replaying some twice is the same as once.
        """
        number = record.txn_id.number
        transaction = self.open.get(number) or self.heard.get(number)
        if record.op is LogOp.NEW:
            if transaction is None:
                transaction = self._opened(record)
            if not transaction.positions:
                transaction.positions.append(position)
            return None
        if transaction is None:
            return None
        transaction.positions.append(position)
        if record.op is LogOp.ADD_PARTITION:
            names = record.partitions
            fresh = sum(len(each) for each in dict.fromkeys(names) if each not in transaction.partitions)
            transaction.partitions.update(dict.fromkeys(names))
            self._joined(transaction, names, sum(map(len, names)), fresh)
        elif record.op is LogOp.ADD_SUBSCRIPTION:
            added = record.subscriptions
            fresh = sum(_length(each) for each in dict.fromkeys(added) if each not in transaction.subscriptions)
            transaction.subscriptions.update(dict.fromkeys(added))
            self._joined(transaction, added, sum(map(_length, added)), fresh)
        elif record.new_status is not None and record.expected_status == transaction.status:
            return self._moved(transaction, record.new_status)
        return None

    def _opened(self, record: TransactionRecord) -> Transaction:
        # The log may be another broker's, which had another bound or none.
        timeout_ms = min(record.timeout_ms or 0, self.timeout_max_ms)
        transaction = Transaction(record.txn_id, record.start_ms or 0, timeout_ms, record.owner)
        self.open[record.txn_id.number] = transaction
        self.characters += TRANSACTION_CHARACTERS
        heappush(self._timeouts, (transaction.deadline_ms, record.txn_id.number))
        return transaction

    def _forget(self, transaction: Transaction) -> None:
        del self.open[transaction.txn_id.number]
        self.characters -= TRANSACTION_CHARACTERS + transaction.characters

    def _moved(self, transaction: Transaction, status: TxnStatus) -> Transaction | None:
        transaction.status = status
        transaction.pending_status = None
        if not status.is_over:
            return None
        if self.heard.pop(transaction.txn_id.number, None) is None:
            self._forget(transaction)
            self._has_ended(transaction, status)
        return transaction

    def _has_ended(self, transaction: Transaction, status: TxnStatus) -> None:
        self._outcomes[transaction.txn_id.number] = status
        if len(self._outcomes) > OUTCOMES_MAX:
            del self._outcomes[next(iter(self._outcomes))]
        if status is TxnStatus.COMMITTED:
            self.committed += 1
        else:
            self.aborted += 1
        if len(self._timeouts) > 2 * len(self.open) + _STALE_MAX:
            self._timeouts = [(each.deadline_ms, number) for number, each in self.open.items()]
            heapify(self._timeouts)

    # ---- questions

    def find(self, txn_id: TxnId) -> Transaction:
        """One that is not over; raises TransactionNotFoundError."""
        transaction = self.open.get(txn_id.number) if txn_id.coordinator == self.coordinator else None
        if transaction is None:
            raise TransactionNotFoundError(f"The transaction with this txdID `{txn_id}`not found ")
        return transaction

    def taking(self, txn_id: TxnId) -> Transaction:
        """One that still takes topics and subscriptions; raises TransactionNotFoundError, InvalidTxnStatusError."""
        transaction = self.find(txn_id)
        if transaction.status is not TxnStatus.OPEN or transaction.pending_status is not None:
            raise _wrong_status(txn_id, TxnStatus.OPEN, transaction.pending_status or transaction.status)
        return transaction

    def standing(self, txn_id: TxnId, participant: str | TxnSubscription) -> Standing:
        """How a transaction stands to a topic, or to a subscription."""
        transaction = self.open.get(txn_id.number) if txn_id.coordinator == self.coordinator else None
        if transaction is None:
            return Standing.OVER
        aliases = transaction.aliases
        is_stored = participant in transaction.partitions or participant in transaction.subscriptions
        is_stored = is_stored or (aliases is not None and participant in aliases)
        # One whose record is being stored is told by whatever end comes true: that is stored behind it.
        if not is_stored and (transaction.expected is None or participant not in transaction.expected):
            return Standing.UNTOLD
        is_taking = transaction.status is TxnStatus.OPEN and transaction.pending_status is None
        return Standing.TAKING if is_taking else Standing.ENDING

    @property
    def active(self) -> int:
        """How many are not over."""
        return len(self.open)

    @property
    def low_watermark(self) -> int:
        """Every transaction up to this number is over; -1: none is."""
        return next(iter(self.open)) - 1 if self.open else self.last_number

    @property
    def ending(self) -> list[Transaction]:
        """Those whose end is decided and not heard by all: after a replay, what must be ended again."""
        return [transaction for transaction in self.open.values() if transaction.status.is_ending]

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next one times out; None: none is open."""
        timeouts = self._timeouts
        while timeouts:
            deadline_ms, number = timeouts[0]
            transaction = self.open.get(number)
            if transaction is not None and transaction.status is TxnStatus.OPEN and not transaction.is_timed_out:
                return deadline_ms
            heappop(timeouts)
        return None

    def due(self, now_ms: int, count_max: int) -> list[TxnId]:
        """Open ones whose time is up, oldest deadline first, at most ``count_max``; each is named once."""
        found: list[TxnId] = []
        while len(found) < count_max:
            deadline_ms = self.next_deadline_ms
            if deadline_ms is None or deadline_ms > now_ms:
                break
            _, number = heappop(self._timeouts)
            transaction = self.open[number]
            transaction.is_timed_out = True
            self.timed_out += 1
            found.append(transaction.txn_id)
        return found

    def _check_open_characters(self, more: int) -> None:
        if self.characters + more > OPEN_CHARACTERS_MAX:
            raise TooManyRequestsError(
                f"the open transactions of coordinator {self.coordinator} take as much as they may, "
                f"{OPEN_CHARACTERS_MAX} characters: begin again when some are over"
            )

    def _take_room(
        self, transaction: Transaction, added: Sequence[str] | Sequence[TxnSubscription], characters: int
    ) -> None:
        """For participants that are going to be stored: a client may ask for many before the first of them is."""
        count = len(added)
        held = len(transaction.partitions) + len(transaction.subscriptions) + transaction.coming
        if held + count > PARTICIPANTS_MAX:
            raise NotAllowedError(
                f"transaction {transaction.txn_id} touches {held} topics and subscriptions; "
                f"{count} more are above {PARTICIPANTS_MAX}"
            )
        if transaction.characters + transaction.coming_characters + characters > PARTICIPANTS_CHARACTERS_MAX:
            raise NotAllowedError(
                f"the names of all that transaction {transaction.txn_id} touches have more than "
                f"{PARTICIPANTS_CHARACTERS_MAX} characters"
            )
        self._check_open_characters(characters)
        transaction.coming += count
        transaction.coming_characters += characters
        self.characters += characters
        if transaction.expected is None:
            transaction.expected = set()
        transaction.expected.update(added)
        _note_aliases(transaction, added)

    def _joined(
        self,
        transaction: Transaction,
        added: Sequence[str] | Sequence[TxnSubscription],
        asked: int,
        characters: int,
    ) -> None:
        """A record with these participants is stored; ``characters`` of the ``asked`` ones are new."""
        is_ours = transaction.coming > 0  # and none that is read again
        _note_aliases(transaction, added)
        if is_ours:
            transaction.coming -= len(added)
            if not transaction.coming:
                transaction.expected = None
            transaction.coming_characters -= asked
            self.characters -= asked
        transaction.characters += characters
        self.characters += characters


def _note_aliases(transaction: Transaction, added: Iterable[str] | Iterable[TxnSubscription]) -> None:
    for each in added:
        given = each if isinstance(each, str) else each.topic
        if "://" in given:
            continue
        try:
            name = str(TopicName.parse(given))
        except InvalidTopicNameError:
            continue  # in the log of another broker: no topic asks for it
        if transaction.aliases is None:
            transaction.aliases = set()
        transaction.aliases.add(name if isinstance(each, str) else TxnSubscription(name, each.subscription))


def _length(subscription: TxnSubscription) -> int:
    return len(subscription.topic) + len(subscription.subscription)


def _wrong_status(txn_id: TxnId, expected: TxnStatus, actual: TxnStatus) -> InvalidTxnStatusError:
    return InvalidTxnStatusError(
        f"Expect transaction {txn_id} to be in {expected.name} status but it is in {actual.name} status"
    )
