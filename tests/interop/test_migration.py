"""A whole cluster of Apache's processes becomes Geminga's, one process at a time under load, and Apache's again.

Two brokers, three bookies, auto-recovery, with data. Each way is one run of ``examples/cluster/migrate.py``, as an
operator runs it; between the two some ledgers go to the lake and are in the lake alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pulsar
import pytest
from pulsar.schema import AvroSchema, Record
from tools.interop.artifacts import pinned_version
from tools.zookeeper_server import ZooKeeperServer

from support.clusters.cluster_yard import LIMIT_S, Yard, apaches_cluster, environment
from support.clusters.transacted_load import TransactedLoad
from support.processes.fact_records import Fact, LongFact, OtherFact
from support.processes.mixed_cluster import FollowingRest, eventually
from support.processes.official import quiet_client
from support.processes.steady_load import SteadyLoad
from support.worlds.rest import Rest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

TOPICS: Final = [f"persistent://public/default/moved-{number}" for number in range(4)]
#: Numbers are sent to both in transactions.
TRANSACTED: Final = [f"persistent://public/default/transacted-{number}" for number in range(2)]
TYPED: Final = "persistent://public/default/typed"
#: Until what nobody ended of a transaction is aborted.
ENDED_S: Final = 150.0
#: Written before anything moves, and read when all is over.
OLD: Final = "persistent://public/default/old"
OLD_COUNT: Final = 600
#: Of the subscription there, before: everything up to the first, and each tenth behind that.
ACKNOWLEDGED: Final = {*range(100), *range(100, OLD_COUNT, 10)}


def write_typed(url: str, directory: Path, *facts: Record) -> None:
    """Some more of a topic with a schema; what does not fit it is refused."""
    client = quiet_client(url, directory)
    for fact in facts:
        client.create_producer(TYPED, schema=AvroSchema(type(fact))).send(fact)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(TYPED, schema=AvroSchema(OtherFact))
    client.close()


def read_typed(url: str, directory: Path) -> list[tuple[str, int | None]]:
    client = quiet_client(url, directory)
    reader = client.create_reader(TYPED, pulsar.MessageId.earliest, schema=AvroSchema(LongFact))
    found = []
    while reader.has_message_available():
        value = reader.read_next(timeout_millis=60_000).value()
        found.append((value.name, value.size))
    client.close()
    return found


def write_old(url: str, directory: Path) -> None:
    """Data from before, and a subscription with holes."""
    client = quiet_client(url, directory)
    consumer = client.subscribe(OLD, "kept", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(OLD)
    for number in range(OLD_COUNT):
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    for _ in range(OLD_COUNT):
        message = consumer.receive(timeout_millis=30_000)
        if int(message.data()) in ACKNOWLEDGED:
            consumer.acknowledge(message)
    client.close()


def read_all(url: str, directory: Path, topic: str) -> list[int]:
    client = quiet_client(url, directory)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(timeout_millis=60_000).data()))
    client.close()
    return found


def left_of_old(url: str, directory: Path) -> set[int]:
    """What the subscription from before has not acknowledged."""
    client = quiet_client(url, directory)
    consumer = client.subscribe(OLD, "kept", consumer_type=pulsar.ConsumerType.Shared)
    found = set()
    while True:
        try:
            found.add(int(consumer.receive(timeout_millis=5000).data()))
        except pulsar.Timeout:
            break
    client.close()
    return found


def into_the_lake_alone(yard: Yard, url: str) -> int:
    """All closed ledgers of the topic from before; how many they are then."""
    path = OLD.replace("://", "/")
    program = [sys.executable, "-m", "geminga", "lake", "offload", OLD, "--wait", "--admin-url", url]
    subprocess.run(program, check=True, timeout=LIMIT_S, env=environment())
    for _ in range(LIMIT_S):
        ledgers = json.loads(Rest(url).get(f"{path}/lake").body)["ledgers"]
        alone = sum(ledger["isOffloaded"] and not ledger["isOnBookies"] for ledger in ledgers)
        if alone and alone == sum(ledger["isOffloaded"] for ledger in ledgers):
            return alone
        yard.pause.wait(1)
    raise AssertionError(ledgers)


def refused_start(yard: Yard) -> str:
    """What our bookie says under the id of one of Apache's, in an empty directory."""
    words = ["bookie", "--data", str(yard.directory / "refused"), "--port", "0", "--metadata", f"zk:{yard.hosts}"]
    done = subprocess.run(
        yard.ours(*words, bookieId="apache-0"),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    return done.stderr


def test_a_whole_cluster_becomes_ours_and_apaches_again_under_load(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with apaches_cluster(zookeeper, tmp_path) as yard:
        admin = f"http://{yard.web('one')}"
        write_old(yard.urls, tmp_path)
        assert "apache-0" in refused_start(yard)
        write_typed(yard.urls, tmp_path, Fact(name="apache's"))
        with SteadyLoad(yard.urls, tmp_path, TOPICS) as load, TransactedLoad(yard.urls, TRANSACTED) as transacted:
            yard.migrate(yard.plan("geminga", {f"apache-{n}": f"ours-{n}" for n in range(3)}))
            assert pinned_version() not in yard.versions()
            assert read_all(yard.urls, tmp_path, OLD) == [*range(OLD_COUNT)]
            write_typed(yard.urls, tmp_path, Fact(name="known"), LongFact(name="ours", size=1))
            assert into_the_lake_alone(yard, admin) > 3
            assert read_all(yard.urls, tmp_path, OLD) == [*range(OLD_COUNT)]
            yard.migrate(yard.plan("apache", {f"ours-{n}": f"apache-{n + 3}" for n in range(3)}))
        assert yard.versions() == {pinned_version()}
        write_typed(yard.urls, tmp_path, LongFact(name="apache's again", size=2))
        assert read_typed(yard.urls, tmp_path) == [
            ("apache's", None),
            ("known", None),
            ("ours", 1),
            ("apache's again", 2),
        ]
        versions = FollowingRest(admin).get("schemas/public/default/typed/schemas").json["getSchemaResponses"]
        assert [one["version"] for one in versions] == [0, 1]

        def ended() -> bool:
            found = [read_all(yard.urls, tmp_path, topic) for topic in TRANSACTED]
            return found[0] == found[1] and transacted.committed <= set(found[0])

        eventually(ended, True, ENDED_S)
        transacted.check([read_all(yard.urls, tmp_path, topic) for topic in TRANSACTED])
        assert len(transacted.committed) > 50
        assert load.missing() == 0
        assert load.received == load.sent  # in order for each key of each topic
        sent: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        for (topic, _), numbers in load.sent.items():
            sent[topic] += numbers
        assert sum(map(len, sent.values())) > 1000
        for topic in TOPICS:
            assert read_all(yard.urls, tmp_path, topic) == sorted(sent[topic])
        assert read_all(yard.urls, tmp_path, OLD) == [*range(OLD_COUNT)]
        assert left_of_old(yard.urls, tmp_path) == set(range(OLD_COUNT)) - ACKNOWLEDGED
        print(sum(map(len, sent.values())), "messages")
