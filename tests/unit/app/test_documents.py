"""Documents for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from geminga.app.commands.documents import render, rows

DOCUMENT = {
    "markDeletePosition": "7:2",
    "is_torn": False,
    "lastMarker": None,
    "cursors": {"a%2Fb": {"holes": ["7:4..7:5"], "entries": {"n": 3}}},
    "ledgers": [{"ledgerId": 7, "entries": 10}, {"ledgerId": 8, "entries": 0}],
    "nothing": [],
}


def test_document_reads_as_indented_words() -> None:
    assert render(DOCUMENT, is_json=False).splitlines() == [
        "mark delete position  7:2",
        "is torn               no",
        "last marker           -",
        "cursors",
        "  a%2Fb",
        "    holes    7:4..7:5",
        "    entries",
        "      n  3",
        "ledgers",
        "  ledger id 7, entries 10",
        "  ledger id 8, entries 0",
        "nothing               none",
    ]


def test_document_as_json_is_the_document() -> None:
    assert json.loads(render(DOCUMENT, is_json=True)) == DOCUMENT


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("is_json", [False, True])
def test_rows_are_the_same_one_after_the_other(count: int, is_json: bool) -> None:
    documents = [{"entryId": number, "data": "ab" * number, "ids": [1, {"a": 2}]} for number in range(count)]
    given: list[int] = []

    def each() -> Iterator[Mapping[str, object]]:
        for number, document in enumerate(documents):
            given.append(number)
            yield document

    lines = rows(each(), is_json=is_json)
    first = next(lines, "")
    assert given == [0][:count], "the first line waits for no other document"
    assert "\n".join([first, *lines]) == render(documents, is_json=is_json)
