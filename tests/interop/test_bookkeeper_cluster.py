"""Clusters in a real ZooKeeper: Apache's ledger client on our bookies; our client, and our broker, on Apache's bookies.

Each writes, closes, reads, fences, recovers and deletes what the other wrote or left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pulsar
import pytest
from tools.chaos.cluster import BrokerProcess
from tools.chaos.secured import Security
from tools.zookeeper_server import ZooKeeperServer, running_zookeeper

from geminga.bookkeeper import BookKeeper
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError
from support.processes.apache_cluster import (
    COUNT,
    LIMIT_S,
    apaches_bookies,
    entries,
    our_bookies,
    read,
    told,
    with_our_client,
    write,
)
from support.processes.apache_cluster import apache as apaches_client
from support.processes.apache_secured import UNIT
from support.processes.official import quiet_client
from support.worlds.ledgers import Appends

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: What Apache's client makes of a bookie that does not serve it without TLS: ours closes, Apache's says so.
REFUSED: Final = ("BKBookieHandleNotAvailableException", "BKUnauthorizedAccessException")


def each_reads_recovers_and_deletes_what_the_other_left(
    zookeeper: ZooKeeperServer, version: int, security: Security | None = None
) -> None:
    def apache(*commands: str) -> list[str]:
        return apaches_client(zookeeper, version, *commands, security=security)

    closed, left = apache(f"write:theirs:{COUNT}:close", f"write:left:{COUNT}:leave")
    size = sum(map(len, entries("theirs")))
    assert apache(f"metadata:{closed}", f"metadata:{left}") == [
        f"CLOSED 3/2/2 CRC32C {COUNT - 1} {size}",
        "OPEN 3/2/2 CRC32C -",
    ]
    ours: list[int] = []

    async def main(client: BookKeeper) -> None:
        assert await read(client, int(closed)) == entries("theirs")
        assert await read(client, int(left)) == entries("left")
        done = await write(client, "ours")
        await done.close()
        ours.append(done.ledger_id)
        ours.append((await write(client, "abandoned")).ledger_id)
        # Recovered by another client, a writer of ours is fenced.
        fenced = await write(client, "fenced")
        await client.open_ledger(fenced.ledger_id)
        assert isinstance(await Appends(fenced).append_and_wait(b"late"), LedgerFencedError)

    with_our_client(zookeeper, main, security=security)
    assert apache(
        f"metadata:{left}",
        f"read:{ours[0]}",
        f"recover:{ours[1]}",
        f"metadata:{ours[0]}",
        f"metadata:{ours[1]}",
        f"peek:{closed}",
        "fence-check:x",
        f"delete:{ours[0]}",
        f"read:{ours[0]}",
    ) == [
        f"CLOSED 3/2/2 CRC32C {COUNT - 1} {sum(map(len, entries('left')))}",
        told(entries("ours")),
        told(entries("abandoned")),
        f"CLOSED 3/2/2 CRC32C {COUNT - 1} {sum(map(len, entries('ours')))}",
        f"CLOSED 3/2/2 CRC32C {COUNT - 1} {sum(map(len, entries('abandoned')))}",
        told(entries("theirs")),
        "0 BKLedgerFencedException",
        "OK",
        "BKNoSuchLedgerExistsOnMetadataServerException",
    ]

    async def gone(client: BookKeeper) -> None:
        with pytest.raises(NoSuchLedgerError):
            await client.open_ledger(ours[0])
        await client.delete_ledger(int(closed))

    with_our_client(zookeeper, gone, security=security)
    assert apache(f"read:{closed}") == ["BKNoSuchLedgerExistsOnMetadataServerException"]


@pytest.mark.parametrize("version", [3, 2])
def test_both_clients_on_our_bookies(version: int, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with our_bookies(zookeeper, tmp_path):
        each_reads_recovers_and_deletes_what_the_other_left(zookeeper, version)


@pytest.mark.parametrize("bookies", [our_bookies, apaches_bookies])
def test_both_clients_with_tls_and_a_certificate(
    bookies: Callable[..., AbstractContextManager[object]], judge_is_apache: bool, tmp_path: Path
) -> None:
    """BookKeeper's START_TLS: of Apache's client at our bookies, of ours at Apache's; nobody is served without."""
    if not judge_is_apache:
        pytest.skip("Apache's ledger client and bookies")
    security = Security(tmp_path / "keys", unit=UNIT)
    with (
        running_zookeeper(tls=security.zookeeper) as zookeeper,
        bookies(zookeeper, tmp_path, security=security),
    ):
        each_reads_recovers_and_deletes_what_the_other_left(zookeeper, 3, security)
        (kept,) = apaches_client(zookeeper, 3, f"write:kept:{COUNT}:close", security=security)
        (found,) = apaches_client(zookeeper, 3, f"peek:{kept}")
        assert found in REFUSED


def test_apaches_client_goes_on_when_one_of_our_bookies_is_killed(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with our_bookies(zookeeper, tmp_path) as bookies:
        first, second = apaches_client(zookeeper, 3, f"write:a:{COUNT}:close", f"write:b:{COUNT}:leave")
        bookies[0].kill()
        found = apaches_client(zookeeper, 3, f"read:{first}", f"recover:{second}")
        assert found == [told(entries("a")), told(entries("b"))]
        third = apaches_client(zookeeper, 3, f"write:c:{COUNT}:close")[0]
        assert apaches_client(zookeeper, 3, f"read:{third}") == [told(entries("c"))]


def test_both_clients_and_our_broker_on_apaches_bookies(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with apaches_bookies(zookeeper, tmp_path):
        each_reads_recovers_and_deletes_what_the_other_left(zookeeper, 3)
        broker = BrokerProcess(
            tmp_path,
            log=tmp_path / "broker.log",
            settings={
                "metadataStoreSessionTimeoutMillis": 4000,
                "managedLedgerMaxEntriesPerLedger": 50,
                "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            },
        )
        broker.zookeeper = f"zk:{zookeeper.hosts}"
        try:
            the_main_path(broker, tmp_path)
        finally:
            broker.kill()


def the_main_path(broker: BrokerProcess, directory: Path) -> None:
    """Publish, consume, acknowledge; killed, it goes on where it was."""
    broker.start(LIMIT_S)
    client = quiet_client(broker.service_url, directory)
    producer = client.create_producer("on-apache", batching_enabled=False, send_timeout_millis=0)
    consumer = client.subscribe("on-apache", "s", initial_position=pulsar.InitialPosition.Earliest)
    for number in range(120):
        producer.send(b"%d" % number)
    for number in range(70):
        message = consumer.receive(30_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge_cumulative(message)
    consumer.close()
    broker.kill()
    broker.start(LIMIT_S)
    for number in range(120, 150):
        producer.send(b"%d" % number)
    consumer = client.subscribe("on-apache", "s", initial_position=pulsar.InitialPosition.Earliest)
    found = [consumer.receive(30_000).data() for _ in range(1)]
    while int(found[-1]) < 149:
        found.append(consumer.receive(30_000).data())
    # An acknowledgment without a receipt is stored within a second: some may come again, none is left out.
    assert found == [b"%d" % number for number in range(int(found[0]), 150)]
    assert int(found[0]) <= 70
    client.close()
    assert broker.stop() == 0
