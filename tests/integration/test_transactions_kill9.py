"""The example that joins two topics while it and its broker are killed: each pair is there once, and no input is left.

CRASH_ROUNDS sets the rounds of the long test, CRASH_SEED the seed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import InitialPosition, Timeout, blocking
from support.source_tree import ROOT

pytestmark = pytest.mark.integration

SEED = int(os.environ.get("CRASH_SEED", "1"))
ROUNDS_LONG = int(os.environ.get("CRASH_ROUNDS", "200"))
#: Pairs that come with each round.
PAIRS = 150
#: After the last kill all results are there within so many seconds: a transaction left open lasts ten.
SETTLED_S = 60.0
SETTINGS = {"transactionCoordinatorEnabled": "true", "brokerDeduplicationEnabled": "true"}
PROGRAM = str(ROOT / "examples" / "join_in_transactions.py")


@pytest.mark.parametrize(
    "rounds", [6, pytest.param(ROUNDS_LONG, marks=[pytest.mark.long, pytest.mark.timeout(3600)])], ids=["few", "many"]
)
def test_each_pair_is_there_once_whoever_is_killed(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(SEED)
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SETTINGS) as broker:
        with blocking.connect(broker.service_url) as client, (tmp_path / "join.log").open("w") as log:
            orders, payments = client.create_producer("orders"), client.create_producer("payments")
            client.subscribe("paid", "check", initial_position=InitialPosition.Earliest).close()

            def launch() -> subprocess.Popen[bytes]:
                command = [sys.executable, PROGRAM, broker.service_url, "orders", "payments", "paid"]
                return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

            program = launch()
            pause = threading.Event()
            try:
                for number in range(rounds):
                    for index in range(number * PAIRS, (number + 1) * PAIRS):
                        orders.send_nowait(b"order-%d" % index, partition_key=str(index))
                        payments.send_nowait(b"payment-%d" % index, partition_key=str(index))
                    if number % 2:
                        orders.flush()
                        payments.flush()
                    pause.wait(rng.uniform(0.02, 0.5))
                    if rng.random() < 0.5:
                        broker.kill()
                        broker.start()
                    else:
                        program.kill()
                        program.wait()
                        program = launch()
                orders.flush()
                payments.flush()
                # Only now: what a consumer has when its broker is killed comes again to it.
                results = client.subscribe("paid", "check")
                found: Counter[bytes] = Counter()
                deadline = time.monotonic() + SETTLED_S
                while len(found) < rounds * PAIRS and time.monotonic() < deadline:
                    try:
                        found[results.receive(500).data()] += 1
                    except Timeout:
                        continue
                with pytest.raises(Timeout):
                    results.receive(500)
            finally:
                program.kill()
                program.wait()
        expected = Counter(b"order-%d+payment-%d" % (index, index) for index in range(rounds * PAIRS))
        assert found == expected, (tmp_path / "join.log").read_text()[-2000:]
        with blocking.connect(broker.service_url) as client:
            for topic in ("orders", "payments"):
                with client.subscribe(topic, "join") as left, pytest.raises(Timeout):
                    left.receive(500)
