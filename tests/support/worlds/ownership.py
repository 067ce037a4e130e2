"""Ownership that a test gives and takes: one table for all brokers, and what each broker believes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, OwnershipListener, Unknown
from geminga.model.topic_name import TopicName


def endpoints_of(broker: str) -> list[Endpoint]:
    """The listeners of a broker of that name."""
    return [
        Endpoint("internal", f"pulsar://{broker}:6650", "", f"http://{broker}:8080", f"https://{broker}:8443"),
        Endpoint("external", f"pulsar://{broker}.example.org:7000"),
    ]


class OwnershipTable:
    """Who owns what; ``brokers`` are names."""

    def __init__(self, brokers: Sequence[str]) -> None:
        self.brokers = {name: TableOwnership(self, name) for name in brokers}
        #: Who has topics that are not in the table; None: nobody.
        self.default: str | None = next(iter(brokers), None)
        #: Full name -> its owner; None: nobody.
        self.owners: dict[str, str | None] = {}
        #: The owner of a topic is told to be asked, not to be connected to.
        self.is_asking = False
        #: Runs something where a broker lives.
        self.run_at: Callable[[str, Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]] = _run_here

    def owner(self, name: TopicName) -> str | None:
        return self.owners.get(str(name), self.default)

    async def give(self, names: Sequence[TopicName], broker: str | None) -> None:
        """In good order: the owner before lets go, then the next one begins."""
        before = {owner for name in names if (owner := self.owner(name)) is not None} - {broker}
        self._set(names, None)
        chosen = {str(name) for name in names}
        for one in sorted(before):
            await self.tell_taken(one, chosen)
        self._set(names, broker)
        await self._tell_given(broker, chosen)

    async def tell_taken(self, broker: str, chosen: set[str]) -> None:
        await self.run_at(broker, lambda: self.brokers[broker].tell_taken(lambda name: str(name) in chosen))

    async def _tell_given(self, broker: str | None, chosen: set[str]) -> None:
        if broker is not None:
            await self.run_at(broker, lambda: self.brokers[broker].tell_given(lambda name: str(name) in chosen))

    async def seize(self, names: Sequence[TopicName], broker: str) -> Callable[[], Awaitable[None]]:
        """The owner before is not asked. Returns what tells it at last."""
        before = {owner for name in names if (owner := self.owner(name)) is not None} - {broker}
        self._set(names, broker)
        chosen = {str(name) for name in names}
        await self._tell_given(broker, chosen)

        async def tell() -> None:
            for one in sorted(before):
                await self.tell_taken(one, chosen)

        return tell

    def _set(self, names: Sequence[TopicName], broker: str | None) -> None:
        for name in names:
            self.owners[str(name)] = broker


class TableOwnership:
    """What one broker knows of the table."""

    def __init__(self, table: OwnershipTable, me: str) -> None:
        self.table = table
        self.me = me
        self.listeners: list[OwnershipListener] = []
        #: What it believes instead, by full name.
        self.beliefs: dict[str, Owner] = {}
        #: Questions, and whether each was asked with authority.
        self.asked: list[tuple[str, bool]] = []

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        self.asked.append((str(name), is_authoritative))
        believed = self.beliefs.get(str(name))
        if believed is not None:
            return believed
        owner = self.table.owner(name)
        if owner == self.me:
            return HERE
        if owner is None:
            return Unknown("it is on its way")
        return Elsewhere(Endpoints(endpoints_of(owner)), is_owner=not self.table.is_asking)

    def doubt(self, name: TopicName) -> None:
        """The table says it already."""

    async def bundles_elsewhere(self, namespace: str) -> list[tuple[str, Elsewhere]]:
        return []

    def departure_of(self, name: TopicName) -> None:
        """Clients are told at once."""

    def listen(self, listener: OwnershipListener) -> None:
        self.listeners.insert(0, listener)

    async def tell_taken(self, topics: Callable[[TopicName], bool]) -> None:
        for listener in list(self.listeners):
            await listener.taken(topics)

    async def tell_given(self, topics: Callable[[TopicName], bool]) -> None:
        for listener in list(self.listeners):
            listener.given(topics)


async def _run_here(_: str, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await what()
