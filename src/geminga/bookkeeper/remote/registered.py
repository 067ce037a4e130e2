"""Who is registered in the metadata store, as the list of a pool of bookies.

Read anew whenever a watch says that something changed, when the connection to the store is back, and now and then all
the same, since watches may be lost. While the store can not be read the list stays as it was.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.bookkeeper.core.addresses import BookieAddress, address_of_id
from geminga.bookkeeper.remote.pool import ListedBookie, RemoteBookiePool
from geminga.metadata.ports import MetadataStore, Notification, SessionEvent
from geminga.model.errors import CorruptionError, MetadataError
from geminga.runtime import SparseWarnings, get_logger, set_within, spawn
from geminga.wire.bookkeeper.bookie_registration import (
    AVAILABLE_PATH,
    READ_ONLY_NAME,
    READ_ONLY_PATH,
    decode_service_address,
)

#: The list is read at least so often.
REFRESH_S: Final = 60.0
#: After a read that failed.
RETRY_S: Final = 1.0

_log = get_logger(__name__)


class RegisteredBookies:
    """Made by :meth:`follow`."""

    def __init__(self, metadata: MetadataStore, pool: RemoteBookiePool) -> None:
        self._metadata = metadata
        self._pool = pool
        self._due = asyncio.Event()
        self._unsubscribes = (
            metadata.watch_children(AVAILABLE_PATH, self._changed),
            metadata.watch_children(READ_ONLY_PATH, self._changed),
            metadata.on_session_event(self._session_changed),
        )
        self._task: asyncio.Task[None] | None = None
        #: Who was there when the list was read last.
        self._known: frozenset[str] = frozenset()
        #: Read once per life of a registration: by id and whether it is read-only.
        self._complained: set[str] = set()

    @classmethod
    async def follow(cls, metadata: MetadataStore, pool: RemoteBookiePool) -> RegisteredBookies:
        """Keep ``pool``'s list from now on; it was read once when this returns. Raises MetadataError."""
        registered = cls(metadata, pool)
        try:
            await registered.read()
        except MetadataError:
            registered._unsubscribe()
            raise
        registered._task = spawn(registered._follow(), name="registered-bookies")
        return registered

    async def close(self) -> None:
        """Stop following; the pool keeps its list."""
        self._unsubscribe()
        if self._task is not None:
            # It may be reading, from a store that is away.
            self._task.cancel()
            await asyncio.wait([self._task])

    async def read(self) -> None:
        """Read the list now; raises MetadataError."""
        listed: dict[str, ListedBookie] = {}
        # Read-only ones first: whoever is in both is on its way, and takes entries, or will say so.
        await self._read_list(READ_ONLY_PATH, listed)
        await self._read_list(AVAILABLE_PATH, listed)
        if not listed.keys() >= self._known:
            # Whoever went there between the two was in neither. Of one that was not known its watch tells.
            await self._read_list(READ_ONLY_PATH, listed)
        self._known = frozenset(listed)
        self._pool.set_listed(listed)

    async def _read_list(self, path: str, listed: dict[str, ListedBookie]) -> None:
        is_read_only = path == READ_ONLY_PATH
        for bookie_id in await self._metadata.children(path):
            if bookie_id == READ_ONLY_NAME or (is_read_only and bookie_id in listed):
                continue
            address = await self._address(f"{path}/{bookie_id}", bookie_id)
            if address is not None:
                listed[bookie_id] = ListedBookie(address, is_read_only)

    async def _address(self, path: str, bookie_id: str) -> BookieAddress | None:
        node = await self._metadata.get(path)
        if node is None:
            return None  # gone meanwhile
        try:
            registered = decode_service_address(node.value, f"metadata node {path}")
        except CorruptionError as error:
            self._complain(bookie_id, str(error))
            return None
        address = address_of_id(bookie_id) if registered is None else BookieAddress(*registered)
        if address is None:
            self._complain(bookie_id, f"metadata node {path} tells no address, and its name is none")
        return address

    def _complain(self, bookie_id: str, story: str) -> None:
        if bookie_id not in self._complained:
            self._complained.add(bookie_id)
            _log.warning("bookie %s is left out: %s", bookie_id, story)

    def _unsubscribe(self) -> None:
        for unsubscribe in self._unsubscribes:
            unsubscribe()

    def _changed(self, _: Notification) -> None:
        self._due.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTION_LOST:
            self._due.set()

    async def _follow(self) -> None:
        wait_s = REFRESH_S
        warnings = SparseWarnings(_log, asyncio.get_running_loop().time)
        while True:
            await set_within(self._due, wait_s)
            self._due.clear()
            try:
                await self.read()
                wait_s = REFRESH_S
            except MetadataError as error:
                warnings.warn(f"the list of registered bookies can not be read now: {error}")
                wait_s = RETRY_S
