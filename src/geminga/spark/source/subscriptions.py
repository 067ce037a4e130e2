"""The durable cursor of a stream: created at its first look at the topics, moved only when Spark has committed.

It holds back the trimming of what the query has not read; it is never read from, never moved by a seek, never deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from geminga.client import Client, Consumer, ConsumerBusy, ConsumerType, InitialPosition, MessageId, PulsarException
from geminga.client.rules.backoff import Backoff
from geminga.model import TopicName
from geminga.runtime import get_logger, wait_ms
from geminga.spark.source.positions import Probe, in_parallel
from geminga.spark.source_rules.errors import SourceError, SubscriptionBusyError
from geminga.spark.source_rules.offsets import ReadPosition

_log = get_logger(__name__)

#: How long a driver that starts anew waits until the broker has noticed the old one's end: longer than the keep-alive
#: (30 s) and the broker's question whether the connection lives (5 s).
BUSY_WAIT_S: Final = 45.0
_BUSY_FIRST_PAUSE_MS: Final = 100
_BUSY_PAUSE_MAX_MS: Final = 2000

#: (topic, where its cursor stands as ledger and entry, end of a batch) -> up to where it may be acknowledged.
WholeBefore: TypeAlias = Callable[[str, tuple[int, int] | None, ReadPosition], Awaitable[ReadPosition]]


class Cursors:
    """The subscription ``name`` on each topic of a stream; runs on the client's loop."""

    def __init__(self, client: Client, name: str, busy_wait_s: float = BUSY_WAIT_S) -> None:
        self._client = client
        self._busy_wait_s = busy_wait_s
        self.name = name
        self._consumers: dict[str, Consumer[bytes]] = {}
        #: How far each was acknowledged by this run: (ledger id, entry id) of what comes next.
        self._acknowledged: dict[str, tuple[int, int]] = {}
        #: What was committed of each, which may lie further.
        self._committed: dict[str, ReadPosition] = {}

    async def create(self, topics: list[str], *, from_earliest: bool) -> None:
        """Create the subscription where it does not exist.

        Raises SubscriptionBusyError if another one has it for as long as BUSY_WAIT_S: of two queries that acknowledge
        on one subscription each lets go of what the other has not read. And what subscribing raises.
        """
        position = InitialPosition.Earliest if from_earliest else InitialPosition.Latest
        runtime = self._client.runtime
        give_up_at = runtime.clock.monotonic() + self._busy_wait_s

        async def subscribe(topic: str) -> None:
            backoff = Backoff(_BUSY_FIRST_PAUSE_MS, _BUSY_PAUSE_MAX_MS)
            while True:
                try:
                    self._consumers[topic] = await self._subscribe(topic, position)
                    return
                except ConsumerBusy as error:
                    now = runtime.clock.monotonic()
                    left_s = give_up_at - now
                    if left_s <= 0:
                        raise SubscriptionBusyError(
                            f"subscription={self.name}: another consumer holds it on {topic} ({error}). Is the query "
                            "running already? Each query needs a subscription of its own that nobody else consumes from"
                        ) from error
                    await wait_ms(min(backoff.next_ms(now * 1000, runtime.rng.random()), left_s * 1000))

        await in_parallel([topic for topic in topics if topic not in self._consumers], subscribe)

    async def _subscribe(self, topic: str, position: InitialPosition) -> Consumer[bytes]:
        return await self._client.subscribe(
            topic,
            self.name,
            consumer_type=ConsumerType.Exclusive,
            initial_position=position,
            receiver_queue_size=0,
            ack_group_time_ms=0,
            ack_receipt_enabled=True,
        )

    async def holds(self, topic: str, start: ReadPosition, probe: Probe) -> bool:
        """Whether the cursor stands at or before ``start``, so that nothing from there on can have been deleted.

        A cursor whose ledger was consumed to its end is moved by Apache's broker to "before the first entry" of the
        next one when the ledger goes. That is no loss, except where a time to live expired just what the ledger had
        left. Geminga's leaves it where it was: what stands there was made anew, since somebody deleted the topic or
        the subscription, and held nothing meanwhile.
        """
        consumer = self._consumers.get(topic)
        if consumer is None:
            return False
        at = await _next_of(consumer)
        if at is None:
            return False
        if at <= start.entry:
            return True
        return at[0] > start.ledger_id and not at[1] and not await probe.leaves_cursors()

    async def commit(self, ends: Mapping[str, ReadPosition], whole_before: WholeBefore) -> None:
        """Acknowledge everything before ``ends``. What fails is logged: the next commit covers it.

        ``whole_before``: a chunked message that is not read yet may begin before such an end.
        """

        async def acknowledge(topic: str) -> None:
            end = ends[topic]
            consumer = self._consumers.get(topic)
            if consumer is None or end.entry_id < 1 or self._committed.get(topic, end) > end:
                return
            if self._committed.get(topic) == end:
                return
            try:
                await self._acknowledge(consumer, topic, end, whole_before)
            except (PulsarException, SourceError) as error:
                _log.warning("%s: acknowledging on %s up to %s: %s", topic, self.name, end, error)
                return
            self._committed[topic] = end

        await in_parallel(sorted(ends), acknowledge)

    async def _acknowledge(
        self, consumer: Consumer[bytes], topic: str, end: ReadPosition, whole_before: WholeBefore
    ) -> None:
        at = self._acknowledged.get(topic) or await _next_of(consumer)
        # Where it stands from the run before, its ledger may be gone: acknowledged again, it would move the cursor to
        # the next one, where one that was made anew stands.
        if at is not None and at >= end.entry:
            return
        end = await whole_before(topic, at, end)
        if (at is None or at < end.entry) and end.entry_id >= 1:
            # Of an entry that was read in part, nothing: it must stay.
            last = MessageId(TopicName.parse(topic).partition, end.ledger_id, end.entry_id - 1)
            await consumer.acknowledge_cumulative(last)
            self._acknowledged[topic] = end.entry

    async def forget(self, topic: str) -> None:
        """The topic is gone, and its subscription with it."""
        self._acknowledged.pop(topic, None)
        self._committed.pop(topic, None)
        consumer = self._consumers.pop(topic, None)
        if consumer is not None:
            await consumer.close()

    async def close(self) -> None:
        """Leave the subscriptions as they are."""
        consumers, self._consumers = self._consumers, {}
        await in_parallel(consumers.values(), lambda consumer: consumer.close())


async def _next_of(consumer: Consumer[bytes]) -> tuple[int, int] | None:
    """Ledger and entry behind what is acknowledged as a whole; None: the broker does not say."""
    marked = (await consumer.mark_delete_positions())[0]
    return None if marked is None else (marked.ledger_id(), marked.entry_id() + 1)
