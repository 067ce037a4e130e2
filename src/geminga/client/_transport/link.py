"""Keeps a producer or consumer connected to its topic's broker: lookup, connect, attach, and again after a loss.

The first attempt is awaited by whoever makes the producer or consumer, retriable errors are tried again until the
operation timeout. After that, a loss starts a task that tries until it succeeds, is closed, or fails with an error
that trying again can not mend. An attachment that ends at once, as where a broker accepts a producer and can not store
what it sends, is one more attempt that failed: the delays go on growing.

Attempts are logged at INFO. Who has been away for a while is a warning, one a minute for all links of a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geminga.client._api.errors import (
    AlreadyClosed,
    AuthenticationError,
    ConsumerBusy,
    ErrorGettingAuthenticationData,
    LookupError,
    NotConnected,
    ProducerBusy,
    PulsarException,
    Timeout,
    WrongProtocol,
    as_client_error,
)
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ServiceUrl
from geminga.client._transport.pool import BrokerAddress
from geminga.client.rules.backoff import Backoff
from geminga.runtime import Raised, again, attempt_await, get_logger, spawn

_log = get_logger(__name__)

#: Errors that time may mend once a producer or consumer existed: the broker may not have noticed yet that the old
#: connection is gone, a token may be renewed, and what answers for a broker that starts again may speak HTTP.
MENDED_BY_TIME: Final = (
    ProducerBusy,
    ConsumerBusy,
    AuthenticationError,
    ErrorGettingAuthenticationData,
    WrongProtocol,
)
#: What was attached for so long has worked: after a loss the delays start small again.
LASTED_MS: Final = 1_000
#: Who is away for so long is told of as a warning: one that waits for messages hears of nothing else.
AWAY_TOLD_MS: Final = 10_000
#: The longest delay where it can be attached, but does not last: what is missing may be there at any moment.
UNLASTING_MS_MAX: Final = 5_000


async def _attach_nothing(connection: ClientConnection) -> None:
    raise AlreadyClosed("it was closed while it was being connected")


def _tell_nobody(error: PulsarException) -> None:
    pass


class Link:
    """See the module's docstring.

    ``attach`` registers on a connection, says PRODUCER or SUBSCRIBE, and raises unless it is still registered when the
    answer is there: the same read may have brought the answer and the end (``has_producer``, ``has_consumer``).
    """

    __slots__ = (
        "_assigned_url",
        "_attach",
        "_attached_ms",
        "_backoff",
        "_cluster",
        "_elsewhere",
        "_is_connecting",
        "_is_wanted",
        "_lost_ms",
        "_moves",
        "_name",
        "_on_failed",
        "_task",
        "_way",
        "connection",
        "is_closed",
        "topic",
    )

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        what: str,
        *,
        attach: Callable[[ClientConnection], Awaitable[None]],
        on_failed: Callable[[PulsarException], None],
    ) -> None:
        """``what`` of the topic it keeps connected, for the log."""
        self._cluster = cluster
        self.topic = topic
        self._name = f"the {what} of {topic}"
        self._attach = attach
        self._on_failed = on_failed
        self._backoff = Backoff(cluster.options.initial_backoff_ms, cluster.options.maximum_backoff_ms)
        self._task: asyncio.Task[None] | None = None
        #: The first time is under way: it is tried again there.
        self._is_connecting = False
        #: When it was attached last; None once that counts no more.
        self._attached_ms: float | None = None
        #: Since when it is away; None while it is attached.
        self._lost_ms: float | None = None
        self._assigned_url = ""
        #: The cluster that the topic moved to; None: it is where the client's service URL leads.
        self._elsewhere: ServiceUrl | None = None
        #: How the broker of the last lookup is reached, if that is a proxy's address: so is one that is assigned.
        self._way: str | None = None
        #: Of the pool, as they were when it was tried last.
        self._moves = cluster.pool.moves
        #: The next attempt need not wait for its delay.
        self._is_wanted = asyncio.Event()
        #: Where it is attached now; None while it is not.
        self.connection: ClientConnection | None = None
        self.is_closed = False

    @property
    def moves(self) -> int:
        """How often the client had gone on with another cluster when it was tried last."""
        return self._moves

    async def connect(self) -> None:
        """The first time; raises what went wrong, Timeout among it."""
        self._is_connecting = True
        try:
            await self._cluster.lookup.retry(self._attempt, f"connecting {self.topic}")
        finally:
            self._is_connecting = False

    def lost(self, assigned_url: str = "") -> None:
        """The connection is gone or the broker closed us; ``assigned_url``: the broker that has the topic now."""
        self.connection = None
        self._assigned_url = assigned_url
        if self._lost_ms is None:
            self._lost_ms = self._now_ms()
        if self._task is None and not self.is_closed and not self._is_connecting:
            self._task = spawn(self._reconnect(), name=f"reconnect {self.topic}")

    def moved(self, url: ServiceUrl) -> None:
        """The topic is looked up there from now on: it is in another cluster. Where that can not be, whoever has it
        here is asked again, and may say another address by then."""
        try:
            self._cluster.lookup.addresses_of(url, self.topic)
        except LookupError as error:
            _log.warning("%s: %s", self.topic, error)
        else:
            self._elsewhere = url

    def hurry(self) -> None:
        """What it was lost for is over, and somebody waits: the next attempt is made now, not after its delay."""
        if self._task is not None:
            self._is_wanted.set()

    def close(self) -> None:
        """Stop trying, and know nothing of who was kept connected: what ended waits for no collector."""
        self.is_closed = True
        self._attach, self._on_failed = _attach_nothing, _tell_nobody
        self.connection = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _attempt(self) -> None:
        assigned, self._assigned_url = self._assigned_url, ""
        cluster = self._cluster
        if self._moves != cluster.pool.moves:
            self._moves, assigned, self._elsewhere = cluster.pool.moves, "", None
        elsewhere = self._elsewhere
        if assigned:
            address = BrokerAddress(assigned, assigned if self._way is None else self._way)
        else:
            if elsewhere is None:
                address = await cluster.lookup.find_broker_once(self.topic)
            else:
                address = await cluster.lookup.find_broker_at(elsewhere, self.topic)
            self._way = None if address.physical_url == address.broker_url else address.physical_url
        connection = await cluster.pool.broker_connection(address)
        await self._attach(connection)
        if connection.is_closed:
            raise NotConnected(f"{self.topic}: the connection was lost as soon as it was attached")
        self.connection = connection
        self._attached_ms = self._now_ms()

    async def _reconnect(self) -> None:
        try:
            while not self.is_closed:
                await self._rest(self._next_delay_ms())
                if await self._has_ended():
                    return
        finally:
            self._task = None

    async def _has_ended(self) -> bool:
        """Try it once; False: another attempt follows, and nobody keeps the frames of this one until then."""
        outcome = await attempt_await(self._attempt_in_time())
        if not isinstance(outcome, Raised):
            self._is_back()
            return True
        # What nobody foresaw ends the trying, not those who wait for it.
        error = again(as_client_error(outcome.error, f"reconnecting {self.topic}"))
        del outcome  # what failed holds frames, and this one among them: see runtime's value_of
        if self._cluster.pool.is_closed:
            return True
        if not (error.retriable or isinstance(error, MENDED_BY_TIME)):
            self._on_failed(error)
            return True
        self._is_away(error)
        return False

    def _is_away(self, error: PulsarException) -> None:
        away_ms = 0 if self._lost_ms is None else self._now_ms() - self._lost_ms
        text = f"{self._name} is away for {away_ms / 1000:.1f} s, and tries again: {error}"
        if away_ms < AWAY_TOLD_MS:
            _log.info("%s", text)
        else:
            self._cluster.pool.away.warn(text)

    def _is_back(self) -> None:
        lost_ms, self._lost_ms = self._lost_ms, None
        if lost_ms is not None:
            _log.info("%s is back after %.1f s", self._name, (self._now_ms() - lost_ms) / 1000)

    async def _rest(self, delay_ms: float) -> None:
        pool = self._cluster.pool
        if self._moves != pool.moves:
            # What was waited for is another cluster's.
            self._backoff.reset()
            return
        pool.resting.add(self._is_wanted)
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await self._is_wanted.wait()
        except TimeoutError:
            pass
        finally:
            pool.resting.discard(self._is_wanted)
        self._is_wanted.clear()

    async def _attempt_in_time(self) -> None:
        try:
            # An attempt that never ends would end all attempts.
            async with asyncio.timeout(self._attempt_limit_s()):
                await self._attempt()
        except TimeoutError:
            raise Timeout(f"reconnecting {self.topic} took too long") from None

    def _next_delay_ms(self) -> float:
        now_ms, attached_ms = self._now_ms(), self._attached_ms
        self._attached_ms = None
        if attached_ms is not None and now_ms - attached_ms >= LASTED_MS:
            self._backoff.reset()
        delay_ms = self._backoff.next_ms(now_ms, self._cluster.runtime.rng.random())
        return delay_ms if attached_ms is None else min(delay_ms, UNLASTING_MS_MAX)

    def _now_ms(self) -> float:
        return self._cluster.runtime.clock.monotonic() * 1000

    def _attempt_limit_s(self) -> float:
        return 2 * self._cluster.timeout_s
