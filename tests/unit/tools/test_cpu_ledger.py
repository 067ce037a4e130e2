"""Processor time of a test and of all processes below it."""

from __future__ import annotations

import subprocess
import sys

from support.house.cpu_ledger import sums_of_files, tree_cpu_s

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()\n"


def test_cpu_of_children_counts_while_they_run_and_when_they_are_over() -> None:
    before = tree_cpu_s()
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        while_running = tree_cpu_s() - before
        child.communicate(b"\n")
    assert while_running >= 0.28
    assert tree_cpu_s() - before >= 0.28


def test_a_file_costs_what_its_tests_do() -> None:
    tests = {
        "tests/a/test_x.py::test_b[1::2]": (0.25, 1.0),
        "tests/a/test_x.py::test_c": (0.5, 1.21),
        "tests/t.py::d": (0, 0),
    }
    assert sums_of_files(tests) == {"a/test_x.py": (0.8, 2.2), "t.py": (0, 0)}
