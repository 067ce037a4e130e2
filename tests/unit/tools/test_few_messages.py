"""What workers keep back, and what they never do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.house.few_messages import is_needed

PASSED = {"outcome": "passed", "sections": [], "user_properties": []}


@pytest.mark.parametrize(
    ("name", "data", "needed"),
    [
        ("testreport", {**PASSED, "when": "setup"}, False),
        ("testreport", {**PASSED, "when": "teardown"}, False),
        ("testreport", {**PASSED, "when": "call"}, True),
        ("testreport", {**PASSED, "when": "setup", "outcome": "failed"}, True),
        ("testreport", {**PASSED, "when": "setup", "outcome": "skipped"}, True),
        ("testreport", {**PASSED, "when": "teardown", "outcome": "failed"}, True),
        ("testreport", {**PASSED, "when": "teardown", "sections": [["Captured stdout", "x"]]}, True),
        ("testreport", {**PASSED, "when": "teardown", "user_properties": [["cpu_ledger", [1, 2]]]}, True),
        ("logstart", None, False),
        ("logfinish", None, True),
        ("runtest_protocol_complete", None, True),
        ("collectreport", None, True),
    ],
)
def test_only_what_says_nothing_is_kept_back(name: str, data: Mapping[str, Any] | None, needed: bool) -> None:
    assert is_needed(name, {"data": data}) is needed


RUN = """
import pytest

@pytest.fixture
def bad_begin(): 1 / 0

@pytest.fixture
def bad_end():
    yield
    1 / 0

def test_passes(): print("what a test that passed says is not shown")
def test_skipped(): pytest.skip("why")
def test_fails(): assert 0
def test_begins_badly(bad_begin): pass
def test_ends_badly(bad_end): pass
"""


def test_result_of_a_run_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from support.house.few_messages import tell_less as pytest_configure\n")
    (tmp_path / "test_some.py").write_text(RUN)
    options = ["-q", "-n", "1", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.sub(r" in .*", "", done.stdout.splitlines()[-1]) == "1 failed, 2 passed, 1 skipped, 2 errors"
