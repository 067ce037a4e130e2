"""Official clients that publish and consume while processes of the cluster fail under them."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pulsar

#: Messages of a producer without a receipt.
PENDING_MAX: Final = 500
#: Messages at a time; with the pause behind them some 2,000 a second of all producers.
STEP: Final = 20
RATE: Final = 2000
RECEIVE_MS: Final = 200
#: Seconds that a consumer of a subscription that moves stays.
STAY_S: Final = (2.0, 8.0)
#: Until a consumer that could not be made or closed, or a look at the history, is tried again; and how long in all.
AGAIN_S: Final = 1.0
READ_S: Final = 120.0


class Publisher(ABC):
    """One topic's producer on a thread of its own; it numbers its messages, and knows which were acknowledged."""

    def __init__(self, client: pulsar.Client, topic: str, *, batching: bool) -> None:
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._producer = client.create_producer(
            topic,
            producer_name=self.name,
            # So that a client which is cut off before its first receipt does not begin to number from 0 again.
            initial_sequence_id=1,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            batching_enabled=batching,
            batching_max_publish_delay_ms=2,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the producer."""

    def start(self) -> None:
        """Publish until told to stop."""
        self._thread.start()

    @abstractmethod
    def _run(self) -> None:
        """Send until ``_stop`` is set."""

    def _answer(self, number: int, result: pulsar.Result) -> None:
        if result == pulsar.Result.Ok:
            self.acknowledged.add(number)
        else:
            self.errors.append(f"{number}: {result}")

    def stop(self) -> None:
        """Send nothing more, and wait until all is answered."""
        self._stop.set()
        self._thread.join()
        self._producer.flush()
        self._producer.close()


class Publishing(Publisher):
    """Publishes from its beginning on, at a rate."""

    def __init__(self, client: pulsar.Client, topic: str, *, batching: bool, rate: int = RATE // 2) -> None:
        """``rate``: messages a second, about."""
        self._pause_s = STEP / rate
        super().__init__(client, topic, batching=batching)
        self.start()

    @property
    def name(self) -> str:
        """Of the producer."""
        return f"chaos-{self.topic.rsplit('/', 1)[-1]}"

    def payload(self, number: int) -> bytes:
        """Of one message."""
        return b"%d" % number

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(STEP):
                number = self.sent
                self.sent = number + 1
                self._producer.send_async(
                    self.payload(number), lambda result, _, number=number: self._answer(number, result)
                )
            self._stop.wait(self._pause_s)


class Delivered:
    """What a subscription was given."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        #: Deliveries of what had been delivered before: after a fault they are expected.
        self.again = 0
        #: Delivered for the first time, behind later ones.
        self.out_of_order: list[int] = []
        self._newest = -1

    def see(self, number: int) -> None:
        """One delivery."""
        if number in self.numbers:
            self.again += 1
            return
        self.numbers.add(number)
        if number < self._newest:
            self.out_of_order.append(number)
        self._newest = max(self._newest, number)

    def has(self, wanted: set[int]) -> bool:
        """Whether all of ``wanted`` were delivered."""
        return len(self.numbers) >= len(wanted) and wanted <= self.numbers


class Taking(ABC):
    """An Exclusive subscription's consumer on a thread of its own."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.topic = topic
        self._stop = threading.Event()
        self._consumer = client.subscribe(topic, "chaos", initial_position=pulsar.InitialPosition.Earliest)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._take()

    @abstractmethod
    def _take(self) -> None:
        """Receive a message, and acknowledge it."""

    def stop(self) -> None:
        """Take nothing more."""
        self._stop.set()
        self._thread.join()


class Consuming(Taking):
    """Acknowledges one by one."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.delivered = Delivered()
        super().__init__(client, topic)

    def _take(self) -> None:
        _receive(self._consumer, self.delivered)

    def stop(self) -> None:
        """Take nothing more."""
        super().stop()
        self._consumer.close()


class Moving:
    """A Failover subscription with a consumer of each client; each goes after a while, and comes again.

    Who of them is the active one changes with that. What one of them was sent and had not received comes again to the
    other, so that it is no defect if the two together have it out of order.
    """

    def __init__(self, clients: Sequence[pulsar.Client], topic: str, *, seed: int) -> None:
        self.topic = topic
        self.delivered = Delivered()
        #: Consumers that were made.
        self.moves = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(client, random.Random(f"{seed} {topic} {number}")), daemon=True)
            for number, client in enumerate(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, client: pulsar.Client, rng: random.Random) -> None:
        while not self._stop.is_set():
            try:
                consumer = client.subscribe(
                    self.topic,
                    "chaos-moving",
                    consumer_type=pulsar.ConsumerType.Failover,
                    initial_position=pulsar.InitialPosition.Earliest,
                )
            except pulsar.PulsarException:  # while its broker is away
                self._stop.wait(AGAIN_S)
                continue
            with self._lock:
                self.moves += 1
            until = time.monotonic() + rng.uniform(*STAY_S)
            while not self._stop.is_set() and time.monotonic() < until:
                _receive(consumer, self.delivered, self._lock)
            with suppress(pulsar.PulsarException):
                consumer.close()

    def stop(self) -> None:
        """Take nothing more."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _receive(consumer: pulsar.Consumer, delivered: Delivered, lock: threading.Lock | None = None) -> None:
    """One message, if one comes soon."""
    try:
        message = consumer.receive(timeout_millis=RECEIVE_MS)
    except pulsar.Timeout:
        return
    number = int(message.data())
    if lock is None:
        delivered.see(number)
    else:
        with lock:
            delivered.see(number)
    consumer.acknowledge(message)


def read_all(client: pulsar.Client, topic: str) -> list[int]:
    """All messages of a topic, as a reader that comes afterwards finds them."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(timeout_millis=int(READ_S * 1000)).data()))
    reader.close()
    return found
