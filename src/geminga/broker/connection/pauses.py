"""When a connection is not read, so that its client sends no more than the broker can take.

Reading stops while more publishes than ``maxPendingPublishRequestsPerConnection`` are unanswered, while the broker
holds more unanswered bytes than its publish buffer, while too many other requests are under way, while the client does
not take what is written to it, while somebody publishes faster on it than a rate allows, or while commands are left
over.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Protocol

from geminga.broker.connection.back_pressure import REQUESTS_PENDING_MAX
from geminga.broker.connection.output import ConnectionOutput
from geminga.broker.connection.pause_reason import PauseReason
from geminga.broker.connection.services import ConnectionServices
from geminga.runtime import spawn


class UsedUpRate(Protocol):
    """A publish rate that holds connections. Hashes by identity."""

    def forget(self, connection: ConnectionPauses, /) -> None:
        """It is gone."""
        ...


class ConnectionPauses(ConnectionOutput):
    """The half of a connection that writes, and why nothing is read."""

    __slots__ = (
        "_awaiting_pong",
        "_is_command_under_way",
        "_is_lost",
        "_is_rated",
        "_paused",
        "_pending_publishes",
        "_pending_requests",
        "_rates_used_up",
        "peer",
        "services",
    )

    def __init__(self, services: ConnectionServices) -> None:
        super().__init__(services.output_budget)
        self.services = services
        #: ``/address:port``, as Pulsar prints it.
        self.peer = ""
        #: A command is carried out in several turns: those behind it wait.
        self._is_command_under_way = False
        #: The transport is gone and what it brought is still being handled; then the connection leaves.
        self._is_lost = False
        self._pending_publishes = 0
        self._pending_requests = 0
        self._paused = PauseReason.NONE
        self._awaiting_pong = False
        #: Whether a producer of it may publish under a rate.
        self._is_rated = False
        #: Publish rates that hold it; None: there never was one.
        self._rates_used_up: dict[UsedUpRate, None] | None = None

    def _schedule_turn(self) -> None:
        """Go on with commands that are left over. The connection does it."""

    def broke(self, what: str, error: BaseException) -> None:
        """Something unexpected came out of its requests. The connection ends then."""

    def publish_started(self, count: int, size_bytes: int) -> None:
        """``count`` publishes wait for their answers now."""
        self._pending_publishes += count
        if self._pending_publishes > self.services.config.pending_publishes_max:
            self._pause(PauseReason.PENDING_PUBLISHES)
        if self.services.publish_buffer.add(size_bytes, self):
            self._pause(PauseReason.PUBLISH_BUFFER)

    def publish_finished(self, count: int, size_bytes: int) -> None:
        """``count`` publishes were answered."""
        self._pending_publishes -= count
        if self._paused and self._pending_publishes <= self.services.config.pending_publishes_max // 2:
            self._resume(PauseReason.PENDING_PUBLISHES)
        self.services.publish_buffer.remove(size_bytes)

    def publish_buffer_has_room(self) -> None:
        """The broker's publish buffer is below its mark again."""
        self._resume(PauseReason.PUBLISH_BUFFER)

    def publish_is_rated(self) -> None:
        """A topic that is published to here has another rate from now on."""
        self._is_rated = True

    def hold_for_rate(self, throttle: UsedUpRate, /) -> None:
        """A publish rate is used up: do not read until :meth:`free_of_rate`."""
        if self._rates_used_up is None:
            self._rates_used_up = {}
        self._rates_used_up[throttle] = None
        self._pause(PauseReason.PUBLISH_RATE)

    def free_of_rate(self, throttle: UsedUpRate, /) -> None:
        """This rate has room again."""
        if self._rates_used_up is not None:
            self._rates_used_up.pop(throttle, None)
        if not self._rates_used_up:
            self._resume(PauseReason.PUBLISH_RATE)

    def _leave_rates(self) -> None:
        """It is gone: nobody waits for its turn."""
        for throttle in self._rates_used_up or ():
            throttle.forget(self)
        self._rates_used_up = None

    def run(self, work: Coroutine[None, None, None], name: str) -> None:
        """Work on a request in a task of its own; the client is not read while too many of these are under way."""
        self._pending_requests += 1
        if self._pending_requests > REQUESTS_PENDING_MAX:
            self._pause(PauseReason.PENDING_REQUESTS)
        spawn(work, name=name, part=self).add_done_callback(self._request_done)

    def run_in_turns(self, work: Coroutine[None, None, None]) -> None:
        """Carry out the command at hand in several turns of the loop; commands behind it wait until that is done."""
        self._is_command_under_way = True
        self._pause(PauseReason.COMMAND_UNDER_WAY)
        spawn(work, name=f"long command of {self.peer}", part=self).add_done_callback(self._long_command_done)

    def _long_command_done(self, _: object) -> None:
        self._is_command_under_way = False
        self._resume(PauseReason.COMMAND_UNDER_WAY)
        if self._is_lost:
            self._schedule_turn()

    def _request_done(self, _: object) -> None:
        self._pending_requests -= 1
        if self._paused and self._pending_requests <= REQUESTS_PENDING_MAX // 2:
            self._resume(PauseReason.PENDING_REQUESTS)

    @property
    def pending_publishes(self) -> int:
        """Publishes not answered yet."""
        return self._pending_publishes

    @property
    def paused(self) -> PauseReason:
        """Why nothing is read now."""
        return self._paused

    def _pause(self, reason: PauseReason) -> None:
        if not self._paused and self._transport is not None and not self.is_closed:
            self._transport.pause_reading()
        self._paused |= reason

    def _resume(self, reason: PauseReason) -> None:
        if not self._paused & reason:
            return
        self._paused &= ~reason
        if not self._paused and self._transport is not None and not self.is_closed:
            # The client was not heard because it was not listened to.
            self._awaiting_pong = False
            self._transport.resume_reading()
        elif self._paused == PauseReason.COMMANDS_LEFT:
            self._schedule_turn()
