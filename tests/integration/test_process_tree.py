"""Killing a tree of processes, with a grandchild in a group of its own, as Spark's workers are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tools.process_tree import children_of, command_of, is_alive, kill_tree, wait_gone
from tools.spark_driver import DriverError, SparkDriver

PROGRAM = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


def test_kill_tree_takes_grandchildren_in_groups_of_their_own():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        grandchild = int(process.stdout.readline())
        assert grandchild in children_of([os.getpid()])
        assert "signal.pause()" in command_of(grandchild)
        assert kill_tree(process.pid) == {process.pid, grandchild}
        process.wait()
    assert wait_gone({process.pid, grandchild}, 10) == set()
    assert not is_alive(grandchild)
    assert command_of(process.pid) == ""


@pytest.fixture
def module(tmp_path):
    """Makes a module of a text and gives a driver that runs it."""

    def make(text: str) -> SparkDriver:
        (tmp_path / "made_job.py").write_text(text, encoding="utf-8")
        driver = SparkDriver("made_job", [], log=tmp_path / "log", environment={"PYTHONPATH": str(tmp_path)})
        return driver

    return make


def test_driver_reports_are_its_json_lines_and_its_end_is_none(module):
    driver = module("import sys; print('noise'); print('{\"batch\": 1}'); sys.stderr.write('told'); sys.exit(3)")
    driver.start()
    assert driver.next_report(30) == {"batch": 1}
    assert driver.next_report(30) is None
    assert driver.wait(30) == 3
    assert "told" in driver.log_tail()


def test_driver_that_says_nothing_is_an_error_and_can_be_killed_and_started_again(module):
    driver = module("import signal; print('{}', flush=True); signal.pause()")
    with driver:
        driver.start()
        assert driver.next_report(30) == {}
        with pytest.raises(DriverError, match="said nothing for 0 s"):
            driver.next_report(0.01)
        driver.kill()
        assert not driver.is_running
        driver.start()
        assert driver.next_report(30) == {}
    assert not driver.is_running
