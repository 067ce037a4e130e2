"""What the walks count."""

from __future__ import annotations

import json

import pytest
from tools.walk.__main__ import figures_of, main, pairs, table
from tools.walk.tracing import Trace, room_of, traced
from tools.walk.walks import WALKS

from geminga.model.topic_name import is_hidden


def test_calls_of_the_product_are_counted_while_it_is_asked_for() -> None:
    with traced() as trace:
        is_hidden("one")
        is_hidden("two")
    is_hidden("three")
    assert trace.calls == {"model/topic_name.py": 2}
    assert trace.changes == {("", "model"): 2}
    assert trace.room_changes == 0


def test_what_the_client_of_the_test_calls_does_not_count() -> None:
    def client() -> None:
        is_hidden("one")

    with traced([client.__code__]) as trace:
        client()
        is_hidden("two")
    assert trace.calls.total() == 1


def test_a_core_is_of_the_room_that_it_is_the_core_of() -> None:
    assert [room_of(file) for file in ("bookie/core/gc.py", "bookie/bookie.py", "version.py")] == [
        "bookie",
        "bookie",
        "geminga",
    ]


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_the_same_each_time_and_begins_outside(name: str) -> None:
    first, second = WALKS[name](), WALKS[name]()
    assert first == second
    figures = figures_of(first)
    assert figures["calls"] > figures["files"] >= figures["rooms"] > 1
    assert figures["room_changes"] == sum(figures["changes"].values()) > 0
    assert figures["entries"] > 0


def test_figures_of_two_trees_stand_side_by_side() -> None:
    trace = Trace()
    trace.calls.update({"a/one.py": 3, "a/core/two.py": 1, "b/three.py": 5})
    trace.changes.update({("", "a"): 1, ("a", "b"): 2})
    now = {"SEND": figures_of(trace)}
    before = {"SEND": {**now["SEND"], "calls": 12}}
    heads, row = table(now, before).splitlines()
    assert heads.split() == ["walk", "calls", "files", "rooms", "room", "changes", "entries"]
    assert row.split() == ["SEND", "12", "->", "9", "3", "->", "3", "2", "->", "2", "2", "->", "2", "1", "->", "1"]
    assert pairs(now).split() == ["SEND", "2", "a", ">", "b"]


def test_the_command_tells_json_and_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "SEND"]) == 0
    assert json.loads(capsys.readouterr().out)["walks"]["SEND"]["calls"] > 0
    with pytest.raises(SystemExit):
        main(["RECEIVE"])
    assert "no walk is called 'RECEIVE'; there are SEND, ACK" in capsys.readouterr().err
    assert main(["--base", "no-such-commit", "SEND"]) == 1
    assert "git archive no-such-commit" in capsys.readouterr().err
