"""A walk over all that is kept alike, and over what is remembered of what was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.broker.resources.configuration_paths import SHARED_ROOTS
from geminga.broker.synchronization.core.records import NOTHING
from geminga.broker.synchronization.core.stamps import Stamp
from geminga.broker.synchronization.paths import PATH_PARTS_MAX, is_kept_alike
from geminga.broker.synchronization.steps import Steps
from geminga.broker.synchronization.watched_tree import WatchedTree
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError
from geminga.runtime import Clock, SparseWarnings, next_turn, wait_ms

#: How long a deletion is remembered: a cluster that was away for so long brings nothing back that was deleted.
DELETIONS_KEPT_MS: Final = 90 * 24 * 3600 * 1000
#: How many are; the oldest go.
DELETIONS_MAX: Final = 100_000
#: Paths that are looked at without a pause, and the pause.
AT_ONCE: Final = 50
#: Names that are passed over in one turn of the loop.
NAMES_AT_ONCE: Final = 500
PAUSE_MS: Final = 20


class Walk:
    """See the module."""

    def __init__(
        self,
        metadata: MetadataStore,
        steps: Steps,
        tree: WatchedTree,
        clock: Clock,
        warnings: SparseWarnings,
    ) -> None:
        self._metadata = metadata
        self._steps = steps
        self._tree = tree
        self._clock = clock
        self._warnings = warnings
        #: Looked at since the last pause.
        self._looked = 0
        #: Deletions that are remembered, as this walk finds them.
        self._deletions: list[tuple[Stamp, str]] = []

    async def run(self) -> None:
        """Over everything. Raises GemingaError."""
        self._deletions = []
        for root in SHARED_ROOTS:
            await self._walk(root, only_new=False)
        await self._forget_deletions()

    async def adopt_all(self) -> None:
        """Take everything as it is in a store that was restored. Raises GemingaError."""
        for root in SHARED_ROOTS:
            await self._adopt_below(root)

    async def _adopt_below(self, path: str) -> None:
        await self._pause()
        await self._steps.adopt(path)
        if path.count("/") >= PATH_PARTS_MAX:
            return
        for name in sorted({*await self._metadata.children(path), *await self._steps.records.below(path)}):
            if is_kept_alike(f"{path}/{name}"):
                await self._adopt_below(f"{path}/{name}")

    async def tell_all(self, clusters: Sequence[str], with_deletions: bool) -> None:
        """Tell some clusters how everything came to be. Raises GemingaError."""
        for root in SHARED_ROOTS:
            await self._tell_below(root, clusters, with_deletions=with_deletions)

    async def _tell_below(self, path: str, clusters: Sequence[str], *, with_deletions: bool) -> None:
        await self._pause()
        await self._steps.tell_again(path, clusters, with_deletions=with_deletions)
        for name in await self._steps.records.below(path) if path.count("/") < PATH_PARTS_MAX else ():
            if is_kept_alike(f"{path}/{name}"):
                await self._tell_below(f"{path}/{name}", clusters, with_deletions=with_deletions)

    async def visit(self, path: str) -> None:
        """A path that changed, and what is new below it. Raises GemingaError."""
        await self._walk(path, only_new=True)

    async def _walk(self, path: str, *, only_new: bool) -> None:
        self._tree.watch(path)
        try:
            await self._look_below(path, only_new=only_new)
        except GemingaError:
            # What is above it would find it watched, and pass it over.
            self._tree.add(path)
            raise

    async def _look_below(self, path: str, *, only_new: bool) -> None:
        await self._pause()
        has_document = await self._steps.has_document(path)
        if has_document:
            await self._look(path, only_new=only_new)
        names = set(await self._metadata.children(path))
        if not only_new:
            names.update(await self._steps.records.below(path))
        # Where no more can be watched, what is new below it is left to the next walk over everything.
        goes_on = path.count("/") < PATH_PARTS_MAX and not (only_new and self._tree.is_full)
        self._tree.listed(path, len(names), self._clock.monotonic())
        for number, name in enumerate(sorted(names) if goes_on else ()):
            if number % NAMES_AT_ONCE == NAMES_AT_ONCE - 1:
                await next_turn()
            child = f"{path}/{name}"
            if is_kept_alike(child) and not (only_new and self._tree.is_watched(child)):
                await self._walk(child, only_new=only_new)
        if not has_document:
            # Behind what was below it: it can not go before.
            await self._look(path, only_new=only_new)
            if not names and path not in SHARED_ROOTS and not await self._metadata.exists(path):
                # Whatever comes there is heard of by what is above it.
                self._tree.forget(path)

    async def _look(self, path: str, *, only_new: bool) -> None:
        record = await self._steps.look(path)
        if not only_new and record is not None and record.digest == NOTHING and record.held is None:
            self._deletions.append((record.stamp, path))

    async def _pause(self) -> None:
        self._looked += 1
        if self._looked % AT_ONCE == 0:
            await wait_ms(PAUSE_MS)

    async def _forget_deletions(self) -> None:
        found, self._deletions = sorted(self._deletions), []
        since_ms = self._clock.wall_ms() - DELETIONS_KEPT_MS
        too_many = max(0, len(found) - DELETIONS_MAX)
        if too_many:
            self._warnings.warn(
                f"{len(found)} deletions of the configuration are remembered, more than {DELETIONS_MAX}: the oldest "
                "are forgotten, and a cluster that was away since may bring back what they are of",
                "deletions",
            )
        for number, (stamp, path) in enumerate(found):
            if number >= too_many and stamp.time_ms > since_ms:
                break
            await self._steps.forget(path, stamp)
            await self._pause()
