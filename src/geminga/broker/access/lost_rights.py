"""Who lost a right that it uses is sent away: its producers, consumers and watches are closed, and may ask again.

Everything that a connection has in a namespace is asked about again when something changed there that may take a
right; in a tenant when its administrators changed, and everywhere when the configuration did. What connections have is
looked at, not which topics there are here: a watch needs none. Who keeps its right notices nothing. Something that was
being made at that moment, on an earlier answer, is asked about once more when it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from geminga.broker.access.core.actions import (
    Action,
    NamespaceOperation,
    Resource,
    TenantAdministration,
    TopicOperation,
    of_namespace,
    of_topic,
)
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Allowed, Authorizer, Denied
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import Contained, Part, get_logger, next_turn, spawn

_log = get_logger(__name__)

#: Seconds until what was being made is looked at.
MADE_MEANWHILE_S: Final = 0.1
#: Seconds until somebody is asked about again of whom nothing could be found out.
UNKNOWN_S: Final = 1.0
#: Producers and consumers that are asked about in one turn of the loop.
ASKED_PER_TURN: Final = 100


class _Topic(Protocol):
    @property
    def name(self) -> TopicName: ...


class HeldProducer(Protocol):
    """A producer of a connection."""

    is_closed: bool
    #: Whose replicator it is; None: nobody's.
    copies_from: str | None

    @property
    def topic(self) -> _Topic:
        """Its topic."""

    def disconnect(self) -> None:
        """Tell the client to come again."""


class _Subscription(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic(self) -> _Topic: ...


class HeldConsumer(Protocol):
    """A consumer of a connection."""

    is_closed: bool

    @property
    def subscription(self) -> _Subscription:
        """Its subscription."""

    def disconnect(self) -> None:
        """Tell the client to come again."""


class HeldWatch(Protocol):
    """A connection's watch of the names of a namespace's topics."""

    is_closed: bool

    @property
    def namespace(self) -> str:
        """``tenant/namespace``."""

    def disconnect(self) -> None:
        """Tell nothing more."""


class HeldMembers(Protocol):
    """What a connection has open, and what is being made for it."""

    @property
    def producers(self) -> Mapping[int, HeldProducer]:
        """By the client's ids."""

    @property
    def waiting_producers(self) -> Mapping[int, HeldProducer]:
        """Those that wait for exclusive access."""

    @property
    def consumers(self) -> Mapping[int, HeldConsumer]:
        """By the client's ids."""

    @property
    def watchers(self) -> Mapping[int, HeldWatch]:
        """By the client's ids."""

    @property
    def requests(self) -> Mapping[tuple[int, int], int]:
        """What is being made: (type, id) -> number of the request."""


class Holder(Protocol):
    """A connection."""

    @property
    def principal(self) -> Principal:
        """Who it is."""

    @property
    def members(self) -> HeldMembers:
        """What it has open."""


class LostRights:
    """See the module; one for a broker whose authorizer can change its mind."""

    __slots__ = ("_authorizer", "_holders", "_part", "_retries", "_shown", "_timers", "sent_away")

    def __init__(
        self,
        authorizer: Authorizer,
        holders: Callable[[], Collection[Holder]],
        part: Part,
        shown: Callable[[Principal], str] = str,
    ) -> None:
        """``holders``: the connections that are open. ``part``: whose failure it is that is no single one's.

        ``shown``: who it is, in the log.
        """
        self._shown = shown
        self._authorizer = authorizer
        self._holders = holders
        self._part = part
        #: By place, as of :meth:`look`.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._retries: dict[str, asyncio.TimerHandle] = {}
        #: Producers and consumers that were, since the start.
        self.sent_away = 0

    def close(self) -> None:
        """The broker goes, and everybody with it."""
        for timers in (self._timers, self._retries):
            for timer in timers.values():
                timer.cancel()
            timers.clear()

    async def look(self, place: str) -> None:
        """On return, nobody uses a right in ``place`` that was lost before the call: a ``tenant/namespace``, a tenant,
        or everywhere (empty)."""
        holders = list(self._holders())
        making = [(holder, key, number) for holder in holders for key, number in holder.members.requests.items()]
        await self._send_away(place, holders)
        if making:
            self._look_again(place, making)

    async def _send_away(self, place: str, holders: Iterable[Holder]) -> None:
        asked = 0
        for holder in holders:
            for held, action, resource in [*_uses(holder, place)]:
                asked += 1
                if not asked % ASKED_PER_TURN:
                    await next_turn()
                may = await self._may(holder.principal, action, resource)
                if may is None:
                    self._look_later(place)
                if may is not False or held.is_closed:
                    continue
                self.sent_away += 1
                _log.info("%s may not %s %s any more: it is sent away", self._shown(holder.principal), action, resource)
                with Contained(self._part, "sending away who lost a right"):
                    held.disconnect()

    async def _may(self, principal: Principal, action: Action, resource: Resource) -> bool | None:
        """None: nobody knows."""
        try:
            decision = self._authorizer.decide(principal, action, resource)
            if not isinstance(decision, Allowed | Denied):
                decision = await decision
        except GemingaError as error:
            # Who is there stays until somebody knows: an outage of the metadata is none of the topics.
            _log.warning("whether %s may still %s %s is not known: %s", self._shown(principal), action, resource, error)
            return None
        return isinstance(decision, Allowed)

    def _look_later(self, place: str) -> None:
        """Ask about everybody again."""

        def due() -> None:
            self._retries.pop(place, None)
            spawn(self.look(place), name="lost rights", part=self._part)

        if place not in self._retries:
            self._retries[place] = asyncio.get_running_loop().call_later(UNKNOWN_S, due)

    def _look_again(self, place: str, making: list[tuple[Holder, tuple[int, int], int]]) -> None:
        """When what is being made may be there; as long as one of them is still under way, again."""

        def due() -> None:
            self._timers.pop(place, None)
            holders = {id(holder): holder for holder, _, _ in making}
            left = [each for each in making if each[0].members.requests.get(each[1]) == each[2]]
            if left:
                self._look_again(place, left)
            spawn(self._send_away(place, holders.values()), name="lost rights", part=self._part)

        before = self._timers.pop(place, None)
        if before is not None:
            # A later look knows of everything that is being made.
            before.cancel()
        self._timers[place] = asyncio.get_running_loop().call_later(MADE_MEANWHILE_S, due)


def _uses(holder: Holder, place: str) -> Iterator[tuple[HeldProducer | HeldConsumer | HeldWatch, Action, Resource]]:
    for producer in [*holder.members.producers.values(), *holder.members.waiting_producers.values()]:
        name = producer.topic.name
        if _is_in(name.namespace, place):
            yield producer, TopicOperation.PRODUCE, of_topic(name)
            if producer.copies_from is not None:
                yield producer, TenantAdministration.REPLICATE, of_topic(name)
    for consumer in list(holder.members.consumers.values()):
        subscription = consumer.subscription
        if _is_in(subscription.topic.name.namespace, place):
            yield consumer, TopicOperation.CONSUME, of_topic(subscription.topic.name, subscription.name)
    for watch in list(holder.members.watchers.values()):
        if _is_in(watch.namespace, place):
            yield watch, NamespaceOperation.GET_TOPICS, of_namespace(watch.namespace)


def _is_in(namespace: str, place: str) -> bool:
    return not place or namespace == place or namespace.startswith(f"{place}/")
