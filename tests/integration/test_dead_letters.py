"""Dead letters with the official client: after how many deliveries, also when connections are cut and consumers change.

The broker counts, the client moves the message: after ``max_redeliver_count`` redeliveries, so that the application
saw it once more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition

from geminga import Standalone
from support.processes.cutting_proxy import CuttingProxy
from support.processes.official import quiet_client
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

MAX_REDELIVER_COUNT = 3
TIMEOUT_MS = 15_000
NOTHING_MS = 300
SUBSCRIPTION = "s"
both_types = pytest.mark.parametrize("kind", [ConsumerType.Shared, ConsumerType.KeyShared])


@pytest.fixture(scope="module")
def proxy() -> Iterator[CuttingProxy]:
    made = CuttingProxy(seed=1)
    made.is_hostile = False
    yield made
    made.close()


@pytest.fixture(scope="module")
def broker(proxy: CuttingProxy) -> Iterator[Standalone]:
    advertised = f"internal:pulsar://127.0.0.1:{proxy.port}"
    with Standalone(config={"advertisedListeners": advertised}) as running:
        proxy.target = ("127.0.0.1", running.broker_port)
        yield running


class Desk:
    """One topic with one message, its dead letters, and consumers on clients of their own."""

    def __init__(self, url: str, directory: Path, topic: str, kind: ConsumerType) -> None:
        self._url = url
        self._directory = directory
        self.topic = topic
        self._kind = kind
        self._clients: list[pulsar.Client] = []
        self.letters = self.client().subscribe(f"{topic}-letters", "audit", initial_position=InitialPosition.Earliest)
        self.client().subscribe(topic, SUBSCRIPTION, kind, initial_position=InitialPosition.Earliest).close()
        self._clients[-1].create_producer(topic).send(b"poison", partition_key="k")

    def client(self) -> pulsar.Client:
        self._clients.append(quiet_client(self._url, self._directory))
        return self._clients[-1]

    def consumer(self) -> pulsar.Consumer:
        return self.client().subscribe(
            self.topic,
            SUBSCRIPTION,
            self._kind,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(MAX_REDELIVER_COUNT, f"{self.topic}-letters"),
        )

    def assert_is_dead(self, consumer: pulsar.Consumer) -> None:
        """The message is among the dead letters, once, and comes to nobody any more."""
        assert self.letters.receive(TIMEOUT_MS).data() == b"poison"
        for one in (self.letters, consumer):
            with pytest.raises(pulsar.Timeout):
                one.receive(NOTHING_MS)

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def desk(broker: Standalone, tmp_path: Path, fresh_topic: str, kind: ConsumerType) -> Iterator[Desk]:
    made = Desk(broker.service_url, tmp_path, fresh_topic, kind)
    yield made
    made.close()


def receive(consumer: pulsar.Consumer, redelivery_count: int) -> pulsar.Message:
    message = consumer.receive(TIMEOUT_MS)
    assert (message.data(), message.redelivery_count()) == (b"poison", redelivery_count)
    return message


@both_types
def test_negative_acknowledgments_lead_there_after_the_right_number_of_deliveries(desk: Desk) -> None:
    consumer = desk.consumer()
    for count in range(MAX_REDELIVER_COUNT + 1):
        consumer.negative_acknowledge(receive(consumer, count))
    desk.assert_is_dead(consumer)


@both_types
def test_connection_cut_at_each_delivery_does_not_start_the_count_anew(desk: Desk, proxy: CuttingProxy) -> None:
    consumer = desk.consumer()
    for count in range(MAX_REDELIVER_COUNT):
        receive(consumer, count)
        proxy.cut()
    consumer.negative_acknowledge(receive(consumer, MAX_REDELIVER_COUNT))
    desk.assert_is_dead(consumer)


@both_types
def test_cut_between_negative_acknowledgments_neither_loses_nor_adds_a_delivery(
    desk: Desk, proxy: CuttingProxy
) -> None:
    consumer = desk.consumer()
    consumer.negative_acknowledge(receive(consumer, 0))
    receive(consumer, 1)
    proxy.cut()
    consumer.negative_acknowledge(receive(consumer, 2))
    consumer.negative_acknowledge(receive(consumer, 3))
    desk.assert_is_dead(consumer)


@both_types
def test_consumer_that_takes_over_goes_on_with_the_count(desk: Desk) -> None:
    """Each consumer dies of the message; the next one is there already, or comes later, when nobody is."""
    first = desk.consumer()
    first.negative_acknowledge(receive(first, 0))
    receive(first, 1)
    second = desk.consumer()
    first.close()
    receive(second, 2)
    second.close()
    third = desk.consumer()
    third.negative_acknowledge(receive(third, 3))
    desk.assert_is_dead(third)


@both_types
def test_message_that_kills_its_last_consumer_is_a_dead_letter_for_the_next(desk: Desk) -> None:
    """The allowed deliveries are used up and nobody said so: the next client does not hand it out again."""
    for count in range(MAX_REDELIVER_COUNT + 1):
        consumer = desk.consumer()
        receive(consumer, count)
        consumer.close()
    desk.assert_is_dead(desk.consumer())


@both_types
def test_count_is_in_memory_and_starts_anew_when_the_topic_is_loaded_anew(desk: Desk, broker: Standalone) -> None:
    """As with Apache Pulsar: what must be counted over a restart needs a retry-letter topic."""
    consumer = desk.consumer()
    consumer.negative_acknowledge(receive(consumer, 0))
    receive(consumer, 1)
    assert Rest(broker.web_service_url).put(f"{desk.topic.replace('://', '/', 1)}/unload").status == 204
    for count in range(MAX_REDELIVER_COUNT + 1):
        consumer.negative_acknowledge(receive(consumer, count))
    desk.assert_is_dead(consumer)
