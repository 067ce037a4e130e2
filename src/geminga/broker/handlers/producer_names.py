"""Names of producers that bring none: no producer of the cluster ever had one of them."""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import GemingaError, UnavailableError
from geminga.runtime import again

#: A sequential node below gives each broker its own number, so that generated names never repeat.
PRODUCER_NAMES_PATH: Final = "/counters/producer-name"


class ProducerNames:
    """``{cluster}-{number of this broker's run}-{counter}``."""

    __slots__ = ("_cluster", "_metadata", "_named", "_prefix")

    def __init__(self, metadata: MetadataStore, cluster: str) -> None:
        self._metadata = metadata
        self._cluster = cluster
        self._prefix: asyncio.Future[str | GemingaError] | None = None
        self._named = 0

    async def next(self) -> str:
        """A new one; raises GemingaError while metadata can not be written, for the first name only."""
        prefix = await self._known_prefix()
        number, self._named = self._named, self._named + 1
        return f"{prefix}-{number}"

    async def _known_prefix(self) -> str:
        known = self._prefix
        if known is None:
            known = self._prefix = asyncio.get_running_loop().create_future()
            result: str | GemingaError = UnavailableError("naming producers was cut short")
            try:
                node = await self._metadata.put(
                    f"{PRODUCER_NAMES_PATH}/-", b"", expected_version=MUST_NOT_EXIST, ephemeral=True, sequential=True
                )
                result = f"{self._cluster}-{int(node.path.rpartition('-')[2])}"
            except GemingaError as error:
                result = again(error)
                self._prefix = None
            finally:
                known.set_result(result)
        found = await asyncio.shield(known)
        if isinstance(found, GemingaError):
            # All who wait are told of it.
            raise again(found)
        return found
