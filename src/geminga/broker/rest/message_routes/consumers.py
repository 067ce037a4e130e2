"""Consumers over HTTP, which live between requests: each has a lease, and its end gives back what it holds.

A request that names a consumer renews its lease when it is answered. It ends when its lease runs out, its topic is
unloaded or deleted, or anything else closes it as it would a consumer of the binary protocol, such as a seek. What it
was given and has not acknowledged goes to others then, and later requests are told that there is no such consumer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.rest.calls.requests import RestError
from geminga.broker.rest.message_routes.core.held import Acked, HeldMessages
from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.broker.rest.message_routes.core.shown import ShownMessage
from geminga.broker.rest.message_routes.inbox import HttpInbox, InboxRoom
from geminga.broker.subscription.acknowledgment import acknowledge
from geminga.broker.subscription.consumer import NO_EPOCH
from geminga.broker.subscription.entry_filter import words_of_bits
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import ConflictError, GemingaError, NotAllowedError, UnavailableError
from geminga.runtime import Contained, again, get_logger
from geminga.wire.pulsar.hot import AckedId

if TYPE_CHECKING:
    from geminga.broker.core.coercion import Document
    from geminga.broker.subscription.consumer import Consumer
    from geminga.model.position import Position
    from geminga.model.topic_name import TopicName

#: Entries that one consumer may have unacknowledged before it is given no more.
HELD_MAX: Final = 5000
#: Bytes of entries that were read for consumers and tails over HTTP and are not in an answer yet, over all of them.
INBOX_BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds after which an acknowledgment that is not known to be stored is told to be so.
ACKED_S_MAX: Final = 30.0
#: Milliseconds that a request waits in any case: what is there has to be read first.
READ_MS: Final = 100

_log = get_logger(__name__)


class Wanted(NamedTuple):
    """What a request wants to receive."""

    messages: int
    size_bytes: int
    wait_ms: int
    in_base64: bool


class JoinedConsumer(NamedTuple):
    """One of its consumers within the broker: of its topic, or of a partition."""

    partition: int
    consumer: Consumer


class HttpConsumer:
    """See the module. Hashes by identity."""

    def __init__(
        self, consumer_id: str, role: str, topic: TopicName, subscription: str, lease_ms: int, decompressed_max: int
    ) -> None:
        """``role``: who may use it. ``decompressed_max``: what becomes larger stays compressed, bytes."""
        self.consumer_id = consumer_id
        self.role = role
        self.topic = topic
        self.subscription = subscription
        self.lease_ms = lease_ms
        self._decompressed_max = decompressed_max
        #: By the ids of its consumers within the broker.
        self.members: dict[int, JoinedConsumer] = {}
        self.inbox: HttpInbox | None = None
        self.held = HeldMessages()
        #: Messages of the entry that was opened last.
        self._pieces: deque[ShownMessage] = deque()
        #: About what they take, which counts in its inbox.
        self._pieces_bytes = 0
        self._requests = 0
        self._is_receiving = False
        self._lease: asyncio.TimerHandle | None = None
        #: Why it is over; empty: it is not.
        self.over = ""

    # ---- life

    @property
    def is_idle(self) -> bool:
        """Whether no request uses it now."""
        return not self._requests

    def begin(self) -> None:
        """A request uses it: its lease does not run meanwhile."""
        self._requests += 1
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None

    def done(self, over: Callable[[], None]) -> None:
        """The request is answered; ``over`` is called when the lease runs out."""
        self._requests -= 1
        if self.is_idle and not self.over:
            self._lease = asyncio.get_running_loop().call_later(self.lease_ms / 1000, over)

    def end(self, why: str) -> None:
        """It is over: what it holds is given back."""
        if self.over:
            return
        self.over = why
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None
        for member in self.members.values():
            with Contained(member.consumer.subscription, "the end of a consumer over HTTP", is_last=True):
                member.consumer.close()
        if self.inbox is not None:
            self._keep([])
            self.inbox.close()

    # ---- receiving

    async def receive(
        self,
        wanted: Wanted,
        monotonic: Callable[[], float],
        is_gone: Callable[[], bool],
        ask_again: Callable[[], Awaitable[None]],
    ) -> list[Document]:
        """What is there, or comes in time. ``is_gone``: whether nobody waits for the answer any more; who finds that
        out sets the news of :attr:`inbox`. ``ask_again`` raises the GemingaError of who may not receive any more.

        Raises it, and ConflictError while another request receives, or where too much is unacknowledged.
        """
        inbox = self._inbox()
        if self._is_receiving:
            raise ConflictError(f"consumer {self.consumer_id} is receiving already: one request at a time")
        if len(self.held) >= HELD_MAX:
            raise ConflictError(f"{len(self.held)} entries are not acknowledged: acknowledge some, or give them back")
        self._is_receiving = True
        try:
            inbox.open(wanted.size_bytes)
            if not self._pieces:
                self._ask_for(wanted.messages - len(inbox))
            await self._wait(inbox, monotonic, wanted.wait_ms, is_gone)
            # What it was let in by may be gone since; what has come is nobody's until it is told.
            await ask_again()
            if is_gone() or self.over:
                return []
            return [piece.document for piece in self._taken(inbox, wanted)]
        finally:
            self._is_receiving = False
            inbox.shut()
            for member in self.members.values():
                # What it did not get, others may have.
                member.consumer.permits = min(member.consumer.permits, 0)

    @property
    def has_left(self) -> bool:
        """Whether it holds what no answer had room for."""
        return bool(self._pieces) or (self.inbox is not None and len(self.inbox) > 0)

    @property
    def is_at_end(self) -> bool:
        """Whether its topics are terminated, and it has all of them."""
        inbox = self.inbox
        return inbox is not None and not self._pieces and not inbox and inbox.at_end >= self.members.keys()

    def _ask_for(self, messages: int) -> None:
        for member in self.members.values():
            missing = messages - member.consumer.permits
            if missing > 0:
                member.consumer.flow(missing)

    async def _wait(
        self, inbox: HttpInbox, monotonic: Callable[[], float], wait_ms: int, is_gone: Callable[[], bool]
    ) -> None:
        until_s = monotonic() + max(wait_ms, READ_MS) / 1000
        while not (self._pieces or len(inbox) or self.over or is_gone() or self.is_at_end):
            left_s = until_s - monotonic()
            if left_s <= 0:
                return
            inbox.news.clear()
            try:
                async with asyncio.timeout(left_s):
                    await inbox.news.wait()
            except TimeoutError:
                return

    def _taken(self, inbox: HttpInbox, wanted: Wanted) -> Iterator[ShownMessage]:
        left, size_bytes = wanted.messages, 0
        while left:
            if not self._pieces:
                if not len(inbox):
                    return
                self._open_next(inbox, in_base64=wanted.in_base64)
                continue
            size_bytes += self._pieces[0].size_bytes
            if size_bytes > wanted.size_bytes and left < wanted.messages:
                return
            left -= 1
            piece = self._pieces.popleft()
            self._pieces_bytes -= piece.size_bytes
            inbox.free(piece.size_bytes)
            yield piece

    def _open_next(self, inbox: HttpInbox, *, in_base64: bool) -> None:
        arrived = inbox.pop()
        member = self.members.get(arrived.consumer_id)
        if member is None:
            return
        found = arrived.shown(member.partition, in_base64=in_base64, decompressed_max=self._decompressed_max)
        self._keep(found.pieces)
        if found.unacknowledged and self.topic.is_persistent:
            self.held.given(member.partition, arrived.position, found.unacknowledged)

    def _keep(self, pieces: Iterable[ShownMessage]) -> None:
        self._pieces = deque(pieces)
        before, self._pieces_bytes = self._pieces_bytes, sum(piece.size_bytes for piece in self._pieces)
        self._inbox().hold(self._pieces_bytes)
        self._inbox().free(before)

    # ---- acknowledging

    async def acknowledge(self, refs: Sequence[MessageRef], *, is_cumulative: bool) -> list[MessageRef]:
        """Durable on return; the ids that are none of what it holds. Raises NotAllowedError, StorageError,
        UnavailableError where it is not known to be stored in time."""
        self._require_kept()
        unknown: list[MessageRef] = []
        if is_cumulative:
            acked: list[Acked] = []
            for ref in refs:
                found = self.held.acknowledge_through(ref)
                if found is None:
                    unknown.append(ref)
                else:
                    acked.append(found)
        else:
            acked, unknown = self.held.acknowledge(refs)
        try:
            await self._store(acked, is_cumulative=is_cumulative)
        except GemingaError:
            # So that it can be said again.
            for one in acked:
                self.held.restore(one)
            raise
        return unknown

    async def _store(self, acked: Iterable[Acked], *, is_cumulative: bool) -> None:
        waiting: list[asyncio.Future[GemingaError | None]] = []
        by_partition: dict[int, list[AckedId]] = {}
        for one in acked:
            ack_set = words_of_bits(one.left) if one.left else None
            by_partition.setdefault(one.partition, []).append(AckedId(*one.position, ack_set))
        for partition, ids in by_partition.items():
            member = self._member_of(partition)
            subscription = member.consumer.subscription
            assert isinstance(subscription, Subscription)
            # One by one where only the last counts: each is a position of its own.
            for some in [[one] for one in ids] if is_cumulative else [ids]:
                done: asyncio.Future[GemingaError | None] = asyncio.get_running_loop().create_future()
                waiting.append(done)
                acknowledge(
                    subscription, member.consumer, some, is_cumulative=is_cumulative, done=partial(_settle, done)
                )
        if waiting:
            await asyncio.wait(waiting, timeout=ACKED_S_MAX)
        for one_done in waiting:
            error = one_done.result() if one_done.done() else UnavailableError("not known to be stored in time")
            if error is not None:
                raise again(error)

    def give_back(self, refs: Sequence[MessageRef] | None) -> list[MessageRef]:
        """Have them sent again, or all that is held; the ids that are none of what it holds. Raises NotAllowedError.

        Of a batch all comes again that is not acknowledged. Where order is kept, all that is not acknowledged of a
        partition does.
        """
        self._require_kept()
        unknown: list[MessageRef] = []
        if refs is None:
            keys = [key for partition in self.held.partitions for key in self.held.give_back_partition(partition)]
        else:
            keys, unknown = self.held.give_back(refs)
        by_partition: dict[int, set[Position]] = {}
        for partition, position in keys:
            by_partition.setdefault(partition, set()).add(position)
        for partition, positions in by_partition.items():
            self._give_back_of(partition, positions)
        return unknown

    def _give_back_of(self, partition: int, positions: set[Position]) -> None:
        consumer = self._member_of(partition).consumer
        subscription = consumer.subscription
        dispatch = subscription.dispatch if isinstance(subscription, Subscription) else None
        if dispatch is None:
            return
        if dispatch.redelivers_by_position:
            self._keep(
                piece
                for piece in self._pieces
                if piece.ref.partition != partition or piece.ref.position not in positions
            )
            dispatch.redeliver(consumer, sorted(positions), NO_EPOCH)
            return
        self.held.give_back_partition(partition)
        self._keep(piece for piece in self._pieces if piece.ref.partition != partition)
        self._inbox().drop(lambda arrived: arrived.consumer_id == consumer.consumer_id)
        dispatch.redeliver(consumer, None, NO_EPOCH)

    def _require_kept(self) -> None:
        if not self.topic.is_persistent:
            raise NotAllowedError("a non-persistent topic keeps nothing: there is nothing to acknowledge")

    def _member_of(self, partition: int) -> JoinedConsumer:
        return next(member for member in self.members.values() if member.partition == partition)

    def _inbox(self) -> HttpInbox:
        assert self.inbox is not None
        return self.inbox


def _settle(done: asyncio.Future[GemingaError | None], error: GemingaError | None) -> None:
    if not done.done():
        done.set_result(error)


class HttpConsumers:
    """Those of one broker."""

    def __init__(self, most: int) -> None:
        """``most``: so many at a time."""
        self._most = most
        self.room = InboxRoom(INBOX_BYTES_MAX)
        self._by_id: dict[str, HttpConsumer] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, consumer: HttpConsumer) -> None:
        """Raises RestError (429) where there are too many."""
        if len(self._by_id) >= self._most:
            raise RestError(
                429, f"there are {self._most} consumers over HTTP (gemingaHttpConsumersMax); try again later"
            )
        self._by_id[consumer.consumer_id] = consumer

    def find(self, consumer_id: str, role: str, topic: TopicName, subscription: str) -> HttpConsumer:
        """Raises RestError (404) for one that is not there, or not of this role, topic and subscription."""
        found = self._by_id.get(consumer_id)
        if found is None or (found.role, found.topic, found.subscription) != (role, topic, subscription):
            raise RestError(
                404,
                f"there is no consumer {consumer_id[:64]} of subscription {subscription} of {topic} here: its lease is "
                "over, or its topic moved; make a new one",
            )
        return found

    def end(self, consumer: HttpConsumer, why: str) -> None:
        """See :meth:`HttpConsumer.end`."""
        if self._by_id.get(consumer.consumer_id) is consumer:
            del self._by_id[consumer.consumer_id]
            _log.info("%s: consumer %s over HTTP ends: %s", consumer.topic, consumer.consumer_id[:8], why)
        consumer.end(why)

    def release(self, consumer: HttpConsumer) -> None:
        """A request that used it is answered."""
        consumer.done(partial(self.end, consumer, "its lease is over"))

    def make_room(self) -> None:
        """Who holds entries without asking for them ends, where others wait for the room: the longest there first."""
        for consumer in [*self._by_id.values()]:
            if self.room.has_room:
                return
            if consumer.is_idle and consumer.has_left:
                self.end(consumer, "others need the room of what it left")
