"""What load management needs of the broker around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from geminga.broker.core.coercion import Document
from geminga.broker.load_rules.reports import BundleStats, HostUsage

#: What this broker's bundles carry now, those with topics that are loaded.
StatsSource = Callable[[], Awaitable[Mapping[str, BundleStats]]]
#: How busy this machine is now.
UsageSource = Callable[[], HostUsage]


class LoadPeers(Protocol):
    """This broker among the others."""

    @property
    def is_member(self) -> bool:
        """Whether the others see it."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads; not for long perhaps."""

    @property
    def document(self) -> Document:
        """What it says of itself beside its load."""

    def report(self, value: bytes) -> None:
        """Say this of it from now on."""

    async def unload(self, bundle: str, destination: str) -> None:
        """Have its owner let go of a bundle, which then goes to ``destination``. Raises GemingaError."""

    async def split(self, bundle: str, *, unload: bool) -> None:
        """Have its owner split a bundle, and then let go of the parts if so said. Raises GemingaError."""

    async def bundle_count(self, namespace: str) -> int:
        """How many bundles a namespace has. Raises GemingaError."""
