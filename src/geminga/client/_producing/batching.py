"""``Batching``: the messages of one producer that gather in an open batch, or in one for each key, and when it closes.

A batch closes when it is full, when its delay is over, when a message comes that does not fit, or, if somebody awaits
a receipt, as soon as nothing is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from geminga.client._api.options import BatchingType, ProducerOptions
from geminga.client.producer_rules.batcher import Batch
from geminga.client.producer_rules.key_batcher import KeyBatcher
from geminga.client.producer_rules.message import EncodedMessage
from geminga.client.producer_rules.send_queue import SendCallback
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import Clock

#: A batch that is due within so many seconds is due now.
_TIMER_SLACK_S: Final = 0.0005


class Batching:
    """See the module's docstring. The hot path appends to :attr:`plain` itself, as long as nothing is full."""

    __slots__ = (
        "_check_room",
        "_clock",
        "_delay_s",
        "_is_closing_soon",
        "_keyed",
        "_loop",
        "_messages_max",
        "_on_batch",
        "_takes_plain",
        "_timer",
        "batch",
        "bytes_max",
        "messages_max",
        "plain",
        "stored_sequence_id",
    )

    def __init__(
        self,
        clock: Clock,
        options: ProducerOptions,
        *,
        takes_plain: bool,
        check_room: Callable[[], int],
        on_batch: Callable[[Batch], None],
    ) -> None:
        """``takes_plain``: bytes go out as they are; ``check_room`` says how many messages a batch that is opened now
        may take, or raises if there is room for none; ``on_batch`` gets each that closes."""
        self._clock = clock
        self._takes_plain = takes_plain
        self._check_room = check_room
        self._on_batch = on_batch
        self._loop = asyncio.get_running_loop()
        self._messages_max = options.batching_max_messages
        #: Of the open batch, which passes the check for room once, with its first message.
        self.messages_max = self._messages_max
        self.bytes_max = options.batching_max_allowed_size_in_bytes
        self._delay_s = options.batching_max_publish_delay_ms / 1000
        #: The open batch; closed ones are frames.
        self.batch = Batch(0.0)
        self._keyed = KeyBatcher() if options.batching_type is BatchingType.KeyBased else None
        #: The open batch, if bytes alone may be appended to it; None: they may not, or none is open.
        self.plain: Batch | None = None
        #: The highest that the broker had when the producer was made, or that left since: batches of the user's own ids
        #: end there.
        self.stored_sequence_id = -1
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing_soon = False

    @property
    def messages(self) -> int:
        """How many are no frames yet."""
        return self._keyed.messages if self._keyed is not None else len(self.batch.payloads)

    # ---- in

    def add(self, message: EncodedMessage, callback: SendCallback | None, *, is_let_in: bool = False) -> None:
        """Behind the others; raises what ``check_room`` does if that opens a batch, unless it is let in already."""
        if self._keyed is not None:
            self._add_keyed(self._keyed, message, callback, is_let_in=is_let_in)
            return
        batch = self.batch
        if not (batch.payloads and batch.fits(message, self.bytes_max, self.stored_sequence_id)):
            self._make_room(is_let_in=is_let_in)
            is_custom = message.sequence_id is not None
            txn = message.txn
            batch = self.batch = Batch(self._clock.monotonic(), is_custom=is_custom, txn=txn)
            if txn is not None:
                self._opened_in(txn)
            elif not is_custom and self._takes_plain:
                self.plain = batch
            self._arm_timer(self._delay_s)
        batch.add(message, callback)
        if len(batch.payloads) >= self.messages_max or batch.size_bytes >= self.bytes_max:
            self.close()

    def _add_keyed(
        self, keyed: KeyBatcher, message: EncodedMessage, callback: SendCallback | None, *, is_let_in: bool
    ) -> None:
        if not (keyed.messages and keyed.fits(message, self.bytes_max, self.stored_sequence_id)):
            self._make_room(is_let_in=is_let_in)
            if message.txn is not None:
                self._opened_in(message.txn)
            self._arm_timer(self._delay_s)
        keyed.add(message, callback, self._clock.monotonic())
        if keyed.messages >= self.messages_max or keyed.size_bytes >= self.bytes_max:
            self.close()

    def _make_room(self, *, is_let_in: bool) -> None:
        """For a message that opens a batch: what is open leaves. There is room or not before that: who waited for it
        is not refused for what he closes himself."""
        room = self._messages_max if is_let_in else self._check_room() - self.messages
        self.close()
        self.messages_max = min(self._messages_max, room)

    def _opened_in(self, txn: TransactionCore) -> None:
        """What is open now is the transaction's: it is under way, and leaves at the latest when that is to end."""
        txn.join()
        txn.flush_at_end(self.close)

    # ---- out

    def close(self) -> None:
        """What is in open batches leaves."""
        if self._keyed is not None:
            txn = self._keyed.txn
            for keyed in self._keyed.take():
                self._leaves(keyed)
            if txn is not None:
                txn.settle(None)
        elif self.batch.payloads:
            batch, self.batch = self.batch, Batch(0.0)
            self.plain = None
            self._leaves(batch)
            if batch.txn is not None:
                batch.txn.settle(None)

    def _leaves(self, batch: Batch) -> None:
        self.left(batch.last_own_sequence_id)
        self._on_batch(batch)

    def left(self, sequence_id: int | None) -> None:
        """A message with an id of the user's own left, None: without one."""
        if sequence_id is not None and sequence_id > self.stored_sequence_id:
            self.stored_sequence_id = sequence_id

    def want_receipt(self, *, is_idle: bool) -> None:
        """Somebody waits for the receipt of what was sent last: do not let it wait for the batch's delay alone.

        ``is_idle``: nothing is in flight, so no receipt will ask for the batch.
        """
        (self.batch if self._keyed is None else self._keyed).is_awaited = True
        if is_idle and not self._is_closing_soon:
            # At the end of this turn, so that all that are sent in it become one batch.
            self._is_closing_soon = True
            self._loop.call_soon(self._close_soon)

    def _close_soon(self) -> None:
        self._is_closing_soon = False
        if self.messages:
            self.close_awaited()

    def close_awaited(self) -> None:
        """Nothing is in flight: what somebody awaits a receipt of leaves."""
        if (self.batch if self._keyed is None else self._keyed).is_awaited:
            self.close()

    # ---- its delay

    def stop(self, check_room: Callable[[], int]) -> None:
        """The producer ended: nothing leaves by itself any more, and ``check_room`` refuses what comes."""
        self._check_room = check_room
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm_timer(self, delay_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        if self.messages:
            opened_s = self.batch.opened_s if self._keyed is None else self._keyed.opened_s
            left_s = opened_s + self._delay_s - self._clock.monotonic()
            if left_s > _TIMER_SLACK_S:  # it was opened after the timer was armed
                self._arm_timer(left_s)
            else:
                self.close()
