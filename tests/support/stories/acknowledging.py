"""What consumers acknowledged, over many kills of the broker: what may come again, and what may not.

Two Shared subscriptions of one topic acknowledge every second message. One asks for responses: what was answered
never comes again. The other does not: what the broker received more than ``WINDOW_S`` before a kill never comes again.
That it was received is known from a later request of the same consumer that the broker answered.

A broker that gets neither processor nor disk can not keep a promise of time: ``Machine`` watches both from outside of
it. A kill with a stall just before does not count and is done again.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from pathlib import Path

from tools.standalone_process import StandaloneProcess

from geminga.client.blocking import (
    BatchReceivePolicy,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    connect,
)

#: The promise, exactly.
WINDOW_S = 1.0
#: The broker writes half a second after an acknowledgment at the latest: twice this fits in what is left.
STALL_S_MAX = 0.2
#: Kills that are tried for each one that counts.
TRIES = 4
#: How long everything unacknowledged may take to come again.
DRAIN_S_MAX = 60.0


class MachineStalledError(Exception):
    """No kill could be measured."""


class Machine(threading.Thread):
    """Whether the machine stalled: a thread that writes and syncs a few bytes on the broker's disk, over and over."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._path = directory / "probe"
        self._is_over = threading.Event()
        #: (when it was over, seconds) of every turn that took longer than it may.
        self.stalls: list[tuple[float, float]] = []
        self._turned = time.monotonic()

    def run(self) -> None:
        with self._path.open("wb") as file:
            while not self._is_over.wait(0.01):
                file.write(b"probe")
                file.flush()
                os.fdatasync(file.fileno())
                now = time.monotonic()
                if now - self._turned > STALL_S_MAX:
                    self.stalls.append((now, now - self._turned))
                self._turned = now

    def stall_since(self, start: float) -> float:
        """Seconds of the longest stall that was not over at ``start``; 0 for none."""
        current = time.monotonic() - self._turned
        found = [seconds for end, seconds in self.stalls if end >= start]
        return max([*found, current if current > STALL_S_MAX else 0.0])

    def close(self) -> None:
        self._is_over.set()
        self.join()


class Acknowledging:
    """See the module."""

    TOPIC = "persistent://public/default/acknowledged"

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng = rng
        self.machine = Machine(directory)
        self.sent = 0
        #: Acknowledged with a response.
        self.answered: set[int] = set()
        #: Acknowledged without: when the broker certainly had it; infinite if that is not known.
        self.acknowledged: dict[int, float] = {}
        #: Those of them that may not come again.
        self.settled: set[int] = set()
        self.again = 0
        self.kills = 0
        self.measured = 0
        self.stalled: list[float] = []
        #: Held while something is published (a broker killed then might store it twice), and for the kill.
        self._publishing = threading.Lock()
        #: Held while messages are taken: what a killed broker delivers again is for ``drain`` alone.
        self._taking = threading.Lock()
        #: The kills of which the messages that are taken know.
        self._kills_known = 0

    def __str__(self) -> str:
        return (
            f"{self.measured} kills ({len(self.stalled)} more with a stall before, "
            f"{max(self.stalled, default=0):.2f} s): {len(self.answered)} acknowledgments answered and none delivered "
            f"again, {len(self.settled)} more than {WINDOW_S:.0f} s old and none delivered again, "
            f"{self.again} younger ones delivered again"
        )

    def run(self, process: StandaloneProcess, rounds: int) -> None:
        """So many kills that count. Raises MachineStalledError if there was none."""
        self.machine.start()
        try:
            while self.measured < rounds and self.kills < TRIES * rounds:
                self.life(process)
        finally:
            self.machine.close()
        if not self.measured:
            raise MachineStalledError(f"the machine stalled before each of {self.kills} kills: {self.stalled} s")
        assert self.answered
        assert self.settled

    def life(self, process: StandaloneProcess) -> None:
        """Publish, consume and acknowledge until the broker is killed; then see what comes again."""
        is_back = threading.Event()

        def kill() -> None:
            with self._publishing:
                self.kills += 1
                limit = time.monotonic() - WINDOW_S
                process.kill()
            self.settle(limit)
            with self._taking:
                pass  # What is being taken is the dead broker's; later turns see the kill and take nothing.
            process.start()
            is_back.set()

        killer = threading.Timer(self.rng.uniform(2.2, 3.5), kill)
        with connect(process.service_url) as client:
            shared = {
                "consumer_type": ConsumerType.Shared,
                "initial_position": InitialPosition.Earliest,
                "batch_receive_policy": BatchReceivePolicy(1000, 1 << 20, 20),
            }
            answered = client.subscribe(self.TOPIC, "answered", ack_receipt_enabled=True, **shared)
            plain = client.subscribe(self.TOPIC, "plain", ack_group_time_ms=0, **shared)
            producer = client.create_producer(self.TOPIC, batching_enabled=False)
            killer.start()
            kills = self._kills_known = self.kills
            while kills == self.kills:
                with self._publishing:
                    for _ in range(20 if kills == self.kills else 0):
                        producer.send_nowait(b"%d" % self.sent)
                        self.sent += 1
                    producer.flush()
                self.take_plain(plain)
                self.take_answered(answered)
            killer.join()
            assert is_back.is_set(), "the broker did not start again"
            for consumer in (plain, answered):
                # Over a new connection, as whatever the consumer sends from now on.
                consumer.get_last_message_id()
            self.drain(plain, answered)

    def settle(self, limit: float) -> None:
        """The broker was just killed: what it had before ``limit`` is settled, unless the machine stalled."""
        stall = self.machine.stall_since(limit)
        if stall:
            self.stalled.append(stall)
            return
        self.measured += 1
        self.settled |= {number for number, at in list(self.acknowledged.items()) if at < limit}

    def drain(self, plain: Consumer[bytes], answered: Consumer[bytes]) -> None:
        """Until everything that is not acknowledged came again: what comes, comes in order."""
        self._kills_known = self.kills
        expected = set(range(0, self.sent, 2))
        missing = (set(expected), set(expected))
        deadline = time.monotonic() + DRAIN_S_MAX
        while (missing[0] or missing[1]) and time.monotonic() < deadline:
            missing[0].difference_update(self.take_plain(plain))
            missing[1].difference_update(self.take_answered(answered))
        assert not missing[0] | missing[1], f"{len(missing[0] | missing[1])} were not acknowledged and never came again"

    def take_plain(self, consumer: Consumer[bytes]) -> set[int]:
        """What is there; every second one is acknowledged, without a response."""
        kills = self.kills
        messages = self.take(consumer, self.settled, "more than a second before a kill")
        acknowledged = [number for number in messages if number % 2]
        for number in acknowledged:
            self.again += number in self.acknowledged
            self.acknowledged[number] = math.inf
            consumer.acknowledge(messages[number])
        if acknowledged and kills == self.kills:
            consumer.get_last_message_id()
            now = time.monotonic()
            if kills == self.kills:
                self.acknowledged.update(dict.fromkeys(acknowledged, now))
        return set(messages)

    def take_answered(self, consumer: Consumer[bytes]) -> set[int]:
        """What is there; every second one is acknowledged, with a response."""
        kills = self.kills
        messages = self.take(consumer, self.answered, "with a response")
        acknowledged = [number for number in messages if number % 2]
        if acknowledged:
            consumer.acknowledge([messages[number] for number in acknowledged])
            # After a kill since they were received they may be on their way again before they are answered.
            if kills == self.kills:
                self.answered.update(acknowledged)
        return set(messages)

    def take(self, consumer: Consumer[bytes], forbidden: set[int], what: str) -> dict[int, Message[bytes]]:
        """Messages by number."""
        with self._taking:
            if self.kills != self._kills_known:
                return {}
            messages = {int(message.data()): message for message in consumer.batch_receive()}
        again = sorted(forbidden.intersection(messages))
        assert not again, f"{again}, acknowledged {what}, were delivered again"
        return messages
