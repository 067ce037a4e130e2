"""Two clusters, each a real process, copy their topics to each other: with our client, our REST, and kills."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.broker.geo.remote_cluster import ENTRIES_MAX
from geminga.client import CompressionType, InitialPosition, Timeout, blocking
from geminga.client.schema import AvroSchema, Record, String
from geminga.wire.pulsar.metadata import SOURCE_POSITION

pytestmark = pytest.mark.integration

NAMESPACE = "/admin/v2/namespaces/public/default"
#: The clusters of the namespace, if topics are alike in them.
COMPARED = f"{NAMESPACE}/replication?compareTopicPartitions=true"
TOPICS = "/admin/v2/persistent/public/default"
NAMES = ("east", "west")
SETTINGS = {"transactionCoordinatorEnabled": True, "brokerDeduplicationEnabled": True}


def ask(broker: StandaloneProcess, method: str, path: str, body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.web_url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextlib.contextmanager
def clusters(
    tmp_path: Path, of_both: Mapping[str, object] = MappingProxyType({}), **of_west: object
) -> Iterator[dict[str, StandaloneProcess]]:
    """Each knows the other, and its default namespace lives in both. ``of_both``, ``of_west``: more settings."""
    found = {}
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            settings = {"clusterName": name, **SETTINGS, **of_both, **(of_west if name == "west" else {})}
            broker = StandaloneProcess(tmp_path / name, log=tmp_path / f"{name}.log", settings=settings)
            found[name] = stack.enter_context(broker)
        for name, other in (NAMES, NAMES[::-1]):
            data = {"serviceUrl": found[other].web_url, "brokerServiceUrl": found[other].service_url}
            assert ask(found[name], "PUT", f"/admin/v2/clusters/{other}", data)[0] in (200, 204)
            assert ask(found[name], "POST", "/admin/v2/tenants/public", {"allowedClusters": [*NAMES]})[0] == 204
            assert ask(found[name], "POST", COMPARED, [*NAMES])[0] in (200, 204)
        yield found


def received(consumer: blocking.Consumer[bytes], count: int) -> list[str]:
    """So many messages, and one more if there is one."""
    found = []
    with contextlib.suppress(Timeout):
        for number in range(count + 1):
            message = consumer.receive(30_000 if number < count else 300)
            found.append(message.data().decode())
            consumer.acknowledge(message)
    return found


def test_each_message_is_in_both_clusters_once_through_kills(tmp_path: Path) -> None:
    """Batched and compressed, in parts, in transactions, through partitions; either is killed while it copies."""
    with clusters(tmp_path) as brokers, contextlib.ExitStack() as stack:
        assert ask(brokers["east"], "PUT", f"{TOPICS}/parts/partitions", 3)[0] == 204
        clients = {name: stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES}
        sent: dict[str, list[str]] = {}
        for name, client in clients.items():
            batched = client.create_producer(
                "t", producer_name="same", compression_type=CompressionType.LZ4, batching_max_messages=10
            )
            sent[name] = [f"{name} {number}" for number in range(3 * ENTRIES_MAX)]
            for text in sent[name]:
                batched.send_nowait(text.encode())
            batched.flush()
            # The other cluster ends while it is copied to; then the one that copies.
            victim = brokers["west" if name == "east" else "east"]
            victim.kill()
            victim.start()
            large = client.create_producer(
                "t", chunking_enabled=True, batching_enabled=False, chunk_max_message_size=50
            )
            large.send(f"{name} {'x' * 200}".encode())
            txn, other = client.transaction(), client.transaction()
            producer = client.create_producer("t", batching_enabled=False)
            producer.send(f"{name} aborted".encode(), txn=other)
            producer.send(f"{name} committed".encode(), txn=txn)
            other.abort()
            txn.commit()
            sent[name] += [f"{name} {'x' * 200}", f"{name} committed"]
            brokers[name].kill()
            brokers[name].start()
        parts = clients["east"].create_producer("parts", batching_enabled=False)
        for number in range(30):
            parts.send(b"%d" % number, partition_key=str(number))
        for name, client in clients.items():
            consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            texts = received(consumer, sum(map(len, sent.values())))
            for other in NAMES:
                assert [text for text in texts if text.startswith(other)] == sent[other], f"{other} in {name}"
            assert ask(brokers[name], "GET", f"{TOPICS}/t/stats")[0] == 200
        while ask(brokers["west"], "GET", f"{TOPICS}/parts/partitions?checkAllowAutoCreation=false")[0] != 200:
            pass
        consumer = clients["west"].subscribe("parts", "s", initial_position=InitialPosition.Earliest)
        assert sorted(map(int, received(consumer, 30))) == [*range(30)]
        assert json.loads(ask(brokers["west"], "GET", f"{TOPICS}/parts/partitions")[1])["partitions"] == 3
        stats = json.loads(ask(brokers["east"], "GET", f"{TOPICS}/t/stats")[1])["replication"]["west"]
        assert (stats["connected"], stats["replicationBacklog"]) == (True, 0)
        metrics = ask(brokers["east"], "GET", "/metrics")[1]
        assert 'pulsar_replication_backlog{cluster="east",namespace="public/default"' in metrics


class V1(Record):
    name = String()


class V2(Record):
    name = String()
    city = String(default="", required_default=True)


class Strict(Record):
    name = String()
    city = String(required=True)


def reason_of(broker: StandaloneProcess, path: str, cluster: str = "west") -> str:
    """Why a topic is not copied to ``cluster``; waits until it is not."""
    reason = ""
    while not reason:
        stats = json.loads(ask(broker, "GET", f"{TOPICS}/{path}")[1])
        reason = stats["replication"].get(cluster, {}).get("disconnectedReason", "")
    return reason


def test_properties_and_schemas_travel_and_what_is_refused_says_why(tmp_path: Path) -> None:
    with clusters(tmp_path, createTopicToRemoteClusterForReplication=False) as brokers, contextlib.ExitStack() as stack:
        east, west = (stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES)
        # Over there the topic has a schema already, so that versions differ.
        west.create_producer("typed", schema=AvroSchema(V2)).send(V2(name="w", city="w"))
        producer = east.create_producer("typed", schema=AvroSchema(V1))
        producer.send(V1(name="e"), properties={"k": "v"}, partition_key="key", event_timestamp=7)
        consumer = west.subscribe("typed", "s", schema=AvroSchema(V2), initial_position=InitialPosition.Earliest)
        messages = [consumer.receive(30_000) for _ in range(2)]
        (came,) = [message for message in messages if message.value().name == "e"]
        assert came.value().city == ""
        assert (came.partition_key(), came.event_timestamp()) == ("key", 7)
        assert {**came.properties(), SOURCE_POSITION: ""} == {"k": "v", SOURCE_POSITION: ""}

        # A schema that the other cluster does not take: nothing behind it goes there.
        west.create_producer("strict", schema=AvroSchema(Strict))
        producer = east.create_producer("strict", schema=AvroSchema(V1))
        for name in ("refused", "behind it"):
            producer.send(V1(name=name))
        reason = reason_of(brokers["east"], "strict/stats")
        assert "cluster west does not take the schema of the message at " in reason
        assert "field city is missing" in reason
        assert json.loads(ask(brokers["west"], "GET", f"{TOPICS}/strict/stats")[1])["msgInCounter"] == 0

        # Partitions that differ: nothing is made over there.
        assert ask(brokers["west"], "PUT", f"{TOPICS}/uneven/partitions", 2)[0] == 204
        assert ask(brokers["east"], "PUT", f"{TOPICS}/uneven/partitions", 4)[0] == 204
        east.create_producer("uneven").send(b"x")
        reason = reason_of(brokers["east"], "uneven/partitioned-stats")
        assert "uneven has 4 partitions here and 2 partitions in cluster west: they must be equal" in reason
        topics = json.loads(ask(brokers["west"], "GET", TOPICS)[1])
        assert not [topic for topic in topics if topic.endswith(("uneven-partition-2", "uneven-partition-3"))]

        # Topics that west is told not to make in east: what waits there is copied when somebody makes them.
        for name, partitions in (("here", 0), ("parted", 2)):
            if partitions:
                assert ask(brokers["west"], "PUT", f"{TOPICS}/{name}/partitions", partitions)[0] == 204
            west.create_producer(name).send(b"0 waits")
            reason = reason_of(brokers["west"], f"{name}/{'partitioned-' * bool(partitions)}stats", "east")
            assert f"public/default/{name} is not in cluster east, and this broker makes no topics there" in reason
            assert not [topic for topic in json.loads(ask(brokers["east"], "GET", TOPICS)[1]) if name in topic]
            made = f"{TOPICS}/{name}/partitions" if partitions else f"{TOPICS}/{name}"
            assert ask(brokers["east"], "PUT", made, partitions or None)[0] == 204
            consumer = east.subscribe(name, "s", initial_position=InitialPosition.Earliest)
            assert received(consumer, 1) == ["0 waits"]


def policies_go_both_ways(brokers: dict[str, StandaloneProcess]) -> None:
    """1. Set in one, from either side. 2. The other follows. 3. Removed: it follows. 4. Topic deleted: they go here."""

    def told(name: str, query: str = "isGlobal=true") -> str:
        return ask(brokers[name], "GET", f"{TOPICS}/policies/maxConsumers?{query}")[1]

    for name in NAMES:
        assert ask(brokers[name], "PUT", f"{TOPICS}/policies")[0] in (204, 409)
    for setter, follower, value in (("east", "west", 7), ("west", "east", 8)):
        assert ask(brokers[setter], "POST", f"{TOPICS}/policies/maxConsumers?isGlobal=true", value)[0] == 204
        while told(follower) != str(value):
            pass
    assert ask(brokers["east"], "POST", f"{TOPICS}/policies/maxConsumers", 3)[0] == 204
    assert ask(brokers["west"], "DELETE", f"{TOPICS}/policies/maxConsumers?isGlobal=true")[0] == 204
    while told("east"):
        pass
    assert (told("east", "applied=true"), told("west", "applied=true")) == ("3", "0")
    assert ask(brokers["east"], "POST", f"{TOPICS}/policies/maxConsumers?isGlobal=true", 9)[0] == 204
    while told("west") != "9":
        pass
    assert ask(brokers["east"], "DELETE", f"{TOPICS}/policies?force=true")[0] == 204
    assert ask(brokers["west"], "POST", f"{TOPICS}/policies/maxProducers?isGlobal=true", 2)[0] == 204
    assert told("west") == "9"


@pytest.mark.long
def test_policies_for_all_clusters_hold_in_both_and_others_in_one(tmp_path: Path) -> None:
    with clusters(tmp_path) as brokers:
        policies_go_both_ways(brokers)
