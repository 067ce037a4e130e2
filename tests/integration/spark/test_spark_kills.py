"""``make spark-kills``: troublesome events through Spark's windows; driver, worker, task and broker are killed.

The short form runs in ``make test``; the long ones take EVENTS=file.jsonl[.gz], SPARK_SEED=number, SPARK_KILLS=number.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from demo.accounts import audit
from demo.killing import KINDS, kinds_of
from demo.spark_kills import made_input
from demo.weekly_stage import WeeklyStage
from tools.standalone_process import StandaloneProcess

from support.house.source_tree import ROOT
from support.house.weekly_sample import sampled

#: Of the two pairs of kinds.
PAIRS = ("driver and task", "worker and broker")

pytestmark = pytest.mark.integration
SEED = int(os.environ.get("SPARK_SEED", "0")) or random.randrange(1, 1 << 31)
KILLS = int(os.environ.get("SPARK_KILLS", "20"))


def kill_and_count(*arguments: str, timeout_s: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "demo.spark_kills", "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["failures"] == []
    assert told["rows"] == told["in_windows"] + told["late"] + told["duplicates"] + told["refused"]
    return told


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kinds", sampled("spark kills", [("driver", "task"), ("worker", "broker")], 1, ids=PAIRS))
def test_each_row_is_in_its_place_once_though_two_kinds_are_killed(kinds: tuple[str, str]) -> None:
    given = ("--rows", "900", "--batches", "9", "--kills", "2", "--kinds", ",".join(kinds), "--seed", "5")
    told = kill_and_count(*given, timeout_s=580)
    assert told["kills"] == dict.fromkeys(kinds, 1)
    assert told["late"] > 50
    assert told["duplicates"] > 2
    assert told["refused"] > 1
    assert told["messages_in_b"] == told["rows_in_table"] > 300


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_row_is_in_its_place_once_though_all_kinds_are_killed() -> None:
    told = kill_and_count("--rows", "1500", "--kills", "4", "--seed", "5", timeout_s=580)
    assert told["kills"] == dict.fromkeys(KINDS, 1)
    assert told["late"] > 100
    assert told["duplicates"] > 5
    assert told["refused"] == 5
    assert told["messages_in_b"] == told["rows_in_table"] > 700


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["append", "update"])
def test_made_events_are_each_in_their_place_over_many_kills(mode: str) -> None:
    told = kill_and_count("--kills", str(KILLS), "--seed", str(SEED), "--mode", mode, timeout_s=3600)
    assert told["kills"] == Counter(kinds_of(KILLS))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not os.environ.get("EVENTS"), reason="EVENTS names the events")
def test_events_of_a_file_are_each_in_their_place_over_many_kills() -> None:
    arguments = ("--kills", str(KILLS), "--seed", str(SEED), "--events", os.environ["EVENTS"])
    told = kill_and_count(*arguments, timeout_s=3600)
    assert told["kills"] == Counter(kinds_of(KILLS))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_batch_that_is_written_again_is_seen_if_the_sink_lets_it_through(tmp_path) -> None:
    """The control: at least once, and the commit of a batch with windows taken out of the checkpoint."""
    given = made_input(5, 1500, 12)
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log") as broker:
        stage = WeeklyStage(broker, tmp_path, given.rows, given.delay_ms)
        stage.make_topics("at-least-once")
        stage.publish(lambda _: None)
        stage.close_windows(given.id_field)
        with stage.driver(given.batch, given.id_field, mode="append", guarantee="at-least-once") as driver:
            for _ in range(2):
                driver.start()
                while (report := driver.next_report(300)) is not None and "idle" not in report:
                    continue
                assert report is not None, driver.log_tail()
                driver.tell("end")
                assert driver.wait(60) == 0
                if not audit(stage.found(), given.expected):
                    take_out_last_commit(tmp_path)
        reasons = audit(stage.found(), given.expected)
    assert any("more than once" in reason for reason in reasons), reasons
    # The table is written over, whatever the sink promises.
    assert not any(reason.startswith("the table") for reason in reasons), reasons


def take_out_last_commit(directory) -> None:
    commits = directory / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
