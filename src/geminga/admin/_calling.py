"""What the generated calls stand on: one request, awaited or not; and policies, which are all asked for alike."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from geminga.admin import _paths
from geminga.admin._http import HttpCaller
from geminga.admin._request import Answer, answer_to
from geminga.admin._request import Request as Request
from geminga.runtime import LaneThreads, value_of
from geminga.runtime.fork import fork_generation

#: Requests of one asynchronous client that are under way at a time; others wait for their turn.
REQUESTS_MAX: Final = 16
V = TypeVar("V")


#: Policies whose request has no body: whatever it said they would be on.
SWITCHED_ON: Final = ("dispatcherPauseOnAckStatePersistent",)


class BlockingCalls:
    """Calls that wait."""

    __slots__ = ("_caller",)

    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller

    def _ask(self, request: Request[Answer]) -> Answer:
        return answer_to(self._caller, request)


class Asks(Protocol):
    """Who carries out requests of an asynchronous client."""

    async def ask(self, request: Request[Answer]) -> Answer:
        """As :func:`answer_to`."""

    async def close(self) -> None:
        """Wait for what is under way."""


class Lanes:
    """Threads that wait for answers, :data:`REQUESTS_MAX` at most; they tell the loop that asked first."""

    __slots__ = ("_caller", "_free", "_generation", "_loop", "_threads", "_turns")

    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller
        self._threads = LaneThreads()
        self._free = [f"admin-{number}" for number in range(REQUESTS_MAX)]
        self._turns = asyncio.Semaphore(REQUESTS_MAX)
        #: Where it is used, and the process.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._generation = fork_generation()

    def _belongs_here(self) -> bool:
        """Whether who asks would hear of the answer; the first use decides to which loop it belongs."""
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop, self._generation = running, fork_generation()
        return self._loop is running and self._generation == fork_generation()

    async def ask(self, request: Request[Answer]) -> Answer:
        """As :func:`answer_to`. Raises ValueError on another loop than before, and in a forked child."""
        if not self._belongs_here():
            raise ValueError(
                "this administration client belongs to the loop and the process that it was first used in: make "
                "another one here, or take geminga.admin.blocking"
            )
        await self._turns.acquire()
        # The one that was used last: a program that asks one thing at a time has one thread.
        lane = self._free.pop()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        found: list[Answer | BaseException] = []

        def done(error: BaseException | None) -> None:
            # Not before: who was cut off leaves a thread that works on, and the next request would wait behind it.
            self._free.append(lane)
            self._turns.release()
            if error is not None:
                found.append(error)
            if not answer.done():
                answer.set_result(None)

        errand = self._caller.errand()
        self._threads.submit(lane, lambda: found.append(answer_to(errand, request)), done)
        try:
            await answer
        except asyncio.CancelledError:
            errand.give_up()
            raise
        return value_of(found.pop())

    async def close(self) -> None:
        """Wait for what is under way; elsewhere nothing of it would be heard of."""
        self._caller.close()
        if self._belongs_here():
            await self._threads.close()


class AsyncCalls:
    """Calls that are awaited."""

    __slots__ = ("_lanes",)

    def __init__(self, lanes: Asks) -> None:
        self._lanes = lanes

    async def _ask(self, request: Request[Answer]) -> Answer:
        return await self._lanes.ask(request)


class PolicyRow(NamedTuple):
    """How a policy is asked for."""

    #: ``topic`` or ``namespace``.
    owner: str
    #: Below its owner.
    path: str
    set_by: str = "POST"
    #: A text comes and goes without quotes.
    is_plain: bool = False
    #: False: there is no request for that.
    is_removable: bool = True
    #: The parameter that has the value in place of a body.
    in_query: str = ""

    @property
    def can_be_applied(self) -> bool:
        """Whether the level above may be asked along."""
        return self.owner == "topic"

    def path_of(self, owner: str) -> str:
        """Raises ValueError."""
        place = _paths.topic(owner) if self.owner == "topic" else f"namespaces/{_paths.namespace(owner)}"
        return f"/admin/v2/{place}/{self.path}"

    def getting(self, owner: str, *, applied: bool, for_all: bool = False) -> Request[Any]:
        """Raises ValueError where the level above, or that of all clusters, can not be asked along."""
        if applied and not self.can_be_applied:
            raise ValueError("applied=True is for topics: a namespace is answered with what it sets itself")
        query: dict[str, object] = {"applied": applied} if self.can_be_applied else {}
        return Request("GET", self.path_of(owner), {**query, **self._of_all(for_all)} or None, is_text=self.is_plain)

    def setting(self, owner: str, value: object, *, for_all: bool = False) -> Request[Any]:
        """In the body, or in the query where Pulsar has it so. Raises ValueError for what no request says."""
        path, query = self.path_of(owner), self._of_all(for_all)
        if self.path in SWITCHED_ON and not value:
            raise ValueError(f"{self.path} is switched on by True, and off by remove(): no request says {value!r}")
        if self.in_query:
            return Request(self.set_by, path, {self.in_query: value, **query})
        if self.is_plain:
            return Request(self.set_by, path, query or None, text=str(value))
        return Request(self.set_by, path, query or None, body=value)

    def removing(self, owner: str, *, for_all: bool = False) -> Request[Any]:
        """Raises ValueError where there is no such request."""
        if not self.is_removable:
            raise ValueError("this policy can be set to something else, and not be removed")
        return Request("DELETE", self.path_of(owner), self._of_all(for_all) or None)

    def _of_all(self, for_all: bool) -> dict[str, object]:
        if for_all and self.owner != "topic":
            raise ValueError("for_all_clusters=True is for topics: a namespace's policies are those of its cluster")
        return {"isGlobal": True} if for_all else {}


class BlockingPolicy(BlockingCalls, Generic[V]):
    """A value of namespaces or topics, each of which may set it."""

    __slots__ = ("_row",)

    def __init__(self, caller: HttpCaller, row: PolicyRow) -> None:
        super().__init__(caller)
        self._row = row

    def get(self, owner: str, *, applied: bool = False, for_all_clusters: bool = False) -> V | None:
        """What ``owner`` sets; None: nothing. Raises AdminError.

        ``applied``: else what holds for it, of the level above; ``for_all_clusters``: what it sets for all of them,
        which counts less than what it sets for one. Both are for topics alone, else ValueError.
        """
        found: V | None = self._ask(self._row.getting(owner, applied=applied, for_all=for_all_clusters))
        return found

    def set(self, owner: str, value: V, *, for_all_clusters: bool = False) -> None:
        """Have it set this. Raises AdminError; ValueError where that can not be."""
        self._ask(self._row.setting(owner, value, for_all=for_all_clusters))

    def remove(self, owner: str, *, for_all_clusters: bool = False) -> None:
        """Have it set nothing, so that the level above counts. Raises AdminError; ValueError where that can not be."""
        self._ask(self._row.removing(owner, for_all=for_all_clusters))


class Policy(AsyncCalls, Generic[V]):
    """A value of namespaces or topics, each of which may set it."""

    __slots__ = ("_row",)

    def __init__(self, lanes: Asks, row: PolicyRow) -> None:
        super().__init__(lanes)
        self._row = row

    async def get(self, owner: str, *, applied: bool = False, for_all_clusters: bool = False) -> V | None:
        """What ``owner`` sets; None: nothing. Raises AdminError.

        ``applied``: else what holds for it, of the level above; ``for_all_clusters``: what it sets for all of them,
        which counts less than what it sets for one. Both are for topics alone, else ValueError.
        """
        found: V | None = await self._ask(self._row.getting(owner, applied=applied, for_all=for_all_clusters))
        return found

    async def set(self, owner: str, value: V, *, for_all_clusters: bool = False) -> None:
        """Have it set this. Raises AdminError; ValueError where that can not be."""
        await self._ask(self._row.setting(owner, value, for_all=for_all_clusters))

    async def remove(self, owner: str, *, for_all_clusters: bool = False) -> None:
        """Have it set nothing, so that the level above counts. Raises AdminError; ValueError where that can not be."""
        await self._ask(self._row.removing(owner, for_all=for_all_clusters))


class BlockingPolicies(BlockingCalls):
    """Holds policies."""

    __slots__ = ()


class AsyncPolicies(AsyncCalls):
    """Holds policies."""

    __slots__ = ()


class BlockingPolicyOf(Generic[V]):
    """A policy as an attribute of those that hold it."""

    __slots__ = ("_row",)

    def __init__(self, row: PolicyRow) -> None:
        self._row = row

    def __get__(self, holder: BlockingPolicies, kind: type[BlockingPolicies]) -> BlockingPolicy[V]:
        return BlockingPolicy(holder._caller, self._row)


class PolicyOf(Generic[V]):
    """A policy as an attribute of those that hold it."""

    __slots__ = ("_row",)

    def __init__(self, row: PolicyRow) -> None:
        self._row = row

    def __get__(self, holder: AsyncPolicies, kind: type[AsyncPolicies]) -> Policy[V]:
        return Policy(holder._lanes, self._row)


class BlockingConnection:
    """For ``with``."""

    __slots__ = ("_caller",)

    def __init__(
        self, url: str, *, timeout_s: float, headers: Callable[[], Mapping[str, str]] | None, tls: ssl.SSLContext | None
    ) -> None:
        self._caller = HttpCaller(url, timeout_s=timeout_s, headers=headers, tls=tls)

    def close(self) -> None:
        """Close connections that are kept; harmless twice."""
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncConnection:
    """For ``async with``."""

    __slots__ = ("_caller",)

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Callable[[], Mapping[str, str]] | None,
        tls: ssl.SSLContext | None,
        asks: Asks | None = None,
    ) -> None:
        """``asks``: who carries requests out in place of HTTP at ``url``."""
        self._caller: Asks = (
            Lanes(HttpCaller(url, timeout_s=timeout_s, headers=headers, tls=tls)) if asks is None else asks
        )

    async def close(self) -> None:
        """Close connections that are kept, after what is under way; harmless twice."""
        await self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
