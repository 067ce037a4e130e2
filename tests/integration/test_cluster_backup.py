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
from geminga.app.servers.autorecovery_process import load_autorecovery_config
from geminga.app.servers.broker_server import Storage
from geminga.app.servers.standalone import StandaloneServer
from geminga.app.storage import backup_reading, cluster_backup, cluster_restore, cluster_tree
from geminga.app.storage.backup_writing import Copying, Progress
from geminga.app.storage.cluster_backup import ClusterBackup, ClusterConnection, ClusterFacts
from geminga.app.storage.core.backup_format import BackupManifest
from geminga.bookie.registration import draw_cluster_id
from geminga.bookkeeper import BookKeeper
from geminga.client import Client, blocking, connect
from geminga.client.schema import AvroSchema, Integer, Record
from geminga.model.errors import ConfigurationError, DataDirectoryError

TOPIC = "persistent://public/default/of-a-cluster"
KEYED = "persistent://public/default/with-schema"
#: Modules of the whole that are tried here.
TRIED = (cluster_backup, cluster_tree)
#: What nobody subscribed to stays.
KEPT = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
#: Ledgers roll while they are copied; two copies of each entry on three bookies.
SETTINGS = {
    "brokerServicePort": 0,
    "webServicePort": 0,
    "gemingaBookies": 3,
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    **KEPT,
}


class Reading(Record):
    """What is stored with a schema."""

    number = Integer()


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
            return await ClusterBackup(runtime, str(directory), facts, reached, Copying(progress or Progress())).write()


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


class Load:
    """Publishes and acknowledges, one message after the other."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.acknowledged = 0
        self._passed = asyncio.Condition()

    async def run(self) -> None:
        """Until it is called off."""
        producer = await self._client.create_producer(TOPIC)
        consumer = await self._client.subscribe(TOPIC, "half")
        while True:
            await producer.send(str(self.acknowledged).encode())
            self.acknowledged += 1
            if self.acknowledged % 2:
                await consumer.acknowledge(await consumer.receive())
            async with self._passed:
                self._passed.notify_all()

    async def reach(self, count: int) -> None:
        """Wait until so many are acknowledged."""
        async with self._passed:
            await self._passed.wait_for(lambda: self.acknowledged >= count)


def test_backup_under_load_is_restored_to_a_standalone(tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    copy.mkdir()
    owed: list[int] = []

    async def main() -> tuple[Progress, int]:
        async with cluster() as (server, url), connect(url) as client:
            keyed = await client.create_producer(KEYED, schema=AvroSchema(Reading), batching_enabled=False)
            for number in range(9):
                await keyed.send(Reading(number=number), partition_key=f"k{number % 3}")
            load = Load(client)
            loading = asyncio.ensure_future(load.run())
            for number in (25, 50):
                await load.reach(number)
                owed.append(load.acknowledged)
                progress = Progress()
                await server.backup(copy, progress)
            loading.cancel()
            return progress, load.acknowledged

    second, acknowledged = asyncio.run(main())
    assert second.files_kept > 1, "what the first has of sealed ledgers is not copied again"
    assert faults_then_restored(copy, new) == []
    assert cluster_restore.clusters_in(str(new)) == ["standalone"]
    # What "half" has acknowledged may be trimmed while it is read: not here.
    kept = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
    with Standalone(new, config=kept) as server, blocking.connect(server.service_url) as client:
        there = [int(value) for value in values(client, TOPIC)]
        assert there == list(range(len(there)))
        assert owed[-1] <= len(there) <= acknowledged + 1
        first = int(client.subscribe(TOPIC, "half").receive(10_000).data())
        assert 0 < first <= there[-1]
        client.create_producer(TOPIC).send(b"goes on")
        reader = client.create_reader(KEYED, blocking.MessageId.earliest, schema=AvroSchema(Reading))
        assert [reader.read_next(10_000).value().number for _ in range(9)] == list(range(9))


@pytest.mark.long
def test_transactions_that_go_on_are_refused_and_an_open_one_is_as_it_was(tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new"
    copy.mkdir()

    async def main() -> tuple[int, int]:
        async with cluster(transactionCoordinatorEnabled=True) as (server, url), connect(url) as client:
            producers = [await client.create_producer(topic) for topic in (TOPIC, KEYED)]
            committed = 0

            async def commit_on() -> None:
                nonlocal committed
                while True:
                    async with client.transaction() as txn:
                        for producer in producers:
                            await producer.send(str(committed).encode(), txn=txn)
                    committed += 1

            left_open = await client.transaction(600.0)
            for producer in producers:
                await producer.send(b"open", txn=left_open)
            committing = asyncio.ensure_future(commit_on())
            with pytest.raises(DataDirectoryError, match="begun or ended in each of 4 attempts"):
                await server.backup(copy)
            committing.cancel()
            await asyncio.wait([committing])
            await server.backup(copy)
            return committed, await left_open.detach()

    committed, open_id = asyncio.run(main())
    assert committed > 0
    assert faults_then_restored(copy, new) == []
    with (
        Standalone(new, {"transactionCoordinatorEnabled": True, **KEPT}) as server,
        blocking.connect(server.service_url) as client,
    ):
        # The open one is the first: nothing behind it is read before it ends.
        assert [values(client, topic) for topic in (TOPIC, KEYED)] == [[], []]
        client.end_transaction(open_id, commit=True)
        first, second = (values(client, topic) for topic in (TOPIC, KEYED))
        assert first == second == [b"open", *(str(number).encode() for number in range(len(first) - 1))]
        assert len(first) - 1 in (committed, committed + 1), "the last one may have been committed unheard"


def test_directory_of_another_cluster_and_a_store_without_one_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster() as (server, _):
            await server.backup(tmp_path)
            metadata = server.storage.metadata
            await metadata.put("/ledgers/INSTANCEID", b"another", expected_version=None)
            with pytest.raises(DataDirectoryError, match="holds a backup of another"):
                await server.backup(tmp_path)
            await metadata.delete("/ledgers/INSTANCEID")
            with pytest.raises(DataDirectoryError, match="has no /ledgers/INSTANCEID: expected that of a cluster"):
                await server.backup(tmp_path)

    asyncio.run(main())
    with pytest.raises(ConfigurationError, match="a backup of a cluster needs the cluster's metadata store"):
        load_autorecovery_config(who="a backup of a cluster")


def faults_then_restored(copy: Path, new: Path) -> list[str]:
    """What verifying says; it is restored to ``new``."""

    async def main() -> list[str]:
        async with local_runtime() as runtime:
            faults = (await backup_reading.verify(runtime, str(copy))).faults
            await backup_reading.restore(runtime, str(copy), str(new))
            return faults

    return asyncio.run(main())


def values(client: blocking.Client, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, blocking.MessageId.earliest)
    there = []
    while reader.has_message_available():
        there.append(reader.read_next(10_000).data())
    reader.close()
    return there
