"""One client at the proxy: who it is, and then requests that brokers answer, or its broker, to which bytes are passed.

This is the shell around :mod:`.core.states` and the handshake of :mod:`geminga.broker.access.core.handshake`, which is
the broker's own. A client that names a broker is not read until that one has answered CONNECTED, which it is given as
it came. Credentials that expire end the connection, as at a broker: who asks for topics is challenged
before; on a relayed connection the broker does that, and the answer is looked at as it passes
(:mod:`.core.renewal_watch`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, cast

from geminga.broker.access.anonymous import EVERYBODY_IS_ANONYMOUS
from geminga.broker.access.core.handshake import (
    Accept,
    Challenge,
    Credentials,
    HandshakeMachine,
    Hello,
    Known,
    Refuse,
    Rejected,
    SendChallenge,
    Step,
    Verdict,
    Verify,
    Violate,
)
from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.access.ports import Exchange
from geminga.model.errors import (
    AuthenticationError,
    GemingaError,
    NotAllowedError,
    ProtocolError,
    ServerError,
    UnavailableError,
)
from geminga.proxy.asking import GuestRequests
from geminga.proxy.brokers import Trip
from geminga.proxy.core.renewal_watch import RenewalWatch
from geminga.proxy.core.requests import KINDS
from geminga.proxy.core.saying import Caller, brought_instead
from geminga.proxy.core.states import Milestone, State, Taking
from geminga.proxy.core.targets import parse_target
from geminga.proxy.link import BrokerLink, RefusedByBrokerError
from geminga.proxy.relay import Relay
from geminga.proxy.services import ProxyServices
from geminga.runtime import Contained, get_logger, let_go, spawn, where
from geminga.runtime.core.source_header import Origin
from geminga.runtime.tls.peer import peer_certificate
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands as wire
from geminga.wire.pulsar.commands import UNREQUESTED, decode_command
from geminga.wire.pulsar.foreign import refusal, spoken_in
from geminga.wire.pulsar.frame import Frame, FrameDecoder

_log = get_logger(__name__)

#: Of a connection that is gone.
_NO_PART: Final = Contained(None, "a command")
_Type = pb.BaseCommand

#: Bytes of a frame of a client, before it is relayed: names of topics, credentials.
FRAME_BYTES_MAX: Final = 64 * 1024
#: Frames of one client that are handled before others are served.
TURN_FRAMES_MAX: Final = 64
#: Seconds that a closed connection has to take what is buffered.
CLOSE_GRACE_S: Final = 5.0
#: Characters of the client's version that are kept.
_VERSION_LENGTH_MAX: Final = 200
_UNKNOWN: Final = Origin("", 0)


class ProxyConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, services: ProxyServices, source: Origin | None = None) -> None:
        """``source``: where it came from, if a balancer said so."""
        self.services = services
        self.state = State.NEW
        self._source = source
        self._trip = Trip(_UNKNOWN, _UNKNOWN)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(FRAME_BYTES_MAX)
        access = services.access
        rules = access.handshake_rules(services.handshake_s)._replace(proxy_roles=frozenset(), verifies_original=False)
        self._handshake = HandshakeMachine(rules, services.monotonic())
        self._exchange: Exchange | None = None
        self._connect = pb.CommandConnect()
        #: What the client brought last, which was found good.
        self._credentials = Credentials()
        self._shown = Credentials()
        self._is_verifying = False
        #: What the client answered its broker with is being looked at.
        self._is_renewing = False
        #: Frames that wait until it is known who is there; the decoder may hold more behind them.
        self._frames_left: list[Frame] = []
        #: The next turn, while there is more than one of them handles.
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._grace: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._is_heard = True
        #: What was written is over the transport's mark.
        self._is_full = False
        self._relay: Relay | None = None
        self._asking: GuestRequests | None = None
        self._reaching: asyncio.Task[None] | None = None
        self._why = ""
        self._contained = Contained(self, "a command", is_last=True)

    @property
    def peer(self) -> str:
        """``/address:port`` of the client, as Pulsar prints it."""
        host, port = self._trip.source
        return f"/{host}:{port}" if host else "/unknown"

    # ---- life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted: wait for CONNECT."""
        self._transport = transport = cast("asyncio.Transport", transport)
        source, own = (_address(transport.get_extra_info(name)) for name in ("peername", "sockname"))
        self._trip = Trip(self._source or source, own)
        self._handshake.certificate = peer_certificate(transport)
        self.state = self.state.after(Milestone.ACCEPTED)
        self.services.open[self] = None
        refused = self.services.counters.guests.enter(self._trip.source.host)
        if self.services.is_stopping:
            refused = "the proxy is stopping"
        if refused:
            self._write(wire.error(UNREQUESTED, ServerError.SERVICE_NOT_READY, refused))
            self.close(refused)
            return
        self._await_handshake()

    def close(self, why: str = "") -> None:
        """End it when what is buffered is written."""
        if self.state is State.OVER:
            return
        is_known = self._handshake.is_connected
        self.state = self.state.after(Milestone.ENDED)
        self._why = why
        if self._relay is not None:
            self._relay.end(why)
        elif self._transport is not None:
            self._transport.close()
            self._grace = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)
        if why and is_known:
            _log.info("closing connection %s: %s", self.peer, why)
        elif why:
            self.services.warnings.warn(f"closing connection {self.peer} (no client yet): {why}")
        self._drop()

    def abort(self) -> None:
        """End it at once."""
        self.state = self.state.after(Milestone.ENDED)
        if self._relay is not None:
            self._relay.end("", at_once=True)
        elif self._transport is not None:
            self._transport.abort()
        self._drop()

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of it: it is cut off, and its client may come again."""
        _log.error("connection %s: %s failed: %s at %s", self.peer, what, error, where(error), exc_info=error)
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        transport, self._transport = self._transport, None
        if transport is not None:
            let_go(transport)
        self.state = self.state.after(Milestone.ENDED)
        self._drop()
        self._gone()

    def _relay_ended(self, why: str) -> None:
        _log.debug("connection %s: %s", self.peer, why)
        self.state = self.state.after(Milestone.ENDED)
        self._relay = None
        self._drop()
        self._gone()

    def _gone(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        if self.services.open.pop(self, self) is None:
            self.services.counters.guests.leave(self._trip.source.host)

    def _drop(self) -> None:
        """Nothing more is done for it."""
        for timer in (self._timer, self._ping, self._turn):
            if timer is not None:
                timer.cancel()
        self._timer = self._ping = self._turn = None
        self._frames_left = []
        self.services.room.free(self)
        if self._asking is not None:
            self._asking.close()
            self._asking = None
        # It knows this one: what is gone waits for no collector.
        self._contained = _NO_PART
        if self._reaching is not None:
            self._reaching.cancel()
            self._reaching = None
        self._decoder.drop()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that is worth waiting for at a stop."""
        asking = self._asking
        return asking is not None and asking.is_busy

    # ---- what comes

    def data_received(self, data: bytes) -> None:
        """Frames, as far as they are taken now."""
        self._is_heard = True
        if self.state is State.OVER:
            return
        if self._is_verifying or self._turn is not None or self.state.takes is Taking.NOTHING:
            self._decoder.feed(data, 0)  # under way before reading stopped
            return
        with self._contained:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Handle some frames; others are served before the next ones."""
        decoder = self._decoder
        try:
            # Before it is known who is there one at a time: what is behind CONNECT may be for another.
            had_left = bool(self._frames_left)
            most = TURN_FRAMES_MAX if self.state.takes is Taking.REQUESTS else 1
            frames = self._frames_left or decoder.feed(data, most)
            self._frames_left = []
            for number, frame in enumerate(frames, 1):
                self._handle(frame)
                if self._is_verifying or self.state.takes not in (Taking.HANDSHAKE, Taking.REQUESTS):
                    self._frames_left = frames[number:]
                    return
            if decoder.has_more or had_left:
                self._take_later()
            elif decoder.error is not None:
                self._end_stream(decoder.error.head)
        except ProtocolError as error:
            self.close(str(error))

    def _take_later(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
        self._turn = self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        if not self._is_verifying and self.state.takes is not Taking.NOTHING:
            with self._contained:
                self._read_on()

    def _end_stream(self, head: bytes) -> None:
        spoken = spoken_in(head)
        if spoken is not None and not self._handshake.is_connected:
            self._write(
                refusal(spoken, "this is the port of the binary protocol, servicePort; HTTP is on webServicePort")
            )
            self.close(f"it speaks {spoken.value} on a port of the binary protocol")
        else:
            self.close("impossible frame")

    def _handle(self, frame: Frame) -> None:
        command = decode_command(frame[0])
        if command.type == _Type.CONNECT:
            self._greeted(command.connect)
        elif command.type == _Type.AUTH_RESPONSE:
            answer = command.authResponse.response
            self._shown = Credentials(answer.auth_method_name, answer.auth_data)
            self._follow(self._handshake.answer(self._shown))
        elif self.state.takes is not Taking.REQUESTS:
            self._follow(self._handshake.other_command(_Type.Type.Name(command.type)))
        elif command.type == _Type.PING:
            self._write(wire.PONG_FRAME)
        elif command.type in KINDS and self._asking is not None:
            self._asking.ask(command)
        elif command.type != _Type.PONG:
            raise ProtocolError(f"{_Type.Type.Name(command.type)} needs a connection to a broker (proxy_to_broker_url)")

    # ---- the handshake

    def _greeted(self, request: pb.CommandConnect) -> None:
        if request.proxy_version:
            self._refuse(NotAllowedError("a client must not send proxy_version: a proxy does not ask another proxy"))
            return
        self._connect = request
        self._shown = Credentials(request.auth_method_name, request.auth_data)
        # Of a relayed connection the broker asks for new credentials, not the proxy.
        can_refresh = request.feature_flags.supports_auth_refresh and not request.proxy_to_broker_url
        self._follow(self._handshake.connect(Hello(self._shown, request.original_principal, None, can_refresh)))

    def _follow(self, step: Step | None) -> None:
        """Do what the handshake says."""
        while isinstance(step, Verify):
            if self._exchange is None:
                self._exchange = self.services.access.authenticator.begin(f"/{self._trip.source.host}")
            verdict = self._exchange.answer(step.credentials)
            if not isinstance(verdict, Known | Challenge | Rejected):
                self._hold()
                spawn(self._follow_later(verdict), name=f"authentication of {self.peer}", part=self)
                return
            step = self._judged(verdict)
        if isinstance(step, Accept):
            self._known()
        elif isinstance(step, SendChallenge):
            challenge = pb.AuthData(auth_method_name=step.method, auth_data=step.data)
            command = pb.CommandAuthChallenge(protocol_version=wire.PROTOCOL_VERSION, challenge=challenge)
            self._write(wire.encode_command(pb.BaseCommand(type=_Type.AUTH_CHALLENGE, authChallenge=command)))
        elif isinstance(step, Refuse):
            self._refuse(AuthenticationError(step.reason))
        elif isinstance(step, Violate):
            self.close(step.reason)
        self._await_handshake()

    def _judged(self, verdict: Verdict) -> Step | None:
        step = self._handshake.verdict(verdict, self.services.monotonic())
        if isinstance(verdict, Known) and not isinstance(step, Refuse):
            self._renewed()
        return step

    def _renewed(self) -> None:
        """What was shown is good."""
        self._credentials = self._shown
        if self._asking is not None:
            self._asking.renew(self._caller())

    async def _follow_later(self, answer: Coroutine[Any, Any, Verdict]) -> None:
        verdict = await _verdict_of(answer)
        if self.state is State.OVER:
            return
        self._is_verifying = False
        self._follow(self._judged(verdict))
        if self.state.takes is not Taking.NOTHING:
            self._read_on()

    def _refuse(self, error: GemingaError) -> None:
        if self._relay is None:
            self._write(wire.error(UNREQUESTED, error.server_error, error.told))
        self.close(str(error))

    def _await_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_s = self._handshake.deadline_s
        if deadline_s is not None and self.state is not State.OVER:
            self._timer = self._loop.call_later(deadline_s - self.services.monotonic(), self._handshake_due)

    def _handshake_due(self) -> None:
        self._timer = None
        if self.state is not State.OVER:
            self._follow(self._handshake.time_passed(self.services.monotonic()))

    def _hold(self) -> None:
        self._is_verifying = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Take what had come, and read when it is all."""
        self._take(b"")
        transport = self._transport
        is_waiting = self._is_verifying or self._turn is not None or self._is_full
        is_taken = self.state.takes in (Taking.HANDSHAKE, Taking.REQUESTS) and not is_waiting
        if transport is not None and not transport.is_closing() and is_taken:
            transport.resume_reading()

    def _caller(self) -> Caller:
        request, principal = self._connect, self._handshake.principal
        passes_on = self.services.config.forwards_credentials and principal is not ANONYMOUS
        asks_nobody = self.services.access.authenticator is EVERYBODY_IS_ANONYMOUS
        return Caller(
            request.client_version[:_VERSION_LENGTH_MAX],
            request.protocol_version,
            request.feature_flags,
            principal.role,
            self._credentials if passes_on else None,
            brought_instead(self._credentials) if asks_nobody else None,
        )

    def _known(self) -> None:
        """It is settled who is there."""
        target = self._connect.proxy_to_broker_url
        role = self.services.shown_role(self._handshake.principal.role)
        _log.info("connection %s of %r%s", self.peer, role, f" for the broker {target[:300]!r}" if target else "")
        if target:
            self.state = self.state.after(Milestone.KNOWN_FOR_BROKER)
            if self._transport is not None:
                self._transport.pause_reading()
            self._reaching = spawn(self._reach(target), name=f"broker for {self.peer}", part=self)
            return
        self.state = self.state.after(Milestone.KNOWN)
        flags = pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True)
        version = min(self._connect.protocol_version, wire.PROTOCOL_VERSION)
        self._write(wire.connected(self.services.version, version, self.services.config.message_bytes_max, flags))
        self._asking = GuestRequests(self.services, self._caller(), self._trip, self._write, self.close, self)
        self._ping_later()

    # ---- a broker

    async def _reach(self, text: str) -> None:
        services = self.services
        try:
            target = parse_target(text)
            services.brokers.allowed.check_name(target)
            if services.config.checks_active and not await services.directory.is_active(target):
                raise UnavailableError(f"the broker {target} is not registered in the metadata store")
            link = await services.brokers.link(target, self._caller(), self._trip, is_relayed=True)
        except RefusedByBrokerError as error:
            self._reaching = None
            self._write(error.frame)
            self.close(str(error))
            return
        except GemingaError as error:
            self._reaching = None
            # As Pulsar's proxy, whose clients try again after a while.
            self._write(wire.error(UNREQUESTED, ServerError.SERVICE_NOT_READY, f"Target broker: {error.told}"))
            self.close(str(error))
            return
        self._reaching = None
        transport = self._transport
        if self.state is not State.REACHING or transport is None or transport.is_closing():
            link.abort()
            return
        self._hand_over(transport, await link.welcomed(), link)

    def _hand_over(self, client: asyncio.Transport, welcome: bytes, link: BrokerLink) -> None:
        services = self.services
        relay = Relay(
            services.counters,
            services.room,
            self._relay_ended,
            self._response_passed,
            services.config.read_timeout_ms / 1000,
        )
        try:
            broker, behind = link.hand_over(relay.broker)
        except UnavailableError as error:
            self._write(wire.error(UNREQUESTED, error.server_error, error.told))
            self.close(str(error))
            return
        early = self._decoder.take_rest()
        self._relay, self._transport = relay, None
        client.set_protocol(relay.client)
        relay.start(client, broker)
        self.state = self.state.after(Milestone.REACHED)
        if self._handshake.deadline_s is not None and services.config.forwards_credentials:
            relay.client.watch(RenewalWatch())
        client.write(welcome)
        if behind:
            relay.broker.data_received(behind)
        if early:
            relay.client.data_received(early)
        relay.go()

    def _response_passed(self, data: bytes) -> None:
        """The client answers its broker with new credentials: it stays as long as these are good."""
        try:
            answer = decode_command(data).authResponse.response
        except ProtocolError:
            return  # its broker says so
        if answer.auth_method_name != self._credentials.method or self._exchange is None:
            self.close("new credentials must be of the same method")
            return
        if self._is_renewing:
            # A broker asks once, and waits: each look may cost a request elsewhere.
            self.close("more new credentials came before the last were looked at")
            return
        verdict = self._exchange.answer(Credentials(answer.auth_method_name, answer.auth_data))
        if isinstance(verdict, Known | Challenge | Rejected):
            self._renew_relayed(verdict)
        else:
            self._is_renewing = True
            spawn(self._renew_later(verdict), name=f"authentication of {self.peer}", part=self)

    async def _renew_later(self, answer: Coroutine[Any, Any, Verdict]) -> None:
        try:
            verdict = await _verdict_of(answer)
        finally:
            self._is_renewing = False
        self._renew_relayed(verdict)

    def _renew_relayed(self, verdict: Verdict) -> None:
        if self.state is not State.RELAYING:
            return
        self._follow(self._handshake.renewed_unasked(verdict, self.services.monotonic()))

    # ---- whether it is there

    def _ping_later(self) -> None:
        interval_s = self.services.config.keep_alive_s
        if interval_s:
            self._ping = self._loop.call_later(interval_s, self._keep_alive)

    def _keep_alive(self) -> None:
        self._ping = None
        if not self._is_heard:
            self.abort()
            return
        self._is_heard = False
        self._write(wire.PING_FRAME)
        self._ping_later()

    # ---- what is written

    def pause_writing(self) -> None:
        """It takes no answers: no more requests of it are read."""
        self._is_full = True
        if self._transport is not None:
            self._transport.pause_reading()
            self._hold_room(self._transport)

    def resume_writing(self) -> None:
        """It took most of them."""
        self._is_full = False
        self.services.room.free(self)
        is_waiting = self._is_verifying or self._turn is not None
        if self._transport is not None and not is_waiting and self.state.takes is Taking.REQUESTS:
            self._transport.resume_reading()

    def _write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)
            if self._is_full:
                self._hold_room(self._transport)

    def _hold_room(self, transport: asyncio.Transport) -> None:
        self.services.room.hold(self, transport.get_write_buffer_size(), self.abort)


async def _verdict_of(answer: Coroutine[Any, Any, Verdict]) -> Verdict:
    try:
        return await answer
    except GemingaError as error:
        return Rejected(error.told)


def _address(found: object) -> Origin:
    return Origin(str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else _UNKNOWN
