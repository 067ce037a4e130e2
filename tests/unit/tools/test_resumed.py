"""A run of hours that was cut off goes on where it was, as long as nothing has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.house.resumed import passed_of, tree_of
from support.house.source_tree import ROOT

TESTS = """
import pathlib, pytest

def test_a():
    note("a")

def test_b(request):
    note("b")
    assert not pathlib.Path("breaks").exists()

@pytest.mark.parametrize("name", ["c", "d e"])
def test_more(name):
    note(name)

@pytest.fixture
def ends_badly():
    yield
    assert not pathlib.Path("breaks").exists()

def test_end(ends_badly):
    note("end")

def note(name):
    with open("ran", "a") as file:
        file.write(name + ",")
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A working copy with a few tests, and what keeps git quiet."""
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / ".gitignore").write_text("ran\nbreaks\npassed\n__pycache__\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def ran(copy: Path, *, workers: int = 0) -> tuple[set[str], str]:
    """Which tests ran, and what pytest said."""
    (copy / "ran").write_text("")
    kept = {"KEPT_RESULTS": str(copy / "passed"), "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.house.resumed", "-n", str(workers)]
    done = subprocess.run(
        [*command, "--rootdir", "."], cwd=copy, env={**os.environ, **kept}, capture_output=True, text=True, check=False
    )
    return set((copy / "ran").read_text().split(",")) - {""}, done.stdout


def test_only_what_did_not_pass_runs_again(copy: Path) -> None:
    (copy / "breaks").touch()
    assert ran(copy, workers=2)[0] == {"a", "b", "c", "d e", "end"}
    (copy / "breaks").unlink()
    again, told = ran(copy, workers=2)
    assert again == {"b", "end"}
    assert "3 tests of tree" in told
    assert ran(copy)[0] == set()


def test_a_change_begins_anew(copy: Path) -> None:
    before = tree_of(copy)
    (copy / "passed").write_text(f"{before}\ntest_them.py::test_a\n")
    assert ran(copy)[0] == {"b", "c", "d e", "end"}
    assert tree_of(copy) == before
    (copy / "test_them.py").write_text(f"{TESTS}\n# a word\n")
    assert tree_of(copy) != before
    assert len(ran(copy)[0]) == 5


def test_a_line_that_was_cut_off_is_none() -> None:
    assert passed_of("tree\na\nb[x y]\nc", "tree") == {"a", "b[x y]"}
    assert passed_of("other\na\n", "tree") == passed_of("", "tree") == frozenset()
