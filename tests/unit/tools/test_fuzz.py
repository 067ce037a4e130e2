"""The kept corpora of ``make fuzz``: each input is tried again, and each corpus still has inputs of both kinds."""

from __future__ import annotations

import pytest
from tools.fuzz import corpus_file
from tools.fuzz.smallest import smallest
from tools.fuzz.targets import TARGETS, first_seeds, is_taken, is_text


@pytest.mark.parametrize("name", TARGETS)
def test_each_input_of_the_corpus_is_taken_or_refused_with_a_sentence(name: str) -> None:
    inputs = corpus_file.read(name)
    assert len(inputs) > 1
    assert {is_taken(name, one) for one in inputs} == {True, False}
    assert any(is_taken(name, one) for one in first_seeds(name))


def test_what_is_raised_but_a_refusal_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "token", lambda _: {}["nothing"])
    with pytest.raises(KeyError):
        is_taken("token", b"x")


def test_inputs_that_reach_nothing_new_are_not_kept() -> None:
    inputs = [*first_seeds("credentials"), b"jane", b"joe", b"joe:secret", b":"]
    kept = smallest(inputs, lambda data: is_taken("credentials", data), "/security/")
    assert kept == [b":", b"joe:secret"]


def test_half_of_a_character_is_no_text() -> None:
    assert is_text("wörld\U0001f600")
    assert not is_text("a\ud800")
