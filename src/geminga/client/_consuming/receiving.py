"""``Receiving``: the messages a consumer has prefetched, of all its topics, and how they are taken and waited for.

Nothing leaves the queue before it is returned, so a cancelled ``receive`` loses nothing: whoever waits
(:mod:`.arrivals`) takes from the queue itself. Who takes one message after the other gives the loop its turns
(:mod:`geminga.client.rules.turns`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, TypeVar

from geminga.client._api.condition import Condition
from geminga.client._api.errors import AlreadyClosed, OperationNotSupported, PulsarException, Timeout, TopicNotFound
from geminga.client._api.place import Place, running_loop
from geminga.client._consuming.arrivals import Arrivals
from geminga.client._consuming.held_topics import HeldTopics
from geminga.client._consuming.subscription import Subscription
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._messages.message import Message, make_message
from geminga.client.consumer_rules.batch_receive import fitting
from geminga.client.consumer_rules.prefetch import PrefetchQueue
from geminga.client.rules.turns import Turns
from geminga.model import TopicName
from geminga.runtime import next_turn

T = TypeVar("T")

_MS: Final = 1000


class Receiving(Generic[T]):
    """See the module; it is the :class:`Delivery` of the consumer's topics."""

    __slots__ = (
        "_arrivals",
        "_condition",
        "_counters",
        "_interceptors",
        "_loop",
        "_options",
        "_place",
        "_queue",
        "_topic",
        "_topics",
        "_turns",
        "is_open",
        "kept_bytes",
        "on_prefetched",
    )

    def __init__(
        self, topic: str, subscription: Subscription, place: Place, condition: Condition, topics: HeldTopics
    ) -> None:
        """``topic``: what was subscribed to, as text; ``condition``: the consumer's."""
        self._options = subscription.options
        self._place = place
        self._condition = condition
        self._counters = subscription.counters
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._queue: PrefetchQueue[EntryBatch] = PrefetchQueue()
        self._turns = Turns(self._loop.time())
        self._arrivals = Arrivals(self._loop)
        self._topics = topics
        self._interceptors = subscription.interceptors
        #: Whether the application may receive, else :meth:`check` says why not; whoever takes many looks at it alone.
        self.is_open = subscription.options.message_listener is None
        #: Hears of entries that came, with the bytes of all that wait.
        self.on_prefetched: Callable[[int], None] | None = None
        #: Bytes of pieces that wait for the rest of their messages, and of ids that wait to be asked for again.
        self.kept_bytes = 0

    @property
    def count(self) -> int:
        """Messages that were prefetched and not received."""
        return self._queue.total_count

    @property
    def bytes_waiting(self) -> int:
        """Bytes of what was prefetched and not received, and of what is kept beside it."""
        return self._queue.total_bytes + self.kept_bytes

    def check(self) -> None:
        """Whether the application may receive; raises OperationNotSupported, AlreadyClosed."""
        if self._options.message_listener is not None:
            raise OperationNotSupported("the consumer has a message_listener: it gets the messages")
        self._condition.check_not_closed()

    def close(self) -> None:
        """The consumer is closed: nothing is left, and whoever waits hears of it."""
        self.is_open = False
        self._topics = HeldTopics()  # those there were know this one
        self._queue.close()
        self.on_prefetched = None
        self._arrivals.wake_all()

    # ---- one after the other

    async def next(self) -> Message[T]:
        """The next message; raises AlreadyClosed, or why the consumer failed."""
        message = self.take()
        return message if message is not None else await self.wait(None)

    async def next_or_end(self) -> Message[T]:
        """The next message; raises StopAsyncIteration once the consumer is closed, or why it failed."""
        message = self.take()
        if message is None:
            if self._condition.is_closed:
                raise StopAsyncIteration
            self.check()
            try:
                message = await self.wait(None)
            except AlreadyClosed:
                raise StopAsyncIteration from None
        return message

    async def messages(self) -> AsyncIterator[Message[T]]:
        """All of them, until the consumer is closed."""
        self._place.check()
        queue, counters, make = self._queue, self._counters, make_message
        has_interceptors = self._interceptors is not None
        while True:
            if has_interceptors or (queue.at >= queue.stop and not self._run_on()):
                try:
                    message = await self.next_or_end()
                except StopAsyncIteration:
                    return
                yield message
                continue
            entry = queue.entry
            assert entry is not None
            source = entry.source
            assert source is not None
            order, flow = entry.order, source.flow
            # As take, with what does not change within a run looked up once. Others may take from it meanwhile.
            while (at := queue.at) < queue.stop and queue.entry is entry:
                queue.at = at + 1
                message = make(Message)
                message._entry = entry
                message._index = order[at]
                counters.messages_received += 1
                flow.owed += 1
                if flow.owed >= flow.threshold:
                    source.permits.send(flow.take())
                yield message

    # ---- taking

    def take(self) -> Message[T] | None:
        """A message that was prefetched; None: there is none, or it is the loop's turn."""
        queue = self._queue
        if queue.at >= queue.stop and not self._run_on():
            return None
        at = queue.at
        entry = queue.entry
        queue.at = at + 1
        assert entry is not None
        message: Message[T] = make_message(Message)
        message._entry = entry
        message._index = entry.order[at]
        self._counters.messages_received += 1
        source = entry.source
        assert source is not None
        flow = source.flow
        flow.owed += 1
        if flow.owed >= flow.threshold:
            source.permits.send(flow.take())
        return message if self._interceptors is None else self._interceptors.consumed(message)

    def take_now(self) -> Message[T] | None:
        """As :meth:`take`, and another turn of the loop begins if that is due: the caller sees to the loop."""
        if self._turns.left <= 0:
            self._turns.begin(self._loop.time())
        return self.take()

    async def take_batch(self) -> list[Message[T]]:
        """As many as the policy says, or as came in its time; raises AlreadyClosed, or why the consumer failed."""
        await self._rest()
        policy = self._options.batch_receive_policy
        queue = self._queue
        if not policy.is_enough(queue.total_count, queue.total_bytes, self._prefetched_max):
            await self._wait_for_batch()
        self._counters.batch_receives += 1
        wanted = policy.max_num_message if policy.max_num_message > 0 else self._prefetched_max
        return self._take_many(wanted, policy.max_num_bytes)

    def _run_on(self) -> bool:
        """Whether a message can be taken in this turn; raises WrongLoop, ForkedProcess."""
        if running_loop() is not self._loop:
            self._place.check()
        queue, turns = self._queue, self._turns
        left = turns.left
        if left <= 0 or (queue.at >= queue.end and not self._next_entry()):
            return False
        if queue.end == 1:  # most entries without a batch: as run_on, and no call
            queue.stop = 1
            turns.left = left - 1
        else:
            turns.left = left - queue.run_on(left)
        return True

    async def _rest(self) -> None:
        """Give the loop its turn if that is due."""
        turns = self._turns
        if turns.left <= 0:
            turns.end(self._loop.time())
            try:
                await next_turn()
            finally:
                turns.begin(self._loop.time())  # also for whoever is cut off here time after time

    def _next_entry(self) -> bool:
        queue = self._queue
        if self._condition.is_closed or not queue.advance():
            return False
        entry = queue.entry
        assert entry is not None
        assert entry.source is not None
        entry.source.first_received(entry)
        self._counters.bytes_received += entry.size_bytes
        return True

    def _take_many(self, count_max: int, bytes_max: int) -> list[Message[T]]:
        queue = self._queue
        messages: list[Message[T]] = []
        size = 0
        while len(messages) < count_max:
            if queue.at >= queue.end and ((messages and self._is_full(size, bytes_max)) or not self._next_entry()):
                break
            entry = queue.entry
            assert entry is not None
            assert entry.source is not None
            if queue.end == 1 and (bytes_max <= 0 or not messages or size + entry.size_bytes <= bytes_max):
                # Most entries without a batch: as below, for one message.
                queue.at = 1
                message: Message[T] = make_message(Message)
                message._entry = entry
                message._index = entry.order[0]
                messages.append(message)
                size += entry.size_bytes
                self._turns.left -= 1
                flow = entry.source.flow
                flow.owed += 1
                if flow.owed >= flow.threshold:
                    entry.source.permits.send(flow.take())
                continue
            at, end = queue.at, min(queue.end, queue.at + count_max - len(messages))
            if bytes_max > 0 and size + entry.size_bytes > bytes_max:
                sizes = map(entry.payload_size, entry.order[at:end])
                end = at + fitting(sizes, bytes_max - size, has_some=bool(messages))
            queue.at = end
            messages += [Message(entry, index) for index in entry.order[at:end]]
            self._turns.left -= end - at
            entry.source.permits.give_back(end - at)
            size += entry.size_bytes * (end - at) // max(1, len(entry.order))
            if end < queue.end:
                break
        self._counters.messages_received += len(messages)
        if self._interceptors is None:
            return messages
        return [self._interceptors.consumed(message) for message in messages]

    def _is_full(self, size: int, bytes_max: int) -> bool:
        """Whether nothing of the next entry has room beside ``size`` bytes: an entry is turned to once something of it
        is received."""
        entry = self._queue.peek()
        if bytes_max <= 0 or entry is None or not entry.order:
            return False
        return size + entry.payload_size(entry.order[0]) > bytes_max

    async def wait(self, timeout_millis: int | None) -> Message[T]:
        """A message, after :meth:`take` gave none; raises Timeout (None: never), AlreadyClosed, or why it failed."""
        if self._turns.left <= 0:
            await self._rest()
            message = self.take()
            if message is not None:
                return message
        if timeout_millis is None:
            return await self._next_message()
        try:
            async with asyncio.timeout(timeout_millis / _MS):
                return await self._next_message()
        except TimeoutError:
            self._counters.receive_timeouts += 1
            raise Timeout(f"no message of {self._topic} within {timeout_millis} ms") from None

    async def _next_message(self) -> Message[T]:
        while True:
            await self._arrive()
            message = self.take()
            if message is not None:
                return message

    async def _arrive(self) -> None:
        """Until something arrived, or the consumer ended; raises AlreadyClosed or why it failed."""
        self._ask()
        await self._arrivals.wait()
        self._turns.begin(self._loop.time())

    async def has_arrived(self, timeout_s: float) -> bool:
        """Wait until entries arrive or are passed over; False: none within ``timeout_s``. Raises AlreadyClosed, or
        why the consumer failed."""
        if self._queue.total_count:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                self._ask()
                # Not in the line of those who receive: one of them may be given what comes.
                await self._arrivals.watch()
        except TimeoutError:
            return False
        return True

    def _ask(self) -> None:
        """Somebody waits; raises AlreadyClosed or why the consumer failed."""
        self._condition.check_open()
        if not self._options.receiver_queue_size:
            self._topics.ask_for_one()

    @property
    def _prefetched_max(self) -> int:
        """More do not come; by the size of those that came, it changes."""
        return max(1, self._topics.capacity)

    async def _wait_for_batch(self) -> None:
        policy = self._options.batch_receive_policy
        queue = self._queue
        timeout_s = policy.timeout_ms / _MS if policy.timeout_ms > 0 else None
        try:
            async with asyncio.timeout(timeout_s):
                while not policy.is_enough(queue.total_count, queue.total_bytes, self._prefetched_max):
                    self._topics.send_owed()  # all of the queue may be needed for one batch
                    self._ask()
                    # Not in the line of those who receive: what is too little for a batch is enough for them.
                    await self._arrivals.watch()
                    self._turns.begin(self._loop.time())
        except TimeoutError:
            pass

    # ---- what its topics tell

    def on_entries(self, entries: Sequence[EntryBatch]) -> None:
        """Entries arrived."""
        self._arrivals.arrived(self._queue.extend(entries))
        if self.on_prefetched is not None:
            self.on_prefetched(self.bytes_waiting)

    def on_kept(self, more_bytes: int) -> None:
        """So many bytes more, or fewer, are kept: of pieces of messages, and of ids to ask for again."""
        self.kept_bytes += more_bytes
        if self.on_prefetched is not None:
            self.on_prefetched(self.bytes_waiting)

    def on_passed_over(self) -> None:
        """Entries came that gave no message: who waits for one asks again, or learns that there is none left."""
        self._arrivals.wake_all()

    def drop_prefetched(self, is_dropped: Callable[[EntryBatch], bool]) -> None:
        """Forget what was prefetched and not received."""
        for entry, count in self._queue.drop(is_dropped):
            source = entry.source
            if source is None:
                continue
            if count < len(entry.order):
                source.cut_off(entry, entry.order[-count - 1])
            source.permits.give_back(count)

    def last_index(self, entry: EntryBatch) -> int:
        """Index of the last message of ``entry`` that was received; of it nothing was dropped."""
        queue = self._queue
        return entry.order[queue.at - 1] if queue.entry is entry and queue.at else entry.order[-1]

    def on_subscribed(self, topic: TopicName) -> None:
        """See :meth:`Delivery.on_subscribed`."""
        consumer = self._topics.get(topic)
        if self._arrivals.are_awaited and not self._options.receiver_queue_size and consumer is not None:
            consumer.permits.ask_for_one()

    def on_resumed(self) -> None:
        """Messages may be asked for again: without prefetching nobody did for those who wait."""
        if self._arrivals.are_awaited and not self._options.receiver_queue_size:
            self._topics.ask_for_one()

    def on_topic_failed(self, topic: TopicName, error: PulsarException, *, is_found: bool) -> None:
        """One topic can not go on: receiving fails with its error. A pattern's topic may be deleted."""
        if self._topics.on_gone is not None and is_found and isinstance(error, TopicNotFound):
            self._topics.on_gone(topic)
            return
        self._condition.error = error
        self._arrivals.wake_all()
