"""A connection of the proxy to a broker, in the name of one client: its handshake, and requests behind that.

Or, behind the handshake, only a transport: :meth:`BrokerLink.hand_over` gives it to a relay, with what had come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from geminga.model.errors import GemingaError, ProtocolError, ServerError, UnavailableError
from geminga.proxy.core.requests import ANSWERS, with_request_id
from geminga.proxy.core.saying import Caller, is_about_caller, response_frame
from geminga.proxy.core.targets import Target
from geminga.runtime import Contained, again, get_logger, let_go, spawn, where
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PONG_FRAME, decode_command, encode_command
from geminga.wire.pulsar.frame import Frame, FrameDecoder, encode_frame

_log = get_logger(__name__)

#: Of a link that is gone.
_NO_PART: Final = Contained(None, "an answer")
_Type = pb.BaseCommand
#: Bytes of a frame before CONNECTED.
_HANDSHAKE_BYTES_MAX: Final = 64 * 1024
#: Challenges of one broker until it must have let the proxy in.
_CHALLENGES_MAX: Final = 16
#: Seconds that a broker has for the answer to a request.
ANSWER_S_MAX: Final = 30.0

#: The proxy's own method and data.
OwnCredentials = Callable[[], Awaitable[tuple[str, bytes]]]


class RefusedByBrokerError(GemingaError):
    """A broker answered CONNECT with ERROR; ``frame`` is what it said."""

    def __init__(self, text: str, code: int, frame: bytes) -> None:
        super().__init__(text)
        self.server_error = ServerError(code)
        self.frame = frame


class BrokerLink(asyncio.Protocol):
    """See the module."""

    def __init__(
        self,
        target: Target,
        hello: bytes,
        caller: Caller,
        own: OwnCredentials,
        *,
        message_bytes_max: int,
        is_relayed: bool,
    ) -> None:
        """``hello``: CONNECT as a frame. ``is_relayed``: for one that is handed over, nothing is read after it."""
        self.target = target
        #: Who is asked for; new credentials of the same one take the place of former ones.
        self.caller = caller
        self._hello = hello
        self._own = own
        self._message_bytes_max = message_bytes_max
        self._is_relayed = is_relayed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(_HANDSHAKE_BYTES_MAX)
        self._welcome: asyncio.Future[bytes | GemingaError] = self._loop.create_future()
        self._challenges = 0
        #: Request id -> who waits.
        self._waiting: dict[int, asyncio.Future[pb.BaseCommand]] = {}
        self._next_id = 0
        self._why = ""
        self._contained = Contained(self, "an answer", is_last=True)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def welcomed(self) -> bytes:
        """CONNECTED as the broker sent it. Raises RefusedByBrokerError, UnavailableError."""
        answer = await asyncio.shield(self._welcome)
        if isinstance(answer, GemingaError):
            # It stays with the link, which the error's frames have.
            raise again(answer)
        return answer

    async def ask(self, command: pb.BaseCommand) -> pb.BaseCommand:
        """The answer, with an id of the link's own. Raises UnavailableError: the link is lost, or no answer came."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise UnavailableError(f"the connection to the broker {self.target} is lost{self._why}")
        self._next_id += 1
        request_id = self._next_id
        answer: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        self._waiting[request_id] = answer
        transport.write(encode_command(with_request_id(command, request_id)))
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await answer
        except TimeoutError:
            self.abort("no answer in time")
            raise UnavailableError(f"no answer of the broker {self.target} within {ANSWER_S_MAX:g} s") from None
        finally:
            self._waiting.pop(request_id, None)
            del answer  # see runtime's value_of

    def hand_over(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport, bytes]:
        """Let ``protocol`` have the transport, which is paused; what came behind CONNECTED. Raises UnavailableError."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise UnavailableError(f"the connection to the broker {self.target} is lost{self._why}")
        self._transport, self._contained = None, _NO_PART
        transport.set_protocol(protocol)
        return transport, self._decoder.take_rest()

    def abort(self, why: str = "") -> None:
        """End it at once."""
        if self._transport is not None:
            self._why = self._why or (f": {why}" if why else "")
            self._transport.abort()

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of it: it is cut off."""
        _log.error("link to the broker %s: %s failed: %s at %s", self.target, what, error, where(error), exc_info=error)
        self.abort("it broke")

    # ---- what comes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It stands: say who asks, and for whom."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._hello)
        self._hello = b""

    def data_received(self, data: bytes) -> None:
        """Frames of the broker."""
        with self._contained:
            self._take(data)

    def _take(self, data: bytes) -> None:
        decoder = self._decoder
        try:
            if not self._welcome.done():
                frames = decoder.feed(data, 1)
                while frames:
                    self._in_handshake(frames[0])
                    if self._welcome.done():
                        break
                    frames = decoder.feed(b"", 1)
                if self._is_relayed or not self._welcome.done():
                    self._check_stream()
                    return
                data = b""
            elif self._is_relayed:
                decoder.feed(data, 0)  # under way before reading stopped
                return
            for command, _ in decoder.feed(data):
                self._answered(decode_command(command))
            self._check_stream()
        except ProtocolError as error:
            self.abort(str(error))

    def _check_stream(self) -> None:
        if self._decoder.error is not None:
            raise self._decoder.error

    def _in_handshake(self, frame: Frame) -> None:
        command = decode_command(frame[0])
        if command.type == _Type.CONNECTED:
            if self._is_relayed and self._transport is not None:
                self._transport.pause_reading()
            self._decoder.allow(self._message_bytes_max)
            self._welcome.set_result(encode_frame(frame[0]))
        elif command.type == _Type.ERROR:
            told = f"the broker {self.target} refuses: {command.error.message[:500]}"
            self._welcome.set_result(RefusedByBrokerError(told, command.error.error, encode_frame(frame[0])))
            self.abort()
        elif command.type == _Type.AUTH_CHALLENGE:
            self._challenged(command.authChallenge)
        elif command.type == _Type.PING:
            self._write(PONG_FRAME)
        else:
            raise ProtocolError(f"{_Type.Type.Name(command.type)} before CONNECTED")

    def _answered(self, command: pb.BaseCommand) -> None:
        name = ANSWERS.get(command.type)
        if name is not None:
            waiting = self._waiting.get(getattr(command, name).request_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
        elif command.type == _Type.PING:
            self._write(PONG_FRAME)
        elif command.type == _Type.AUTH_CHALLENGE:
            self._challenges = 0
            self._challenged(command.authChallenge)
        elif command.type != _Type.PONG:
            raise ProtocolError(f"a broker does not send {_Type.Type.Name(command.type)} here")

    def _challenged(self, challenge: pb.CommandAuthChallenge) -> None:
        self._challenges += 1
        if self._challenges > _CHALLENGES_MAX:
            raise ProtocolError(f"more than {_CHALLENGES_MAX} challenges")
        if self.caller.instead is not None:
            raise ProtocolError("it asks for more than the client's credentials, which the proxy does not have")
        credentials = self.caller.credentials
        if credentials is not None and is_about_caller(challenge, self.caller):
            self._write(response_frame(self.caller.client_version, credentials.method, credentials.data))
        else:
            spawn(self._respond(), name=f"credentials for the broker {self.target}", part=self)

    async def _respond(self) -> None:
        try:
            method, data = await self._own()
        except UnavailableError as error:
            self.abort(str(error))
            return
        self._write(response_frame(self.caller.client_version, method, data))

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits for it is told."""
        transport, self._transport = self._transport, None
        lost = UnavailableError(f"the connection to the broker {self.target} is lost{self._why or _reason(exc)}")
        if not self._welcome.done():
            self._welcome.set_result(lost)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(again(lost))
                future.exception()
        self._decoder.drop()
        # It knows this one: what is gone waits for no collector.
        self._contained = _NO_PART
        if transport is not None:
            let_go(transport)


def _reason(exc: Exception | None) -> str:
    return f": {exc}" if exc is not None else ""
