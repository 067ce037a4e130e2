"""``Framing``: what one producer sends becomes frames, under sequence ids in the order it is sent.

A message with a sequence id of the user's own keeps it; those without one count on from the highest.
"""

from __future__ import annotations

from geminga.client._api.errors import MessageTooBig, PulsarException, UnexpectedError, as_client_error
from geminga.client._producing.send_buffer import SendBuffer
from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.encoded_batch import EncodedBatch, WholeEntry
from geminga.client.producer_rules.frame_maker import FrameMaker, TooBig
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import PendingSend, SendCallback
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import Clock, Raised, attempt, get_logger

_log = get_logger(__name__)


class Framing:
    """See the module's docstring."""

    __slots__ = ("_buffer", "_clock", "_frames", "_next_sequence_id", "_target", "_topic")

    def __init__(
        self, clock: Clock, frames: FrameMaker, buffer: SendBuffer, topic: str, initial_sequence_id: int | None
    ) -> None:
        """``initial_sequence_id``: messages without one of their own count on from it; None: from where the broker
        says."""
        self._clock = clock
        self._frames = frames
        self._buffer = buffer
        self._topic = topic
        #: As transactions know it.
        self._target = (topic,)
        self._next_sequence_id = -1 if initial_sequence_id is None else initial_sequence_id + 1

    def begin(self, last_sequence_id: int) -> None:
        """The broker said what it has of the producer, -1: nothing."""
        if self._next_sequence_id < 0:
            self._next_sequence_id = last_sequence_id + 1
        self._buffer.last_sequence_id = max(last_sequence_id, self._next_sequence_id - 1)

    # ---- what is sent

    def add_batch(self, batch: Batch) -> None:
        """One entry, or one for each message if together they can be none. Who sent them has gone on: whatever is
        raised here ends in the futures and callbacks of the batch, nowhere else."""
        pending = attempt(self._frames.batch, batch, self._next_sequence_id, self._clock.wall_ms())
        if isinstance(pending, Raised):
            self._refuse_batch(batch, pending.error)
        else:
            self._next_sequence_id = max(self._next_sequence_id, pending.highest_sequence_id + 1)
            self._add(pending, batch.txn)

    def add_alone(self, message: EncodedMessage, callback: SendCallback | None) -> None:
        """One message, in several frames if it is chunked; raises MessageTooBig."""
        clock = self._clock
        sequence_id = self._next_sequence_id if message.sequence_id is None else message.sequence_id
        try:
            frames = self._frames.message(message, sequence_id, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, sequence_id + 1)
        for pending in frames:
            self._add(pending, message.txn)

    def add_plain(self, payload: bytes, txn: TransactionCore, now_s: float) -> None:
        """One message of a transaction that is nothing but bytes, and that nobody waits for; raises MessageTooBig."""
        sequence_id = self._next_sequence_id
        pending = self._frames.plain_message(payload, txn, sequence_id, now_s, self._clock.wall_ms())
        if pending is None:
            self.add_alone(EncodedMessage(payload, txn=txn), None)
            return
        self._next_sequence_id = sequence_id + 1
        self._buffer.add_in(txn, self._target, pending)

    def add_encoded(self, entry: EncodedBatch, callback: SendCallback | None) -> None:
        """A batch that was encoded elsewhere, with sequence ids of its own; raises MessageTooBig."""
        clock = self._clock
        try:
            pending = self._frames.encoded(entry, callback, clock.monotonic(), clock.wall_ms())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        self._next_sequence_id = max(self._next_sequence_id, entry.highest_sequence_id + 1)
        self._add(pending, entry.txn)

    def add_whole(self, entry: WholeEntry) -> None:
        """An entry that was stored elsewhere; raises MessageTooBig."""
        try:
            pending = self._frames.whole(entry, self._clock.monotonic())
        except TooBig as error:
            raise MessageTooBig(str(error)) from None
        pending.on_end = entry.on_end
        self._buffer.add(pending)

    def _add(self, pending: PendingSend, txn: TransactionCore | None) -> None:
        if txn is None:
            self._buffer.add(pending)
        else:
            self._buffer.add_in(txn, self._target, pending)

    def _refuse_batch(self, batch: Batch, error: Exception) -> None:
        count = len(batch)
        if count > 1 and not isinstance(error, PulsarException):
            # Together too big for the broker, or one of them can not be encoded: the others can.
            for single in batch.singles():
                self.add_batch(single)
            return
        failure = MessageTooBig(str(error)) if isinstance(error, TooBig) else as_client_error(error, "encoding")
        if isinstance(failure, UnexpectedError):
            _log.error("producer %s of %s: %s", self._frames.producer_name, self._topic, failure, exc_info=error)
        if batch.txn is not None:
            batch.txn.fail(failure)
        self._buffer.refuse(batch.callbacks, count, failure)
