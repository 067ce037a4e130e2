"""Framing: whole, byte by byte, truncated, with trailing bytes, with flipped bits."""

from __future__ import annotations

from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import ProtocolError
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.wire.pulsar.frame import FrameDecoder, encode_frame, encode_frame_head

MESSAGE_BYTES_MAX = 1000
FRAMES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=6)


def encode(frames: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(encode_frame_head(command, len(payload)) + payload for command, payload in frames)


@given(FRAMES)
def test_frames_fed_whole_come_back(frames) -> None:
    assert FrameDecoder(MESSAGE_BYTES_MAX).feed(encode(frames)) == frames


@given(FRAMES)
def test_frames_fed_byte_by_byte_are_the_same(frames) -> None:
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    got = [frame for byte in encode(frames) for frame in decoder.feed(bytes((byte,)))]
    assert got == frames
    assert decoder.buffered_bytes == 0


@given(FRAMES, st.data())
def test_frames_cut_anywhere_are_the_same(frames, data) -> None:
    encoded = encode(frames)
    cut = data.draw(st.integers(0, len(encoded)))
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    assert decoder.feed(encoded[:cut]) + decoder.feed(encoded[cut:]) == frames


#: How much of what is left is fed, in hundredths, and how many frames are asked for.
FEEDS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3)), min_size=1, max_size=12)


@given(FRAMES, FEEDS)
def test_frames_taken_a_few_at_a_time_are_the_same(frames, feeds) -> None:
    encoded = encode(frames)
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    got = []
    for share, frames_max in chain(feeds, repeat((100, 1), len(frames) + 1)):
        cut = len(encoded) * share // 100
        given, encoded = encoded[:cut], encoded[cut:]
        taken = decoder.feed(given, frames_max)
        assert len(taken) <= frames_max
        got += taken
        if not encoded and not decoder.has_more:
            break
    assert got == frames
    assert decoder.buffered_bytes == 0


def test_impossible_size_is_found_only_behind_the_frames_before_it() -> None:
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    assert decoder.feed(encode_frame(b"1") + encode_frame(b"2") + bytes(8), 1) == [(b"1", b"")]
    assert decoder.has_more
    assert decoder.error is None
    assert decoder.feed(b"", 2) == [(b"2", b"")]
    assert decoder.feed(b"", 2) == []
    assert isinstance(decoder.error, ProtocolError)
    assert not decoder.has_more


@given(FRAMES, st.binary(max_size=7))
def test_trailing_bytes_wait(frames, tail) -> None:
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    assert decoder.feed(encode(frames) + tail) == frames
    assert decoder.buffered_bytes == len(tail)


@given(FRAMES, st.data())
def test_flipped_bit_gives_frames_or_an_error_and_never_raises(frames, data) -> None:
    encoded = bytearray(encode(frames))
    if encoded:
        bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
        encoded[bit // 8] ^= 1 << bit % 8
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    whole = decoder.feed(bytes(encoded))
    one_by_one = FrameDecoder(MESSAGE_BYTES_MAX)
    assert [frame for byte in encoded for frame in one_by_one.feed(bytes((byte,)))] == whole
    assert (decoder.error is None) == (one_by_one.error is None)


@pytest.mark.parametrize(
    "head",
    [
        b"\x00\x00\x00\x00\x00\x00\x00\x00",  # smaller than its own command size
        b"\x00\x00\x00\x03\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x05",  # the command does not fit
        b"\xff\xff\xff\xff\x00\x00\x00\x04",  # negative as an int32
        (MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES + 1).to_bytes(4, "big") + b"\x00\x00\x00\x04",
    ],
)
def test_impossible_size_ends_the_stream_after_the_frames_before_it(head: bytes) -> None:
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    assert decoder.feed(encode_frame(b"ok") + head) == [(b"ok", b"")]
    assert isinstance(decoder.error, ProtocolError)
    assert "bytes" in str(decoder.error)
    assert decoder.feed(encode_frame(b"ok")) == []
    assert decoder.buffered_bytes == 0


def test_largest_frame_passes() -> None:
    payload = b"x" * (MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES - 4 - 2)
    decoder = FrameDecoder(MESSAGE_BYTES_MAX)
    assert decoder.feed(encode([(b"ab", payload)])) == [(b"ab", payload)]
