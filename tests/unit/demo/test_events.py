"""The demo's events: files, gzip, git or not, seeds."""

from __future__ import annotations

import gzip

import pytest
from demo import events
from demo.events import EVENTS_MIN, load_events


def test_file_gives_its_lines_keyed_by_repo(tmp_path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"repo":"a/b","n":1}\n\n{"other":2}\n')
    assert load_events(str(path)).rows == [("a/b", b'{"repo":"a/b","n":1}'), ("", b'{"other":2}')]


def test_gzip_file_is_read_too(tmp_path) -> None:
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"repo":"r"}\n'))
    assert load_events(str(path)).rows == [("r", b'{"repo":"r"}')]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has none, and a run without events would show nothing"),
        ('{"repo":"a"}\n7\n', "event 2: expected an object"),
        ("[" * 100_000, "event 1 is no JSON"),
    ],
)
def test_what_is_no_events_is_told_before_anything_is_started(tmp_path, text: str, told: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        load_events(str(path))


def test_missing_file_is_an_error(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        load_events(str(tmp_path / "none"))


def test_short_history_is_filled_up_the_same_way_each_time(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(events, "ROOT", tmp_path)  # no git here
    first = load_events("")
    assert len(first.rows) == EVENTS_MIN
    assert "no git history" in first.origin
    assert "seed 42" in first.origin
    assert load_events("").rows == first.rows
