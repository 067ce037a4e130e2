"""Frames between a broker and its processes of filters."""

from __future__ import annotations

import pytest

from geminga.entry_filters import FilterTarget
from geminga.entry_filters.pipe import (
    ERROR,
    LOADED,
    READY,
    VERDICTS,
    AskedEntry,
    FilterBatch,
    Frames,
    PipeError,
    decode_batch,
    encode_batch,
    encode_error,
    framed,
    parse_answer,
)

TARGET = FilterTarget("persistent://a/b/c", "s", "Shared", {"k": "v"}, ({"zone": "1"}, {}))
BATCH = FilterBatch(("one", "m:two"), TARGET, [AskedEntry(1, 2, b"abc"), AskedEntry(-1, -1, b"")])


def test_a_batch_comes_back_as_it_was_also_byte_by_byte():
    data = encode_batch(BATCH)
    frames = Frames(1 << 20)
    bodies = [body for byte in data for body in frames.feed(bytes([byte]))]
    assert [decode_batch(body) for body in bodies] == [BATCH]
    assert list(Frames(1 << 20).feed(data + data)) == bodies * 2


@pytest.mark.parametrize("cut", [0, 3, 10, 60, -1])
def test_a_batch_that_is_cut_is_refused(cut):
    body = encode_batch(BATCH)[4:]
    with pytest.raises(PipeError, match="no batch"):
        decode_batch(body[:cut])


def test_a_frame_that_is_too_long_is_refused_by_its_size():
    with pytest.raises(PipeError, match="a frame of 11 bytes, at most 10"):
        list(Frames(10).feed(framed(b"x" * 11)[:4]))


@pytest.mark.parametrize(
    ("body", "kind", "verdicts", "error"),
    [
        (READY, READY, b"", ""),
        (LOADED, LOADED, b"", ""),
        (VERDICTS + b"\x00\x02", VERDICTS, b"\x00\x02", ""),
        (encode_error("f", 1, "no")[4:], ERROR, b"", "f of entry 1 of its batch: no"),
        (encode_error("f", -1, "no")[4:], ERROR, b"", "f: no"),
    ],
)
def test_answers_are_understood(body, kind, verdicts, error):
    assert parse_answer(body, 2) == (kind, verdicts, error)


@pytest.mark.parametrize(
    "body",
    [b"", b"X", READY + b"x", VERDICTS + b"\x00", VERDICTS + b"\x00\x03", ERROR + b"{}", ERROR + b"\xff", ERROR + b"3"],
)
def test_what_is_no_answer_is_refused(body):
    with pytest.raises(PipeError):
        parse_answer(body, 2)


def test_a_long_error_is_cut():
    assert len(parse_answer(encode_error("f", 0, "x" * 10_000)[4:], 1).error) < 600
