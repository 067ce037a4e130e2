"""Load for crash rounds: official clients that publish and consume while the broker is killed under them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pulsar
from tools.chaos.load import Publisher

KEYS = 7


class Publishing(Publisher):
    """Publishes with keys, from :meth:`start` on."""

    name = "crash"

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent
            self._producer.send_async(
                b"%d" % number,
                lambda result, _, number=number: self._answer(number, result),
                partition_key=f"key-{number % KEYS}",
            )
            self.sent = number + 1
            # 5,000 a second: enough for every group commit to hold several, and half of what the broker can take.
            if number % 50 == 49:
                self._stop.wait(0.01)


@dataclass
class Deliveries:
    """What one consumer saw: first deliveries, repetitions, and whether each key's order was kept."""

    first: set[int] = field(default_factory=set)
    repeated: int = 0
    out_of_order: list[int] = field(default_factory=list)
    _last: dict[str, int] = field(default_factory=dict)

    def see(self, message: pulsar.Message) -> None:
        """One delivery."""
        number, key = int(message.data()), message.partition_key()
        assert key == f"key-{number % KEYS}"
        if number in self.first:
            self.repeated += 1
            return
        self.first.add(number)
        if number < self._last.get(key, -1):
            self.out_of_order.append(number)
        self._last[key] = number


class Consuming:
    """A consumer on a thread of its own that acknowledges one by one."""

    def __init__(self, client: pulsar.Client, topic: str, subscription: str) -> None:
        self.deliveries = Deliveries()
        self._done = threading.Event()
        self._delivered = threading.Condition()
        self._consumer = client.subscribe(
            topic, subscription, pulsar.ConsumerType.Exclusive, initial_position=pulsar.InitialPosition.Earliest
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Consume until told to stop."""
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                message = self._consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            with self._delivered:
                self.deliveries.see(message)
                self._delivered.notify_all()
            self._consumer.acknowledge(message)

    def wait_for(self, wanted: set[int], timeout_s: float) -> None:
        """Until all of ``wanted`` were delivered, or the time is over."""

        def is_here() -> bool:
            # Sizes first: it is asked at every message.
            return len(self.deliveries.first) >= len(wanted) and not self.missing(wanted)

        with self._delivered:
            self._delivered.wait_for(is_here, timeout_s)

    def missing(self, wanted: set[int]) -> set[int]:
        """Which of ``wanted`` were not delivered (a moment's picture)."""
        return wanted - set(self.deliveries.first)

    def stop(self) -> None:
        """Receive nothing more."""
        self._done.set()
        self._thread.join()
        self._consumer.close()


def drain(client: pulsar.Client, topic: str, subscription: str, wanted: set[int]) -> Deliveries:
    """Everything on ``subscription`` until ``wanted`` are all here and nothing more comes; gives up after 30 s."""
    deliveries = Deliveries()
    consumer = client.subscribe(topic, subscription, receiver_queue_size=5_000)
    silences = 0
    while silences < 30:
        try:
            message = consumer.receive(timeout_millis=1_000)
        except pulsar.Timeout:
            if wanted <= deliveries.first:
                break
            silences += 1
            continue
        silences = 0
        deliveries.see(message)
        if len(deliveries.first) % 1_000 == 0:
            consumer.acknowledge_cumulative(message)
    consumer.close()
    return deliveries
