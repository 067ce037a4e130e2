"""Framing out of a connection's own buffer: the same frames as the decoder's, however they arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import ProtocolError
from geminga.model.limits import FRAME_PADDING_BYTES
from geminga.wire.pulsar.frame import FrameDecoder, encode_frame, encode_frame_head
from geminga.wire.pulsar.frame_buffer import (
    BLOCK_SLACK_BYTES,
    BUFFER_BYTES_MAX,
    BUFFER_BYTES_MIN,
    SMALL_FRAME_BYTES,
    FrameBuffer,
)

MESSAGE_BYTES_MAX = 4 * BUFFER_BYTES_MAX
#: Payload sizes around everything the buffer decides by.
SIZES = st.one_of(
    st.integers(0, 40),
    st.sampled_from([SMALL_FRAME_BYTES - 20, SMALL_FRAME_BYTES, BUFFER_BYTES_MIN - 12, BUFFER_BYTES_MIN, 100_000]),
)
FRAMES = st.lists(st.tuples(st.binary(min_size=1, max_size=9), SIZES), max_size=8).map(
    lambda frames: [(command, bytes((index,)) * size) for index, (command, size) in enumerate(frames)]
)


def encode(frames: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(encode_frame_head(command, len(payload)) + payload for command, payload in frames)


def feed(buffer: FrameBuffer, data: bytes, read_bytes_max: int = 1 << 30) -> list[tuple[bytes, bytes]]:
    frames = []
    while data:
        space = buffer.space()
        assert len(space) > 0
        size = min(len(space), len(data), read_bytes_max)
        space[:size] = data[:size]
        frames += buffer.wrote(size)
        data = data[size:]
    return frames


@given(FRAMES, st.sampled_from([1 << 30, 70_000, 4096, 100]))
def test_frames_come_out_as_they_went_in_whatever_the_reads(frames, read_bytes_max) -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    assert feed(buffer, encode(frames), read_bytes_max) == frames
    assert buffer.buffered_bytes == 0
    assert all(type(command) is bytes and type(rest) is bytes for command, rest in frames)


def test_frames_fed_byte_by_byte_are_the_same() -> None:
    frames = [(b"a", b"x" * 70), (b"bc", b""), (b"d", b"y" * 300)]
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    assert feed(buffer, encode(frames) + b"\0\0\0", 1) == frames
    assert buffer.buffered_bytes == 3


@given(FRAMES, st.data())
def test_flipped_bit_gives_what_the_decoder_gives(frames, data) -> None:
    encoded = bytearray(encode(frames))
    if encoded:
        bit = data.draw(st.integers(0, min(len(encoded), 60) * 8 - 1))
        encoded[bit // 8] ^= 1 << bit % 8
    decoder, buffer = FrameDecoder(MESSAGE_BYTES_MAX), FrameBuffer(MESSAGE_BYTES_MAX)
    assert feed(buffer, bytes(encoded), 50_000) == decoder.feed(bytes(encoded))
    assert (decoder.error is None) == (buffer.error is None)
    assert decoder.buffered_bytes == buffer.buffered_bytes


@pytest.mark.parametrize(
    "head",
    [
        b"\x00\x00\x00\x00\x00\x00\x00\x00",  # smaller than its own command size
        b"\x00\x00\x00\x08\x00\x00\x00\x05",  # the command does not fit
        b"\xff\xff\xff\xff\x00\x00\x00\x04",  # negative as an int32
        (MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES + 1).to_bytes(4, "big") + b"\x00\x00\x00\x04",
    ],
)
def test_impossible_size_ends_the_stream_after_the_frames_before_it(head: bytes) -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    assert feed(buffer, encode_frame(b"ok") + head) == [(b"ok", b"")]
    assert isinstance(buffer.error, ProtocolError)
    assert feed(buffer, encode_frame(b"ok")) == []
    assert buffer.buffered_bytes == 0


def test_largest_frame_passes_once_it_is_allowed_and_the_buffer_shrinks_behind_it() -> None:
    payload = b"x" * (BUFFER_BYTES_MAX * 4)
    buffer = FrameBuffer(100)
    buffer.allow(len(payload))
    assert feed(buffer, encode([(b"ab", payload), (b"c", b"")])) == [(b"ab", payload), (b"c", b"")]
    assert feed(buffer, encode([(b"d", b"small")])) == [(b"d", b"small")]
    assert len(buffer.space()) <= BUFFER_BYTES_MAX


def test_buffer_grows_with_full_reads_alone() -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    frame = encode([(b"a", b"x" * 1000)])
    for _ in range(200):
        feed(buffer, frame)
    assert len(buffer.space()) == BUFFER_BYTES_MIN
    feed(buffer, frame * 10_000)
    assert len(buffer.space()) == BUFFER_BYTES_MAX


# ---- a buffer that lends


@given(st.lists(FRAMES, max_size=5), st.sampled_from([1 << 30, 70_000, 4096]), st.integers(0, 2))
def test_frames_that_were_lent_stay_what_they_are_while_more_is_read(many, read_bytes_max, asked_after) -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    sent: list[tuple[bytes, bytes]] = []
    got: list[tuple[bytes, bytes]] = []
    for number, frames in enumerate(many):
        if number == asked_after:
            buffer.lend(BUFFER_BYTES_MAX)
        large = [(command, payload * 6) for command, payload in frames]  # so that they fill several blocks
        sent += large
        got += feed(buffer, encode(large), read_bytes_max)
    assert got == sent
    assert buffer.buffered_bytes == 0
    assert all(isinstance(rest, bytes) for _, rest in got if len(rest) <= SMALL_FRAME_BYTES)


def test_large_frames_are_views_of_a_block_with_slack_and_small_ones_are_copies() -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    buffer.lend(BUFFER_BYTES_MAX)
    # The first read goes to a buffer that is no block yet.
    feed(buffer, encode([(b"a", bytes(100_000))] * 3))
    frames = feed(buffer, encode([(b"a", bytes(100_000)), (b"b", bytes(100))] * 5))
    views = [rest for command, rest in frames if command == b"a"]
    assert all(isinstance(view, memoryview) for view in views)
    assert all(isinstance(rest, bytes) for command, rest in frames if command == b"b")
    assert {len(view.obj) for view in views} == {BUFFER_BYTES_MAX + BLOCK_SLACK_BYTES}


def test_block_is_used_again_once_nobody_has_a_view_of_it() -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    buffer.lend(BUFFER_BYTES_MAX)
    data = encode([(b"a", bytes(300_000))])
    blocks: set[int] = set()
    held: list[object] = []
    for _ in range(60):  # 18 MB, in blocks of 1 MiB
        held = [*held, *(rest.obj for _, rest in feed(buffer, data) if isinstance(rest, memoryview))][-1:]
        blocks |= {id(block) for block in held}
    assert len(blocks) <= 4
    assert len(buffer.space()) <= BUFFER_BYTES_MAX


def test_frame_larger_than_a_block_passes_and_the_next_block_is_of_the_usual_size() -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    buffer.lend(BUFFER_BYTES_MAX)
    frames = [(b"a", b"x" * 3 * BUFFER_BYTES_MAX), (b"b", b"y" * 50_000), (b"c", b"z" * 50_000)]
    for _ in range(3):
        assert feed(buffer, encode(frames)) == frames
    assert len(buffer.space()) <= BUFFER_BYTES_MAX


def test_impossible_size_behind_lent_frames_leaves_them_whole() -> None:
    buffer = FrameBuffer(MESSAGE_BYTES_MAX)
    buffer.lend(BUFFER_BYTES_MAX)
    frames = [(b"a", bytes((number,)) * 100_000) for number in range(5)]
    got = feed(buffer, encode(frames) + b"\xff\xff\xff\xff\x00\x00\x00\x04")
    assert isinstance(buffer.error, ProtocolError)
    assert feed(buffer, bytes(2_000_000)) == []
    assert got == frames
