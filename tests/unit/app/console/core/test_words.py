"""Numbers as people read them."""

from __future__ import annotations

import pytest

from geminga.app.console.core.words import UNKNOWN, count, plural, rate, size, span, waiting


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (12.54, "12.5"), (12, "12"), (1234.5, "1,234"), (None, UNKNOWN), (99.96, "100.0")],
)
def test_rates(value: float | None, text: str) -> None:
    assert rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (200 << 20, "200 MiB"),
        (5 << 60, "5,120.0 PiB"),
        (-1, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_sizes(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (273_600 + 3600, "3 d 5 h"),
        (-1, UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_spans(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_counts() -> None:
    assert (count(1234), count(None)) == ("1,234", UNKNOWN)
    assert (plural(1, "message"), plural(0, "message"), plural(2, "entry", "entries")) == (
        "1 message",
        "0 messages",
        "2 entries",
    )


def test_what_waits_is_counted_in_messages_where_somebody_counted() -> None:
    assert waiting(3, 100) == "100 messages"
    assert waiting(3, None) == "3 messages and batches"
    assert waiting(1, None) == "1 message or batch"
