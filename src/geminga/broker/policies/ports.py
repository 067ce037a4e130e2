"""What this package needs of the broker around it."""

from __future__ import annotations

from typing import Protocol

from geminga.broker.resources.policies import Policies


class NamespacePolicies(Protocol):
    """Policies of namespaces, remembered."""

    async def policies(self, namespace: str) -> Policies | None:
        """Policies of ``tenant/namespace``; None if there is no such namespace. Raises MetadataError."""
        ...

    def forget(self, namespace: str) -> None:
        """Read them again when they are next asked for."""
        ...
