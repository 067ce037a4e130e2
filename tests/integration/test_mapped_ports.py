"""Clients that reach a standalone by mapped ports alone: the broker has a network of its own, as in a container."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

import pulsar
import pytest
from tools.free_ports import free_ports
from tools.mapped_ports import MappedStandalone, why_not_permitted

from geminga.client import blocking
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

TIMEOUT_MS = 10_000


@pytest.fixture(scope="module", autouse=True)
def permitted() -> None:
    reason = why_not_permitted()
    if reason:
        pytest.skip(reason)


def rows_of_ports(length: int) -> list[int]:
    """Two rows of ports that are free here now, one behind the other: the broker's, then those of HTTP."""
    return free_ports(2 * length, in_a_row=True)


def publishes_and_consumes(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"through")
    assert consumer.receive(TIMEOUT_MS).data() == b"through"
    consumer.close()


def test_clients_that_reach_one_mapped_port_publish_and_consume(tmp_path: Path) -> None:
    with MappedStandalone(tmp_path / "data", log=tmp_path / "log") as broker:
        url = broker.service_url
        # The broker knows nothing of that port, and what it knows of leads nowhere.
        assert broker.ready["brokerServiceUrl"] != url
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", broker.broker_port), 5).close()
        broker.request("PUT", "/admin/v2/persistent/public/default/parts/partitions", 3)
        client = quiet_client(url, tmp_path)
        publishes_and_consumes(client, "whole")
        publishes_and_consumes(client, "parts")
        client.close()
        with blocking.connect(url) as ours:
            consumer = ours.subscribe("ours", "s")
            ours.create_producer("ours").send(b"through")
            assert consumer.receive(TIMEOUT_MS).data() == b"through"


def test_lookup_over_http_names_the_host_that_the_client_came_by(tmp_path: Path) -> None:
    ports = rows_of_ports(1)
    settings = {"bindAddress": "0.0.0.0", "gemingaAllowOpen": "true"}
    with MappedStandalone(tmp_path / "data", log=tmp_path / "log", ports=ports, settings=settings) as broker:
        # Without a setting it would be this machine's name, which means something else outside a container.
        assert socket.gethostname() in str(broker.ready["brokerServiceUrl"])
        connection = http.client.HTTPConnection("127.0.0.1", ports[1], timeout=10)
        connection.request("GET", "/lookup/v2/topic/persistent/public/default/t")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["brokerUrl"] == f"pulsar://127.0.0.1:{ports[0]}"
        assert answer["httpUrl"] == f"http://127.0.0.1:{ports[1]}"
        client = quiet_client(broker.web_url, tmp_path)
        publishes_and_consumes(client, "by-http")
        client.close()


def test_two_brokers_with_consecutive_ports_are_mapped(tmp_path: Path) -> None:
    ports = rows_of_ports(2)
    with MappedStandalone(
        tmp_path / "data",
        log=tmp_path / "log",
        # The first two are those of the first broker.
        ports=[ports[0], ports[2], ports[1], ports[3]],
        settings={"advertisedAddress": "127.0.0.1", "gemingaConsecutivePorts": "true"},
        arguments=["--brokers", "2"],
    ) as broker:
        for url in (broker.service_url, broker.web_url):
            client = quiet_client(url, tmp_path)
            for number in range(8):
                publishes_and_consumes(client, f"of-two-{number}")
            client.close()
        owners = {
            json.loads(broker.request("GET", f"/lookup/v2/topic/persistent/public/default/of-two-{n}"))["brokerUrl"]
            for n in range(8)
        }
        assert owners == {f"pulsar://127.0.0.1:{port}" for port in ports[:2]}
