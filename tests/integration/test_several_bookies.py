"""Three bookies in a real process: kill -9 under load, a directory or a journal that is gone, and what is read then.

The seed fixes when the process is killed and which bookie is lost: CRASH_SEED.
"""

from __future__ import annotations

import os
import random
import shutil
import threading

import pytest
from tools.standalone_process import StandaloneProcess, StartError

from support.processes.official import quiet_client
from support.stories.crash_load import Publishing, drain

pytestmark = pytest.mark.integration

TOPIC = "persistent://public/default/three"
SEED = int(os.environ.get("CRASH_SEED", "1"))
QUORUMS = ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum")
ROUNDS = 1
ROUNDS_LONG = 8


def settings_of(quorums: tuple[int, int, int] | None, **more: str) -> dict[str, str]:
    settings = {"gemingaBookies": "3", "managedLedgerMaxEntriesPerLedger": "700"}
    settings["managedLedgerMinLedgerRolloverTimeMinutes"] = "0"
    if quorums is not None:
        settings |= {key: str(value) for key, value in zip(QUORUMS, quorums, strict=True)}
    return settings | more


#: Quorums, what is lost, and whether a new bookie takes its place: where Qw = Qa and the ensemble is all there are,
#: nobody can end a ledger that was being written before one does.
CASES = {
    "3/3/2, its directory": ((3, 3, 2), "", False),
    "3/2/2, its journal": ((3, 2, 2), "journal", True),
    "unsaid, its journal": (None, "journal", False),
}


@pytest.mark.slow
def test_what_was_acknowledged_before_a_kill_is_read_when_a_new_bookie_replaces_a_lost_one(tmp_path) -> None:
    run_story(tmp_path, *CASES["3/2/2, its journal"], rounds=ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES)
def test_what_was_acknowledged_before_many_kills_is_read_without_a_lost_bookie(tmp_path, case: str) -> None:
    run_story(tmp_path, *CASES[case], rounds=ROUNDS_LONG)


def run_story(tmp_path, quorums: tuple[int, int, int] | None, lost: str, is_replaced: bool, *, rounds: int) -> None:
    """Load and kills, one bookie lost, an audit of what was acknowledged."""
    rng = random.Random(f"{SEED} {quorums} {lost}")
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=settings_of(quorums))
    process.start()
    client = quiet_client(process.service_url, tmp_path)
    client.subscribe(TOPIC, "audit").close()
    publishing = Publishing(client, TOPIC, batching=rng.random() < 0.5)
    publishing.start()
    try:
        for _ in range(rounds):
            threading.Event().wait(rng.uniform(0.1, 0.6))
            process.kill()
            process.start()
    finally:
        publishing.stop()
    client.close()
    # What is in the journals only goes with the bookie that is lost.
    process.kill()
    name = rng.choice(("bookie", "bookie-2", "bookie-3"))
    shutil.rmtree(tmp_path / "data" / name / lost)
    with pytest.raises(StartError, match=rf"(?s){name} \(127\.0\.0\.1:318\d\): .*gemingaBookiesLeftOut={name}"):
        process.start()
    with pytest.raises(StartError, match=r"(?s)metadata store remembers .*--bookies 3"):
        process.settings = settings_of(None, gemingaBookies="1")
        process.start()
    if is_replaced:
        process.settings = settings_of(quorums, gemingaBookiesLeftOut=name, gemingaBookies="4")
    else:
        process.settings = settings_of((2, 2, 2), gemingaBookiesLeftOut=name)
    with process:
        client = quiet_client(process.service_url, tmp_path)
        audit = drain(client, TOPIC, "audit", publishing.acknowledged)
        client.close()
        exit_code = process.stop()
    assert publishing.errors == []
    assert len(publishing.acknowledged) == publishing.sent > 0
    assert publishing.acknowledged - audit.first == set(), "acknowledged and lost with one bookie of three"
    assert audit.out_of_order == []
    assert exit_code == 0
