"""A cluster of Geminga's and one of Apache's copy their topics to each other, both with deduplication."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.interop.apache_standalone import ApacheStandalone
from tools.standalone_process import StandaloneProcess

from geminga.client import CompressionType, InitialPosition, blocking
from geminga.client.schema import AvroSchema
from integration.test_geo_replication import (
    COMPARED,
    NAMES,
    NAMESPACE,
    SETTINGS,
    TOPICS,
    V1,
    V2,
    ask,
    policies_go_both_ways,
    received,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def brokers(tmp_path: Path, judge_is_apache: bool) -> Iterator[dict[str, StandaloneProcess]]:
    """Geminga is east, Apache is west; the default namespace of each lives in both."""
    if not judge_is_apache:
        pytest.skip("one of the clusters is Apache's")
    found: dict[str, StandaloneProcess] = {}
    with contextlib.ExitStack() as stack:
        for name, kind in zip(NAMES, (StandaloneProcess, ApacheStandalone), strict=True):
            settings = {"clusterName": name, **SETTINGS}
            broker = kind(tmp_path / name, log=tmp_path / f"{name}.log", settings=settings)
            found[name] = stack.enter_context(broker)
        for name, other in (NAMES, NAMES[::-1]):
            data = {"serviceUrl": found[other].web_url, "brokerServiceUrl": found[other].service_url}
            assert ask(found[name], "PUT", f"/admin/v2/clusters/{other}", data)[0] in (200, 204)
            assert ask(found[name], "POST", "/admin/v2/tenants/public", {"allowedClusters": [*NAMES]})[0] == 204
        for name in NAMES:
            assert ask(found[name], "POST", COMPARED, [*NAMES])[0] in (200, 204)
        yield found


def test_messages_partitions_and_schemas_go_both_ways_once(brokers: dict[str, StandaloneProcess]) -> None:
    assert ask(brokers["east"], "PUT", f"{TOPICS}/parts/partitions", 3)[0] == 204
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES}
        sent: dict[str, list[str]] = {}
        for name, client in clients.items():
            # Of one name in both clusters, which is two producers.
            producer = client.create_producer("t", producer_name="same", compression_type=CompressionType.LZ4)
            sent[name] = [f"{name} {number}" for number in range(300)]
            for text in sent[name]:
                producer.send_nowait(text.encode())
            producer.flush()
            txn = client.transaction()
            other = client.create_producer("t", batching_enabled=False)
            other.send(f"{name} aborted".encode(), txn=txn)
            txn.abort()
        parts = clients["east"].create_producer("parts", batching_enabled=False)
        for number in range(30):
            parts.send(b"%d" % number, partition_key=str(number))
        for client in clients.values():
            consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            texts = received(consumer, 600)
            for other_name in NAMES:
                assert [text for text in texts if text.startswith(other_name)] == sent[other_name]
        while ask(brokers["west"], "GET", f"{TOPICS}/parts/partitions?checkAllowAutoCreation=false")[0] != 200:
            pass
        assert json.loads(ask(brokers["west"], "GET", f"{TOPICS}/parts/partitions")[1])["partitions"] == 3
        consumer = clients["west"].subscribe("parts", "s", initial_position=InitialPosition.Earliest)
        assert sorted(map(int, received(consumer, 30))) == [*range(30)]

        clients["west"].create_producer("typed", schema=AvroSchema(V2)).send(V2(name="west", city="w"))
        clients["east"].create_producer("typed", schema=AvroSchema(V1)).send(V1(name="east"))
        for client in clients.values():
            typed = client.subscribe("typed", "s", schema=AvroSchema(V2), initial_position=InitialPosition.Earliest)
            found = {value.name: value.city for value in (typed.receive(30_000).value() for _ in range(2))}
            assert found == {"east": "", "west": "w"}


def test_what_is_not_alike_is_refused_by_either_in_the_same_words(brokers: dict[str, StandaloneProcess]) -> None:
    """Each is asked to copy to the other what has other partitions there."""
    reasons = {}
    for name, partitions in zip(NAMES, (3, 2), strict=True):
        assert ask(brokers[name], "PUT", f"{TOPICS}/differs/partitions?createLocalTopicOnly=true", partitions)[0] == 204
    for name, other in (NAMES, NAMES[::-1]):
        assert ask(brokers[name], "POST", f"{NAMESPACE}/replication", [name])[0] in (200, 204)
        status, answer = ask(brokers[name], "POST", COMPARED, [*NAMES])
        assert status == 409, answer
        reasons[name] = json.loads(answer)["reason"].replace(other, "OTHER")
        status, answer = ask(brokers[name], "POST", f"{TOPICS}/differs/replication", [*NAMES])
        assert status == 412, answer
        assert "There is an exists topic" in answer
        status, answer = ask(brokers[name], "POST", f"{TOPICS}/differs/replication?isGlobal=true", [*NAMES])
        reasons[f"{name} for all"] = f"{status} {json.loads(answer)['reason']}"
    assert "local cluster has 3 partitions, remote cluster 'OTHER' has 2 partitions" in reasons["east"]
    assert reasons["west"] == reasons["east"].replace("3 partitions", "N").replace(
        "2 partitions", "3 partitions"
    ).replace("N", "2 partitions")
    assert reasons["east for all"] == reasons["west for all"]
    assert reasons["east for all"].startswith("412 Please do not use the global topic level policy")


def test_policies_of_topics_for_all_clusters_go_both_ways(brokers: dict[str, StandaloneProcess]) -> None:
    policies_go_both_ways(brokers)


def test_what_is_published_while_the_other_cluster_is_away_comes_once_when_it_is_back(
    brokers: dict[str, StandaloneProcess],
) -> None:
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(blocking.connect(brokers[name].service_url)) for name in NAMES}
        sent: dict[str, list[str]] = {name: [] for name in NAMES}
        for name, away in (NAMES, NAMES[::-1]):
            producer = clients[name].create_producer("t", batching_max_messages=10)
            for number in range(200):
                if number == 100:
                    brokers[away].kill()
                sent[name].append(f"{name} {number}")
                producer.send_nowait(sent[name][-1].encode())
            producer.flush()
            brokers[away].start()
        for name in NAMES:
            client = stack.enter_context(blocking.connect(brokers[name].service_url))
            consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            texts = received(consumer, 400)
            for other in NAMES:
                assert [text for text in texts if text.startswith(other)] == sent[other], f"{other} in {name}"
