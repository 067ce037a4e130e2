"""What owners say to each other of a topic and of those that show it, as JSON."""

from __future__ import annotations

import pytest

from geminga.broker.core import source_word
from geminga.broker.core.source_word import UNLISTED, Abort, SourceWord, aborts_behind, word_json, word_of
from geminga.model.errors import RemoteError
from geminga.model.position import EARLIEST, Position
from geminga.model.txn_id import TxnId

ABORTS = tuple(Abort(TxnId(0, number), Position(5, 2 * number), Position(5, 2 * number + 1)) for number in range(4))


def test_a_word_is_the_same_when_it_was_told() -> None:
    word = SourceWord(True, Position(5, 9), 1200, 7, Position(5, 7), ABORTS, False)
    assert word_of(word_json(word)) == word
    assert word_of(word_json(UNLISTED)) == UNLISTED


def test_aborts_come_in_the_order_of_their_markers_from_where_they_are_known() -> None:
    assert aborts_behind(reversed(ABORTS), EARLIEST) == (ABORTS, True)
    assert aborts_behind(ABORTS, ABORTS[1].marker) == (ABORTS[2:], True)


def test_more_aborts_than_an_answer_has_are_told_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_word, "ABORTS_MAX", 3)
    first, is_whole = aborts_behind(ABORTS, EARLIEST)
    assert (first, is_whole) == (ABORTS[:3], False)
    assert aborts_behind(ABORTS, first[-1].marker) == (ABORTS[3:], True)


@pytest.mark.parametrize(
    "change",
    [
        {"listed": "yes"},
        {"readable": [1]},
        {"readable": "5:1"},
        {"bytes": None},
        {"version": 1 << 63},
        {"aborts": {}},
        {"aborts": [[1, 2, 3]]},
        {"abortedThrough": [1, "x"]},
    ],
)
def test_what_is_no_word_is_refused(change: dict) -> None:
    with pytest.raises(RemoteError):
        word_of({**word_json(SourceWord(True, Position(5, 9))), **change})


def test_what_is_no_object_is_refused() -> None:
    for document in (None, [], "listed"):
        with pytest.raises(RemoteError):
            word_of(document)
