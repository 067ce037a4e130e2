"""Each loop that works in batches has a planted change that stops it after the first one, or a reason why not."""

from __future__ import annotations

import ast
from textwrap import indent

import pytest
from tools.mutants.batches import BatchLoop, Reason, loops_of, reasons, stopping, unstopped

from support.house.source_tree import product_modules


def test_every_loop_that_works_in_batches_is_stopped_by_a_change_of_the_list() -> None:
    loops: list[BatchLoop] = []
    for module in product_modules():
        if not module.name.startswith(("geminga.sim", "geminga.pytest_plugin")):
            path = f"src/{module.name.replace('.', '/')}{'/__init__' if module.is_package_init else ''}.py"
            loops += loops_of(path, module.text, module.tree)
    assert len(loops) > 100
    assert not (found := unstopped(loops, stopping(), reasons())), "\n".join(found)
    assert all(len(reason.why.split()) >= 5 for reason in reasons())


def found_in(body: str) -> list[tuple[str, str]]:
    text = f"class A:\n    async def f(self, names):\n{indent(body, ' ' * 8)}\n"
    return [(loop.within, loop.header) for loop in loops_of("a.py", text, ast.parse(text))]


@pytest.mark.parametrize(
    "body",
    [
        "for start in range(0, len(names), SIZE):\n    take(names[start])",
        "while some := list(islice(names, 5)):\n    take(some)",
        "while entries := await read_range(names, READ_ENTRIES):\n    take(entries)",
        "while names:\n    some, names = names[:ASKED_MAX], names[ASKED_MAX:]",
        "while names:\n    take(data[at : at + WINDOW_BYTES])",
        "while names and size < FLUSH_BYTES_MAX:\n    size += take(names)",
        "for number, one in enumerate(names):\n    if number % NAMES_PER_TURN == 0:\n        await next_turn()",
        "for one in names:\n    if len(some) == NAMES_AT_ONCE:\n        some = flush(some)",
        "return [take(names[at]) for at in range(0, len(names), step)]",
        "begun = list(names)[:BEGUN_PER_LOOK_MAX]",
    ],
)
def test_loop_that_takes_a_bounded_part_is_found(body: str) -> None:
    assert found_in(body) == [("A.f", body.split("\n")[0])]


@pytest.mark.parametrize(
    "body",
    [
        "for one in names:\n    take(one)",
        "for digit in range(0, len(names), 2):\n    take(digit)",
        "shown = names[:NAMED_MAX]",
        "while True:\n    await take(names)",
    ],
)
def test_loop_that_takes_all_is_none(body: str) -> None:
    assert found_in(body) == []


def test_a_loop_in_another_is_one_of_its_own() -> None:
    body = "while names:\n    for start in range(0, n, SIZE):\n        take(start)"
    assert found_in(body) == [("A.f", "for start in range(0, n, SIZE):")]


def test_a_loop_that_nothing_stops_and_a_reason_without_a_loop_are_told() -> None:
    loops = [
        BatchLoop("a.py", 3, "A.f", "while names:"),
        BatchLoop("a.py", 7, "A.f", "for start in range(0, n, SIZE):"),
    ]
    (told,) = unstopped(loops, [("a.py", "A.f")], [])
    assert told == "a.py:7: A.f: for start in range(0, n, SIZE):: nothing of the list stops it"
    assert unstopped(loops, [("a.py", "A.f")], [Reason("a.py", "A.f", 1, "the same is read")]) == []
    (told,) = unstopped([], [], [Reason("a.py", "A.f", 1, "the same is read")])
    assert told == "a.py: A.f: a reason for 1 loops of 0"
