"""Clients of topics that go to another broker are told where, when it is there: one reconnection, and no question.

The topic is closed, its bundle's node is taken away, the next owner is made to take it, and only then CLOSE_PRODUCER
and CLOSE_CONSUMER leave, with that broker's address. What clients send meanwhile is dropped, as after the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

from geminga.broker.core.departure import DepartingClient, Departure
from geminga.broker.ownership.core.bundles import Bundle, BundleIndex
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import Elsewhere, Owner, Topics
from geminga.model.errors import GemingaError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import Clock, Turns, get_logger

#: Seconds in which the next owner of a bundle has taken it; else its clients look for it themselves.
TAKEN_S_MAX: Final = 2.0

_log = get_logger(__name__)


class BrokerCalls(Protocol):
    """Who asks brokers, and follows their redirections."""

    def ask_at(
        self, endpoint: Endpoint, method: str, path: str, *, query: str = "", body: bytes = b""
    ) -> Awaitable[object]:
        """Raises UnavailableError."""


class Departures:
    """Those that are under way."""

    __slots__ = ("_asking", "_clock", "_owner_now", "_place", "_under_way")

    def __init__(
        self,
        place: Callable[[Bundle], Awaitable[Owner]],
        owner_now: Callable[[Bundle], Awaitable[Owner | None]],
        clock: Clock,
    ) -> None:
        """``place``: who is to take a bundle that nobody owns; ``owner_now``: who owns it."""
        self._place = place
        self._owner_now = owner_now
        self._clock = clock
        #: Without one nobody is told.
        self._asking: BrokerCalls | None = None
        self._under_way: list[Departure] = []

    def ask_through(self, asking: BrokerCalls) -> None:
        """Next owners are made to take bundles through this."""
        self._asking = asking

    def of(self, topic: TopicName) -> Departure | None:
        """That of a topic which is being closed now; None: it goes nowhere."""
        return next((one for one in self._under_way if one.topics(topic)), None)

    def begin(self, topics: Topics) -> Departure:
        """These are about to be closed; :meth:`end` follows whatever happens."""
        departure = Departure(topics)
        self._under_way.append(departure)
        return departure

    async def end(self, departure: Departure, bundles: Iterable[Bundle], *, is_given: bool) -> None:
        """Tell the clients; ``is_given``: the nodes of ``bundles`` are gone, and nobody has begun to ask for them."""
        self._under_way.remove(departure)
        given = BundleIndex(bundles if is_given and self._asking is not None else ())
        by_bundle: dict[Bundle | None, list[DepartingClient]] = {}
        for client in departure.clients:
            by_bundle.setdefault(given.find(client.topic), []).append(client)
        await asyncio.gather(*(self._tell(bundle, clients) for bundle, clients in by_bundle.items()))

    async def _tell(self, bundle: Bundle | None, clients: Sequence[DepartingClient]) -> None:
        endpoints: Endpoints | None = None
        try:
            if bundle is not None:
                async with asyncio.timeout(TAKEN_S_MAX):
                    endpoints = await self._hand_over(bundle, clients[0].topic)
        except TimeoutError:
            _log.info("bundle %s was not taken within %g s: its clients are not told by whom", bundle, TAKEN_S_MAX)
        except GemingaError as error:
            _log.info("the next owner of bundle %s can not be told: %s", bundle, error)
        finally:
            await Turns(self._clock).with_each(partial(_tell, endpoints), clients)

    async def _hand_over(self, bundle: Bundle, topic: TopicName) -> Endpoints | None:
        """Have the bundle taken by whom the leader chooses, as a client's lookup would; None: by this broker."""
        place = await self._place(bundle)
        if not isinstance(place, Elsewhere) or self._asking is None:
            return None
        path = f"/lookup/v2/topic/{topic.domain}/{topic.namespace}/{quote(topic.local_name, safe='')}"
        query = f"authoritative={str(place.is_chosen).lower()}"
        await self._asking.ask_at(place.endpoints.default, "GET", path, query=query)
        owner = await self._owner_now(bundle)
        return owner.endpoints if isinstance(owner, Elsewhere) else None


def _tell(endpoints: Endpoints | None, client: DepartingClient) -> None:
    client.connection.output.write_soon(client.farewell(*_urls(endpoints, client.connection.listener)))
    if client.told is not None:
        client.told()


def _urls(endpoints: Endpoints | None, listener: str) -> tuple[str, str]:
    if endpoints is None:
        return "", ""
    try:
        endpoint = endpoints.find(listener)
    except UnavailableError:
        # The new owner has no listener of that name: the client finds out what there is.
        return "", ""
    return endpoint.broker_url, endpoint.broker_url_tls
