"""Names and payloads of others are shown, and never obeyed by the terminal."""

from __future__ import annotations

import json
from typing import Final

import pytest

from geminga.app.administration import main as administration
from geminga.app.administration.printing import table
from geminga.app.commands.documents import render
from geminga.app.lifecycle.paragraphs import print_paragraph
from geminga.app.lifecycle.terminal_text import visible
from support.house.terminals import Stream

#: Sets the title of a window, clears the screen, writes backwards.
HOSTILE: Final = "a\x1b]0;root\x07\x9b2J\u202eb\r\x7f"
SHOWN: Final = "a\\u001b]0;root\\u0007\\u009b2J\\u202eb\\u000d\\u007f"


def test_what_a_terminal_obeys_is_shown() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("a\ud800") == "a\\ud800"
    assert visible("zwei\tWörter\nÜ 👩‍🚀") == "zwei\tWörter\nÜ 👩‍🚀"
    assert visible("one\ntwo", is_name=True) == "one\\u000atwo"
    assert json.loads(visible(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


def test_a_name_is_one_line_of_a_table() -> None:
    assert table([HOSTILE, "b\nc"]) == f"{SHOWN}\nb\\u000ac"
    assert table([{"name": HOSTILE}, {"name": "b\nc"}]) == f"name\n{SHOWN}\nb\\u000ac"
    assert table({HOSTILE: {"b\nc": HOSTILE}, "d": [HOSTILE]}) == (
        f"{SHOWN}\n  b\\u000ac  {SHOWN}\nd{' ' * (len(SHOWN) - 1)}  {SHOWN}"
    )


def test_a_document_is_one_line_for_each_value() -> None:
    assert render([{"name": HOSTILE, "x": 1}, "b\nc"], is_json=False) == f"name {SHOWN}, x 1\nb\\u000ac"
    assert json.loads(render({"name": HOSTILE}, is_json=True)) == {"name": HOSTILE}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_a_broker_says_is_shown_at_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Stream(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", told)
    print_paragraph(f"no topic {HOSTILE}".rstrip("\x7f\r"))
    assert administration._failed(f"no topic {HOSTILE}".rstrip("\x7f\r"), 1) == 1
    shown = SHOWN.removesuffix("\\u000d\\u007f") if is_terminal else HOSTILE.rstrip("\x7f\r")
    assert told.getvalue() == f"geminga: no topic {shown}\n" * 2
