"""Dead letters while the broker is killed: nothing is lost, and what comes twice is counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pulsar
import pytest
from pulsar import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition
from tools.standalone_process import StandaloneProcess

from support.house.weekly_sample import sampled
from support.processes.official import quiet_client

pytestmark = pytest.mark.integration

MAX_REDELIVER_COUNT = 2
MESSAGES = 60
CRASHES = 2
#: Deliveries between two crashes: in the middle of the first, and of the second round of redeliveries.
DELIVERIES = 70
IDLE_MS = 3000


@pytest.mark.parametrize("kind", sampled("dead letters, killed", [ConsumerType.Shared, ConsumerType.KeyShared], 1))
def test_every_poisonous_message_becomes_a_dead_letter_although_the_broker_is_killed(
    restartable: StandaloneProcess, tmp_path: Path, fresh_topic: str, kind: ConsumerType
) -> None:
    letters_topic = f"{fresh_topic}-letters"
    client = quiet_client(restartable.service_url, tmp_path)
    letters = client.subscribe(letters_topic, "audit", initial_position=InitialPosition.Earliest)
    consumer = client.subscribe(
        fresh_topic,
        "s",
        kind,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=ConsumerDeadLetterPolicy(MAX_REDELIVER_COUNT, letters_topic),
    )
    producer = client.create_producer(fresh_topic, batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(b"%d" % number, partition_key=str(number % 5))
    delivered: Counter[bytes] = Counter()
    crashes = 0
    while True:
        try:
            message = consumer.receive(IDLE_MS)
        except pulsar.Timeout:
            break
        delivered[message.data()] += 1
        if int(message.data()) % 3:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
        if crashes < CRASHES and sum(delivered.values()) == DELIVERIES * (crashes + 1):
            crashes += 1
            restartable.kill()
            restartable.start()
    assert crashes == CRASHES
    dead: Counter[bytes] = Counter()
    while True:
        try:
            dead[letters.receive(IDLE_MS).data()] += 1
        except pulsar.Timeout:
            break
    client.close()
    poison = {b"%d" % number for number in range(MESSAGES) if number % 3}
    assert set(dead) == poison
    assert set(delivered) == {b"%d" % number for number in range(MESSAGES)}
    # Counts begin anew with each life of the broker, and no more often.
    lives = CRASHES + 1
    assert max(delivered.values()) <= (MAX_REDELIVER_COUNT + 1) * lives
    assert max(dead.values()) <= lives
