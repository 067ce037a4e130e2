"""Collections of a server's process: they do not walk what loads in flight hold again and again."""

from __future__ import annotations

from support.house.python_programs import run_python

PROGRAM = """
import gc
from collections import deque
from geminga.app.lifecycle.process_life import settle_collector

gc.collect()
{call}
before = [each["collections"] for each in gc.get_stats()]
topics, under_way = [], deque()
for number in range(4_000):
    topics.append([[number] for _ in range(20)])
    # Hundreds of loads are under way, and each holds objects until it is done.
    under_way.append([[number] for _ in range(300)])
    if len(under_way) > 100:
        under_way.popleft()
after = [each["collections"] for each in gc.get_stats()]
print(*(end - begin for begin, end in zip(before, after)), gc.get_freeze_count())
"""


def collections(call: str) -> list[int]:
    """Of each generation, and the objects that are left out for good."""
    program = PROGRAM.format(call=call)
    out = run_python(program).stdout
    return list(map(int, out.split()))


def test_a_settled_process_collects_seldom_and_leaves_out_what_it_began_with():
    usual, settled = collections("pass"), collections("settle_collector()")
    assert usual[0] > 100
    assert settled[0] * 10 <= usual[0]
    assert settled[1] * 10 <= usual[1]
    assert usual[3] == 0
    assert settled[3] > 1_000
