"""The ownership of a broker that is alone: every topic is here."""

from __future__ import annotations

from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, OwnershipListener
from geminga.model.topic_name import TopicName


class SoleOwnership:
    """Nothing is ever given or taken."""

    __slots__ = ()

    async def owner_of(self, name: TopicName, *, is_authoritative: bool = False) -> Owner:
        """Here."""
        return HERE

    def doubt(self, name: TopicName) -> None:
        """There is nobody else."""

    async def bundles_elsewhere(self, namespace: str) -> list[tuple[str, Elsewhere]]:
        """None."""
        return []

    def departure_of(self, name: TopicName) -> None:
        """No topic goes anywhere."""

    def listen(self, listener: OwnershipListener) -> None:
        """There is nothing to tell."""
