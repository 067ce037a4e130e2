"""Topics that are unloaded under load: nothing acknowledged is lost, and the official client comes back by itself."""

from __future__ import annotations

import threading
from functools import partial

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from support.house.waiting import until
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

#: Messages published while the topic is unloaded again and again.
MESSAGES = 3000
KEYS = 7
UNLOADS = 5


class Publisher(threading.Thread):
    """Publishes numbered messages with keys, all of them asynchronously."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        super().__init__()
        self._producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        self.acknowledged: set[int] = set()

    def run(self) -> None:
        for number in range(MESSAGES):
            key = str(number % KEYS)
            callback = partial(self._sent, number)
            self._producer.send_async(b"%d" % number, callback, partition_key=key)
        self._producer.flush()
        self._producer.close()

    def _sent(self, number: int, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged.add(number)


@pytest.mark.parametrize("kind", [ConsumerType.Failover, ConsumerType.Shared, ConsumerType.KeyShared])
def test_nothing_acknowledged_is_lost_and_clients_come_back(standalone, official, fresh_topic, kind) -> None:
    rest = Rest(standalone.web_url)
    path = fresh_topic.replace("://", "/")
    consumers = [
        official.subscribe(fresh_topic, "s", kind, initial_position=InitialPosition.Earliest, consumer_name=name)
        for name in ("a", "b")
    ]
    publisher = Publisher(official, fresh_topic)
    publisher.start()
    first_deliveries: dict[int, list[int]] = {key: [] for key in range(KEYS)}
    seen: set[int] = set()
    unloads = 0
    while publisher.is_alive() or publisher.acknowledged - seen:
        if unloads < UNLOADS and len(seen) >= (unloads + 1) * MESSAGES // (UNLOADS + 2):
            unloads += 1
            assert rest.put(f"{path}/unload").status == 204
        for consumer in consumers:
            for _ in range(100):
                try:
                    message = consumer.receive(timeout_millis=5)
                except pulsar.Timeout:
                    break
                number = int(message.data())
                if number not in seen:
                    seen.add(number)
                    first_deliveries[number % KEYS].append(number)
                consumer.acknowledge(message)
    publisher.join()
    assert unloads == UNLOADS
    assert publisher.acknowledged == seen == set(range(MESSAGES))
    if kind != ConsumerType.Shared:
        # Two consumers are asked in turns, so their messages are put in order by the key's numbers only.
        assert all(numbers == sorted(numbers) for numbers in first_deliveries.values())

    def are_back() -> bool:
        return len(rest.get(f"{path}/stats").json["subscriptions"]["s"]["consumers"]) == len(consumers)

    until(are_back, "both consumers are back after the last unload")
