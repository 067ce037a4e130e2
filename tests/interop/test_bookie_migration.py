"""A cluster's bookies: Apache's become Geminga's, one at a time under load, and Apache's again, under new ids."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pulsar
import pytest
from tools.chaos.cluster import BookieProcess, BrokerProcess
from tools.zookeeper_server import ZooKeeperServer

from support.apache_cluster import LIMIT_S, SESSION_MS, apaches_bookies, our_autorecovery
from support.official import quiet_client
from support.rest import Rest
from support.steady_load import SteadyLoad

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

TOPICS: Final = [f"persistent://public/default/kept-{number}" for number in range(3)]
BOOKIES: Final = 3
SETTINGS: Final = {
    "metadataStoreSessionTimeoutMillis": SESSION_MS,
    # Many ledgers, so that each bookie has some that are closed, and one that is written.
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


@contextmanager
def our_bookie(zookeeper: ZooKeeperServer, directory: Path, number: int) -> Iterator[BookieProcess]:
    bookie = BookieProcess(
        directory / f"ours-{number}",
        log=directory / f"ours-{number}.log",
        settings={"zkTimeout": SESSION_MS, "bookieId": f"ours-{number}"},
    )
    bookie.zookeeper = f"zk:{zookeeper.hosts}"
    try:
        bookie.start()
        yield bookie
    finally:
        bookie.kill()


def decommission(zookeeper: ZooKeeperServer, bookie_id: str) -> None:
    """As an operator does, who is told to wait while the session of one that was killed lives."""
    program = [sys.executable, "-m", "geminga", "autorecovery", "decommission", bookie_id]
    program += ["--metadata", f"zk:{zookeeper.hosts}"]
    for _ in range(4 * SESSION_MS // 1000):
        done = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
        if "is registered: stop it first" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr


def read_all(url: str, directory: Path) -> dict[str, list[int]]:
    client = quiet_client(url, directory)
    found: dict[str, list[int]] = {}
    for topic in TOPICS:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found.setdefault(topic, []).append(int(reader.read_next(timeout_millis=30_000).data()))
        reader.close()
    client.close()
    return found


def test_bookies_become_ours_and_apaches_again_under_load(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        theirs = {number: ExitStack() for number in range(2 * BOOKIES)}
        ours = {number: ExitStack() for number in range(BOOKIES)}
        for each in (*theirs.values(), *ours.values()):
            stack.enter_context(each)

        def start_theirs(number: int) -> None:
            theirs[number].enter_context(apaches_bookies(zookeeper, tmp_path, range(number, number + 1)))

        for number in range(BOOKIES):
            start_theirs(number)
        stack.enter_context(our_autorecovery(zookeeper, tmp_path))
        broker = BrokerProcess(tmp_path, log=tmp_path / "broker.log", settings=SETTINGS)
        broker.zookeeper = f"zk:{zookeeper.hosts}"
        stack.callback(broker.kill)
        broker.start(LIMIT_S)
        with SteadyLoad(broker.service_url, tmp_path, TOPICS) as load:
            for number in range(BOOKIES):
                ours[number].enter_context(our_bookie(zookeeper, tmp_path, number))
                theirs[number].close()  # killed, as on a bad day
                decommission(zookeeper, f"apache-{number}")
            in_the_middle = {key: list(numbers) for key, numbers in load.sent.items()}
            assert read_all(broker.service_url, tmp_path).keys() == {topic for topic, _ in in_the_middle}
            for number in range(BOOKIES):
                start_theirs(BOOKIES + number)
                ours[number].close()
                decommission(zookeeper, f"ours-{number}")
        assert load.missing() == 0
        assert load.received == load.sent
        assert Rest(broker.web_url).get("brokers/health").status == 200
        everything = read_all(broker.service_url, tmp_path)
        for topic in TOPICS:
            sent = sorted(number for (one, _), numbers in load.sent.items() if one == topic for number in numbers)
            assert everything[topic] == sent
        assert sum(map(len, everything.values())) > 500
        print(sum(map(len, everything.values())), "messages")
