"""Brokers that are named as owners and that nobody can reach: killed ones, until their sessions end.

Whoever looks a topic up would be sent to a port where nothing listens, again and again, and would pause longer each
time, long past the moment at which another broker can take the topic. So it is answered when that moment has come.

A broker counts as silent when connections to it are refused, though they were not since it came: where brokers do not
reach each other by the addresses that clients use nothing is known, and nobody waits.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.broker.ownership.endpoints import Endpoint
from geminga.broker.ownership.live_brokers import LiveBrokers
from geminga.broker.ownership.owner_nodes import endpoints_in
from geminga.runtime import Part, Runtime, Turns, get_logger, spawn, wait_ms

#: A look at a broker holds so long: more often than that it is not connected to.
LOOK_S: Final = 1.0
#: ... and takes so long at most; who does not answer is not known to be silent.
CONNECT_S_MAX: Final = 1.0
#: Looks at one that came and does not answer yet.
FIRST_LOOKS_MAX: Final = 10
#: Nobody waits longer: clients give a lookup 20 s and more.
WAIT_S_MAX: Final = 10.0
#: Who wait at the same time; more are answered at once.
WAITING_MAX: Final = 20_000

_log = get_logger(__name__)


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class _Looked:
    """What is known of one."""

    __slots__ = ("has_answered", "is_refusing", "looked_s", "task", "waiting")

    def __init__(self) -> None:
        #: A connection was made since it came.
        self.has_answered = False
        #: The last one was refused.
        self.is_refusing = False
        #: Monotonic; when it was last looked at.
        self.looked_s = float("-inf")
        self.task: asyncio.Task[None] | None = None
        #: In the order in which they came.
        self.waiting: dict[asyncio.Future[None], None] = {}


class SilentBrokers:
    """See the module."""

    __slots__ = ("_brokers", "_is_closed", "_looked", "_part", "_runtime", "_waiting")

    def __init__(self, runtime: Runtime, brokers: LiveBrokers, *, part: Part | None = None) -> None:
        self._runtime = runtime
        self._brokers = brokers
        self._part = part
        self._looked: dict[Address, _Looked] = {}
        #: Who waits, of all.
        self._waiting = 0
        self._is_closed = False

    def start(self) -> None:
        """Look at each broker that is there and that comes."""
        self._brokers.listen(self._changed)
        self._changed()

    async def close(self) -> None:
        """Nobody waits any more; on return nothing is under way."""
        self._is_closed = True
        tasks = [one.task for one in self._looked.values() if one.task is not None]
        for address in list(self._looked):
            self._forget(address)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def is_silent(self, endpoint: Endpoint) -> bool:
        """Whether connections to the broker are refused that were not before."""
        looked = self._looked.get(address_of(endpoint))
        if looked is None:
            return False
        if looked.task is None and self._runtime.clock.monotonic() - looked.looked_s >= LOOK_S:
            self._look_soon(address_of(endpoint), looked)
        if looked.task is not None and looked.has_answered and not looked.is_refusing:
            # A task of its own: the first to ask may go away, the others still want to know.
            await asyncio.wait((looked.task,))
        return looked.is_refusing

    def wait(self, endpoint: Endpoint) -> Awaitable[None] | None:
        """Until a silent broker is in the list no more, or answers; None: it is not silent, or too many wait."""
        looked = self._looked.get(address_of(endpoint))
        if looked is None or not looked.is_refusing or self._waiting >= WAITING_MAX:
            return None
        return self._wait(address_of(endpoint), looked)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._waiting

    # ---- inside

    async def _wait(self, address: Address, looked: _Looked) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        looked.waiting[woken] = None
        self._waiting += 1
        if looked.task is None:
            self._look_soon(address, looked)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await woken
        except TimeoutError:
            pass  # it is answered as it would have been without waiting
        finally:
            looked.waiting.pop(woken, None)
            self._waiting -= 1

    def _look_soon(self, address: Address, looked: _Looked) -> None:
        looked.task = spawn(self._look(address, looked), name=f"look at {address.host}:{address.port}", part=self._part)

    async def _look(self, address: Address, looked: _Looked) -> None:
        """Once, and on as long as somebody waits; one that came is given a while."""
        is_new = looked.looked_s == float("-inf")
        try:
            for count in itertools.count(1):
                was_refusing = looked.is_refusing
                is_refused = await self._is_refused(address)
                looked.looked_s = self._runtime.clock.monotonic()
                looked.has_answered |= is_refused is False
                looked.is_refusing = looked.has_answered and is_refused is True
                if looked.is_refusing and not was_refusing:
                    _log.warning("nothing listens at %s:%d any more", address.host, address.port)
                is_starting = is_new and not looked.has_answered and count < FIRST_LOOKS_MAX
                if self._looked.get(address) is not looked or not (
                    is_starting or (looked.is_refusing and looked.waiting)
                ):
                    break
                await wait_ms(LOOK_S * 1000)
        finally:
            looked.task = None
        self._wake(looked.waiting)

    async def _is_refused(self, address: Address) -> bool | None:
        """None: it can not be told."""
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                transport, _ = await self._runtime.network.connect(asyncio.Protocol, address.host, address.port)
        except ConnectionRefusedError:
            return True
        except OSError:  # a time-out is one as well
            return None
        transport.abort()
        return False

    def _changed(self) -> None:
        """Brokers came or went."""
        there = _addresses(endpoints_in(one.owner).default for one in self._brokers.all)
        for address in self._looked.keys() - there:
            self._forget(address)
        if self._is_closed:
            return
        for address in sorted(there - self._looked.keys()):
            self._looked[address] = _Looked()
            self._look_soon(address, self._looked[address])

    def _forget(self, address: Address) -> None:
        looked = self._looked.pop(address)
        looked.is_refusing = False
        self._wake(looked.waiting)

    def _wake(self, waiting: dict[asyncio.Future[None], None]) -> None:
        if waiting:
            spawn(self._wake_all(waiting), name="wake who waited for a broker", part=self._part)

    async def _wake_all(self, waiting: dict[asyncio.Future[None], None]) -> None:
        """The first come first, and others between them: each of them has work to do."""
        turns = Turns(self._runtime.clock, steps_max=100)
        while waiting:
            if turns.is_over():
                await turns.next()
                continue
            woken = next(iter(waiting))
            del waiting[woken]
            if not woken.done():
                woken.set_result(None)


def _addresses(endpoints: Iterable[Endpoint]) -> set[Address]:
    return {address for endpoint in endpoints if (address := address_of(endpoint)).port}


def address_of(endpoint: Endpoint) -> Address:
    """Where it takes clients; port 0: that can not be told."""
    try:
        parts = urlsplit(endpoint.broker_url or endpoint.broker_url_tls)
        return Address(parts.hostname or "", parts.port or 0)
    except ValueError:
        return Address("", 0)
