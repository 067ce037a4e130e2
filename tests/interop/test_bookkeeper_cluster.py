"""Clusters in a real ZooKeeper: Apache's ledger client on our bookies; our client, and our broker, on Apache's bookies.

Each writes, closes, reads, fences, recovers and deletes what the other wrote or left behind.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulsar
import pytest
from tools.chaos.cluster import BookieProcess, BrokerProcess
from tools.zookeeper_server import ZooKeeperServer, running_zookeeper

from geminga.bookkeeper import BookKeeper, LedgerHandle
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.metadata.core.zookeeper_address import parse_zookeeper_address
from geminga.metadata.zookeeper import ZooKeeperMetadataStore
from geminga.model.errors import LedgerFencedError, NoSuchLedgerError
from geminga.runtime import real_runtime
from support.ledgers import Appends
from support.official import quiet_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

JAVA: Final = Path(__file__).parent / "java"
COUNT: Final = 200
QUORUMS: Final = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2}
LIMIT_S: Final = 120.0


@pytest.fixture
def zookeeper(judge_is_apache: bool) -> Iterator[ZooKeeperServer]:
    """One of its own: each cluster is made anew."""
    if not judge_is_apache:
        pytest.skip("Apache's ledger client and bookies")
    with running_zookeeper() as server:
        yield server


@contextmanager
def our_bookies(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[list[BookieProcess]]:
    bookies = [BookieProcess(directory / f"b{number}", log=directory / f"b{number}.log") for number in range(4)]
    try:
        for bookie in bookies:
            bookie.zookeeper = f"zk:{zookeeper.hosts}"
            bookie.start()
        yield bookies
    finally:
        for bookie in bookies:
            bookie.kill()


@contextmanager
def apaches_bookies(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[None]:
    from tools.interop.apache_standalone import MEMORY, OPENS, die_with_parent
    from tools.interop.artifacts import HERE, class_path, java, pinned_version

    opens = [part for name in OPENS for part in ("--add-opens", f"{name}=ALL-UNNAMED")]
    program = [java(), *MEMORY, *opens, f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"]
    program += ["-cp", class_path(pinned_version()), str(JAVA / "ApacheCluster.java"), uri(zookeeper)]
    process = subprocess.Popen(
        [*program, str(directory), "4"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent,
    )
    assert process.stdout is not None
    heard = []
    try:
        for line in process.stdout:
            heard.append(line)
            if line.startswith("> ready"):
                break
        else:
            raise AssertionError("".join(heard)[-4000:])
        yield
    finally:
        process.kill()
        process.communicate()


def uri(zookeeper: ZooKeeperServer) -> str:
    return f"zk+hierarchical://{zookeeper.hosts}/ledgers"


def apache(zookeeper: ZooKeeperServer, version: int, *commands: str) -> list[str]:
    """What Apache's client says to each command, behind the command's name."""
    from tools.interop.java_program import run_java

    told = run_java(JAVA / "ApacheLedgers.java", uri(zookeeper), str(version), *commands)
    said = [line[2:].split(" ", 1) for line in told if line.startswith("> ")]
    assert [name for name, _ in said] == [command.partition(":")[0] for command in commands]
    return [outcome for _, outcome in said]


def entries(tag: str, count: int = COUNT) -> list[bytes]:
    return [f"{tag} {number}".encode() for number in range(count)]


def told(payloads: Sequence[bytes]) -> str:
    """As ``ApacheLedgers`` tells of a ledger."""
    lines = b"".join(one + b"\n" for one in payloads)
    return f"{len(payloads) - 1} {hashlib.sha256(lines).hexdigest()}"


def with_our_client(zookeeper: ZooKeeperServer, main: Callable[[BookKeeper], Awaitable[None]]) -> None:
    async def run() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        address = parse_zookeeper_address(f"zk:{zookeeper.hosts}")
        store = await ZooKeeperMetadataStore.open(runtime, address)
        pool = RemoteBookiePool(runtime)
        came = asyncio.Event()
        pool.watch(lambda *_: came.set())
        registered = await RegisteredBookies.follow(store, pool)
        while len(pool.available()) < 4:
            came.clear()
            await came.wait()
        await main(BookKeeper(runtime, store, pool))
        await registered.close()
        await pool.close()
        await store.close()
        await runtime.disk.close()
        await runtime.threads.close()

    async def bounded() -> None:
        await asyncio.wait_for(run(), LIMIT_S)

    asyncio.run(bounded())


async def write(client: BookKeeper, tag: str) -> LedgerHandle:
    """A ledger that is not closed."""
    handle = await client.create_ledger(**QUORUMS)
    appends = Appends(handle)
    for payload in entries(tag):
        assert await appends.append_and_wait(payload) is None
    return handle


async def read(client: BookKeeper, ledger_id: int) -> list[bytes]:
    handle = await client.open_ledger(ledger_id)
    found: list[bytes] = []
    while len(found) <= handle.last_add_confirmed:
        found += await handle.read_entries(len(found), handle.last_add_confirmed)
    return found


def each_reads_recovers_and_deletes_what_the_other_left(zookeeper: ZooKeeperServer, version: int) -> None:
    closed, left = apache(zookeeper, version, f"write:theirs:{COUNT}:close", f"write:left:{COUNT}:leave")
    size = sum(map(len, entries("theirs")))
    assert apache(zookeeper, version, f"metadata:{closed}", f"metadata:{left}") == [
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

    with_our_client(zookeeper, main)
    assert apache(
        zookeeper,
        version,
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

    with_our_client(zookeeper, gone)
    assert apache(zookeeper, version, f"read:{closed}") == ["BKNoSuchLedgerExistsOnMetadataServerException"]


@pytest.mark.parametrize("version", [3, 2])
def test_both_clients_on_our_bookies(version: int, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with our_bookies(zookeeper, tmp_path):
        each_reads_recovers_and_deletes_what_the_other_left(zookeeper, version)


def test_apaches_client_goes_on_when_one_of_our_bookies_is_killed(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with our_bookies(zookeeper, tmp_path) as bookies:
        first, second = apache(zookeeper, 3, f"write:a:{COUNT}:close", f"write:b:{COUNT}:leave")
        bookies[0].kill()
        assert apache(zookeeper, 3, f"read:{first}", f"recover:{second}") == [told(entries("a")), told(entries("b"))]
        third = apache(zookeeper, 3, f"write:c:{COUNT}:close")[0]
        assert apache(zookeeper, 3, f"read:{third}") == [told(entries("c"))]


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
    # An acknowledgement without a receipt is stored within a second: some may come again, none is left out.
    assert found == [b"%d" % number for number in range(int(found[0]), 150)]
    assert int(found[0]) <= 70
    client.close()
    assert broker.stop() == 0
