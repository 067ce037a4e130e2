"""The broker around load management: its part in the cluster, and requests that lead on to who owns a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from geminga.broker.core.coercion import Document
from geminga.broker.peers.topics import require_good
from geminga.model.errors import NotFoundError

if TYPE_CHECKING:
    from geminga.broker.ownership.endpoints import Endpoint
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.peers.http_client import PeerAnswer


class RedirectedCalls(Protocol):
    """Who asks brokers, and follows their redirections."""

    async def ask_at(
        self, endpoint: Endpoint, method: str, path: str, *, query: str = "", body: bytes = b""
    ) -> PeerAnswer:
        """What is answered. Raises UnavailableError."""


class ClusterPeers:
    """A :class:`.ports.LoadPeers`."""

    def __init__(self, membership: Membership, asking: RedirectedCalls) -> None:
        self._membership = membership
        self._asking = asking

    @property
    def is_member(self) -> bool:
        """Whether the others see it."""
        return self._membership.is_member

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows."""
        election = self._membership.election
        return self.is_member and election is not None and election.is_leader

    @property
    def document(self) -> Document:
        """What it says of itself beside its load."""
        return self._membership.document

    def report(self, value: bytes) -> None:
        """Say this of it from now on."""
        assert self._membership.registration is not None
        self._membership.registration.update(value)

    async def unload(self, bundle: str, destination: str) -> None:
        """Have its owner let go of a bundle, which then goes to ``destination``. Raises GemingaError."""
        await self._put(f"/admin/v2/namespaces/{bundle}/unload", f"destinationBroker={destination}")

    async def split(self, bundle: str, *, unload: bool) -> None:
        """Have its owner split a bundle, and let go of the parts if so said. Raises GemingaError."""
        await self._put(f"/admin/v2/namespaces/{bundle}/split", f"unload={str(unload).lower()}")

    async def bundle_count(self, namespace: str) -> int:
        """How many bundles a namespace has. Raises GemingaError."""
        bundles = await self._membership.ownership.bundles_of(namespace)
        if bundles is None:
            raise NotFoundError(f"namespace {namespace} is cut into no bundles")
        return len(bundles.boundaries) - 1

    async def _put(self, path: str, query: str) -> None:
        endpoint = self._membership.endpoints.default
        require_good(await self._asking.ask_at(endpoint, "PUT", path, query=query))
