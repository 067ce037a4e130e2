"""kill -9 at seeded moments under load: nothing acknowledged lost, order per key kept, start-up recovers by itself.

CRASH_ROUNDS sets the rounds of the long test, CRASH_SEED the seed. The producer and the consumer are official clients
that live through all rounds; a second subscription that nobody reads meanwhile keeps every message for the audit.
"""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client.blocking import (
    BatchReceivePolicy,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    connect,
)
from support.crash_load import Consuming, Publishing, drain
from support.official import quiet_client

pytestmark = pytest.mark.integration

ROUNDS = 4
ROUNDS_LONG = int(os.environ.get("CRASH_ROUNDS", "100"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
LOAD_S_MAX = 0.8
#: Every fifth round the broker is killed again while it starts.
START_S_MAX = 0.6


def crash_rounds(process: StandaloneProcess, rng: random.Random, rounds: int) -> None:
    """Kill and restart ``rounds`` times."""
    for number in range(rounds):
        threading.Event().wait(rng.uniform(0.01, LOAD_S_MAX))
        process.kill()
        if number % 5 == 3:
            process.launch()
            threading.Event().wait(rng.uniform(0.0, START_S_MAX))
            process.kill()
        process.start()


def run_crashes(tmp_path, *, rounds: int, batching: bool, seed: int, deduplication: bool = False) -> None:
    """One story: load, kills, stop, audit."""
    topic = "persistent://public/default/crash"
    settings = {"brokerDeduplicationEnabled": str(deduplication).lower()}
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings)
    with process:
        client = quiet_client(process.service_url, tmp_path)
        client.subscribe(topic, "audit").close()
        publishing = Publishing(client, topic, batching=batching)
        consuming = Consuming(client, topic, "live")
        consuming.start()
        publishing.start()
        try:
            crash_rounds(process, random.Random(seed), rounds)
        finally:
            publishing.stop()
        consuming.wait_for(publishing.acknowledged, timeout_s=30)
        consuming.stop()
        audit = drain(client, topic, "audit", publishing.acknowledged)
        client.close()
        exit_code = process.stop()
    assert publishing.errors == []
    assert len(publishing.acknowledged) == publishing.sent > 0
    assert publishing.acknowledged - audit.first == set(), f"seed {seed}: acknowledged and lost"
    assert audit.out_of_order == []
    assert consuming.missing(publishing.acknowledged) == set(), f"seed {seed}: not delivered to the live consumer"
    assert consuming.deliveries.out_of_order == []
    assert exit_code == 0
    if deduplication:
        assert audit.repeated == 0, f"seed {seed}: stored twice in spite of deduplication"
    print(
        f"{rounds} rounds, {publishing.sent} sent and acknowledged, {audit.repeated} stored twice (resent), "
        f"{consuming.deliveries.repeated} delivered again to the live consumer, "
        f"slowest start {max(process.start_seconds):.2f} s"
    )


@pytest.mark.slow
@pytest.mark.parametrize("batching", [False, True])
def test_killed_broker_loses_nothing_acknowledged(tmp_path, batching: bool) -> None:
    run_crashes(tmp_path, rounds=ROUNDS, batching=batching, seed=SEED)


@pytest.mark.slow
def test_killed_broker_with_deduplication_stores_nothing_twice(tmp_path) -> None:
    run_crashes(tmp_path, rounds=ROUNDS, batching=True, seed=SEED + 500, deduplication=True)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("batching", "deduplication"), [(False, False), (True, False), (False, True), (True, True)])
def test_broker_killed_many_times_loses_nothing_acknowledged(tmp_path, batching: bool, deduplication: bool) -> None:
    rounds = ROUNDS_LONG // 4
    run_crashes(tmp_path, rounds=rounds, batching=batching, seed=SEED + 1000, deduplication=deduplication)


class Acknowledging:
    """Two Shared subscriptions of one topic whose consumers acknowledge every second message, over many kills.

    One asks for responses: what was answered never comes again. The other does not: what was acknowledged
    ``WINDOW_S`` or more before a kill never comes again.
    """

    TOPIC = "persistent://public/default/acknowledged"
    #: A second until the broker persists it, and as long for a machine that is busy with other tests.
    WINDOW_S = 2.0

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sent = 0
        self.answered: set[int] = set()
        self.acknowledged: dict[int, float] = {}
        self.settled: set[int] = set()
        self.again = 0
        self.kills = 0

    def life(self, process: StandaloneProcess) -> None:
        """Publish, consume and acknowledge while the broker is killed and comes back, and a little longer."""
        is_back = threading.Event()

        def kill() -> None:
            self.kills += 1
            limit = time.monotonic() - self.WINDOW_S
            process.kill()
            self.settled |= {n for n, at in list(self.acknowledged.items()) if at < limit}
            process.start()
            is_back.set()

        timer = threading.Timer(self.rng.uniform(2.2, 3.5), kill)
        with connect(process.service_url) as client:
            shared = {
                "consumer_type": ConsumerType.Shared,
                "initial_position": InitialPosition.Earliest,
                "batch_receive_policy": BatchReceivePolicy(20, 1 << 20, 20),
            }
            answered = client.subscribe(self.TOPIC, "answered", ack_receipt_enabled=True, **shared)
            plain = client.subscribe(self.TOPIC, "plain", ack_group_time_ms=0, **shared)
            producer = client.create_producer(self.TOPIC, batching_enabled=False)
            for _ in range(1_000):
                producer.send_nowait(b"%d" % self.sent)
                self.sent += 1
            producer.flush()
            timer.start()
            while not is_back.is_set():
                self.take_some(plain, answered)
            timer.join()
            for _ in range(40):
                self.take_some(plain, answered)

    def take_some(self, plain: Consumer[bytes], answered: Consumer[bytes]) -> None:
        """What is there: never a message that may not come again. Every second one is acknowledged."""
        for number, message in self.take(plain, self.settled):
            plain.acknowledge(message)
            self.again += number in self.acknowledged
            self.acknowledged[number] = time.monotonic()
        kills = self.kills
        messages = self.take(answered, self.answered)
        if messages:
            answered.acknowledge([message for _, message in messages])
            # After a kill since they were received they may be on their way again before they are answered.
            if kills == self.kills:
                self.answered |= {number for number, _ in messages}

    def take(self, consumer: Consumer[bytes], forbidden: set[int]) -> list[tuple[int, Message[bytes]]]:
        """The messages to acknowledge, by number."""
        messages = [(int(message.data()), message) for message in consumer.batch_receive()]
        again = sorted(number for number, _ in messages if number in forbidden)
        assert not again, f"{again} were delivered again"
        return [(number, message) for number, message in messages if number % 2]


def run_acknowledging(tmp_path, *, rounds: int, seed: int) -> Acknowledging:
    """Rounds of it, with room for a little of the state, so that some of it is always on disk only."""
    story = Acknowledging(random.Random(seed))
    settings = {"gemingaCursorMemoryLimitMB": "0.01", "managedLedgerMaxEntriesPerLedger": "300"}
    settings["managedLedgerMinLedgerRolloverTimeMinutes"] = "0"
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings) as process:
        for _ in range(rounds):
            story.life(process)
    assert story.answered
    assert story.settled
    print(
        f"{rounds} kills: {len(story.answered)} acknowledgements answered and none delivered again, "
        f"{len(story.settled)} settled and none delivered again, {story.again} younger ones delivered again"
    )
    return story


@pytest.mark.slow
def test_killed_broker_delivers_nothing_again_that_was_acknowledged_a_second_before(tmp_path) -> None:
    run_acknowledging(tmp_path, rounds=2, seed=SEED)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_broker_killed_many_times_delivers_nothing_acknowledged_again(tmp_path) -> None:
    run_acknowledging(tmp_path, rounds=max(10, ROUNDS_LONG // 4), seed=SEED + 2000)
