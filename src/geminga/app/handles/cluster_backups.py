"""``geminga backup create --metadata``: a backup of a cluster, made by the command itself, where it can be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from geminga.app.servers.autorecovery_process import AutoRecoveryProcessConfig, connected, load_autorecovery_config
from geminga.app.storage.backup_writing import Progress
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.runtime.local_file import make_private_directories

#: Between two words about how far it is.
TELL_S: Final = 1.0

Told = Callable[[Mapping[str, Any]], None]


def load_cluster(
    files: Sequence[str], env: Mapping[str, str], overrides: Sequence[str], metadata: str | None
) -> AutoRecoveryProcessConfig:
    """How to reach it, by the keys of a bookie's file; raises ConfigurationError."""
    given = [*overrides, *([f"metadataServiceUri={metadata}"] if metadata is not None else [])]
    return load_autorecovery_config(files, env, given, who="a backup of a cluster")


def back_up_cluster(config: AutoRecoveryProcessConfig, directory: str, *, whole: bool, told: Told) -> Mapping[str, Any]:
    """What was done, as JSON tells it. Raises StorageError where it was not made: the one before stays; OSError."""
    return asyncio.run(_back_up(config, directory, whole=whole, told=told))


async def _back_up(config: AutoRecoveryProcessConfig, directory: str, *, whole: bool, told: Told) -> Mapping[str, Any]:
    make_private_directories(directory)
    progress = Progress()
    async with connected(config) as cluster:
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
