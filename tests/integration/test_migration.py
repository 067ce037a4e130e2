"""Blue and green: topics move to another cluster, with clients that follow; nothing is lost, twice or out of order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from geminga import Standalone
from geminga.broker.geo.moves import URLS
from geminga.broker.rest.namespace_routes.migration import SCHEMES
from geminga.client import ConsumerType, InitialPosition
from geminga.client.blocking import connect
from support.processes.official import quiet_client
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/moving"
AT = "persistent/public/default/moving"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Standalone, Standalone]]:
    with Standalone(tmp_path / "blue") as blue, Standalone(tmp_path / "green") as green:
        yield blue, green


@pytest.fixture(scope="module")
def unmoved() -> Iterator[Standalone]:
    with Standalone() as broker:
        yield broker


def place_of(broker: Standalone) -> dict[str, str]:
    return {"serviceUrl": broker.web_service_url, "brokerServiceUrl": broker.service_url}


def test_producers_and_consumers_go_on_in_the_other_cluster(pair: tuple[Standalone, Standalone]) -> None:
    blue, green = pair
    rest, there = Rest(blue.web_service_url), Rest(green.web_service_url)
    with connect(blue.service_url) as client:
        options = {"initial_position": InitialPosition.Earliest, "consumer_type": ConsumerType.Failover}
        consumer = client.subscribe(TOPIC, "s", **options)
        producer = client.create_producer(TOPIC)
        for number in range(20):
            producer.send(b"%d" % number)
        received = [consumer.receive(10_000) for _ in range(10)]
        assert rest.post("clusters/standalone/migrate?migrated=true", place_of(green)).status == 204
        assert rest.get("clusters/standalone/migrate").json == {
            "migrated": True,
            "migratedClusterUrl": place_of(green),
        }
        # It is answered by one of the two; which one has it is seen there.
        while not there.get(f"{AT}/stats").json.get("publishers"):
            producer.send(b"%d" % (10 + len(received)))
            received.append(consumer.receive(10_000))
        kept = rest.get(f"{AT}/stats").json
        assert (kept["publishers"], kept["subscriptions"]["s"]["consumers"] != []) == ([], True)
        for number in range(1000, 1010):
            producer.send(b"%d" % number)
        for message in received:
            consumer.acknowledge(message)
        texts = [message.data() for message in received]
        while texts[-1:] != [b"1009"]:
            message = consumer.receive(20_000)
            consumer.acknowledge(message)
            texts.append(message.data())
        assert len(texts) == len(set(texts))
        assert [text for text in texts if int(text) >= 1000] == [b"%d" % number for number in range(1000, 1010)]
        assert there.get(f"{AT}/stats").json["subscriptions"]["s"]["consumers"] != []


def test_new_clients_are_led_there_and_come_back_when_nothing_moves(pair: tuple[Standalone, Standalone]) -> None:
    blue, green = pair
    rest, there = Rest(blue.web_service_url), Rest(green.web_service_url)
    rest.put(AT)
    assert rest.post("namespaces/public/default/migration").status == 400
    assert rest.post("namespaces/public/default/migration", True).status == 204
    assert "migration" not in rest.get(f"{AT}/internalStats").json["geminga"]
    assert rest.post("clusters/standalone/migrate", place_of(green)).status == 204
    with connect(blue.service_url) as client:
        producer = client.create_producer(TOPIC)
        while not there.get(f"{AT}/stats").json.get("publishers"):
            producer.send(b"x")
        producer.send(b"there")
        assert there.get(f"{AT}/internalStats").json["numberOfEntries"] >= 1
    stats = rest.get(f"{AT}/internalStats").json["geminga"]["migration"]
    assert stats["url"] == green.service_url
    assert rest.post("namespaces/public/default/migration", False).status == 204
    assert "migration" not in rest.get(f"{AT}/internalStats").json["geminga"]


@pytest.mark.parametrize(
    ("query", "body", "status", "why"),
    [
        ("?migrated=true", None, 412, "brokerServiceUrl"),
        ("?migrated=true", {"serviceUrl": "http://green:8080"}, 412, "brokerServiceUrl"),
        ("", {"brokerServiceUrl": "http://green:6650"}, 400, "brokerServiceUrl must be pulsar://host:port"),
        ("", "green", 400, "the body"),
    ],
)
def test_a_place_that_can_be_none_is_refused(
    unmoved: Standalone, query: str, body: object, status: int, why: str
) -> None:
    refused = Rest(unmoved.web_service_url).post(f"clusters/standalone/migrate{query}", body)
    assert (refused.status, why in refused.reason) == (status, True), refused.reason


def test_each_address_has_its_scheme() -> None:
    assert len(URLS) == len(SCHEMES) == 4


def test_the_official_client_goes_on_there(pair: tuple[Standalone, Standalone], tmp_path: Path) -> None:
    blue, green = pair
    rest, there = Rest(blue.web_service_url), Rest(green.web_service_url)
    client = quiet_client(blue.service_url, tmp_path)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(TOPIC)
    producer.send(b"0")
    assert rest.post("clusters/standalone/migrate?migrated=true", place_of(green)).status == 204
    sent = 1
    while not there.get(f"{AT}/stats").json.get("publishers"):
        producer.send(b"%d" % sent)
        sent += 1
    producer.send(b"%d" % sent)
    received = []
    while len(received) <= sent:
        message = consumer.receive(20_000)
        received.append(int(message.data()))
        consumer.acknowledge(message)
    assert received == [*range(sent + 1)]
    client.close()
