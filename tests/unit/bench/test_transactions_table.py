"""The table of ``bench transactions``: ratios of neighbouring turns, who is ahead, and what is wanted of ours."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from bench.peers.rows import PULSAR
from bench.peers.servers import GEMINGA
from bench.peers.verdict import AHEAD, FAILED
from bench.servers import Bench
from bench.transactions import CASES, SHARE_WANTED, Case, Turns, selected


def answer(rate: float) -> dict[str, Any]:
    return {"rate": rate, "p50": 1.0, "p99": 3.0, "cpu_us": 5.0}


def turns(tmp_path: Path) -> Turns:
    bench = Bench(tmp_path, 1.0, 0.0, 1, "asyncio", {})
    return Turns(bench, argparse.Namespace(turns=3, k=""))


def test_rows_are_found_by_their_names_and_the_claim_is_one_of_them() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert selected("") == list(CASES)
    assert {case.name for case in selected("Aborted or OPEN")} == {
        "half of them aborted",
        "beside one that stays open",
        "catch-up past 10,000 aborted",
    }
    assert [case.name for case in CASES if case.wanted] == ["unbatched, 100 a transaction, 64 at once"]


@pytest.mark.parametrize(("ours", "met"), [((70, 68, 90), "yes"), ((70, 60, 65), "NO")])
def test_a_ratio_is_the_median_of_neighbours(tmp_path: Path, ours: tuple[int, ...], met: str) -> None:
    table = turns(tmp_path)
    case = Case("a row", wanted=SHARE_WANTED)
    table.answers["a row", GEMINGA] = [
        (answer(rate), answer(plain)) for rate, plain in zip(ours, (100, 90, 100), strict=True)
    ]
    table.answers["a row", PULSAR] = [(answer(10), answer(100))] * 3
    line = table.row(case)
    assert line["Geminga x plain"] == {"yes": 0.76, "NO": 0.67}[met]
    assert (line["met"], line["verdict"], line["Pulsar x plain"]) == (met, AHEAD, 0.1)


def test_without_the_other_server_there_is_no_verdict_and_what_failed_says_so(tmp_path: Path) -> None:
    table = turns(tmp_path)
    table.answers["a row", GEMINGA] = [(answer(70), None)]
    assert table.row(Case("a row"))["verdict"] == ""
    table.problems["a row", PULSAR] = "it ended"
    assert table.row(Case("a row"))["verdict"] == FAILED
