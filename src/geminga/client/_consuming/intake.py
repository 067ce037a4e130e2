"""``Intake``: what comes over the connection of one consumer of one topic, and which of it is handed out.

Frames become entries (:mod:`.entries`, behind the gate for data keys); left out is what was acknowledged, lies before
the start, or was redelivered too often; what is left is handed over behind the gate for schemas. Permits of what is
left out go back at once.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

from geminga.client._api.errors import ReadError
from geminga.client._api.message_id import MessageId
from geminga.client._consuming import requests
from geminga.client._consuming.acknowledgment import Acknowledgment
from geminga.client._consuming.attachment import Attachment
from geminga.client._consuming.entries import ChunkRead, EntryReader
from geminga.client._consuming.key_gate import KeyGate
from geminga.client._consuming.permits import Permits
from geminga.client._consuming.redelivery import Redelivery
from geminga.client._consuming.schema import SchemaGate
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.consumer_options import ConsumerCryptoFailureAction
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.ports import Delivery, EntrySource
from geminga.client._transport.cluster import Cluster
from geminga.client.consumer_rules.chunk_assembly import ChunkAssembly
from geminga.client.consumer_rules.discards import Discard, Fate, fate
from geminga.client.consumer_rules.prefetch import permits_of
from geminga.client.consumer_rules.returned import Returned
from geminga.client.consumer_rules.start_position import StartPosition
from geminga.runtime import get_logger
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import Frame
from geminga.wire.pulsar.metadata import split_entry

_log = get_logger(__name__)

EntryKey = tuple[int, int]
#: Whether more parts of a message can come is looked at so often in the time that it has for the next one.
EXPIRY_LOOKS: Final = 4
#: After the end: frames are not taken any more, and the timers are gone.
_NOBODY: Final = cast("Upstream", None)


class Upstream(EntrySource, Protocol):
    """The consumer of the topic: entries name it as their source."""

    permits: Permits

    def on_messages(self, frames: list[Frame]) -> None:
        """Frames that were held back for their keys."""
        ...


class Intake:
    """See the module's docstring."""

    __slots__ = (
        "_acks",
        "_attachment",
        "_clock",
        "_damaged",
        "_delivery",
        "_dropped",
        "_entries",
        "_expiry",
        "_gate",
        "_is_read_whole",
        "_passed_over",
        "_pieces_bytes",
        "_redelivery",
        "_source",
        "_subscription",
        "_unseen",
        "key_gate",
        "returned",
        "start",
    )

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        delivery: Delivery,
        source: Upstream,
        attachment: Attachment,
        acks: Acknowledgment,
        redelivery: Redelivery,
    ) -> None:
        options = subscription.options
        topic = str(source.topic)
        self._clock = cluster.runtime.clock
        self._subscription = subscription
        self._delivery = delivery
        #: Nothing is buried, and no batch is handed out as it came.
        self._is_read_whole = (
            subscription.dead_letters is None
            and options.crypto_failure_action is not ConsumerCryptoFailureAction.CONSUME
        )
        self._source = source
        self._attachment = attachment
        self._acks = acks
        self._redelivery = redelivery
        self._entries = EntryReader(
            topic,
            ChunkAssembly(
                options.max_pending_chunked_message,
                options.expire_time_of_incomplete_chunked_message_ms,
                subscription.chunk_bounds,
            ),
            decryptor=subscription.decryptor,
            crypto_failure_action=options.crypto_failure_action,
            now_ms=self._now_ms,
            on_discard=self._on_discard,
            on_chunk=self._on_chunk,
        )
        #: Holds frames back until their data keys are here; None: nothing is decrypted.
        self.key_gate: KeyGate | None = None
        if subscription.decryptor is not None:
            self.key_gate = KeyGate(
                topic,
                self._entries,
                subscription.decryptor,
                on_messages=source.on_messages,
                read_again=attachment.read_again,
            )
        #: Ends messages in parts that do not come whole; None: none is under way.
        self._expiry: asyncio.TimerHandle | None = None
        self._gate: SchemaGate | None = None
        if source.decoder is not None:
            self._gate = SchemaGate(cluster, topic, source.decoder, delivery.on_entries)
        #: What lies before it is not handed out.
        self.start: StartPosition | None = None
        #: After an abort: what is handed out of what was received before. None: everything.
        self.returned: Returned | None = None
        #: Messages that were not looked at since it was subscribed, and such that were and are not handed out.
        self._unseen = self._dropped = 0
        #: The entry that could not be read last.
        self._damaged: EntryKey | None = None
        #: The last entry that came and gave no message, since everything came again last.
        self._passed_over: EntryKey | None = None
        #: Bytes of pieces that were told of.
        self._pieces_bytes = 0

    # ---- its life

    def connected(self, message_bytes_max: int) -> None:
        """Over a connection that takes messages of so many bytes."""
        self._entries.message_bytes_max = message_bytes_max
        self._unseen = self._dropped = 0

    def set_epoch(self, epoch: int) -> None:
        """Entries of a lower one are dropped; -1: there are none."""
        self._entries.epoch = epoch

    def start_over(self, returned: Returned | None = None) -> None:
        """Everything unacknowledged comes again; ``returned``: what of it is handed out, None: all."""
        self.returned = returned
        if self._gate is not None:
            self._dropped += self._gate.clear()
        if self.key_gate is not None:
            self.pass_over(self.key_gate.clear())
        self._entries.chunks.clear()
        self._tell_pieces()
        self._passed_over = None

    def close(self) -> None:
        """Nothing comes any more."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._gate is not None:
            self._gate.close()
        if self.key_gate is not None:
            self.key_gate.close()
        self._entries.close()
        self._entries.chunks.clear()
        self._tell_pieces()
        self._source = _NOBODY

    # ---- frames

    def take(self, frames: list[Frame]) -> bool:
        """MESSAGE frames of one socket read; False: they, or some of them, are held back."""
        arrived: list[EntryBatch] = []
        gate = self.key_gate
        read = self._entries.read(frames) if gate is None else gate.read(frames)
        if self._pieces_bytes or self._entries.chunks:
            self._tell_pieces()
        is_holding = gate is not None and gate.is_holding
        self._subscription.counters.entries_received += len(read)
        is_simple = self._is_read_whole and self.start is None and self.returned is None
        is_pending = self._acks.sender.tracker.is_pending
        source = self._source
        for entry in read:
            if is_simple and not entry.is_batch and not is_pending(entry.key):
                entry.source = source  # as below: nothing more is asked of most
                arrived.append(entry)
            elif self._accept(entry):
                arrived.append(entry)
        if read and source.permits.flow.is_measured:
            source.permits.came(sum(max(1, one.batch_size) for one in read), sum(one.size_bytes for one in read))
        if not source.permits.flow.capacity:
            for entry in read:
                source.permits.came_beside(_counted(entry))
        if arrived and (self._gate is None or not self._gate.holds(arrived)):
            self._delivery.on_entries(arrived)
        if len(arrived) < len(frames) and not is_holding:
            self._delivery.on_passed_over()
        return not is_holding

    def pass_over(self, frames: list[Frame]) -> None:
        """Frames that are not looked at."""
        for command, data in frames:
            metadata, _ = split_entry(data)
            ack_set = decode_command(command).message.ack_set
            self._unseen += 1 if metadata is None else permits_of(metadata.num_messages_in_batch, ack_set)

    def give_back(self) -> None:
        """What was held back or not looked at since it was subscribed comes again: its permits."""
        unseen, dropped = self._unseen, self._dropped
        self._unseen = self._dropped = 0
        permits = self._source.permits
        if unseen or dropped:
            permits.give_back(unseen + dropped)
        if unseen and not permits.flow.capacity:
            permits.is_asked = False
            permits.came_beside(unseen)

    def has_passed_over(self, message_id: MessageId) -> bool:
        """Whether everything up to its entry came, and the last of it gave no message: it was discarded, or waits for
        its other chunks. On Shared and Key_Shared entries come in any order, so that nothing can be said."""
        passed = self._passed_over
        is_holding = self._gate is not None and self._gate.is_holding
        if passed is None or self._subscription.options.shares_messages or is_holding:
            return False
        return passed >= (message_id.ledger_id(), message_id.entry_id())

    def _accept(self, entry: EntryBatch) -> bool:
        """Whether anything of the entry is to be handed out."""
        if self._is_for_application(entry):
            return True
        # What can not be delivered was seen before, also what came behind it.
        if self._passed_over is None or self._passed_over < entry.key:
            self._passed_over = entry.key
        return False

    def _is_for_application(self, entry: EntryBatch) -> bool:
        source = entry.source = self._source
        key = entry.key
        counted = _counted(entry)
        if self._acks.sender.tracker.is_pending(key):
            source.permits.give_back(counted)
            return False
        if entry.is_batch:
            self._acks.adopt(entry)
        if self.start is not None:
            self._drop_before_start(entry, self.start)
        if self.returned is not None:
            entry.order = self.returned.wanted(key, entry.order, is_batch=entry.is_batch)
        kept = len(entry.order)
        if kept < counted:
            source.permits.give_back(counted - kept)
        if not kept:
            if entry.is_batch and (entry.acker is None or entry.acker.is_complete):
                self._acks.acknowledge_entry(key)  # nothing of it will ever be acknowledged by the application
            return False
        if self._subscription.dead_letters is not None and not self._redelivery.may_deliver(entry):
            source.permits.give_back(kept)
            return False
        return True

    def _drop_before_start(self, entry: EntryBatch, start: StartPosition) -> None:
        is_durable = self._subscription.options.is_durable
        if is_durable and entry.key != (start.ledger_id, start.entry_id):
            return  # another consumer of the subscription may have moved it back
        first = start.first_index(entry.ledger_id, entry.entry_id, is_batch=entry.is_batch)
        if first == 0:
            return
        order = entry.order
        entry.order = [] if first is None else [index for index in order if index >= first]
        if not is_durable:
            return
        # Skipped on purpose: it must not stay in the backlog.
        if entry.acker is None:
            self._acks.sender.add(entry.key)
            return
        for index in order[: len(order) - len(entry.order)]:
            entry.acker.acknowledge(index)

    def _on_discard(self, key: EntryKey, why: Discard, permits: int) -> None:
        source = self._source
        source.permits.give_back(max(1, permits))
        if not source.permits.flow.capacity:
            source.permits.came_beside(max(1, permits))
        action = self._subscription.options.crypto_failure_action
        then = fate(
            why,
            was_damaged=key == self._damaged,
            drops_undecryptable=action is ConsumerCryptoFailureAction.DISCARD,
        )
        if then is Fate.NONE:
            return
        if then is not Fate.WAIT:
            self._subscription.counters.entries_discarded += 1
        if then is Fate.READ_AGAIN:
            self._damaged = key
            self._attachment.read_again(ReadError(f"{source.topic}: entry {key[0]}:{key[1]} came damaged"))
            return
        self._passed_over = key
        if then is Fate.ACKNOWLEDGE:
            self._acks.sender.add(key)
        elif then is Fate.KEEP:
            what = "can not be decrypted"
            if why is Discard.TOO_LARGE:
                limit = self._subscription.chunk_bounds.message_bytes_max
                what = f"is of a message too large to put together (chunked_message_bytes_max={limit}), and stays"
            _log.warning("%s: entry %d:%d %s", source.topic, *key, what)
            self._redelivery.received(key, 0)
        elif then is Fate.REFUSE:
            _log.warning("%s: entry %d:%d is discarded: %s", source.topic, *key, why.name.lower())
            self._attachment.write(requests.ack_damaged(self._attachment.consumer_id, key, why))

    def _on_chunk(self, chunk: ChunkRead) -> None:
        for entry in chunk.repeated:
            self._acks.sender.add(entry)
        if chunk.whole:
            self._acks.chunked(chunk.key, chunk.whole)
        elif self._expiry is None:
            self._await_expiry()
        if not chunk.discarded and not chunk.evicted:
            return
        self._subscription.counters.chunked_discarded += 1
        options = self._subscription.options
        if chunk.evicted and chunk.evicted[-1:] != [chunk.key]:
            _log.warning(
                "%s: a message in pieces gives way to others: beyond max_pending_chunked_message=%d, or %d bytes",
                self._source.topic,
                options.max_pending_chunked_message,
                self._subscription.chunk_bounds.held_bytes_max,
            )
        expire_ms = options.expire_time_of_incomplete_chunked_message_ms
        is_old = 0 < expire_ms < self._clock.wall_ms() - chunk.publish_time_ms
        # Age says that no more of it comes; of what gave way to others all may be there.
        for entries, is_lost in ((chunk.discarded, is_old), (chunk.evicted, False)):
            for entry in entries:
                if is_lost or options.auto_ack_oldest_chunked_message_on_queue_full:
                    self._acks.sender.add(entry)
                else:
                    self._redelivery.negative_acks(entry, 0)

    def _await_expiry(self) -> None:
        due_ms = self._entries.chunks.next_expiry_ms
        if due_ms is not None:
            looks_ms = self._subscription.options.expire_time_of_incomplete_chunked_message_ms / EXPIRY_LOOKS
            delay_ms = min(max(0.0, due_ms - self._now_ms()), looks_ms)
            self._expiry = asyncio.get_running_loop().call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        """Parts of which no more came in time are acknowledged, as by Java's client: they would hold the subscription
        for ever. Time in which none could come does not count: the message may be whole at the broker."""
        self._expiry = None
        if not self._can_come():
            self._entries.chunks.put_off(self._now_ms())
        expired = self._entries.chunks.expire(self._now_ms())
        if expired:
            self._subscription.counters.chunked_discarded += 1
            _log.warning("%s: parts of a message that never came whole are acknowledged", self._source.topic)
        for entry in expired:
            self._acks.sender.add(entry)
        self._tell_pieces()
        self._await_expiry()

    def _tell_pieces(self) -> None:
        """Before the message that they became is told of: nothing waits twice."""
        was, self._pieces_bytes = self._pieces_bytes, self._entries.chunks.size_bytes
        if self._pieces_bytes != was:
            self._delivery.on_kept(self._pieces_bytes - was)

    def _can_come(self) -> bool:
        """Whether the broker may send, and all that it sent was received."""
        permits = self._source.permits
        is_open = self._attachment.connection is not None and not permits.flow.is_paused
        is_held = self._delivery.count or (self.key_gate is not None and self.key_gate.is_holding)
        return is_open and not is_held and (permits.is_asked or bool(permits.flow.capacity))

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1000


def _counted(entry: EntryBatch) -> int:
    """Messages of an entry as its broker counts them: of a batch, also one that can not be decrypted, those that were
    not acknowledged there."""
    size = entry.metadata.num_messages_in_batch if entry.is_undecrypted else entry.batch_size
    return permits_of(size, entry.ack_set)
