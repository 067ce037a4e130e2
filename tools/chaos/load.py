"""Official clients that publish and consume while processes of the cluster fail under them."""

from __future__ import annotations

import threading
from typing import Final

import pulsar

#: Messages of a producer without a receipt.
PENDING_MAX: Final = 500
#: Messages at a time, and the pause behind them: some 1,000 a second of each producer.
STEP: Final = 20
PAUSE_S: Final = 0.02
RECEIVE_MS: Final = 200


class Publishing:
    """One topic's producer on a thread of its own; it numbers its messages."""

    def __init__(self, client: pulsar.Client, topic: str, *, batching: bool) -> None:
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.errors: list[str] = []
        self.sent = 0
        self._stop = threading.Event()
        self._producer = client.create_producer(
            topic,
            producer_name=f"chaos-{topic.rsplit('/', 1)[-1]}",
            initial_sequence_id=1,
            send_timeout_millis=0,
            block_if_queue_full=True,
            max_pending_messages=PENDING_MAX,
            batching_enabled=batching,
            batching_max_publish_delay_ms=2,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(STEP):
                number = self.sent
                self.sent = number + 1
                self._producer.send_async(b"%d" % number, lambda result, _, number=number: self._answer(number, result))
            self._stop.wait(PAUSE_S)

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


class Consuming:
    """A subscription's consumer on a thread of its own, which acknowledges one by one."""

    def __init__(self, client: pulsar.Client, topic: str) -> None:
        self.topic = topic
        self.delivered: set[int] = set()
        #: Deliveries of what had been delivered before: after a fault they are expected.
        self.again = 0
        self._stop = threading.Event()
        self._consumer = client.subscribe(topic, "chaos", initial_position=pulsar.InitialPosition.Earliest)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(timeout_millis=RECEIVE_MS)
            except pulsar.Timeout:
                continue
            number = int(message.data())
            self.again += number in self.delivered
            self.delivered.add(number)
            self._consumer.acknowledge(message)

    def has(self, wanted: set[int]) -> bool:
        """Whether all of ``wanted`` were delivered."""
        return len(self.delivered) >= len(wanted) and wanted <= self.delivered

    def stop(self) -> None:
        """Take nothing more."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def read_all(client: pulsar.Client, topic: str) -> list[int]:
    """All messages of a topic, as a reader that comes afterwards finds them."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(timeout_millis=30_000).data()))
    reader.close()
    return found
