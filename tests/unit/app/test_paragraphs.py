"""What is said to people on standard error."""

from __future__ import annotations

import pytest

from geminga.app.lifecycle.paragraphs import PARAGRAPH_COLUMNS, print_paragraph


def test_one_line_where_there_is_no_terminal_and_wrapped_where_there_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_paragraph("a  sentence\n" + "word " * 60)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("geminga: a sentence word word")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_paragraph("word " * 60)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= PARAGRAPH_COLUMNS
