"""kill -9 at seeded moments under load: nothing acknowledged lost, order per key kept, start-up recovers by itself.

CRASH_ROUNDS sets the rounds of the long test, CRASH_SEED the seed. The producer and the consumer are official clients
that live through all rounds; a second subscription that nobody reads meanwhile keeps every message for the audit.
"""

from __future__ import annotations

import os
import random
import threading

import pytest
from tools.standalone_process import StandaloneProcess

from support.house.weekly_sample import sampled
from support.processes.official import quiet_client
from support.stories.acknowledging import Acknowledging, MachineStalledError
from support.stories.crash_load import Consuming, Publishing, drain

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
@pytest.mark.parametrize("batching", sampled("kill9", [False, True], 1))
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


def run_acknowledging(tmp_path, *, rounds: int, seed: int, **settings: str) -> Acknowledging:
    """Rounds of it, with room for a little of the state, so that some of it is always on disk only."""
    story = Acknowledging(tmp_path, random.Random(seed))
    settings = {"gemingaCursorMemoryLimitMB": "0.01", "managedLedgerMaxEntriesPerLedger": "300"} | settings
    settings["managedLedgerMinLedgerRolloverTimeMinutes"] = "0"
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings) as process:
        try:
            story.run(process, rounds)
        except MachineStalledError as error:
            pytest.skip(f"seed {seed}: {error}")
    print(f"seed {seed}: {story}")
    return story


@pytest.mark.slow
def test_killed_broker_delivers_nothing_again_that_was_acknowledged_a_second_before(tmp_path) -> None:
    run_acknowledging(tmp_path, rounds=2, seed=SEED)


@pytest.mark.slow
def test_broker_that_persists_too_seldom_is_caught_delivering_again(tmp_path) -> None:
    with pytest.raises(AssertionError, match="more than a second before a kill, were delivered again"):
        run_acknowledging(tmp_path, rounds=2, seed=SEED, managedLedgerDefaultMarkDeleteRateLimit="0.2")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_broker_killed_many_times_delivers_nothing_acknowledged_again(tmp_path) -> None:
    run_acknowledging(tmp_path, rounds=max(10, ROUNDS_LONG // 4), seed=SEED + 2000)
