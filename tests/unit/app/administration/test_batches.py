"""Commands that change many things: what is asked before, and what is told where an operator cuts them off."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from geminga.admin.errors import PreconditionFailedError, UnreachableError
from geminga.app.administration.arguments import given
from geminga.app.administration.asking import carried_out_by
from geminga.app.administration.groups import commands_of
from geminga.app.administration.session import FailedError
from support.house.terminals import Stream
from support.processes.asked_broker import AskedBroker

NAMES: Final = [f"persistent://a/b/t{number}" for number in range(5)]


def question_of(monkeypatch: pytest.MonkeyPatch, broker: AskedBroker, words: str, *rest: str) -> str:
    """What is asked at a terminal; the answer is no."""
    group, _, name = words.partition(" ")
    command = commands_of(group)[name]
    shown = Stream(is_terminal=True)
    monkeypatch.setattr("sys.stdin", Stream("n\n", is_terminal=True))
    monkeypatch.setattr("sys.stderr", shown)
    with pytest.raises(SystemExit, match="1"):
        carried_out_by(broker, command, given(command, rest, {}), asks=True)
    assert broker.changes == []
    return shown.getvalue()


@pytest.mark.parametrize(
    ("words", "rest", "asked"),
    [
        ("topics unsubscribe", ["a/b/t", "-s", "billing", "--force"], "`topics unsubscribe a/b/t -s billing --force`"),
        ("namespaces delete", ["a/b", "-f", "--json"], "`namespaces delete a/b -f`"),
        ("topics reset-cursor", ["--time=3h", "a/b/t", "-s", "my work"], "`topics reset-cursor --time=3h a/b/t -s 'my"),
    ],
)
def test_a_question_has_all_words_of_its_command(
    words: str, rest: list[str], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert question_of(monkeypatch, AskedBroker(), words, *rest).startswith(asked)


def test_a_question_tells_how_many_topics_an_expression_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = AskedBroker({"/admin/v2/persistent/a/b": NAMES, "/admin/v2/non-persistent/a/b": []})
    asked = question_of(monkeypatch, broker, "topics delete", "a/b/t.*", "--regex")
    assert asked.startswith(
        "`topics delete 'a/b/t.*' --regex`, 5 topics (persistent://a/b/t0, persistent://a/b/t1, persistent://a/b/t2 "
        "and others), can not be undone."
    )


def test_a_question_tells_how_many_topics_a_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "topics"
    path.write_text("a/b/t\n", encoding="utf-8")
    asked = question_of(monkeypatch, AskedBroker(), "topics delete", str(path), "--from-file")
    assert asked.startswith(f"`topics delete {path} --from-file`, 1 topic (a/b/t), can not be undone.")


def test_a_question_tells_which_tenants_go_with_their_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "/admin/v2/tenants": ["one", "both"],
        "/admin/v2/tenants/one": {"allowedClusters": ["c"]},
        "/admin/v2/tenants/both": {"allowedClusters": ["c", "d"]},
        "/admin/v2/namespaces/one": ["one/a", "one/b"],
    }
    asked = question_of(monkeypatch, AskedBroker(answers), "clusters delete", "c", "--all")
    assert asked.startswith("`clusters delete c --all`, 1 tenant (one) and 2 namespaces (one/a, one/b), can not be")


def test_who_cuts_deletions_off_is_told_which_were_done() -> None:
    refused = PreconditionFailedError("x", 412, "in use")
    answers = {"/admin/v2/persistent/a/b": NAMES, "/admin/v2/non-persistent/a/b": []}
    answers |= {"/admin/v2/persistent/a/b/t1": refused, "/admin/v2/persistent/a/b/t3": KeyboardInterrupt()}
    broker = AskedBroker(answers)
    command = commands_of("topics")["delete"]
    with pytest.raises(FailedError) as caught:
        carried_out_by(broker, command, given(command, ["a/b/.*", "-r"], {"yes": True}), asks=True)
    assert str(caught.value) == (
        "interrupted at persistent://a/b/t3, which may be done or not: 2 of 5 topics were deleted, "
        "not persistent://a/b/t1: 412 in use"
    )
    assert broker.changes == [f"DELETE /admin/v2/persistent/a/b/t{number}" for number in range(4)]


def test_who_cuts_partitions_off_is_told_which_were_done() -> None:
    path = "/admin/v2/persistent/a/b/t"
    broker = AskedBroker({f"{path}/partitions": {"partitions": 4}, f"{path}-partition-2/unload": KeyboardInterrupt()})
    command = commands_of("topics")["unload"]
    with pytest.raises(FailedError) as caught:
        carried_out_by(broker, command, given(command, ["a/b/t"], {}), asks=True)
    assert str(caught.value) == (
        "interrupted at partition 2, which may be done or not: a/b/t: done for 2 of 4 partitions"
    )
    assert len(broker.changes) == 3


def test_who_cuts_one_change_off_cuts_the_command_off() -> None:
    broker = AskedBroker({"/admin/v2/persistent/a/b/t": KeyboardInterrupt()})
    command = commands_of("topics")["delete"]
    with pytest.raises(KeyboardInterrupt):
        carried_out_by(broker, command, given(command, ["a/b/t"], {"yes": True}), asks=True)


def test_a_broker_that_answers_no_more_ends_the_rest() -> None:
    """Each of 1,000 deletions waited its whole time for a broker that was gone."""
    answers: dict[str, Any] = {"/admin/v2/persistent/a/b": NAMES, "/admin/v2/non-persistent/a/b": []}
    gone = UnreachableError("x", 0, "no answer: timed out")
    command = commands_of("topics")["delete"]

    def said_of(unanswered: list[int]) -> str:
        broker = AskedBroker(answers | {f"/admin/v2/persistent/a/b/t{number}": gone for number in unanswered})
        with pytest.raises(FailedError) as caught:
            carried_out_by(broker, command, given(command, ["a/b/.*", "-r"], {"yes": True}), asks=True)
        return str(caught.value).replace("persistent://a/b/", "").replace("x: no answer: timed out", "no answer")

    assert said_of([1, 2, 3, 4]) == (
        "1 of 5 topics were deleted, not t1: no answer; t2: no answer; the other 2 were not tried, for nobody answers"
    )
    # One that takes too long is no reason to leave the others alone.
    assert said_of([1, 3]) == "3 of 5 topics were deleted, not t1: no answer; t3: no answer"
    assert said_of([3, 4]) == "3 of 5 topics were deleted, not t3: no answer; t4: no answer"
