"""Auto-recovery of both makes in one cluster: each restores what the other's client wrote, and works off its marks.

In the end Apache's client finds every entry, with equal bytes, on each bookie of its write set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tools.chaos.cluster import BrokerProcess
from tools.zookeeper_server import ZooKeeperServer

from geminga.bookkeeper import BookKeeper
from geminga.replication.auditor import Auditor
from geminga.replication.config import ReplicationConfig
from geminga.replication.copier import Copier
from geminga.replication.core.fragments import bookies_of
from geminga.replication.core.pacing import ByteRate
from geminga.replication.counters import ReplicationCounters
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.registry import MetadataBookieRegistry
from geminga.runtime import spawn, wait_ms
from geminga.wire.bookkeeper.under_replication import ELECTION_PATH
from support.processes.apache_cluster import (
    COUNT,
    LIMIT_S,
    ApachesAuditor,
    OurClient,
    apache,
    apaches_autorecovery,
    apaches_bookies,
    entries,
    in_cluster,
    our_autorecovery,
    our_bookies,
    told,
    with_our_client,
    write,
)
from support.processes.official import quiet_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: Ensembles are drawn: of so many ledgers some have the bookie that dies.
TAGS: Final = ("a", "b", "c", "d", "e", "f")
LOOK_MS: Final = 100


# ---- what is written, and what must be there in the end


async def write_all(client: BookKeeper) -> dict[int, str]:
    """By ledger, what is in it; every other ledger is left open."""
    found = {}
    for number, tag in enumerate(TAGS):
        handle = await write(client, tag)
        found[handle.ledger_id] = tag
        if number % 2:
            await handle.close()
    return found


def written_by_apache(zookeeper: ZooKeeperServer) -> dict[int, str]:
    commands = [f"write:{tag}:{COUNT}:{'close' if number % 2 else 'leave'}" for number, tag in enumerate(TAGS)]
    return dict(zip(map(int, apache(zookeeper, 3, *commands)), TAGS, strict=True))


async def named_by(client: BookKeeper, bookie_id: str) -> list[int]:
    """Ledgers whose metadata name this bookie."""
    ids = await client.ledger_ids()
    return [one for one in ids if bookie_id in bookies_of((await client.read_ledger(one)).metadata)]


async def restored(ours: OurClient, lost: str, but: frozenset[int] = frozenset()) -> None:
    """No ledger names the bookie any more and no mark is left, apart from those of ledgers in ``but``."""
    marks = UnderReplicatedLedgers(ours.metadata)
    while {*await named_by(ours.bookkeeper, lost)} != but or {*await marks.ledger_ids()} != but:
        await wait_ms(LOOK_MS)


def check_copies(zookeeper: ZooKeeperServer, ledgers: dict[int, str]) -> None:
    assert apache(zookeeper, 3, *(f"copies:{one}" for one in ledgers)) == [
        f"{told(entries(tag))} {2 * COUNT}" for tag in ledgers.values()
    ]


# ---- alone


@contextmanager
def our_broker(zookeeper: ZooKeeperServer, directory: Path) -> Iterator[BrokerProcess]:
    settings = {
        "metadataStoreSessionTimeoutMillis": 4000,
        "managedLedgerMaxEntriesPerLedger": 50,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerDefaultEnsembleSize": 3,
        "managedLedgerDefaultWriteQuorum": 2,
        "managedLedgerDefaultAckQuorum": 2,
    }
    broker = BrokerProcess(directory, log=directory / "broker.log", settings=settings)
    broker.zookeeper = f"zk:{zookeeper.hosts}"
    try:
        broker.start(LIMIT_S)
        yield broker
    finally:
        broker.kill()


def test_apaches_autorecovery_restores_what_our_client_and_our_broker_wrote(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with our_bookies(zookeeper, tmp_path) as bookies, our_broker(zookeeper, tmp_path) as broker:
        ledgers = with_our_client(zookeeper, write_all)
        client = quiet_client(broker.service_url, tmp_path)
        # What nobody writes to any more must be restored as well.
        consumers = [client.subscribe(name, "s") for name in ("busy", "idle")]
        busy, idle = (client.create_producer(name, batching_enabled=False) for name in ("busy", "idle"))
        for number in range(120):
            busy.send(b"%d" % number)
            idle.send(b"%d" % number)
        lost = str(bookies[0].ready["bookieId"])
        assert with_our_client(zookeeper, lambda ours: named_by(ours, lost))
        with apaches_autorecovery(zookeeper, tmp_path):
            bookies[0].kill()
            for number in range(120, 180):
                busy.send(b"%d" % number)
            in_cluster(zookeeper, lambda ours: restored(ours, lost), bookies=3)
        # Its open ledger was recovered by Apache's worker: the topic goes on in another one.
        idle.send(b"120")
        for consumer, count in zip(consumers, (180, 121), strict=True):
            assert [consumer.receive(30_000).data() for _ in range(count)] == [b"%d" % n for n in range(count)]
        client.close()
        assert broker.stop() == 0
        check_copies(zookeeper, ledgers)
        brokers = sorted({*with_our_client(zookeeper, BookKeeper.ledger_ids, bookies=3)} - ledgers.keys())
        for copies in apache(zookeeper, 3, *(f"copies:{one}" for one in brokers)):
            last, _, count = copies.split(" ")
            assert int(count) == 2 * (int(last) + 1)


class Mortal(NamedTuple):
    """The bookie that dies."""

    bookie_id: str
    kill: Callable[[], None]


@contextmanager
def three_and_a_mortal_one(make: str, zookeeper: ZooKeeperServer, directory: Path) -> Iterator[Mortal]:
    if make == "ours":
        with our_bookies(zookeeper, directory) as bookies:
            yield Mortal(str(bookies[3].ready["bookieId"]), bookies[3].kill)
        return
    with (
        apaches_bookies(zookeeper, directory, range(3)),
        apaches_bookies(zookeeper, directory, range(3, 4)) as process,
    ):
        yield Mortal("apache-3", process.kill)


@pytest.mark.parametrize("make", ["ours", "apache"])
def test_our_autorecovery_restores_what_apaches_client_wrote(
    make: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with three_and_a_mortal_one(make, zookeeper, tmp_path) as one, our_autorecovery(zookeeper, tmp_path):
        ledgers = written_by_apache(zookeeper)
        assert with_our_client(zookeeper, lambda ours: named_by(ours, one.bookie_id))
        one.kill()
        in_cluster(zookeeper, lambda ours: restored(ours, one.bookie_id), bookies=3)
        check_copies(zookeeper, ledgers)


# ---- together


async def votes(ours: OurClient, count: int) -> None:
    """So many take part in the election."""
    while len(await ours.metadata.children(ELECTION_PATH)) != count:
        await wait_ms(LOOK_MS)


@asynccontextmanager
async def our_auditor(ours: OurClient) -> AsyncIterator[Auditor]:
    """Without a worker."""
    counters, config = ReplicationCounters(), ReplicationConfig()
    copier = Copier(ours.pool, ours.runtime.clock, ByteRate(-1), counters)
    registry = MetadataBookieRegistry(ours.metadata)
    auditor = Auditor(
        ours.runtime, ours.metadata, ours.bookkeeper, registry, copier, config, name="our-auditor", counters=counters
    )
    task = spawn(auditor.run(), name="auditor")
    try:
        while not auditor.is_elected:
            await wait_ms(LOOK_MS)
        yield auditor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await auditor.leave()


def test_marks_of_our_auditor_are_worked_off_by_apaches_worker_which_minds_our_lock(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with our_bookies(zookeeper, tmp_path) as bookies:
        lost = str(bookies[0].ready["bookieId"])

        async def main(ours: OurClient) -> dict[int, str]:
            marks = UnderReplicatedLedgers(ours.metadata)
            async with AsyncExitStack() as stack:
                auditor = await stack.enter_async_context(our_auditor(ours))
                ledgers = await write_all(ours.bookkeeper)
                kept, *_ = await named_by(ours.bookkeeper, lost)
                assert await marks.lock(kept, "our-worker")
                stack.enter_context(apaches_autorecovery(zookeeper, tmp_path))
                await votes(ours, 2)
                assert apache(zookeeper, 3, "auditor:x") == ["our-auditor"]
                bookies[0].kill()
                await restored(ours, lost, frozenset({kept}))
                # Whoever sees a lock waits until it goes.
                assert await marks.holds(kept)
                await marks.unlock(kept)
                await restored(ours, lost)
                assert auditor.is_elected
                await votes(ours, 2)
                return ledgers

        check_copies(zookeeper, in_cluster(zookeeper, main))


def test_marks_of_apaches_auditor_are_worked_off_by_our_worker_which_minds_apaches_lock(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with our_bookies(zookeeper, tmp_path, 5) as bookies, ApachesAuditor.running(zookeeper) as auditor:
        lost, next_lost = (str(bookie.ready["bookieId"]) for bookie in bookies[:2])
        in_cluster(zookeeper, lambda ours: votes(ours, 1), bookies=5)
        assert auditor.told("auditor") == "apache-auditor"
        ledgers = with_our_client(zookeeper, write_all, bookies=5)
        kept, *_ = with_our_client(zookeeper, lambda client: named_by(client, lost), bookies=5)
        assert auditor.told("lock", kept) == "OK"
        with our_autorecovery(zookeeper, tmp_path) as ours:
            in_cluster(zookeeper, lambda ours: votes(ours, 2), bookies=5)
            assert auditor.told("auditor") == "apache-auditor"
            bookies[0].kill()
            in_cluster(zookeeper, lambda ours: restored(ours, lost, frozenset({kept})))
            assert auditor.told("owner", kept) != "null"
            assert auditor.told("unlock", kept) == "OK"
            in_cluster(zookeeper, lambda ours: restored(ours, lost))
            assert auditor.told("auditor") == "apache-auditor"
            # The auditor dies, and ours takes its place.
            auditor.kill()
            in_cluster(zookeeper, lambda ours: votes(ours, 1))
            assert apache(zookeeper, 3, "auditor:x") == [ours.ready["name"]]
            bookies[1].kill()
            in_cluster(zookeeper, lambda ours: restored(ours, next_lost), bookies=3)
        check_copies(zookeeper, ledgers)


def test_apaches_decommission_has_our_auditor_look_at_once(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with our_bookies(zookeeper, tmp_path) as bookies, our_autorecovery(zookeeper, tmp_path):
        lost = str(bookies[0].ready["bookieId"])
        ledgers = with_our_client(zookeeper, write_all)

        async def waits_long(ours: OurClient) -> None:
            await UnderReplicatedLedgers(ours.metadata).set_recovery_delay(3600)

        async def is_lost(ours: OurClient) -> None:
            while lost in (await MetadataBookieRegistry(ours.metadata).registered()).all:
                await wait_ms(LOOK_MS)

        in_cluster(zookeeper, waits_long)
        bookies[0].kill()
        in_cluster(zookeeper, is_lost, bookies=3)
        assert apache(zookeeper, 3, f"decommission:{lost}") == ["OK"]
        in_cluster(zookeeper, lambda ours: restored(ours, lost), bookies=3)
        check_copies(zookeeper, ledgers)
