"""How a connection begins and ends: the handshake, PINGs that nobody answers, and each way of closing."""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.broker.access.core.handshake import (
    Accept,
    HandshakeMachine,
    Refuse,
    SendChallenge,
    Step,
    Violate,
    Whose,
)
from geminga.broker.access.core.principal import ANONYMOUS
from geminga.broker.access.ports import Exchange
from geminga.broker.connection.liveness import LivenessCheck
from geminga.broker.connection.services import ConnectionServices
from geminga.broker.connection.traffic import ConnectionTraffic, PauseReason
from geminga.broker.failures import Kind
from geminga.model.errors import AuthenticationError, GemingaError
from geminga.runtime import get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands

_log = get_logger(__name__)

#: Seconds a closed connection has to write what is buffered.
CLOSE_GRACE_S: Final = 5.0


class ConnectionLife(ConnectionTraffic):
    """A connection's beginning and end, and whether its peer is still there."""

    __slots__ = (
        "_handshake_timer",
        "_keep_alive",
        "_liveness",
        "_monotonic",
        "client_version",
        "exchanges",
        "handshake",
        "is_connected",
        "principal",
    )

    def __init__(self, services: ConnectionServices) -> None:
        super().__init__(services)
        #: Who is at the other end, once the handshake is done.
        self.principal = ANONYMOUS
        self.client_version = ""
        #: The handshake is done.
        self.is_connected = False
        self._monotonic = services.monotonic
        rules = services.access.handshake_rules(services.config.first_check_s)
        self.handshake = HandshakeMachine(rules, services.monotonic())
        #: What finds out who is there, as far as it was asked.
        self.exchanges: dict[Whose, Exchange] = {}
        #: When credentials expire, or an answer is overdue.
        self._handshake_timer: asyncio.TimerHandle | None = None
        self._liveness = LivenessCheck(self._loop)
        self._keep_alive: asyncio.TimerHandle | None = None

    # ---- the handshake

    def carry_out(self, step: Step | None) -> None:
        """What the handshake says is to be done, but for verifying: whoever handles its commands does that."""
        if isinstance(step, Accept):
            self.principal = step.principal
            self.handshake_done()
        elif isinstance(step, SendChallenge):
            challenge = pb.CommandAuthChallenge(
                protocol_version=commands.PROTOCOL_VERSION,
                challenge=pb.AuthData(auth_method_name=step.method, auth_data=step.data),
            )
            self.send_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=challenge))
        elif isinstance(step, Refuse):
            self.send_error(commands.UNREQUESTED, AuthenticationError(step.reason))
            self.close(step.reason)
        elif isinstance(step, Violate):
            self.close(step.reason)
        self._await_handshake()

    def handshake_done(self) -> None:
        """CONNECT succeeded: other commands are taken."""
        self.is_connected = True

    def _await_handshake(self) -> None:
        """Look again when credentials expire; until they are accepted the keep-alive does it."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        deadline_s = self.handshake.deadline_s
        if deadline_s is not None and self.is_connected and not self.is_closed:
            self._handshake_timer = self._loop.call_later(deadline_s - self._monotonic(), self._handshake_due)

    def _handshake_due(self) -> None:
        self._handshake_timer = None
        if not self.is_closed:
            self.carry_out(self.handshake.time_passed(self._monotonic()))

    # ---- the end

    def told(self, error: GemingaError) -> str:
        """What the client is told of an error; what it is not told goes to the log."""
        if error.public_text:
            self.services.connections.warn_of_hidden(self, error)
        return error.told

    def close(self, reason: str = "") -> None:
        """Close; a ``reason`` is the one line the log gets, an empty one is no news."""
        if self.is_closed:
            return
        if reason:
            self.services.connections.warn_of_closing(self, reason)
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
            self._out.clear()
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()
            if self._keep_alive is not None:
                self._keep_alive.cancel()
            # What is still to be written is, but a peer that does not read must not keep its producers here.
            self._keep_alive = self._loop.call_later(CLOSE_GRACE_S, self._transport.abort)

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of its commands: it is cut off, and its client may come again."""
        if not self.is_closed:
            self.services.failures.note(Kind.CONNECTION, f"{self.peer} ({self.client_version})", what, error)
        self.abort()

    def abort(self, reason: str = "") -> None:
        """Cut it off at once: what was not sent yet is dropped, so nothing is acknowledged any more.

        For a peer that is dead, and for a broker that must not go on.
        """
        if reason and not self.is_closed:
            _log.warning("closing connection %s (%s): %s", self.peer, self.client_version, reason)
        self.is_closed = True
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    #: For the output budget.
    cut_off = abort

    def _forget_life(self) -> None:
        """It is gone: no timer of it is left, and who asked whether it is alive hears that it is not."""
        self.is_closed = True
        self.is_connected = False
        if self._keep_alive is not None:
            self._keep_alive.cancel()
            self._keep_alive = None
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        self.exchanges.clear()
        self._liveness.answer(False)

    # ---- whether it is alive

    def check_liveness(self) -> asyncio.Future[bool]:
        """Whether the peer answers a PING within ``connectionLivenessCheckTimeoutMillis``; closes it if not.

        One that is not read because it sends so much is alive: its PONG would not be heard.
        """
        timeout_ms = self.services.config.liveness_check_timeout_ms
        reasons = self._paused
        if self._is_lost or reasons & PauseReason.WRITE_BUFFER:
            # Commands that wait for a client to read tell nothing of it.
            reasons &= ~(PauseReason.WRITE_BUFFER | PauseReason.COMMANDS_LEFT)
        if self.is_closed or timeout_ms == 0 or reasons:
            return self._liveness.known(not self.is_closed)
        return self._liveness.ask(self._ping, self._liveness_timeout, timeout_ms / 1000)

    def _ping(self) -> None:
        self.write(commands.PING_FRAME)

    def _liveness_timeout(self) -> None:
        # Its end answers those who wait, so that its producers are gone when they go on.
        self.abort("no answer to a liveness check")

    def _arm_keep_alive(self) -> None:
        config = self.services.config
        deadline_s = self.handshake.deadline_s
        interval_s: float = config.keep_alive_interval_s
        if not self.is_connected and deadline_s is not None:
            interval_s = deadline_s - self._monotonic()
        self._keep_alive = self._loop.call_later(interval_s, self._keep_alive_due)

    def _keep_alive_due(self) -> None:
        if self.is_closed:
            return
        if not self.is_connected:
            self.carry_out(self.handshake.time_passed(self._monotonic()))
            if not self.is_closed:
                self._arm_keep_alive()  # timers may be early
            return
        if self._awaiting_pong and not self._paused:
            self.abort("no answer to a keep-alive PING")
            return
        self._awaiting_pong = True
        self._ping()
        self._arm_keep_alive()
