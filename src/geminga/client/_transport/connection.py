"""One TCP connection to a broker: handshake, requests by id, keep-alive, and frames to producers and consumers.

What one socket read brought is handled as one batch: messages of a consumer reach it as one call, receipts reach
their producer one by one (a batch has one). More than :data:`TURN_FRAMES_MAX` frames take several turns of the loop,
so that the application goes on in between: they keep their order, and nothing more is read meanwhile. What is written
within one turn of the loop leaves as one write, except large frames and those that nothing was written shortly
before, which leave at once.

Whoever registered hears ``on_connection_lost`` exactly once, in the order of registration, and every request under
way fails with NotConnected; after that the connection is dead and forgets them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

from geminga.client._errors import (
    ConnectError,
    NotConnected,
    PulsarException,
    ReadError,
    Timeout,
    error_from_broker,
)
from geminga.client._transport.answers import ANSWERS
from geminga.client._transport.authentication import Authentication
from geminga.client._transport.handlers import ConsumerHandler, ProducerHandler, WatchHandler
from geminga.client._transport.handshake import TOLD_AT_CONNECT, Handshake, lost_in_handshake, wrong_protocol
from geminga.client._transport.pending_requests import PendingRequests
from geminga.model.errors import ProtocolError
from geminga.model.limits import MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.runtime import Buffer, Raised, attempt, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_send_receipt, message_consumer_id
from geminga.wire.pulsar.commands import PING_FRAME, PONG_FRAME, PROTOCOL_VERSION, decode_command, encode_command
from geminga.wire.pulsar.frame import Frame, ImpossibleFrameError
from geminga.wire.pulsar.frame_buffer import FrameBuffer

_log = get_logger(__name__)

#: Writes of at least so many bytes leave at once instead of at the end of the loop's turn.
WRITE_AT_ONCE_BYTES: Final = 16 * 1024
#: So do writes that are as far apart, seconds: some times what a write costs.
WRITE_APART_S: Final = 0.0001
#: Bytes in the transport's buffer at which producers stop writing, and go on.
WRITE_BUFFER_HIGH_BYTES: Final = 1024 * 1024
WRITE_BUFFER_LOW_BYTES: Final = 256 * 1024
#: Frames handled in one turn of the loop: some milliseconds of receipts or single messages. By count, because uvloop's
#: clock stands still within a turn; entries of many messages are large, so that a read holds few of them.
TURN_FRAMES_MAX: Final = 256
#: Largest message a broker may announce; a frame of this size is buffered whole.
MESSAGE_SIZE_BYTES_MAX: Final = 1 << 30

_MESSAGE_PREFIX: Final = b"\x08\x09\x4a"
_RECEIPT_PREFIX: Final = b"\x08\x07\x3a"
#: What MESSAGE commands of one consumer begin with: the prefix, a size of one byte, and the consumer's id of one byte.
_CONSUMER_END: Final = 6
_Type = pb.BaseCommand


class ClientConnection(asyncio.BufferedProtocol):
    """The client's side of one connection; all of it runs on the loop's thread."""

    __slots__ = (
        "_connected",
        "_consumers",
        "_flush_scheduled",
        "_frames",
        "_handshake",
        "_heard",
        "_keep_alive_s",
        "_keep_alive_timer",
        "_loop",
        "_lost_error",
        "_next_request_id",
        "_on_lost",
        "_out",
        "_producers",
        "_received",
        "_requests",
        "_transport",
        "_watchers",
        "_written_s",
        "features",
        "gone",
        "is_closed",
        "is_writable",
        "max_message_size",
        "protocol_version",
        "server_version",
        "url",
    )

    def __init__(
        self,
        url: str,
        *,
        authentication: Authentication | None,
        keep_alive_ms: int,
        proxy_to_broker_url: str = "",
        description: str = "",
        next_request_id: Callable[[], int],
        on_lost: Callable[[ClientConnection], None],
    ) -> None:
        #: The address it goes to, for texts.
        self.url = url
        #: Largest message the broker takes, bytes.
        self.max_message_size = MESSAGE_SIZE_BYTES_MAX_DEFAULT
        #: What both ends speak; valid once connected, as are the next two.
        self.protocol_version = 0
        self.server_version = ""
        self.features = pb.FeatureFlags()
        #: The socket is closed, too.
        self.gone = asyncio.Event()
        #: Lost or closed: nothing is sent or heard any more.
        self.is_closed = False
        #: False while the transport's buffer is over its high mark.
        self.is_writable = True
        self._handshake = Handshake(authentication, proxy_to_broker_url, description)
        self._on_lost = on_lost
        self._next_request_id = next_request_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = FrameBuffer(MESSAGE_SIZE_BYTES_MAX_DEFAULT)
        #: What the last read brought and next turns handle; while there is any, reading is paused.
        self._frames: list[Frame] = []
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._producers: dict[int, ProducerHandler] = {}
        self._consumers: dict[int, ConsumerHandler] = {}
        self._watchers: dict[int, WatchHandler] = {}
        self._requests = PendingRequests(self._loop)
        self._out: list[Buffer] = []
        self._flush_scheduled = False
        #: When something was written last, seconds of the loop.
        self._written_s = -1.0
        self._lost_error: PulsarException | None = None
        #: Something came since the last PING.
        self._heard = True
        self._keep_alive_s = keep_alive_ms / 1000
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP (and TLS) stands: say CONNECT."""
        # No isinstance: uvloop's transports are not asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=WRITE_BUFFER_LOW_BYTES)
        try:
            connect = self._handshake.connect()
        except PulsarException as error:
            self.close(error)
            return
        self.write(connect)
        self._arm_keep_alive()

    async def wait_connected(self) -> None:
        """Until the broker answered CONNECT; raises what went wrong."""
        await asyncio.shield(self._connected)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: what came before is handled, everybody is told, every request fails."""
        self.gone.set()
        self._take_turn(len(self._frames))  # all: messages whose receipts nobody heard would be sent again
        error = self._lost_error
        if error is None:
            text = f"connection to {self.url} lost" + (f": {exc}" if exc else "")
            is_connected = self._connected.done()
            error = NotConnected(text) if is_connected else lost_in_handshake(self.url, self._received.head, text)
        self._lose(error)

    def close(self, error: PulsarException | None = None) -> None:
        """Close now; who is still registered hears ``error``."""
        if not self.is_closed:
            self._flush()
            self._lose(error or NotConnected(f"connection to {self.url} was closed"))
        if self._transport is not None:
            self._transport.close()

    def abort(self, error: PulsarException) -> None:
        """Close without sending what is buffered: the peer is broken or does not listen."""
        if not self.is_closed:
            self._lose(error)
        if self._transport is not None:
            self._transport.abort()

    def _lose(self, error: PulsarException) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._lost_error = error
        self._out.clear()
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        if not self._connected.done():
            told = isinstance(error, TOLD_AT_CONNECT)
            self._connected.set_exception(error if told else ConnectError(str(error)))
            self._connected.exception()  # nobody may be waiting any more
        self._requests.fail(error)
        self._on_lost(self)
        handlers: list[ProducerHandler | ConsumerHandler | WatchHandler] = [
            *self._producers.values(),
            *self._consumers.values(),
            *self._watchers.values(),
        ]
        self._producers.clear()
        self._consumers.clear()
        self._watchers.clear()
        for handler in handlers:
            handler.on_connection_lost(error)

    # ---- keep-alive

    def _arm_keep_alive(self) -> None:
        if not self.is_closed:
            self._keep_alive_timer = self._loop.call_later(self._keep_alive_s, self._keep_alive)

    def _keep_alive(self) -> None:
        if not self._heard:
            self.abort(NotConnected(f"connection to {self.url}: nothing heard for {self._keep_alive_s:g} s"))
            return
        self._heard = False
        if self._connected.done():
            self.write(PING_FRAME)
        self._arm_keep_alive()

    # ---- bytes out

    def write(self, data: Buffer) -> None:
        """Write in the order of calls; nothing once closed.

        A write leaves at once if the one before is some time ago: whoever sends one message after the other gets no
        turn of the loop between. Small ones close behind it leave together at the turn's end.
        """
        if self.is_closed:
            return
        if self._flush_scheduled:
            self._out.append(data)
            if len(data) >= WRITE_AT_ONCE_BYTES:
                self._flush()
            return
        now = self._loop.time()
        if self._transport is not None and (now - self._written_s >= WRITE_APART_S or len(data) >= WRITE_AT_ONCE_BYTES):
            self._written_s = now
            self._transport.write(data)
            return
        self._out.append(data)
        self._flush_scheduled = True
        self._loop.call_soon(self._flush_soon)

    def write_many(self, parts: Sequence[Buffer]) -> None:
        """Write the parts back to back, at once."""
        if not self.is_closed:
            self._out.extend(parts)
            self._flush()

    def _flush_soon(self) -> None:
        self._flush_scheduled = False
        self._written_s = self._loop.time()
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if out and self._transport is not None and not self.is_closed:
            self._out = []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def pause_writing(self) -> None:
        """The transport's buffer is over its high mark."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The broker took what was written."""
        self.is_writable = True
        for producer in list(self._producers.values()):
            producer.on_writable()

    # ---- requests

    def next_request_id(self) -> int:
        """A number no other request of the client has."""
        return self._next_request_id()

    async def request(self, command: pb.BaseCommand, request_id: int, timeout_s: float | None) -> pb.BaseCommand:
        """Send ``command`` and wait for the answer with its request id.

        Raises the broker's error, NotConnected, or Timeout after ``timeout_s`` seconds (None: never).
        """
        answer = self.start_request(command, request_id)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            name = _Type.Type.Name(command.type)
            raise Timeout(f"no answer to {name} from {self.url} within {timeout_s:g} s") from None
        finally:
            self._requests.end(request_id, answer)

    def start_request(self, command: pb.BaseCommand, request_id: int) -> asyncio.Future[pb.BaseCommand]:
        """Send ``command``; the future gets the answer, or the error. Without time limit."""
        if self.is_closed:
            raise self._lost_error or NotConnected(f"connection to {self.url} is closed")
        answer = self._requests.start(request_id)
        self.write(encode_command(command))
        return answer

    def send_unanswered(self, command: pb.BaseCommand) -> None:
        """Send ``command``; its answer, if one comes, is dropped."""
        self.write(encode_command(command))

    def expect_again(self, request_id: int) -> asyncio.Future[pb.BaseCommand]:
        """A second answer under the same id: of a producer that waits for exclusive access. Without time limit."""
        if self.is_closed:
            raise self._lost_error or NotConnected(f"connection to {self.url} is closed")
        return self._requests.take_second(request_id)

    def forget_request(self, request_id: int) -> None:
        """Nobody waits for its answer any more."""
        self._requests.forget(request_id)

    # ---- who listens

    def register_producer(self, producer_id: int, handler: ProducerHandler) -> None:
        """``handler`` hears of the producer's receipts and of its end."""
        self._producers[producer_id] = handler

    def unregister_producer(self, producer_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._producers.pop(producer_id, None)

    def has_producer(self, producer_id: int) -> bool:
        """Whether it is registered: neither the broker nor the loss of the connection ended it."""
        return producer_id in self._producers

    def has_consumer(self, consumer_id: int) -> bool:
        """Whether it is registered: neither the broker nor the loss of the connection ended it."""
        return consumer_id in self._consumers

    def register_consumer(self, consumer_id: int, handler: ConsumerHandler) -> None:
        """``handler`` hears of the consumer's messages and of its end."""
        self._consumers[consumer_id] = handler

    def unregister_consumer(self, consumer_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._consumers.pop(consumer_id, None)

    def register_watcher(self, watcher_id: int, handler: WatchHandler) -> None:
        """``handler`` hears of changes of a list of topics."""
        self._watchers[watcher_id] = handler

    def unregister_watcher(self, watcher_id: int) -> None:
        """It hears nothing any more; fine if it was not registered."""
        self._watchers.pop(watcher_id, None)

    # ---- bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        return self._received.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle every frame that the read completed."""
        self._heard = True
        if self.is_closed:
            return
        is_paused = bool(self._frames)  # then this was under way
        self._frames += self._received.wrote(nbytes)
        if not is_paused:
            self._take_turn()
            if self._frames and self._transport is not None:
                self._transport.pause_reading()
                self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._heard = True  # the broker waited for us
        self._take_turn()
        if self._frames:
            self._loop.call_soon(self._next_turn)
        elif self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def _take_turn(self, frames_max: int = TURN_FRAMES_MAX) -> None:
        frames, self._frames = self._frames[:frames_max], self._frames[frames_max:]
        outcome = attempt(self._handle_frames, frames)
        if isinstance(outcome, Raised):
            # Also what nobody foresaw: the rest of the frames is gone, and only over a new connection comes it again.
            self._break(outcome.error)
        if self.is_closed:
            self._frames = []
        elif self._received.error is not None and not self._frames:
            self._break(self._received.error)

    def _break(self, error: Exception) -> None:
        if isinstance(error, ImpossibleFrameError) and not self._connected.done():
            wrong = wrong_protocol(self.url, error.head)
            if wrong is not None:
                self.abort(wrong)
                return
        unexpected = None if isinstance(error, ProtocolError) else error
        _log.warning("connection to %s: %s", self.url, error, exc_info=unexpected)
        self.abort(ReadError(f"connection to {self.url}: {error}"))

    def _handle_frames(self, frames: list[Frame]) -> None:
        messages: list[Frame] = []
        consumer_id = -1
        # How the commands of the consumer whose messages are gathered begin.
        alike: bytes | None = None
        for frame in frames:
            command = frame[0]
            if command[:_CONSUMER_END] == alike:
                messages.append(frame)
                continue
            prefix = command[:3]
            if prefix == _MESSAGE_PREFIX:
                owner = message_consumer_id(command)
                if owner < 0:  # in an unusual form, or damaged
                    owner = decode_command(command).message.consumer_id
                if owner != consumer_id:
                    if messages:
                        self._deliver(consumer_id, messages)
                        messages = []
                    consumer_id = owner
                messages.append(frame)
                is_short = (
                    len(command) >= _CONSUMER_END and command[3] < 128 and command[4] == 0x08 and command[5] < 128
                )
                alike = command[:_CONSUMER_END] if is_short else None
                continue
            if messages:
                self._deliver(consumer_id, messages)
                messages = []
            alike = None
            if self.is_closed:
                return
            if prefix == _RECEIPT_PREFIX:
                receipt = decode_send_receipt(command)
                if receipt is not None:
                    producer = self._producers.get(receipt[0])
                    if producer is not None:
                        producer.on_receipt(receipt[1], receipt[2], receipt[3], receipt[4])
                    continue
            self._handle_command(decode_command(command))
        if messages:
            self._deliver(consumer_id, messages)

    def _deliver(self, consumer_id: int, frames: list[Frame]) -> None:
        if self.is_closed:
            return
        consumer = self._consumers.get(consumer_id)
        if consumer is not None:  # else: late ones of a consumer that was closed
            consumer.on_messages(frames)

    def _handle_command(self, command: pb.BaseCommand) -> None:
        handle = _HANDLERS.get(command.type)
        if handle is None:
            raise ProtocolError(f"a broker does not send {_Type.Type.Name(command.type)}")
        if not self._connected.done() and command.type not in _BEFORE_CONNECTED:
            raise ProtocolError(f"{_Type.Type.Name(command.type)} before CONNECTED")
        handle(self, command)

    # ---- commands

    def _on_connected(self, command: pb.BaseCommand) -> None:
        connected = command.connected
        if self._connected.done():
            raise ProtocolError("CONNECTED twice")
        self.protocol_version = min(PROTOCOL_VERSION, connected.protocol_version)
        self.server_version = connected.server_version
        self.features.CopyFrom(connected.feature_flags)
        size = connected.max_message_size
        if size > 0:
            if size > MESSAGE_SIZE_BYTES_MAX:
                raise ProtocolError(f"CONNECTED with a largest message of {size} bytes")
            self.max_message_size = size
            if size > MESSAGE_SIZE_BYTES_MAX_DEFAULT:
                self._received.allow(size)
        self._connected.set_result(None)

    def _on_answer(self, command: pb.BaseCommand) -> None:
        self._requests.on_answer(command)

    def _on_error(self, command: pb.BaseCommand) -> None:
        if not self._connected.done():
            self.close(error_from_broker(command.error.error, f"{self.url}: {command.error.message}"))
            return
        error = error_from_broker(command.error.error, command.error.message)
        self._requests.on_error(command.error.request_id, error)

    def _on_ping(self, command: pb.BaseCommand) -> None:
        self.write(PONG_FRAME)

    def _on_pong(self, command: pb.BaseCommand) -> None:
        pass

    def _on_receipt(self, command: pb.BaseCommand) -> None:
        receipt = command.send_receipt
        producer = self._producers.get(receipt.producer_id)
        if producer is not None:
            # -1 travels as 2^64 - 1; so does a receipt without any message id.
            ledger_id, entry_id = receipt.message_id.ledgerId, receipt.message_id.entryId
            producer.on_receipt(receipt.sequence_id, receipt.highest_sequence_id, _signed(ledger_id), _signed(entry_id))

    def _on_send_error(self, command: pb.BaseCommand) -> None:
        refusal = command.send_error
        producer = self._producers.get(refusal.producer_id)
        if producer is not None:
            producer.on_send_error(refusal.sequence_id, error_from_broker(refusal.error, refusal.message))

    def _on_close_producer(self, command: pb.BaseCommand) -> None:
        request = command.close_producer
        url = request.assignedBrokerServiceUrl or request.assignedBrokerServiceUrlTls
        _closed_by_broker(self._producers.pop(request.producer_id, None), url)

    def _on_close_consumer(self, command: pb.BaseCommand) -> None:
        request = command.close_consumer
        url = request.assignedBrokerServiceUrl or request.assignedBrokerServiceUrlTls
        _closed_by_broker(self._consumers.pop(request.consumer_id, None), url)

    def _on_topic_migrated(self, command: pb.BaseCommand) -> None:
        migrated = command.topicMigrated
        url = migrated.brokerServiceUrl or migrated.brokerServiceUrlTls
        if migrated.resource_type == pb.CommandTopicMigrated.Producer:
            _closed_by_broker(self._producers.pop(migrated.resource_id, None), url)
        else:
            _closed_by_broker(self._consumers.pop(migrated.resource_id, None), url)

    def _on_active_change(self, command: pb.BaseCommand) -> None:
        change = command.active_consumer_change
        consumer = self._consumers.get(change.consumer_id)
        if consumer is not None:
            consumer.on_active_change(change.is_active)

    def _on_end_of_topic(self, command: pb.BaseCommand) -> None:
        consumer = self._consumers.get(command.reachedEndOfTopic.consumer_id)
        if consumer is not None:
            consumer.on_end_of_topic()

    def _on_ack_response(self, command: pb.BaseCommand) -> None:
        response = command.ackResponse
        consumer = self._consumers.get(response.consumer_id)
        if consumer is not None:
            error = error_from_broker(response.error, response.message) if response.HasField("error") else None
            consumer.on_ack_response(response.request_id, error)

    def _on_topic_update(self, command: pb.BaseCommand) -> None:
        watcher = self._watchers.get(command.watchTopicUpdate.watcher_id)
        if watcher is not None:
            watcher.on_topic_update(command.watchTopicUpdate)

    def _on_auth_challenge(self, command: pb.BaseCommand) -> None:
        try:
            answer = self._handshake.answer_challenge()
        except PulsarException as error:
            self.close(error)
            return
        self.write(answer)


def _closed_by_broker(handler: ProducerHandler | ConsumerHandler | None, url: str) -> None:
    if handler is not None:
        handler.on_closed_by_broker(url)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_BEFORE_CONNECTED: Final = frozenset({_Type.CONNECTED, _Type.ERROR, _Type.AUTH_CHALLENGE, _Type.PING, _Type.PONG})

_Handler = Callable[[ClientConnection, pb.BaseCommand], None]
_HANDLERS: Final[dict[int, _Handler]] = {
    **dict.fromkeys(ANSWERS, ClientConnection._on_answer),
    _Type.CONNECTED: ClientConnection._on_connected,
    _Type.ERROR: ClientConnection._on_error,
    _Type.PING: ClientConnection._on_ping,
    _Type.PONG: ClientConnection._on_pong,
    _Type.SEND_RECEIPT: ClientConnection._on_receipt,
    _Type.SEND_ERROR: ClientConnection._on_send_error,
    _Type.CLOSE_PRODUCER: ClientConnection._on_close_producer,
    _Type.CLOSE_CONSUMER: ClientConnection._on_close_consumer,
    _Type.TOPIC_MIGRATED: ClientConnection._on_topic_migrated,
    _Type.ACTIVE_CONSUMER_CHANGE: ClientConnection._on_active_change,
    _Type.REACHED_END_OF_TOPIC: ClientConnection._on_end_of_topic,
    _Type.ACK_RESPONSE: ClientConnection._on_ack_response,
    _Type.WATCH_TOPIC_UPDATE: ClientConnection._on_topic_update,
    _Type.AUTH_CHALLENGE: ClientConnection._on_auth_challenge,
}
