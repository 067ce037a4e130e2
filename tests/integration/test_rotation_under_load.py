"""Keys, certificates and their authority are exchanged under twenty producers and consumers; rights and tokens end.

ZooKeeper, three bookies and two brokers with TLS of both ends and tokens (``tools.chaos.secured``), official clients.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tools.chaos.__main__ import SETTINGS
from tools.chaos.cluster import Cluster
from tools.chaos.load import Consuming, Publishing
from tools.chaos.secured import BROKER, LOAD, TOKEN_S, Security, token_of

from support.processes.certificates import Authority

# Six processes and twenty clients for two minutes.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

COUNT = 20
NEW_SECRET = bytes(range(90, 154))
#: Seconds of the promise, on the broker that was asked and on the others; and how often is looked.
ASKED_S, OTHERS_S = 1.0, 3.0
LOOK_S = 0.05
NAMESPACE = "public/default"


class Secured:
    def __init__(self, directory: Path) -> None:
        self.security = Security(directory / "keys")
        self.cluster = Cluster(
            directory,
            bookies=3,
            brokers=2,
            session_ms=10_000,
            broker_settings={**SETTINGS, "loadBalancerEnabled": "false"},
            security=self.security,
        )
        self.logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(directory / "client.log"))

    def client(self, **more: Any) -> pulsar.Client:
        options = {"operation_timeout_seconds": 30, **self.security.client_options(), **more}
        return pulsar.Client(self.cluster.service_url, logger=self.logger, **options)

    def administer(self, method: str, path: str, body: object = None) -> Any:
        answer = self.security.administer(self.cluster.broker.web_tls_url, method, path, body)
        return json.loads(answer) if answer.strip() else None

    def owner(self, topic: str) -> str:
        path = f"/lookup/v2/topic/{topic.replace('://', '/')}"
        return str(self.administer("GET", path)["brokerUrlTls"])

    def links(self, topics: list[str]) -> dict[tuple[str, str], tuple[str, str]]:
        """Each producer and consumer: its connection, and since when."""
        found = {}
        for topic in topics:
            stats = self.administer("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")
            for one in stats["publishers"]:
                found[topic, one["producerName"]] = (one["address"], one["connectedSince"])
            for name, subscription in stats["subscriptions"].items():
                for one in subscription["consumers"]:
                    found[topic, f"{name}/{one['consumerName']}"] = (one["address"], one["connectedSince"])
        return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("rotation"))
    try:
        made.cluster.start()
        yield made
    finally:
        made.cluster.close()


def wait_until(holds: Callable[[], bool], limit_s: float, what: str) -> float:
    """Seconds that it took."""
    began, pause = time.monotonic(), threading.Event()
    while not holds():
        assert time.monotonic() - began < limit_s, what
        pause.wait(LOOK_S)
    return time.monotonic() - began


def test_keys_and_authority_are_exchanged_and_nobody_is_cut_off(secured: Secured) -> None:
    topics = [f"persistent://{NAMESPACE}/rotated-{number}" for number in range(COUNT)]
    clients = [secured.client() for _ in topics]
    producers = [
        Publishing(client, topic, batching=False, rate=40) for client, topic in zip(clients, topics, strict=True)
    ]
    consumers = [Consuming(client, topic) for client, topic in zip(clients, topics, strict=True)]
    before = secured.links(topics)
    assert len(before) == 2 * COUNT
    security, rng = secured.security, random.Random(35)
    newer = Authority(security.secrets[0].parent, "newer")
    processes = {**secured.cluster.brokers, **secured.cluster.bookies}

    def read_again(name: str, line: str, times: int) -> Callable[[], bool]:
        return lambda: processes[name].log.read_text().count(line) >= times if name in processes else True

    # ZooKeeper's server reads its files when it starts: it took both from the start, here by a restart.
    security.member("zookeeper").trusts(security.authority, newer)
    secured.cluster.zookeeper.servers[0].kill()
    secured.cluster.zookeeper.servers[0].start()
    names = [name for name in security.members if name != "zookeeper"]
    for step in ("beside", "certificates", "alone"):
        for name in rng.sample(names, len(names)):
            member = security.member(name)
            if step == "certificates":
                if name != "client":
                    member.exchange(newer)
            else:
                # ZooKeeper's own certificate stays one of the old authority, which its clients go on to take.
                member.trusts(*((security.authority, newer) if step == "beside" or name != "client" else (newer,)))
            line = "new certificate of" if step == "certificates" else "certificates were read again"
            wait_until(read_again(name, line, 1), 20, f"{name} reads its files: {step}")
    # The key of tokens: the new one second, then alone. Clients take it with their next token.
    security.broker_token.write_text(token_of(BROKER, secret=NEW_SECRET))
    security.secrets[1].write_bytes(NEW_SECRET)
    threading.Event().wait(3)
    threading.Event().wait(TOKEN_S)
    security.secrets[0].write_bytes(NEW_SECRET)
    threading.Event().wait(3)
    assert secured.links(topics) == before
    assert sum(consumer.delivered.again for consumer in consumers) == 0
    # The links of brokers and bookies are made anew, one bookie after the other.
    for bookie in secured.cluster.bookies.values():
        bookie.kill()
        bookie.launch()
        bookie.wait_ready()
    # Who comes now trusts the new authority alone, and shows a token of the new key.
    late = secured.client()
    late.create_producer(topics[0], producer_name="late").send(b"%d" % 1_000_000)
    late.close()
    old = secured.client(authentication=pulsar.AuthenticationToken(token_of(LOAD)), operation_timeout_seconds=3)
    with pytest.raises(pulsar.PulsarException):
        old.create_producer(topics[0])
    old.close()
    for producer in producers:
        producer.stop()
    for producer, consumer in zip(producers, consumers, strict=True):
        wanted = producer.acknowledged
        assert producer.errors == []
        assert len(wanted) > 100
        wait_until(lambda: consumer.delivered.has(wanted), 60, f"{len(wanted - consumer.delivered.numbers)} are lost")  # noqa: B023
    assert secured.links(topics).keys() >= {key for key in before if "/" in key[1]}
    for consumer in consumers:
        consumer.stop()
    for client in clients:
        client.close()
    for name, process in processes.items():
        text = process.log.read_text()
        assert "Traceback" not in text, name
        assert "TLS handshake failed" not in text, name


def test_revoked_role_is_gone_in_time_on_each_broker(secured: Secured) -> None:
    role, took = "leaving", {"asked": 0.0, "others": 0.0}
    path = f"/admin/v2/namespaces/{NAMESPACE}/permissions/{role}"
    secured.administer("POST", path, ["produce", "consume"])
    secret = secured.security.secrets[1].read_bytes()
    client = secured.client(authentication=pulsar.AuthenticationToken(token_of(role, secret=secret)))
    topics = [f"persistent://{NAMESPACE}/left-{number}" for number in range(8)]
    kept = [client.create_producer(topic) for topic in topics]
    kept += [client.subscribe(topic, "s") for topic in topics]
    owners = {topic: secured.owner(topic) for topic in topics}
    assert len({*owners.values()}) == 2, "both brokers serve some of the topics"
    assert len(secured.links(topics)) == len(kept)
    secured.administer("DELETE", path)
    began = time.monotonic()
    for topic in sorted(topics, key=lambda topic: owners[topic] != secured.cluster.broker.tls_url):
        asked = owners[topic] == secured.cluster.broker.tls_url
        limit_s = ASKED_S if asked else OTHERS_S
        wait_until(lambda: not secured.links([topic]), max(0.05, began + limit_s - time.monotonic()), topic)  # noqa: B023
        took["asked" if asked else "others"] = time.monotonic() - began
    print(took)
    client.close()


def test_token_that_is_not_renewed_ends_its_connection_within_a_second(secured: Secured) -> None:
    secret = secured.security.secrets[1].read_bytes()
    token = token_of(LOAD, 6.0, secret=secret)
    ends = time.monotonic() + 6.0
    client = secured.client(authentication=pulsar.AuthenticationToken(token))
    topic = f"persistent://{NAMESPACE}/expiring"
    producer = client.create_producer(topic)
    producer.send(b"before")
    while time.monotonic() < ends - 1:
        assert secured.links([topic])
        threading.Event().wait(LOOK_S * 4)
    took_s = wait_until(lambda: not secured.links([topic]), ends + 1.2 - time.monotonic(), "it is still there")
    print(f"gone {time.monotonic() - ends:.2f} s after the end, looked for during {took_s:.2f} s")
    client.close()
