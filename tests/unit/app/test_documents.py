"""Documents for people."""

from __future__ import annotations

import json

from geminga.app.commands.documents import render

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
