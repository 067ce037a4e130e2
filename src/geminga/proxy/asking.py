"""Requests of one client that brokers are asked: over links in its name, one to each broker, within limits for all.

A client has at most :data:`REQUESTS_MAX` under way, all of them ``maxConcurrentLookupRequests`` of so many bytes
(:mod:`.core.guests`); beyond that it is told so at once. Links are to brokers that the configuration or other brokers
name, at most :data:`LINKS_MAX`, and end with the client's connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from geminga.model.errors import GemingaError, ServerError, UnavailableError
from geminga.proxy.brokers import Trip
from geminga.proxy.core.requests import KINDS, REDIRECTS_MAX, answer_frame, refusal_frame, request_id_of, sent_on
from geminga.proxy.core.saying import Caller
from geminga.proxy.core.targets import Target
from geminga.proxy.link import BrokerLink, RefusedByBrokerError
from geminga.proxy.services import ProxyServices
from geminga.runtime import Part, again, get_logger, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Requests of one client that are under way.
REQUESTS_MAX: Final = 5000
#: Brokers that one client's requests are sent to.
LINKS_MAX: Final = 64

_log = get_logger(__name__)


class GuestRequests:
    """Of one client; see the module."""

    def __init__(
        self,
        services: ProxyServices,
        caller: Caller,
        trip: Trip,
        write: Callable[[bytes], None],
        leave: Callable[[str], None],
        part: Part,
    ) -> None:
        """``write``: to the client. ``leave``: end its connection, for a reason. ``part``: what is closed if something
        unexpected happens here."""
        self._part = part
        self._leave = leave
        self._services = services
        self._caller = caller
        self._trip = trip
        self._write = write
        self._links: dict[Target, BrokerLink] = {}
        #: Those that are being connected.
        self._opening: dict[Target, asyncio.Task[BrokerLink | GemingaError]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        #: A broker took what the client brought (:attr:`Caller.instead`).
        self._was_taken = False

    @property
    def is_busy(self) -> bool:
        """Whether answers are missing."""
        return bool(self._tasks)

    def renew(self, caller: Caller) -> None:
        """The client has new credentials: challenges of brokers are answered with them from now on."""
        self._caller = caller
        for link in self._links.values():
            link.caller = caller

    def ask(self, command: pb.BaseCommand) -> None:
        """Answer it in a while, or say at once why not."""
        services, size_bytes = self._services, command.ByteSize()
        requests = services.counters.requests
        if services.is_stopping:
            self._write(refusal_frame(command, ServerError.SERVICE_NOT_READY, "the proxy is stopping"))
        elif len(self._tasks) >= REQUESTS_MAX or not requests.begin(KINDS[command.type], size_bytes):
            text = "Too many concurrent lookup and partitionsMetadata requests"
            self._write(refusal_frame(command, ServerError.TOO_MANY_REQUESTS, text))
        else:
            task = spawn(self._answer(command), name=f"request of {self._trip.source.host}", part=self._part)
            self._tasks.add(task)
            task.add_done_callback(partial(self._answered, size_bytes))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        self._is_closed = True
        for task in (*self._tasks, *self._opening.values()):
            task.cancel()
        links, self._links = self._links, {}
        for link in links.values():
            link.abort()

    def _answered(self, size_bytes: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._services.counters.requests.end(size_bytes)

    async def _answer(self, command: pb.BaseCommand) -> None:
        try:
            frame = await self._asked(command)
        except GemingaError as error:
            _log.info("%s for /%s failed: %s", KINDS[command.type].metric, self._trip.source.host, error)
            if self._was_taken and error.server_error is ServerError.AUTHENTICATION_ERROR:
                # They have ended: the client connects again, with new ones, and asks again.
                self._leave("its credentials are no good any more")
                return
            is_told = isinstance(error, UnavailableError | RefusedByBrokerError)
            code = error.server_error if is_told else ServerError.SERVICE_NOT_READY
            frame = refusal_frame(command, code, error.told)
        self._write(frame)

    async def _asked(self, command: pb.BaseCommand) -> bytes:
        uses_tls = self._services.brokers.uses_tls
        target = await self._services.directory.entry()
        asked, is_named = command, False
        for _ in range(REDIRECTS_MAX + 1):
            answer = await (await self._link(target, is_named=is_named)).ask(asked)
            following = sent_on(asked, answer, uses_tls=uses_tls)
            if following is None:
                return answer_frame(answer, request_id_of(command), uses_tls=uses_tls)
            (target, asked), is_named = following, True
        raise UnavailableError(f"the lookup was sent on more than {REDIRECTS_MAX} times")

    async def _link(self, target: Target, *, is_named: bool) -> BrokerLink:
        link = self._links.get(target)
        if link is not None and link.is_open:
            return link
        opening = self._opening.get(target)
        if opening is None:
            self._links = {place: one for place, one in self._links.items() if one.is_open}
            if len(self._links) + len(self._opening) >= LINKS_MAX:
                raise UnavailableError(f"requests of this client lead to more than {LINKS_MAX} brokers")
            work = self._open(target, is_named=is_named)
            opening = spawn(work, name=f"link to the broker {target}", part=self._part)
            self._opening[target] = opening
        found = await asyncio.shield(opening)
        del opening  # see runtime's value_of
        if isinstance(found, GemingaError):
            # Others are told of it, too.
            raise again(found)
        return found

    async def _open(self, target: Target, *, is_named: bool) -> BrokerLink | GemingaError:
        brokers = self._services.brokers
        try:
            link = await brokers.link(target, self._caller, self._trip, is_relayed=False, is_named=is_named)
        except GemingaError as error:
            # A copy, as this task's outcome: a time-out that it is of has the task.
            return again(error)
        finally:
            self._opening.pop(target, None)
        if self._is_closed:
            link.abort()
            return UnavailableError("the client is gone")
        link.caller = self._caller
        self._links[target] = link
        self._was_taken = self._caller.instead is not None
        return link
