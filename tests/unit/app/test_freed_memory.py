"""What servers free stays theirs for a while: large entries do not cost a page fault for each of their pages."""

from __future__ import annotations

import platform

import pytest

from support.house.python_programs import run_python

ROUNDS = 50
PROGRAM = f"""
import resource
from geminga.app.lifecycle.process_life import keep_freed_memory

{{call}}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def churn():
    return [b"." * 100_000 for _ in range(20)]

churn()
before = faults()
for _ in range({ROUNDS}):
    churn()
print(faults() - before)
"""


def faults(call: str) -> int:
    program = PROGRAM.format(call=call)
    return int(run_python(program).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the marks are glibc's")
def test_blocks_that_come_and_go_take_their_pages_once():
    assert faults("pass") > ROUNDS * 100
    assert faults("keep_freed_memory()") < ROUNDS
