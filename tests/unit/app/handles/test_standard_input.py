"""Lines of standard input, as they come."""

from __future__ import annotations

import asyncio
import io
import os
import sys

import pytest

from geminga.app.handles.standard_input import BLOCK_BYTES, BLOCKS_AHEAD, LINE_BYTES_MAX, standard_lines
from geminga.model.errors import ConfigurationError


async def _all() -> list[bytes]:
    return [line async for line in standard_lines()]


def test_lines_are_whole_wherever_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"x" * (BLOCK_BYTES - 2), b"y\r", b"", b"z" * 3 * BLOCK_BYTES, "→".encode(), *[b"n" * 4000] * 500, b"rest"]
    assert sum(map(len, lines)) > BLOCKS_AHEAD * BLOCK_BYTES
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))
    assert asyncio.run(_all()) == [line.rstrip(b"\r") for line in lines]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert asyncio.run(_all()) == []


class Endless(io.RawIOBase):
    """A stream that has one line end, and no other."""

    def __init__(self) -> None:
        self.given_bytes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block = b"\n" + bytes(size - 1) if not self.given_bytes else bytes(size)
        self.given_bytes += size
        return block


def test_a_stream_without_lines_is_given_up_and_not_kept_until_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Endless()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stream)))
    with pytest.raises(ConfigurationError, match="line 2 of standard input has more than 67108864 bytes"):
        asyncio.run(asyncio.wait_for(_all(), 60))
    assert stream.given_bytes <= LINE_BYTES_MAX + (BLOCKS_AHEAD + 3) * BLOCK_BYTES


def test_what_can_not_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as wrong, os.fdopen(writing, "w") as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        with pytest.raises(OSError, match="not open for reading"):
            asyncio.run(_all())
        assert wrong.readable()
