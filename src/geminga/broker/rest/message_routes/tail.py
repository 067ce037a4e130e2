"""A live tail of a topic as server-sent events, Geminga's own (``docs/http-messages.md``).

A reader within the broker, as long as the connection: what is not taken is not read, a client that takes nothing is cut
off by the server (``rest.http``), and nothing stays of one that is gone. Who may no longer read is told so, and a tail
ends after an hour in any case: browsers come again by themselves, with the id of the last event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geminga.broker.access.core.actions import TopicOperation, of_topic
from geminga.broker.access.ports import Allowed, Denied
from geminga.broker.access.refusals import refused_request
from geminga.broker.rest.calls.owners import at_owner_of
from geminga.broker.rest.calls.requests import RestError, context_of, no_content, topic_of
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.calls.targets import persistent_topic
from geminga.broker.rest.message_routes.consume import targets_of
from geminga.broker.rest.message_routes.core.events import (
    HEARTBEAT,
    beginning,
    event,
    is_behind,
    parse_tail_id,
    tail_id,
)
from geminga.broker.rest.message_routes.core.message_ids import MessageRef
from geminga.broker.rest.message_routes.core.produce_request import BASE64, TEXT
from geminga.broker.rest.message_routes.inbox import Arrived, HttpInbox
from geminga.broker.rest.message_routes.serving import (
    MESSAGES_PATH,
    doors_of,
    ownership_of,
    peer_of,
    topic_with_owner,
    until_gone,
)
from geminga.broker.subscription.acknowledgment import acknowledge
from geminga.broker.subscription.messages import message_id_data
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.position import EARLIEST, Position
from geminga.runtime import Contained, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.hot import AckedId

if TYPE_CHECKING:
    from geminga.broker.subscription.consumer import Consumer
    from geminga.broker.topic.base import Topic
    from geminga.model.topic_name import TopicName

#: Seconds between two signs of life; at each it is asked whether the client may still read.
HEARTBEAT_S: Final = 15.0
#: Seconds that a tail lasts.
TAIL_S_MAX: Final = 3600.0
#: Milliseconds after which a browser comes again.
RETRY_MS: Final = 1000
#: Messages that a reader may be sent ahead, of each partition.
PERMITS: Final = 200
#: Bytes of entries that are read ahead for one tail, beside one read of a dispatcher; and of one write.
AHEAD_BYTES_MAX: Final = 256 * 1024
CHUNK_BYTES: Final = 64 * 1024
#: Partitions of a tail: each event says where it is in all of them.
PARTITIONS_MAX: Final = 64
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def tail(request: Request) -> Response:
    """What comes from now on, or behind a message."""
    name = topic_of(request)
    encoding = request.query_params.get("encoding", TEXT)
    if encoding not in (TEXT, BASE64):
        raise RestError(412, f"encoding is {encoding[:40]!r}; expected {TEXT} or {BASE64}")
    targets = await targets_of(request, name)
    if len(targets) > PARTITIONS_MAX:
        raise RestError(412, f"{name} has {len(targets)} partitions, more than {PARTITIONS_MAX}: tail them one by one")
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=_HEADERS)
    # A browser that comes again sends the path that it was given, and the header beside it.
    header = request.headers.get("last-event-id", "")
    start = header or request.query_params.get("from", "latest")
    if start not in ("latest", "earliest"):
        parse_tail_id(start, "Last-Event-ID" if header else "from")
    if header and await _is_all_told(request, targets, header):
        # A browser that is told so does not come again.
        return no_content()
    return _Tail(request, targets, start, in_base64=encoding == BASE64)


class _Tail(Response):
    """The answer, which is the tail: nothing of it is there before it is sent, or after."""

    media_type = "text/event-stream"

    def __init__(self, request: Request, targets: list[TopicName], start: str, *, in_base64: bool) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._request = request
        self._targets = targets
        self._start = start
        self._in_base64 = in_base64
        self._context = context_of(request)
        self._inbox = HttpInbox(peer_of(request), doors_of(request).consumers.room, AHEAD_BYTES_MAX, self._left)
        #: By the ids of consumers: partitions have their order.
        self._consumers: dict[int, Consumer] = {}
        self._last: dict[int, MessageRef] = {}
        #: Entries that were sent and are not acknowledged, the last of each.
        self._taken: dict[int, Position] = {}
        #: Events on their way to the client, and how many bytes count for them: of their entries, or their own.
        self._chunk = bytearray()
        self._chunk_entry_bytes = 0
        #: The client has half of an event, and gets no more of it.
        self._is_cut = False
        self._may_have_lost = False
        self._over = ""
        self._is_gone = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until it is over."""
        doors = doors_of(self._request)
        with doors.tails.one(), doors.waiting.one():
            watch = None
            try:
                await self._subscribe()
                watch = spawn(until_gone(receive, self._gone), name="who follows a topic over HTTP")
                await self._follow(send)
            finally:
                if watch is not None:
                    watch.cancel()
                self._close()

    def _gone(self) -> None:
        self._is_gone = True
        self._inbox.news.set()

    def _left(self) -> None:
        self._over = self._over or "the topic moved or was deleted, or the right to read it is gone; come again"
        self._inbox.news.set()

    def _close(self) -> None:
        self._over = self._over or "it is closed"
        for consumer in self._consumers.values():
            with Contained(consumer.subscription, "the end of a tail over HTTP", is_last=True):
                consumer.close()
        self._inbox.close()

    # ---- the reader

    async def _subscribe(self) -> None:
        self._inbox.begin(self._request.state.principal, self._context.access.others)
        given = {} if self._start in ("latest", "earliest") else parse_tail_id(self._start, "from")
        subscription = ""
        for number, target in enumerate(self._targets):
            topic = await self._context.topics.registry.get(target, create=True)
            if not subscription:
                subscription = await self._named(topic)
            if self._start == "latest":
                last = MessageRef(target.partition, topic.last_position)
            else:
                # A partition that was not there then is read from its beginning.
                last = given.get(target.partition, MessageRef(target.partition, EARLIEST))
            self._last[number] = last
            self._may_have_lost = self._may_have_lost or _is_trimmed(topic, last)
            command = pb.CommandSubscribe(
                topic=str(target),
                subscription=subscription,
                subType=pb.CommandSubscribe.Exclusive,
                consumer_id=number,
                request_id=0,
                durable=False,
                start_message_id=message_id_data(last.position),
            )
            consumer = await topic.subscribe(self._inbox, command)
            if self._over:
                consumer.close()
                raise UnavailableError(f"{target} is moving; try again")
            self._consumers[number] = consumer
        self._inbox.begun()

    async def _named(self, topic: Topic) -> str:
        """A subscription that is this reader's alone, and begins with the role, as ``Prefix`` wants it.

        Raises AuthorizationError.
        """
        principal = self._request.state.principal
        name = f"{principal.speaker}-tail-{topic.services.runtime.rng.token(8)}".lstrip("-")
        action, authorizer = TopicOperation.CONSUME, self._context.access.authorizer
        decision = authorizer.decide(principal, action, of_topic(topic.name, name))
        if not isinstance(decision, Allowed | Denied):
            decision = await decision
        if isinstance(decision, Denied):
            raise refused_request(principal, action, decision)
        return name

    # ---- events

    async def _follow(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._write(send, beginning(tail_id(self._last.values()), RETRY_MS))
        if self._may_have_lost:
            await self._write(send, event({"after": self._start}, kind="gap"))
        monotonic = self._context.clock.monotonic
        began_s = beat_s = monotonic()
        self._inbox.open(AHEAD_BYTES_MAX)
        for consumer in self._consumers.values():
            consumer.flow(PERMITS)
        until_s: float | None = self._request.state.until_s
        while not self._is_gone:
            if until_s is not None and monotonic() >= until_s:
                await self._write(send, event({"reason": "the credentials have expired"}, kind="end"))
                break
            await self._write_what_came(send)
            now_s = monotonic()
            if self._over or now_s - began_s >= TAIL_S_MAX or self._inbox.at_end >= self._consumers.keys():
                if self._is_cut:
                    # Without the line that would end it, half of an event is none.
                    break
                why = self._over or ("the topic is terminated" if self._inbox.at_end else "an hour is over; come again")
                await self._write(send, event({"reason": why}, kind="end"))
                break
            if now_s - beat_s >= HEARTBEAT_S:
                beat_s = now_s
                if not await self._may_go_on(send):
                    break
                await self._write(send, HEARTBEAT)
            due_s = beat_s + HEARTBEAT_S
            await self._wait((due_s if until_s is None else min(due_s, until_s)) - now_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _may_go_on(self, send: Send) -> bool:
        try:
            await self._request.state.asks_again(self._request)
        except GemingaError as error:
            await self._write(send, event({"reason": error.told}, kind="end"))
            return False
        return True

    async def _write(self, send: Send, data: bytes) -> None:
        stuck = doors_of(self._request).stuck
        stuck[self._give_up] = self._context.clock.monotonic()
        try:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        finally:
            del stuck[self._give_up]

    def _give_up(self) -> None:
        """Others wait for the room of what was read ahead, and the client takes nothing."""
        self._over = self._over or "nothing was taken for too long; come again"
        self._is_cut = bool(self._chunk)
        self._end_chunk()
        self._close()

    async def _wait(self, left_s: float) -> None:
        self._inbox.news.clear()
        doors_of(self._request).make_room(self._context.clock.monotonic())
        if len(self._inbox) or self._over or self._is_gone:
            return
        try:
            async with asyncio.timeout(max(left_s, 0)):
                await self._inbox.news.wait()
        except TimeoutError:
            return

    async def _write_what_came(self, send: Send) -> None:
        while len(self._inbox) and not self._is_gone:
            await self._write_some(send)
        for number, consumer in self._consumers.items():
            self._acknowledge(number, consumer)
            if consumer.permits < PERMITS // 2 and not consumer.is_closed:
                consumer.flow(PERMITS - consumer.permits)

    async def _write_some(self, send: Send) -> None:
        """Events of about :data:`CHUNK_BYTES`, at least one. What the client has not taken counts as read ahead, and is
        here once: the server holds one piece of it."""
        chunk = self._chunk
        try:
            while len(self._inbox) and len(chunk) < CHUNK_BYTES:
                arrived = self._inbox.take()
                entry_bytes, before = len(arrived.data), len(chunk)
                self._chunk_entry_bytes += entry_bytes
                self._take(arrived, chunk)
                # A small entry may be many messages, or a large one that was compressed.
                grown_bytes = max(0, len(chunk) - before - entry_bytes)
                self._inbox.hold(grown_bytes)
                self._chunk_entry_bytes += grown_bytes
                del arrived
            while chunk:
                piece = bytes(chunk[:CHUNK_BYTES])
                del chunk[:CHUNK_BYTES]
                await self._write(send, piece)
        finally:
            self._end_chunk()

    def _end_chunk(self) -> None:
        self._chunk.clear()
        size_bytes, self._chunk_entry_bytes = self._chunk_entry_bytes, 0
        self._inbox.free(size_bytes)

    def _take(self, arrived: Arrived, chunk: bytearray) -> None:
        number = arrived.consumer_id
        target = self._targets[number]
        most = self._context.config.message_bytes_max
        found = arrived.shown(target.partition, in_base64=self._in_base64, decompressed_max=most)
        self._taken[number] = arrived.position
        for piece in found.pieces:
            if target.is_persistent and not is_behind(piece.ref, self._last[number]):
                continue
            # Behind the last message of an entry all of it is told: that is the entry's own id.
            self._last[number] = piece.ref._replace(batch_index=-1) if piece is found.pieces[-1] else piece.ref
            chunk += event(piece.document, event_id=tail_id(self._last.values()))

    def _acknowledge(self, number: int, consumer: Consumer) -> None:
        """What was sent is nothing that the topic has to keep for it."""
        subscription, taken = consumer.subscription, self._taken.pop(number, None)
        if isinstance(subscription, Subscription) and taken is not None and not consumer.is_closed:
            acknowledge(subscription, consumer, [AckedId(*taken, None)], is_cumulative=True, done=None)


async def _is_all_told(request: Request, targets: list[TopicName], last_event_id: str) -> bool:
    """Whether the topic is terminated, and nothing lies behind what its follower was told."""
    given = parse_tail_id(last_event_id, "Last-Event-ID")
    for target in targets:
        last = given.get(target.partition)
        if not target.is_persistent or last is None:
            return False
        topic = await persistent_topic(context_of(request).topics, target)
        end = topic.ledger.stored.terminated_position
        # Of a batch there may be more.
        if end is None or end > last.position or (end == last.position and last.batch_index >= 0):
            return False
    return True


def _is_trimmed(topic: Topic, last: MessageRef) -> bool:
    """Whether messages behind ``last`` may be gone: its ledger is."""
    if last.position == EARLIEST or not topic.is_persistent:
        return False
    from geminga.broker.topic.persistent import PersistentTopic

    assert isinstance(topic, PersistentTopic)
    infos = topic.ledger.ledgers.infos
    return bool(infos) and last.position.ledger_id < infos[0].ledger_id


ROUTES: Final = at_owner_of(
    [Route("GET", f"{MESSAGES_PATH}/tail", tail, TopicOperation.CONSUME)],
    topic_with_owner,
    ownership_of,
)
