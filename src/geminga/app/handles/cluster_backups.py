"""``geminga backup create | restore --metadata``: of and to a cluster, by the command, where it is reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

from geminga.app.handles.backups import alone_in, local_runtime
from geminga.app.storage.backup_reading import manifest_of, verified_manifest
from geminga.app.storage.backup_writing import Copying, Progress
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.app.storage.cluster_restore import BackupTree, contents_of
from geminga.app.storage.cluster_target import ClusterTarget, RestoreProgress, TargetCluster
from geminga.app.storage.core.backup_format import FILES_DIRECTORY
from geminga.app.storage.core.restore_marks import RestoredSizes
from geminga.app.storage.data_directory import METADATA_FILE
from geminga.app.storage.pace import Pace
from geminga.app.storage.restoring import Restoring
from geminga.bookkeeper import BookKeeper
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import DataDirectoryError
from geminga.runtime import wait_ms
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


class RestoreTarget(NamedTuple):
    """Where to a backup is restored."""

    #: For people, and as an option takes it.
    name: str
    #: Raises MetadataError for a path and a value that can not be kept there.
    check: Callable[[str, bytes], None]


class Documented(Protocol):
    """How far something is."""

    def document(self) -> Mapping[str, Any]:
        """As JSON tells it."""
        ...


#: Connects, and ends the connections.
Connecting = AbstractAsyncContextManager[Reached]


def back_up_cluster(
    connecting: Connecting, directory: str, *, whole: bool, told: Told, rate_limit: int = 0
) -> Mapping[str, Any]:
    """What was done, as JSON tells it. ``rate_limit``: bytes a second that are copied; 0: no limit.

    Raises StorageError where it was not made: the one before stays; OSError.
    """
    return asyncio.run(_back_up(connecting, directory, whole=whole, told=told, rate_limit=rate_limit))


async def _back_up(
    connecting: Connecting, directory: str, *, whole: bool, told: Told, rate_limit: int
) -> Mapping[str, Any]:
    progress = Progress()
    async with connecting as cluster:
        facts = await ClusterFacts.of(cluster.metadata)
        reached = ClusterConnection(cluster.metadata, cluster.bookkeeper)
        copying = Copying(progress, whole, Pace(cluster.runtime.clock, rate_limit))
        backup = ClusterBackup(cluster.runtime, directory, facts, reached, copying)
        # A server's backup holds no lock, and is another's directory.
        with alone_in(directory):
            async with _telling(progress, told):
                manifest = await backup.write()
    return {
        **manifest.facts(),
        "topics": backup.topics,
        "lostLedgers": sorted(backup.lost_ledgers),
        **progress.document(),
    }


def restore_cluster(
    connecting: Connecting,
    directory: str,
    place: RestoreTarget,
    *,
    sizes: RestoredSizes,
    told: Told,
    rate_limit: int = 0,
) -> Mapping[str, Any]:
    """Restore the backup in ``directory``: what was done, as JSON tells it. ``rate_limit``: bytes a second.

    Raises DataDirectoryError where it is refused, StorageError where it is not done: the same call goes on; OSError.
    """
    return asyncio.run(_restore(connecting, directory, place, sizes=sizes, told=told, rate_limit=rate_limit))


async def _restore(
    connecting: Connecting, directory: str, place: RestoreTarget, *, sizes: RestoredSizes, told: Told, rate_limit: int
) -> Mapping[str, Any]:
    progress = RestoreProgress()
    async with local_runtime() as runtime:
        if not (await manifest_of(runtime, directory)).is_of_cluster:
            raise DataDirectoryError(
                f"the backup in {directory} is of a standalone: restore it to a directory, which becomes a cluster as "
                "told in docs/cluster-growing.md"
            )
        manifest = await verified_manifest(runtime, directory)
        backup = Restoring(runtime, directory, manifest, Pace(runtime.clock, rate_limit), lambda _: None)
        (metadata,) = [file for file in manifest.files if file.name == METADATA_FILE]
        tree = BackupTree(runtime, f"{directory}/{FILES_DIRECTORY}/{metadata.stored}")
        try:
            contents = await contents_of(backup, tree)
            async with connecting as cluster, _telling(progress, told):
                reached = TargetCluster(place.name, cluster.metadata, cluster.bookkeeper, place.check)
                done = await ClusterTarget(contents, reached, sizes, backup.pace, progress).restore()
            clusters = await tree.clusters()
        finally:
            await tree.close()
    return {
        **manifest.facts(),
        "metadata": place.name,
        "clusters": clusters,
        "ledgers": len(contents.ledgers),
        "ledgersKept": progress.ledgers_kept,
        "nodes": done.nodes,
        "sha256": done.digest,
        "wasResumed": done.was_resumed,
        "wasDone": done.was_done,
    }


@asynccontextmanager
async def _telling(progress: Documented, told: Told) -> AsyncIterator[None]:
    """Tell each second how far it is."""

    async def tell() -> None:
        while True:
            await wait_ms(TELL_S * 1000)
            told(progress.document())

    telling = asyncio.ensure_future(tell())
    try:
        yield
    finally:
        telling.cancel()
