"""Key hashes against values computed by Pulsar's own clients."""

from __future__ import annotations

import pytest

from geminga.wire.pulsar.keys import java_string_hash, murmur3_32


# Published vectors of MurmurHash3_x86_32 with seed 0, sign bit cleared.
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", 0x00000000),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65\x87", 0xF55B516B),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21", 0x72661CF4),
    ],
)
def test_murmur3_vectors(key: bytes, value: int) -> None:
    assert murmur3_32(key) == value & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "value"),
    [("", 0), ("hello", 99162322), ("key1", 3288498), ("\U0001f600", 1772899), ("polygenelubricants", 0)],
)
def test_java_string_hash(key: str, value: int) -> None:
    assert java_string_hash(key) == value
