"""One TCP connection to a broker: handshake, requests by id, keep-alive, and frames to producers and consumers.

What one socket read brought is handled as one batch: messages of a consumer reach it as one call, receipts reach
their producer one by one (a batch has one). More than :data:`TURN_FRAMES_MAX` frames take several turns of the loop,
so that the application goes on in between: they keep their order, and nothing more is read meanwhile. So do more than
:data:`TURN_ANSWERS_MAX` answers to requests, where much is written after them. When bytes leave is :mod:`.output`'s,
who hears what is :mod:`.listeners`'.

Whoever registered hears ``on_connection_lost`` exactly once, in the order of registration, and every request under
way fails with NotConnected; after that the connection is dead and forgets them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import (
    ConnectError,
    NotConnected,
    PulsarException,
    ReadError,
    Timeout,
    error_from_broker,
)
from geminga.client._transport.answers import ANSWERS
from geminga.client._transport.handshake import TOLD_AT_CONNECT, Handshake, lost_in_handshake, say, wrong_protocol
from geminga.client._transport.listeners import FOR_LISTENERS, Listeners
from geminga.client._transport.output import Output
from geminga.client._transport.pending_requests import PendingRequests
from geminga.model.errors import ProtocolError
from geminga.model.limits import MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.runtime import Raised, Threads, again, attempt, get_logger, let_go
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, PONG_FRAME, PROTOCOL_VERSION, encode_command
from geminga.wire.pulsar.frame import Frame, ImpossibleFrameError
from geminga.wire.pulsar.frame_buffer import FrameBuffer

_log = get_logger(__name__)

#: Bytes in the transport's buffer at which producers stop writing, and go on.
WRITE_BUFFER_HIGH_BYTES: Final = 1024 * 1024
WRITE_BUFFER_LOW_BYTES: Final = 256 * 1024
#: Frames handled in one turn of the loop: some milliseconds of receipts or single messages. By count, because uvloop's
#: clock stands still within a turn; entries of many messages are large, so that a read holds few of them.
TURN_FRAMES_MAX: Final = 256
#: Answers of them, where much is written after them: who waited for one goes on, and what he sends leaves, before the
#: next are heard. Else many that wait at once go on in one turn, and the broker has nothing to do until its end.
TURN_ANSWERS_MAX: Final = 8
#: Frames written after so many answers that are much; after fewer all that came are heard in one turn: the more leaves
#: together, the less each costs the broker.
WRITTEN_MUCH: Final = 256
#: Largest message a broker may announce; a frame of this size is buffered whole.
MESSAGE_SIZE_BYTES_MAX: Final = 1 << 30

_Type = pb.BaseCommand


class ClientConnection(asyncio.BufferedProtocol):
    """The client's side of one connection; all of it runs on the loop's thread."""

    __slots__ = (
        "_connected",
        "_frames",
        "_handshake",
        "_heard",
        "_keep_alive_s",
        "_keep_alive_timer",
        "_loop",
        "_lost_error",
        "_next_request_id",
        "_on_lost",
        "_output",
        "_received",
        "_requests",
        "_transport",
        "_written_before",
        "features",
        "gone",
        "is_closed",
        "is_writable",
        "listeners",
        "max_message_size",
        "protocol_version",
        "server_version",
        "url",
        "write",
        "write_many",
    )

    def __init__(
        self,
        url: str,
        *,
        authentication: Authentication | None,
        keep_alive_ms: int,
        proxy_to_broker_url: str = "",
        description: str = "",
        threads: Threads | None = None,
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
        self._handshake = Handshake(authentication, proxy_to_broker_url, description, threads)
        self._on_lost = on_lost
        self._next_request_id = next_request_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = FrameBuffer(MESSAGE_SIZE_BYTES_MAX_DEFAULT)
        #: What the last read brought and next turns handle; while there is any, reading is paused.
        self._frames: list[Frame] = []
        #: Frames that had been written when the last of them were handled.
        self._written_before = 0
        #: What went wrong before the broker answered CONNECT, or None.
        self._connected: asyncio.Future[PulsarException | None] = self._loop.create_future()
        #: Producers, consumers and watches that are registered here.
        self.listeners = Listeners(uses_tls=url.startswith("pulsar+ssl"))
        self._requests = PendingRequests(self._loop)
        self._output = Output(self._loop)
        #: Write in the order of calls; nothing once closed. And several parts back to back, at once.
        self.write = self._output.write
        self.write_many = self._output.write_many
        self._lost_error: PulsarException | None = None
        #: Something came since the last PING.
        self._heard = True
        self._keep_alive_s = keep_alive_ms / 1000
        self._keep_alive_timer: asyncio.TimerHandle | None = None

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP (and TLS) stands: say CONNECT."""
        # No isinstance: uvloop's transports are not asyncio's.
        self._transport = self._output.transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES, low=WRITE_BUFFER_LOW_BYTES)
        say(self._handshake.connect, self.write, self.close)
        self._arm_keep_alive()

    async def wait_connected(self) -> None:
        """Until the broker answered CONNECT; raises what went wrong."""
        error = await asyncio.shield(self._connected)
        if error is not None:
            try:
                raise again(error)
            finally:
                del error  # see runtime's value_of

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: what came before is handled, everybody is told, every request fails."""
        self.gone.set()
        # All: messages whose receipts nobody heard would be sent again.
        self._take_turn(len(self._frames), len(self._frames))
        error = self._lost_error
        if error is None:
            text = f"connection to {self.url} lost" + (f": {exc}" if exc else "")
            is_connected = self._connected.done()
            error = NotConnected(text) if is_connected else lost_in_handshake(self.url, self._received.head, text)
        self._lose(error)
        # Whoever still knows the connection does not keep what it held.
        self._received.drop()
        if self._transport is not None:
            let_go(self._transport)
            self._transport = self._output.transport = None

    def close(self, error: PulsarException | None = None) -> None:
        """Close now; who is still registered hears ``error``."""
        if not self.is_closed:
            self._output.flush()
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
        self._output.end()
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
        if not self._connected.done():
            told = isinstance(error, TOLD_AT_CONNECT)
            self._connected.set_result(error if told else ConnectError(str(error)))
        # Theirs is raised: with a traceback it would hold who waits, and be held by this connection.
        self._requests.fail(again(error))
        self._on_lost(self)
        self.listeners.end(error)

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

    # ---- flow control

    def pause_writing(self) -> None:
        """The transport's buffer is over its high mark."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """The broker took what was written."""
        self.is_writable = True
        self.listeners.on_writable()

    # ---- requests

    def next_request_id(self) -> int:
        """A number no other request of the client has."""
        return self._next_request_id()

    async def request(
        self, command: pb.BaseCommand, request_id: int, timeout_s: float | None, *, is_urgent: bool = True
    ) -> pb.BaseCommand:
        """Send ``command`` and wait for the answer with its request id.

        Raises the broker's error, NotConnected, or Timeout after ``timeout_s`` seconds (None: never).
        """
        answer = self.start_request(command, request_id, is_urgent=is_urgent)
        if timeout_s is None:
            timer = None
        else:
            timer = self._loop.call_later(timeout_s, self._give_up, answer, command.type, timeout_s)
        try:
            return await answer
        finally:
            if timer is not None:
                timer.cancel()
            self._requests.end(request_id, answer)
            del answer  # see runtime's value_of

    def _give_up(self, answer: asyncio.Future[pb.BaseCommand], kind: pb.BaseCommand.Type, timeout_s: float) -> None:
        if not answer.done():
            name = _Type.Type.Name(kind)
            answer.set_exception(Timeout(f"no answer to {name} from {self.url} within {timeout_s:g} s"))

    def start_request(
        self, command: pb.BaseCommand, request_id: int, *, is_urgent: bool = True
    ) -> asyncio.Future[pb.BaseCommand]:
        """Send ``command``; the future gets the answer, or the error. Without time limit.

        ``is_urgent``: it does not wait for what else leaves in this turn of the loop.
        """
        if self.is_closed:
            raise again(self._lost_error or NotConnected(f"connection to {self.url} is closed"))
        answer = self._requests.start(request_id)
        frame = encode_command(command)
        if is_urgent:
            self.write(frame)
        else:
            self._output.write_soon(frame)
        return answer

    def start_late_request(self, make: Callable[[], pb.BaseCommand], request_id: int) -> asyncio.Future[pb.BaseCommand]:
        """As :meth:`start_request`, of a command that is made when it leaves, at the end of this turn of the loop and
        before all that is written after this call."""
        if self.is_closed:
            raise again(self._lost_error or NotConnected(f"connection to {self.url} is closed"))
        answer = self._requests.start(request_id)
        self._output.write_late(lambda: encode_command(make()))
        return answer

    def send_unanswered(self, command: pb.BaseCommand) -> None:
        """Send ``command``; its answer, if one comes, is dropped."""
        self.write(encode_command(command))

    def expect_again(self, request_id: int) -> asyncio.Future[pb.BaseCommand]:
        """A second answer under the same id: of a producer that waits for exclusive access. Without time limit."""
        if self.is_closed:
            raise again(self._lost_error or NotConnected(f"connection to {self.url} is closed"))
        return self._requests.take_second(request_id)

    def forget_request(self, request_id: int) -> None:
        """Nobody waits for its answer any more."""
        self._requests.forget(request_id)

    # ---- bytes in

    def lend(self, consumer_id: int, block_bytes: int) -> None:
        """A consumer takes views of the blocks that are read into, instead of copies (:meth:`FrameBuffer.lend`)."""
        self.listeners.lend_to(consumer_id)
        self._received.lend(block_bytes)

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
        is_much = self._output.written - self._written_before >= WRITTEN_MUCH
        if is_much:
            self._output.flush()
        self._take_turn(answers_max=TURN_ANSWERS_MAX if is_much else TURN_FRAMES_MAX)
        if self._frames:
            self._loop.call_soon(self._next_turn)
        elif self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def _take_turn(self, frames_max: int = TURN_FRAMES_MAX, answers_max: int = TURN_ANSWERS_MAX) -> None:
        self._written_before = self._output.written
        frames, self._frames = self._frames[:frames_max], self._frames[frames_max:]
        outcome = attempt(self.listeners.take, frames, self._handle_command, commands_max=answers_max)
        if isinstance(outcome, Raised):
            # Also what nobody foresaw: the rest of the frames is gone, and only over a new connection comes it again.
            self._break(outcome.error)
            del outcome  # its traceback has this frame, and the frames: see runtime's value_of
        elif outcome < len(frames):
            self._frames[:0] = frames[outcome:]
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

    def _handle_command(self, command: pb.BaseCommand) -> None:
        handle = _HANDLERS.get(command.type)
        tell = FOR_LISTENERS.get(command.type)
        if handle is None and tell is None:
            raise ProtocolError(f"a broker does not send {_Type.Type.Name(command.type)}")
        if not self._connected.done() and command.type not in _BEFORE_CONNECTED:
            raise ProtocolError(f"{_Type.Type.Name(command.type)} before CONNECTED")
        if handle is not None:
            handle(self, command)
        elif tell is not None:
            tell(self.listeners, command)

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
            # What is stored may be of a time when larger ones were taken.
            self._received.allow(max(size, MESSAGE_SIZE_BYTES_MAX_DEFAULT))
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

    def _on_auth_challenge(self, command: pb.BaseCommand) -> None:
        say(self._handshake.answer_challenge, self.write, self.close)


_BEFORE_CONNECTED: Final = frozenset({_Type.CONNECTED, _Type.ERROR, _Type.AUTH_CHALLENGE, _Type.PING, _Type.PONG})

_Handler = Callable[[ClientConnection, pb.BaseCommand], None]
_HANDLERS: Final[dict[int, _Handler]] = {
    **dict.fromkeys(ANSWERS, ClientConnection._on_answer),
    _Type.CONNECTED: ClientConnection._on_connected,
    _Type.ERROR: ClientConnection._on_error,
    _Type.PING: ClientConnection._on_ping,
    _Type.PONG: ClientConnection._on_pong,
    _Type.AUTH_CHALLENGE: ClientConnection._on_auth_challenge,
}
