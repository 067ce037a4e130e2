"""What the application acknowledges at one consumer of one topic: batches until they are whole, chunks, ids.

A message of a batch is noted in the batch's acker; the broker hears of it with the next group, or with the last message
of the batch where ``batch_index_ack_enabled`` is off. The last one acknowledges the entry, which every broker takes.
Ackers outlive redelivery and reconnects, so that a message of a batch that was acknowledged does not come again with
its batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from geminga.client._api.errors import OperationNotSupported, PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.acks import AckSender, Receipt
from geminga.client._messages.acks_in_transactions import AcksInTransactions, GivenBack
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._transport.connection import ClientConnection
from geminga.client.consumer_rules.ack_grouping import AckGrouping, NoAckGrouping
from geminga.client.consumer_rules.ack_properties import NONE, Properties
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.wire.pulsar.numbers import BATCH_MESSAGES_MAX

EntryKey = tuple[int, int]

#: Batches whose acknowledgment is under way; beyond it the oldest are forgotten and may come again whole.
ACKERS_MAX: Final = 10_000
#: Chunked messages delivered and not acknowledged; beyond it the oldest are taken for their last chunk alone.
CHUNKED_MAX: Final = 10_000
#: Batches of more messages are large; messages of all large ones, a bit each, beyond which the oldest are forgotten.
LARGE_BATCH: Final = 8192
LARGE_BATCHES_MESSAGES_MAX: Final = 64 * 1024 * 1024


class Acknowledgment:
    """See the module's docstring."""

    __slots__ = ("_ackers", "_by_index", "_chunked", "_last_cumulative", "_redelivery", "in_transactions", "sender")

    def __init__(
        self,
        subscription: Subscription,
        redelivery: Redelivery,
        *,
        consumer_id: int,
        topic: str,
        is_persistent: bool,
        timeout_ms: float,
    ) -> None:
        """``is_persistent``: brokers take no acknowledgments of other topics; ``timeout_ms``: for an answer."""
        options = subscription.options
        self._redelivery = redelivery
        self._by_index = options.batch_index_ack_enabled
        #: Groups and sends.
        self.sender = AckSender(
            consumer_id,
            AckGrouping(options.ack_group_time_ms, options.ack_group_size_max) if is_persistent else NoAckGrouping(),
            group_ms=options.ack_group_time_ms,
            with_receipts=options.ack_receipt_enabled and is_persistent,
            timeout_ms=timeout_ms,
            counters=subscription.counters,
        )
        #: Those of transactions: nothing of them is noted in the ackers before it counts.
        self.in_transactions = AcksInTransactions(
            consumer_id, (topic, subscription.name), self, timeout_s=timeout_ms / 1000, counters=subscription.counters
        )
        #: Batches delivered and not acknowledged whole.
        self._ackers: dict[EntryKey, BatchAcker] = {}
        #: Last entry of a chunked message -> all of its entries.
        self._chunked: dict[EntryKey, Sequence[EntryKey]] = {}
        self._last_cumulative: EntryKey | None = None

    # ---- connection

    def connected(self, connection: ClientConnection) -> None:
        """Subscribed: what waited goes out."""
        self.sender.connected(connection)
        self.in_transactions.connected(connection)

    def disconnected(self) -> None:
        """The connection is gone: what was not answered waits again."""
        self.sender.disconnected()
        self.in_transactions.disconnected()

    def on_response(self, request_id: int, error: PulsarException | None) -> None:
        """ACK_RESPONSE."""
        if not self.in_transactions.on_response(request_id, error):
            self.sender.on_response(request_id, error)

    def close(self, error: PulsarException) -> None:
        """Nothing is sent any more; who waits for an answer gets ``error``."""
        self._chunked.clear()
        self.sender.close(error)
        self.in_transactions.close(error)

    # ---- entries come

    def adopt(self, entry: EntryBatch) -> None:
        """A batch arrived: give it its acker, the one it had if it comes again."""
        key = entry.key
        acker = self._ackers.get(key)
        entry.keep_unacknowledged(entry.ack_set, acker)
        if acker is None and entry.acker is not None:
            self._remember(key, entry.acker)

    def chunked(self, last: EntryKey, entries: Sequence[EntryKey]) -> None:
        """A chunked message is whole: its entries are acknowledged together, whatever connection it came over."""
        if len(self._chunked) >= CHUNKED_MAX:
            del self._chunked[next(iter(self._chunked))]
        self._chunked[last] = entries

    def entries_of(self, key: EntryKey) -> Sequence[EntryKey]:
        """The entries that hold a message: one, or those of its chunks."""
        return self._chunked.get(key, (key,))

    def start_over(self) -> None:
        """Everything unacknowledged comes again."""
        self._last_cumulative = None

    def forget_batches(self) -> None:
        """The subscription may have been moved: what was acknowledged of a batch may be wanted again."""
        self._ackers.clear()

    # ---- the application acknowledges

    def acknowledge(self, entry: EntryBatch, index: int) -> Receipt:
        """One message."""
        acker = entry.acker
        if acker is not None and not acker.acknowledge(index):
            return self.sender.add_partial(entry.key, acker) if self._by_index else None
        return self.acknowledge_entry(entry.key, acker)

    def acknowledge_many(self, entry: EntryBatch, indexes: Sequence[int]) -> Receipt:
        """Several messages of one entry."""
        acker = entry.acker
        if acker is not None and not acker.acknowledge_many(indexes):
            return self.sender.add_partial(entry.key, acker) if self._by_index else None
        return self.acknowledge_entry(entry.key, acker)

    def acknowledge_entry(self, key: EntryKey, acker: BatchAcker | None = None) -> Receipt:
        """A whole entry, with the chunks before it; of a batch what the broker delivered of it.

        ``acker``: the one that it came with, which may be forgotten here.
        """
        known = self._ackers.get(key) if self._ackers else None
        acker = known or acker
        self._redelivery.acknowledged(key)
        if acker is not None and acker.withheld:
            # It stays: what was withheld may have been delivered before, and be acknowledged yet.
            return self.sender.add_partial(key, acker)
        if known is not None:
            del self._ackers[key]
        if self._chunked:
            for piece in self._chunked.pop(key, ()):
                if piece != key:
                    self.sender.add(piece)
        return self.sender.add(key)

    # ---- in transactions

    def held(self, key: EntryKey) -> Sequence[EntryKey]:
        """A transaction acknowledged the rest of an entry: nothing asks for it again. The entries of the message."""
        self._redelivery.acknowledged(key)
        return self.entries_of(key)

    def committed(self, key: EntryKey, indexes: Collection[int], size: int) -> None:
        """A transaction that acknowledged these messages of an entry counts; none: all of it, or no batch."""
        acker = self._ackers.get(key)
        if not indexes or acker is None:
            self._ackers.pop(key, None)
            self._chunked.pop(key, None)
        elif [index for index in indexes if acker.acknowledge(index)]:
            # What is left was acknowledged without a transaction, and the broker may not have heard of it.
            self.acknowledge_entry(key)

    def committed_up_to(self, key: EntryKey, index: int) -> None:
        """A transaction that acknowledged everything up to there counts; ``index`` -1: all of the entry."""
        acker = self._ackers.get(key)
        is_whole = index < 0 or acker is None or acker.acknowledge_cumulative(index)
        self._forget_up_to(key if is_whole else (key[0], key[1] - 1))

    def given_back(self, given: GivenBack) -> None:
        """A transaction that acknowledged these was aborted."""
        self._redelivery.given_back(given)

    def batch_size_of(self, message_id: MessageId) -> int:
        """Messages of the batch that an id is of; 0: of none."""
        if message_id.batch_index() < 0:
            return 0
        return self._acker_of((message_id.ledger_id(), message_id.entry_id()), message_id).size

    def acknowledge_id(self, message_id: MessageId) -> Receipt:
        """One message by its id, also one that came from elsewhere."""
        key = (message_id.ledger_id(), message_id.entry_id())
        index = message_id.batch_index()
        if index >= 0:
            acker = self._acker_of(key, message_id)
            if not acker.acknowledge(index):
                return self.sender.add_partial(key, acker) if self._by_index else None
        return self.acknowledge_entry(key)

    def check_id(self, message_id: MessageId) -> None:
        """Raise OperationNotSupported for an id that :meth:`acknowledge_id` could do nothing with."""
        index = message_id.batch_index()
        if index < 0:
            return
        acker = self._ackers.get((message_id.ledger_id(), message_id.entry_id()))
        size = message_id.batch_size()
        if acker is not None:
            if index >= acker.size:
                raise OperationNotSupported(f"{message_id!r} is behind the end of a batch of {acker.size} messages")
        elif size <= index:
            raise OperationNotSupported(
                f"{message_id!r} is of a batch of unknown size: acknowledge the message, or an id that tells it"
            )
        elif size > BATCH_MESSAGES_MAX:
            raise OperationNotSupported(f"{message_id!r}: a batch has at most {BATCH_MESSAGES_MAX} messages")

    def _acker_of(self, key: EntryKey, message_id: MessageId) -> BatchAcker:
        self.check_id(message_id)
        acker = self._ackers.get(key)
        if acker is None:
            acker = BatchAcker(message_id.batch_size())
            self._remember(key, acker)
        return acker

    def _remember(self, key: EntryKey, acker: BatchAcker) -> None:
        ackers = self._ackers
        if len(ackers) >= ACKERS_MAX:
            del ackers[next(iter(ackers))]
        if acker.size > LARGE_BATCH:
            self._make_room(acker.size)
        ackers[key] = acker

    def _make_room(self, messages: int) -> None:
        large = [(key, acker.size) for key, acker in self._ackers.items() if acker.size > LARGE_BATCH]
        messages += sum(size for _, size in large)
        for key, size in large:
            if messages <= LARGE_BATCHES_MESSAGES_MAX:
                break
            del self._ackers[key]
            messages -= size

    def acknowledge_cumulative(self, entry: EntryBatch, index: int, properties: Properties = NONE) -> Receipt:
        """Everything up to and with a message."""
        return self._acknowledge_up_to(entry.key, entry.acker, index, properties)

    def acknowledge_cumulative_id(self, message_id: MessageId, properties: Properties = NONE) -> Receipt:
        """The same by id."""
        key = (message_id.ledger_id(), message_id.entry_id())
        index = message_id.batch_index()
        acker = self._acker_of(key, message_id) if index >= 0 else None
        return self._acknowledge_up_to(key, acker, index, properties)

    def _acknowledge_up_to(
        self, key: EntryKey, acker: BatchAcker | None, index: int, properties: Properties
    ) -> Receipt:
        if acker is not None and (not acker.acknowledge_cumulative(index) or acker.withheld):
            if self._by_index or not acker.remaining:
                return self.sender.add_cumulative(key, acker, properties)
            # The batch is not through; everything before it is.
            key = (key[0], key[1] - 1)
            if key == self._last_cumulative:
                return None
        self._last_cumulative = key
        self._forget_up_to(key)
        return self.sender.add_cumulative(key, None, properties)

    def _forget_up_to(self, key: EntryKey) -> None:
        ackers = self._ackers
        while ackers:
            first = next(iter(ackers))
            if first > key:
                break
            del ackers[first]
        self._redelivery.acknowledged_up_to(key)
        for last in [last for last in self._chunked if last <= key]:
            del self._chunked[last]
