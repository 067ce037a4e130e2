"""Three bookies inside a standalone, and three that are processes: the same tests, and the same checker of histories.

The official client publishes and consumes meanwhile, batched and not, with deduplication on: what was acknowledged is
there, in order, once, and delivered, whoever was killed. CRASH_SEED fixes when.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pulsar
import pytest
from tools.chaos.cluster import Cluster
from tools.chaos.history import judge, undelivered
from tools.chaos.load import Consuming, Publishing, read_all
from tools.standalone_process import StandaloneProcess

from support.house.weekly_sample import sampled
from support.processes.official import quiet_client

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

SEED = int(os.environ.get("CRASH_SEED", "1"))
KILLS = 2
KILLS_LONG = 12
#: E may be had when one is away, for as long as there are three: the third takes the place.
SETTINGS = {
    "managedLedgerDefaultEnsembleSize": "2",
    "managedLedgerDefaultWriteQuorum": "2",
    "managedLedgerDefaultAckQuorum": "2",
    "managedLedgerMaxEntriesPerLedger": "300",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerDeduplicationEnabled": "true",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
SESSION_MS = 4000
DELIVERY_S = 60


class ThreeBookies(Protocol):
    """A broker on three bookies."""

    @property
    def service_url(self) -> str: ...

    def kill_broker(self) -> None:
        """kill -9, and started again."""

    def restart_all(self) -> None:
        """Stopped in order, and started again."""

    def lose_bookie(self, number: int) -> None:
        """One goes for good, with its directory, and an empty one joins."""

    def close(self) -> None: ...


class Inside:
    """``geminga standalone --bookies 3``: a lost bookie takes the process along, and is left out from then on."""

    def __init__(self, directory: Path) -> None:
        self._process = StandaloneProcess(
            directory / "data", log=directory / "broker.log", settings={**SETTINGS, "gemingaBookies": "3"}
        )
        self._process.start()

    @property
    def service_url(self) -> str:
        return self._process.service_url

    def kill_broker(self) -> None:
        self._process.kill()
        self._process.start()

    def restart_all(self) -> None:
        assert self._process.stop() == 0
        self._process.start()

    def lose_bookie(self, number: int) -> None:
        name = ("bookie", "bookie-2", "bookie-3")[number]
        self._process.kill()
        shutil.rmtree(self._process.data / name)
        self._process.settings |= {"gemingaBookiesLeftOut": name, "gemingaBookies": "4"}
        self._process.start()

    def close(self) -> None:
        self._process.kill()


class Processes:
    """ZooKeeper, three bookies and a broker."""

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory, bookies=3, session_ms=SESSION_MS, broker_settings=SETTINGS)
        try:
            self._cluster.start()
            self._cluster.start_autorecovery({"openLedgerRereplicationGracePeriod": 1000})
        except BaseException:
            self._cluster.close()
            raise

    @property
    def service_url(self) -> str:
        return self._cluster.broker.service_url

    def kill_broker(self) -> None:
        self._cluster.broker.kill()
        self._cluster.broker.start()

    def restart_all(self) -> None:
        bookies = [bookie for bookie in self._cluster.bookies.values() if bookie.is_running]
        assert self._cluster.broker.stop() == 0
        for bookie in bookies:
            assert bookie.stop() == 0
        for bookie in bookies:
            bookie.start()
        self._cluster.broker.start()

    def lose_bookie(self, number: int) -> None:
        bookie = self._cluster.bookies[f"bookie-{number}"]
        bookie.kill()
        shutil.rmtree(bookie.data)
        self._cluster.join()

    def close(self) -> None:
        self._cluster.close()


KINDS: dict[str, Callable[[Path], ThreeBookies]] = {"inside": Inside, "processes": Processes}


@pytest.fixture
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreeBookies]:
    made = KINDS[request.param](tmp_path)
    try:
        yield made
    finally:
        made.close()


class Load:
    """Two producers and their consumers, until the history is looked at."""

    def __init__(self, three: ThreeBookies, tmp_path: Path) -> None:
        self._client = quiet_client(three.service_url, tmp_path)
        topics = {"persistent://public/default/batched": True, "persistent://public/default/unbatched": False}
        self._producers = [Publishing(self._client, topic, batching=on) for topic, on in topics.items()]
        self._consumers = [Consuming(self._client, topic) for topic in topics]

    def run_for(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def check(self) -> None:
        """Nothing more is sent; what was acknowledged is read in order, once, and was delivered."""
        for producer in self._producers:
            producer.stop()
        for producer, consumer in zip(self._producers, self._consumers, strict=True):
            patience = DELIVERY_S * 10
            while patience and not consumer.delivered.has(producer.acknowledged):
                threading.Event().wait(0.1)
                patience -= 1
            assert producer.errors == []
            assert len(producer.acknowledged) == producer.sent > 100
            verdict = judge(producer.sent, producer.acknowledged, read_all(self._client, producer.topic))
            assert verdict.is_right, verdict
            assert undelivered(producer.acknowledged, consumer.delivered.numbers) == ()
            assert consumer.delivered.out_of_order == []
            consumer.stop()
        self._client.close()


def kill_under_load(three: ThreeBookies, tmp_path: Path, kills: int) -> None:
    rng = random.Random(SEED)
    load = Load(three, tmp_path)
    for _ in range(kills):
        load.run_for(rng.uniform(0.2, 0.8))
        three.kill_broker()
    load.run_for(0.3)
    load.check()


@pytest.mark.parametrize("three", sampled("three bookies, killed", KINDS, 1), indirect=True)
def test_history_is_right_when_the_broker_is_killed_under_load(three: ThreeBookies, tmp_path: Path) -> None:
    kill_under_load(three, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.parametrize("three", KINDS, indirect=True)
def test_history_is_right_when_the_broker_is_killed_many_times(three: ThreeBookies, tmp_path: Path) -> None:
    kill_under_load(three, tmp_path, KILLS_LONG)


@pytest.mark.parametrize("three", sampled("three bookies, lost", KINDS, 1), indirect=True)
def test_history_is_right_when_a_bookie_is_lost_for_good_under_load(three: ThreeBookies, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    load = Load(three, tmp_path)
    load.run_for(rng.uniform(0.5, 1.0))
    three.lose_bookie(rng.randrange(3))
    load.run_for(1.0)
    # What follows is read by a broker that remembers nothing.
    three.kill_broker()
    load.run_for(0.3)
    load.check()


@pytest.mark.parametrize("three", sampled("three bookies, stopped", KINDS, 1), indirect=True)
def test_cursor_and_messages_are_there_when_all_was_stopped_and_started(three: ThreeBookies, tmp_path: Path) -> None:
    topic = "persistent://public/default/kept"
    client = quiet_client(three.service_url, tmp_path)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number)
    for _ in range(8):
        consumer.acknowledge(consumer.receive(timeout_millis=30_000))
    client.close()
    three.restart_all()
    client = quiet_client(three.service_url, tmp_path)
    consumer = client.subscribe(topic, "s")
    assert [int(consumer.receive(timeout_millis=30_000).data()) for _ in range(12)] == list(range(8, 20))
    assert read_all(client, topic) == list(range(20))
    client.close()
