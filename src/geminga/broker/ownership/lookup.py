"""Answers to "who serves this topic?", for the binary lookup and that of HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from geminga.broker.ownership.core.direction import Direction, direct_lookup
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import Elsewhere, OtherPlaces, Ownership, Unknown
from geminga.model.errors import GemingaError, NotInThisClusterError, UnavailableError
from geminga.model.histogram import Latencies, Quantiles
from geminga.model.topic_name import TopicName

if TYPE_CHECKING:
    from geminga.broker.ownership.silent_brokers import SilentBrokers


#: As Pulsar has them for ``pulsar_broker_lookup``.
QUANTILES: Final = (0.5, 0.99, 0.999, 1.0)


class TopicLocation(NamedTuple):
    """Where a client goes for a topic."""

    endpoint: Endpoint
    #: Ask there once more before connecting.
    is_to_ask: bool = False
    #: With authority: that broker is the one.
    is_authoritative: bool = True
    #: The broker's listener for those who name none; None: it is this broker.
    elsewhere: Endpoint | None = None


class TopicLookup:
    """See the module."""

    __slots__ = (
        "_latency",
        "_monotonic",
        "_own",
        "_ownership",
        "_peers",
        "_require_namespace",
        "_silent",
        "answers",
        "failures",
        "redirects",
        "under_way",
    )

    def __init__(
        self,
        ownership: Ownership,
        own: Callable[[], Endpoints],
        require_namespace: Callable[[TopicName], Awaitable[object]],
        silent: SilentBrokers | None = None,
        peers: OtherPlaces | None = None,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        """``own``: this broker's listeners. ``require_namespace`` raises TopicNotFoundError where there is none,
        NotInThisClusterError where it lives in other clusters alone.

        ``silent``: other brokers that were killed; None: there are no others. ``peers``: clusters that serve what does
        not live here.
        """
        self._peers = peers
        self._ownership = ownership
        self._own = own
        self._require_namespace = require_namespace
        self._silent = silent
        self._monotonic = monotonic
        self._latency = Latencies()
        #: Since the start: that it is here, that it is asked for elsewhere, errors. And those that are not over.
        self.answers = self.redirects = self.failures = self.under_way = 0

    def metrics(self) -> Mapping[str, float | Quantiles]:
        """Under Pulsar's names; the latency is in seconds there, as of all that were answered."""
        values, seen, total = self._latency.quantiles(self._monotonic(), QUANTILES)
        in_seconds = tuple((quantile, value / 1000) for quantile, value in values)
        return {
            "pulsar_broker_lookup": Quantiles(in_seconds, seen, total / 1000),
            "pulsar_broker_lookup_answers_total": self.answers,
            "pulsar_broker_lookup_redirects_total": self.redirects,
            "pulsar_broker_lookup_failures_total": self.failures,
            "pulsar_broker_lookup_pending_requests": self.under_way,
        }

    async def find(self, name: TopicName, listener: str = "", *, is_authoritative: bool = False) -> TopicLocation:
        """Where to go through ``listener`` (empty: the default); ``is_authoritative``: another broker sent the client.

        Raises TopicNotFoundError without the topic's namespace; NotInThisClusterError where it lives in other clusters
        alone, none of them a peer; UnavailableError where nobody can tell, or there is no such listener; StorageError.
        """
        since_s = self._monotonic()
        self.under_way += 1
        try:
            place = await self._find(name, listener, is_authoritative=is_authoritative)
        except GemingaError:
            self.failures += 1
            raise
        finally:
            self.under_way -= 1
        if place.elsewhere is None and not place.is_to_ask:
            self.answers += 1
        else:
            self.redirects += 1
        self._latency.add((self._monotonic() - since_s) * 1000)
        return place

    async def _find(self, name: TopicName, listener: str, *, is_authoritative: bool) -> TopicLocation:
        try:
            await self._require_namespace(name)
        except NotInThisClusterError:
            peer = await self.peer_for(name)
            if peer is None:
                raise
            return TopicLocation(peer, is_to_ask=True)
        owner = await self._ownership.owner_of(name, is_authoritative=is_authoritative)
        direction = direct_lookup(owner, is_authoritative=is_authoritative)
        if direction is Direction.STAY:
            return TopicLocation(self._own().find(listener))
        if direction is Direction.TRY_AGAIN or not isinstance(owner, Elsewhere):
            raise no_owner(name, owner)
        is_to_ask = direction is Direction.ASK_THERE
        return TopicLocation(owner.endpoints.find(listener), is_to_ask, owner.is_chosen, owner.endpoints.default)

    async def peer_for(self, name: TopicName) -> Endpoint | None:
        """The peer cluster that the topic's namespace lives in; None: there is none. Raises as :meth:`find`."""
        return None if self._peers is None else await self._peers.endpoint_for(name.namespace)

    async def partitions_at_peer(self, name: TopicName) -> int | None:
        """Of a topic that a peer cluster serves, 0: none; None: no peer does. Raises as :meth:`find`."""
        if self._peers is None or await self.peer_for(name) is None:
            return None
        return await self._peers.partitions(name)

    async def wait_for(self, place: TopicLocation) -> Awaitable[None] | None:
        """What a client waits for instead of being told of ``place``, and then the topic is looked up once more.

        Its broker was killed and metadata names it still. None: nothing is to be waited for.
        """
        if self._silent is None or place.elsewhere is None or not await self._silent.is_silent(place.elsewhere):
            return None
        return self._silent.wait(place.elsewhere)


def no_owner(name: TopicName | str, owner: object) -> UnavailableError:
    """What is said where a topic is not served now; clients come again."""
    why = owner.why if isinstance(owner, Unknown) else "the brokers do not agree whose it is"
    return UnavailableError(f"No broker was available to own {name}: {why}")
