"""The walks of ARCHITECTURE.md tell every file that a warm SEND and a warm ACK run through, and only get shorter."""

from __future__ import annotations

import pytest

from support.house.source_tree import ROOT
from support.house.warm_paths import Walk, files_of_a_send, files_of_an_ack, read_page, walk_of, walk_violations

#: Files that are run through, those that are only called on the way included. A budget only shrinks.
SEND_FILES = 26
ACK_FILES = 27
#: Stops of a SEND until its entry is with the disk, and of an ACK until its state is handed to a ledger.
SEND_STOPS_DOWN = 12
ACK_STOPS_DOWN = 8


def test_a_send_runs_through_the_files_that_its_walk_names_and_no_more_than_its_budget() -> None:
    walk = walk_of(read_page(ROOT), "Publish")
    assert not (found := walk_violations(walk, files_of_a_send(), SEND_FILES)), "\n".join(found)
    down = next(number for number, files in enumerate(walk.stops, 1) if "bookie/core/group_pacing.py" in files)
    assert down <= SEND_STOPS_DOWN
    assert all(len(files) == 1 for files in walk.stops)


def test_an_ack_runs_through_the_files_that_its_walk_names_and_no_more_than_its_budget() -> None:
    page = read_page(ROOT)
    walk, send = walk_of(page, "Acknowledge"), walk_of(page, "Publish")
    assert walk.goes_on
    shared = [file for number in walk.goes_on for file in send.stops[number - 1]]
    assert not (found := walk_violations(walk, files_of_an_ack(), ACK_FILES, shared)), "\n".join(found)
    down = next(
        number for number, files in enumerate(walk.stops, 1) if "managed_ledger/cursor/cursor_ledger.py" in files
    )
    assert down <= ACK_STOPS_DOWN
    assert all(len(files) == 1 for files in walk.stops)


def test_what_the_client_of_the_test_calls_does_not_count() -> None:
    assert "wire/pulsar/commands.py" not in files_of_a_send()  # it decodes the receipt


PAGE = """## Life
**Send: down.** Two files.

1. **`a/one.py`** gets it (`a/side.py`).
2. **`a/two.py`** and `**not**` more.

Called on the way: `a/leaf.py` (counts).

**Ack: also.**

1. **`b/one.py`**, then stops 2 to 2 of a SEND.

## Next
1. **`c/other.py`**
"""
RUN = ["a/one.py", "a/two.py", "a/leaf.py"]


def test_a_page_is_read_as_it_is_meant() -> None:
    assert walk_of(PAGE, "Send") == Walk([["a/one.py"], ["a/two.py"]], ["a/leaf.py"], range(0))
    assert walk_of(PAGE, "Ack") == Walk([["b/one.py"]], [], range(2, 3))


@pytest.mark.parametrize(
    ("run", "files_max", "what"),
    [
        ([*RUN, "a/new.py"], 4, "a/new.py is run through, and told nowhere"),
        (["a/one.py", "a/leaf.py"], 2, "a/two.py is walked, and not run through"),
        (["a/one.py", "a/two.py"], 2, "a/leaf.py is told as called on the way, and is not run through"),
        (RUN, 2, "3 files are run through, 2 may"),
        (RUN, 4, "the budget is lowered from 4"),
    ],
)
def test_a_walk_that_is_not_what_is_run_through_is_caught(run: list[str], files_max: int, what: str) -> None:
    walk = walk_of(PAGE, "Send")
    assert walk_violations(walk, RUN, 3) == []
    (found,) = walk_violations(walk, run, files_max)
    assert what in found


def test_stops_that_are_gone_on_with_are_held_too() -> None:
    walk = walk_of(PAGE, "Ack")
    assert walk_violations(walk, ["b/one.py", "a/two.py"], 2, ["a/two.py"]) == []
    assert walk_violations(walk, ["b/one.py"], 1, ["a/two.py"]) == [
        "a/two.py is a stop that is gone on with, and not run through"
    ]
    assert walk_violations(walk, ["b/one.py"], 1, ["b/one.py"]) == ["b/one.py is told more than once"]
    assert walk_violations(Walk([[]], [], range(0)), [], 0) == ["stop 1 names no file"]
