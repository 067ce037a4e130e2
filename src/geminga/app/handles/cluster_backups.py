"""``geminga backup create --metadata``: a backup of a cluster, made by the command itself, where it can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from geminga.app.storage.backup_writing import Progress
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.bookkeeper import BookKeeper
from geminga.metadata.ports import MetadataStore
from geminga.runtime.local_file import make_private_directories
from geminga.runtime.ports import Runtime

#: Between two words about how far it is.
TELL_S: Final = 1.0

Told = Callable[[Mapping[str, Any]], None]


class Reached(Protocol):
    """Connections to a cluster."""

    @property
    def runtime(self) -> Runtime: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def bookkeeper(self) -> BookKeeper: ...


#: Connects, and ends the connections.
Connecting = AbstractAsyncContextManager[Reached]


def back_up_cluster(connecting: Connecting, directory: str, *, whole: bool, told: Told) -> Mapping[str, Any]:
    """What was done, as JSON tells it. Raises StorageError where it was not made: the one before stays; OSError."""
    return asyncio.run(_back_up(connecting, directory, whole=whole, told=told))


async def _back_up(connecting: Connecting, directory: str, *, whole: bool, told: Told) -> Mapping[str, Any]:
    make_private_directories(directory)
    progress = Progress()
    async with connecting as cluster:
        facts = await ClusterFacts.of(cluster.metadata)
        reached = ClusterConnection(cluster.metadata, cluster.bookkeeper)
        backup = ClusterBackup(cluster.runtime, directory, facts, reached, progress, whole=whole)
        telling = asyncio.ensure_future(_tell(progress, told))
        # Two commands must not write there at once; a server's backup holds no lock, and is another's directory.
        await cluster.runtime.disk.lock_dir(directory)
        try:
            manifest = await backup.write()
        finally:
            telling.cancel()
    return {
        "backupId": manifest.backup_id,
        "serial": manifest.serial,
        "asOfMs": manifest.as_of_ms,
        "program": manifest.program,
        "files": len(manifest.files),
        "sizeBytes": manifest.size_bytes,
        "topics": backup.topics,
        "lostLedgers": sorted(backup.lost_ledgers),
        **progress.document(),
    }


async def _tell(progress: Progress, told: Told) -> None:
    while True:
        await asyncio.sleep(TELL_S)
        told(progress.document())
