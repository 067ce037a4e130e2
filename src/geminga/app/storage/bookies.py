"""The bookies of a standalone: one or several in its process, each with a directory, an identity and lanes of its own.

They are opened in the order of their numbers and closed in the reverse; each recovers by itself. What is bounded for
the process (write caches, read caches, open entry logs) they share in equal parts.
"""

from __future__ import annotations

import os.path
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from geminga.app.storage.cookies import remember_instance_id, remembered_bookies, remembered_instance_id
from geminga.app.storage.core.bookie_set import BookieSlot, bookies_to_run
from geminga.app.storage.data_directory import METADATA_FILE
from geminga.bookie import BookieConfig, DiskLanes, LocalBookie
from geminga.bookie.config import of_part
from geminga.bookkeeper import MetadataLiveLedgers
from geminga.bookkeeper.ledger_ids import keep_ids_above
from geminga.metadata.ports import MetadataStore
from geminga.model.bookie_port import Availability
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.runtime import Runtime, get_logger

_log = get_logger(__name__)


class LocalBookies:
    """See the module. ``on_open`` gets each bookie's close, in the order of opening."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        directory: str,
        config: BookieConfig,
        *,
        count: int,
        left_out: tuple[str, ...],
        on_open: Callable[[str, Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._directory = directory
        self._config = config
        self._count = count
        self._left_out = left_out
        self._on_open = on_open
        #: By name, in order.
        self.opened: dict[str, LocalBookie] = {}
        #: By the ids of ledger metadata.
        self.by_id: dict[str, LocalBookie] = {}

    async def open(self) -> Mapping[str, LocalBookie]:
        """Open those that run, by id. Raises DataDirectoryError, ConfigurationError, CorruptionError, OSError."""
        slots = bookies_to_run(self._count, self._left_out, await remembered_bookies(self._metadata))
        for name in self._left_out:
            _log.warning(
                "%s is left out: what has no copy elsewhere is out of reach, and nothing new is copied there", name
            )
        shared = of_part(self._config, self._config.journal_directory, self._config.ledger_directory, self._count)
        for slot in slots:
            bookie = await self._open(slot, of_bookie(shared, slot))
            self.opened[slot.name] = self.by_id[slot.bookie_id] = bookie
            bookie.watch(partial(self._changed, slot.name))
        await self._keep_ids()
        return self.by_id

    async def _open(self, slot: BookieSlot, config: BookieConfig) -> LocalBookie:
        directory = os.path.join(self._directory, slot.name)
        await self._runtime.disk.make_dirs(directory)
        known = await remembered_instance_id(self._metadata, slot.bookie_id)
        try:
            bookie = await LocalBookie.open(
                self._runtime,
                directory,
                config,
                ledgers=MetadataLiveLedgers(self._metadata, slot.bookie_id),
                expected_instance_id=known,
                lanes=DiskLanes.of(slot.number),
            )
        except (DataDirectoryError, CorruptionError) as error:
            if self._count == 1:
                raise
            raise type(error)(
                f"{slot.name} ({slot.bookie_id}): {error}. To start without it, where others have what it had, with a "
                f"new one in its place: --bookies {self._count + 1} --set "
                f"gemingaBookiesLeftOut={','.join([*self._left_out, slot.name])}"
            ) from error
        self._on_open(slot.name, bookie.close)
        if known is None:
            if bookie.has_ledgers:
                # A first start that was interrupted has none. Their entries would be collected as garbage.
                raise DataDirectoryError(
                    f"the metadata store knows no bookie {slot.bookie_id}, but {directory} holds entries of ledgers: "
                    f"was {METADATA_FILE} removed or emptied? Bring it back, or begin anew with another data directory"
                )
            await remember_instance_id(self._metadata, slot.bookie_id, bookie.instance_id, directory)
        return bookie

    async def _keep_ids(self) -> None:
        """An id that entries are stored under is never given out again."""
        newest = max(bookie.newest_ledger_id for bookie in self.opened.values())
        behind = await keep_ids_above(self._metadata, newest) if newest >= 0 else None
        if behind is not None:
            _log.error(
                "the metadata store would have given out ledger %d next, but the bookie has ledgers up to %d: was "
                "%s restored from an older backup? The ids in between are skipped",
                behind,
                newest,
                METADATA_FILE,
            )

    def _changed(self, name: str, now: Availability) -> None:
        if len(self.opened) > 1 and now is not Availability.DOWN:
            writable = sum(bookie.is_writable for bookie in self.opened.values())
            _log.warning("%s is %s: %d of %d bookies take entries", name, now.value, writable, len(self.opened))


def of_bookie(config: BookieConfig, slot: BookieSlot) -> BookieConfig:
    """Directories that are configured are the first bookie's; each other one has a directory below them."""
    if slot.number == 1:
        return config
    return replace(
        config,
        journal_directory=config.journal_directory and os.path.join(config.journal_directory, slot.name),
        ledger_directory=config.ledger_directory and os.path.join(config.ledger_directory, slot.name),
    )
