"""A backup of a cluster by its metadata store and bookies, while a broker serves; what a standalone has of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from geminga import Standalone
from geminga.app.configuration.config import config_from
from geminga.app.configuration.config_sources import from_mapping
from geminga.app.handles.backups import local_runtime
from geminga.app.servers.broker_server import Storage
from geminga.app.servers.standalone import StandaloneServer
from geminga.app.storage import backup_reading, cluster_backup, cluster_restore, cluster_tree
from geminga.app.storage.backup_writing import Progress
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.app.storage.core.backup_format import BackupManifest
from geminga.bookie.registration import draw_cluster_id
from geminga.bookkeeper import BookKeeper
from geminga.client import blocking, connect
from geminga.model.errors import DataDirectoryError

TOPIC = "persistent://public/default/of-a-cluster"
#: Ledgers roll while they are copied; two copies of each entry on three bookies.
SETTINGS = {
    "brokerServicePort": 0,
    "webServicePort": 0,
    "gemingaBookies": 3,
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


class ClusterServer(StandaloneServer):
    """A broker over bookies in memory, whose storage is reached as a cluster's."""

    storage: Storage

    async def _open_storage(self) -> Storage:
        self.storage = await super()._open_storage()
        return self.storage

    async def backup(self, directory: Path, progress: Progress | None = None) -> BackupManifest:
        """A backup of it; nothing of the broker is asked."""
        metadata = self.storage.metadata
        async with local_runtime() as runtime:
            reached = ClusterConnection(metadata, BookKeeper(self.storage.runtime, metadata, self.storage.bookies))
            facts = await ClusterFacts.of(metadata)
            directory.mkdir(exist_ok=True)
            return await ClusterBackup(runtime, str(directory), facts, reached, progress or Progress()).write()


@asynccontextmanager
async def cluster(**more: object) -> AsyncIterator[tuple[ClusterServer, str]]:
    """It, and its URL."""

    def on_fatal(part: str, error: BaseException) -> None:
        raise AssertionError(part) from error

    server = ClusterServer(config_from(from_mapping({**SETTINGS, **more}, "test")), None, on_fatal=on_fatal, pid=1)
    addresses = await server.start()
    await draw_cluster_id(server.storage.metadata, server.storage.runtime)
    try:
        yield server, addresses.broker_service_url
    finally:
        await server.stop()


def test_backup_under_load_is_restored_to_a_standalone(tmp_path: Path) -> None:
    acknowledged: list[int] = []

    async def main() -> tuple[list[int], Progress]:
        async with cluster() as (server, url), connect(url) as client:
            producer = await client.create_producer(TOPIC)
            consumer = await client.subscribe(TOPIC, "half")

            async def load() -> None:
                while True:
                    await producer.send(str(len(acknowledged)).encode())
                    acknowledged.append(len(acknowledged))
                    if len(acknowledged) % 2:
                        await consumer.acknowledge(await consumer.receive())

            loading = asyncio.ensure_future(load())
            owed = []
            for number in (70, 140):
                while len(acknowledged) < number:
                    await asyncio.sleep(0)
                owed.append(len(acknowledged))
                progress = Progress()
                await server.backup(tmp_path / "copy", progress)
            loading.cancel()
            return owed, progress

    owed, second = asyncio.run(main())
    assert second.files_kept > 2, "what the first has of sealed ledgers is not copied again"

    async def restore() -> list[str]:
        async with local_runtime() as runtime:
            faults = (await backup_reading.verify(runtime, str(tmp_path / "copy"))).faults
            await backup_reading.restore(runtime, str(tmp_path / "copy"), str(tmp_path / "new"))
            return faults

    assert asyncio.run(restore()) == []
    assert cluster_restore.clusters_in(str(tmp_path / "new")) == ["standalone"]
    with Standalone(tmp_path / "new") as server, blocking.connect(server.service_url) as client:
        reader = client.create_reader(TOPIC, blocking.MessageId.earliest)
        there = []
        while reader.has_message_available():
            there.append(int(reader.read_next(10_000).data()))
        assert there == list(range(len(there)))
        assert owed[-1] <= len(there) <= len(acknowledged) + 1
        first = int(client.subscribe(TOPIC, "half").receive(10_000).data())
        assert 0 < first <= there[-1]
        client.create_producer(TOPIC).send(b"goes on")
