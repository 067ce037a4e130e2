"""Connections cut under load, real sockets: with deduplication and a stable name each message is stored once, in order.

The producer is the official client, then ours; it lives through the cuts, leaves, and comes back under its name to
go on where the broker says it stopped. DEDUP_ROUNDS sets the rounds of the long test.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pulsar
import pytest

import geminga.client.blocking as gb
from geminga import Standalone
from support.processes.cutting_proxy import CuttingProxy
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

ROUNDS_LONG = int(os.environ.get("DEDUP_ROUNDS", "20"))
LIVES = 3
MESSAGES = 1000


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    made = CuttingProxy(seed=1)
    yield made
    made.close()


@pytest.fixture
def broker(proxy: CuttingProxy) -> Iterator[Standalone]:
    advertised = f"internal:pulsar://127.0.0.1:{proxy.port}"
    with Standalone(config={"brokerDeduplicationEnabled": True, "advertisedListeners": advertised}) as running:
        proxy.target = ("127.0.0.1", running.broker_port)
        yield running


def publish_official(url: str, topic: str, directory, first: int, count: int) -> None:
    """Publish numbers from ``first`` on, which is behind what the broker has."""
    client = quiet_client(url, directory)
    producer = client.create_producer(
        topic,
        producer_name="stable",
        # The official client numbers from 0 again when it is cut off before its first receipt, unless told otherwise.
        initial_sequence_id=first - 1,
        send_timeout_millis=0,
        block_if_queue_full=True,
        batching_enabled=True,
        batching_max_publish_delay_ms=1,
    )
    for number in range(first, first + count):
        producer.send_async(b"%060d" % number, lambda *_: None)
    producer.flush()
    client.close()


def publish_ours(url: str, topic: str, directory, first: int, count: int) -> None:
    """As :func:`publish_official`; the last of what is stored is sent again before, in other batches."""
    with gb.connect(url) as client:
        producer = client.create_producer(
            topic, producer_name="stable", send_timeout_millis=0, batching_max_messages=7 + first % 50
        )
        assert producer.last_sequence_id() == (first - 1 if first > 1 else -1)
        for number in range(max(1, first - count // 3), first + count):
            producer.send_nowait(b"%060d" % number, sequence_id=number)
        producer.flush()
        assert producer.last_sequence_id() == first + count - 1


def run_round(url: str, proxy: CuttingProxy, publish, topic: str, directory) -> None:
    """Three lives of a producer under cuts, then an audit."""
    proxy.is_hostile = False
    client = quiet_client(url, directory)
    client.subscribe(topic, "audit", initial_position=pulsar.InitialPosition.Earliest).close()
    for life in range(LIVES):
        proxy.is_hostile = True
        healing = threading.Timer(0.4, lambda: setattr(proxy, "is_hostile", False))
        healing.start()
        publish(url, topic, directory, 1 + life * MESSAGES, MESSAGES)
        healing.join()
    consumer = client.subscribe(topic, "audit")
    found = [int(consumer.receive(10_000).data()) for _ in range(LIVES * MESSAGES)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    client.close()
    assert found == list(range(1, LIVES * MESSAGES + 1))


@pytest.mark.parametrize("publish", [publish_official, publish_ours])
def test_each_message_is_stored_once_when_connections_are_cut(broker, proxy, publish, tmp_path) -> None:
    run_round(f"pulsar://127.0.0.1:{proxy.port}", proxy, publish, "cut", tmp_path)
    assert proxy.cuts >= 2


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("publish", [publish_official, publish_ours])
def test_each_message_is_stored_once_in_twenty_rounds_of_cuts(broker, proxy, publish, tmp_path) -> None:
    for number in range(ROUNDS_LONG):
        run_round(f"pulsar://127.0.0.1:{proxy.port}", proxy, publish, f"cut-{number}", tmp_path)
    print(f"{ROUNDS_LONG} rounds, {proxy.cuts} connections cut")
    assert proxy.cuts > 2 * ROUNDS_LONG
