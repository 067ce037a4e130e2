"""The bookie protocol as Apache BookKeeper 4.17.2 writes and reads it: the recorded sample, and what it was asked.

``tests/samples/bookkeeper-wire-4.17.2.json`` is what ``tests/interop/java/BookieWire.java`` said, which
``tests/interop/test_bookie_wire.py`` asks again. The streams here are made anew each time, from one seed.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from struct import pack
from typing import Any, Final

from geminga.wire.bookkeeper import v2, v3
from geminga.wire.bookkeeper.availability import encode_availability
from support.house.source_tree import ROOT

SAMPLE: Final = Path(ROOT / "tests/samples/bookkeeper-wire-4.17.2.json")
KEY: Final = bytes(range(200, 220))
ENTRY: Final = pack(">qqqq", 7, 9, 8, 5) + b"hello"
SEED: Final = 20261123
MUTANTS: Final = 240
FRAME_BYTES_MAX: Final = 5 * 1024 * 1024
#: Lists of entries that Apache is given as we write them.
RUNS: Final = [
    [],
    [range(1)],
    [range(5, 105)],
    [range(i, i + 1) for i in range(0, 150, 3)],
    [range(i, i + 4) for i in range(10, 100, 7)] + [range(120, 121), range(130, 190)],
    [range(3), range(4, 7), range(8, 11), range(20, 21), range(25, 26), range(30, 31), range(31 + 9, 41)],
]


def sample() -> dict[str, Any]:
    """What Apache said."""
    told: dict[str, Any] = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return told


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def request_frames() -> list[bytes]:
    """Frames of every kind of request as we write them, in all versions."""
    return [
        v2.encode_add(KEY, ENTRY, recovery=False),
        v2.encode_add(KEY, ENTRY, recovery=True, high_priority=True),
        v2.encode_read(7, 9),
        v2.encode_read(7, -1, fence_key=KEY),
        v2.encode_batch_read(77, 7, 9, entries_max=10, bytes_max=5000),
        v2.encode_batch_read(77, 7, -1, entries_max=-1, bytes_max=-1, fence_key=KEY, high_priority=True),
        v2.encode_auth("plugin", b"token"),
        v3.encode_add(5, 7, 9, KEY, ENTRY, recovery=False),
        v3.encode_add(1 << 63, 7, 9, KEY, ENTRY, recovery=True, deferred_sync=True, high_priority=True),
        v3.encode_read(300, 7, 9),
        v3.encode_read(6, 7, -1, high_priority=True),
        v3.encode_fence(6, 7, KEY),
    ]


def request_streams() -> list[bytes]:
    """What a bookie's connection may receive: requests, and everything but."""
    good = request_frames()
    streams = list(good)
    of_2, of_3 = good[2], good[9]
    streams += [of_3 + of_2 + of_2, of_2 + of_3, of_3 + of_2 + of_3, b"".join(good[:7]), b"".join(good[7:])]
    streams += [framed(b""), framed(b"\x02"), pack(">i", -1) + of_2, of_2 + pack(">i", -5)]
    streams += [pack(">i", FRAME_BYTES_MAX - 3), pack(">i", FRAME_BYTES_MAX - 4), of_3[:-1], of_3 + of_3[:3]]
    for version in (0, 1, 2, 3, 9, 127, 128, 255):
        for operation in range(12):
            header = v2.packet_header(version, operation, 1 if version else 0)
            streams.append(framed(pack(">I", header) + KEY + ENTRY))
    fence = good[3][4:]
    streams += [framed(fence[:size]) for size in range(0, len(fence), 3)]
    batch = good[5][4:]
    streams += [framed(batch[:size]) for size in range(20, len(batch), 3)]
    add = good[0][4:]
    streams += [framed(add[:size]) for size in (4, 20, 24, 31, 39, 40, 47, 48)]
    streams += [framed(pack(">IB", v2.packet_header(2, 3), 7) + b"x")]
    header = b"\x0a\x06\x08\x03\x10"
    for operation in (0, *range(1, 13), 13, 99):
        streams.append(framed(header + bytes((operation,)) + b"\x18\x05"))
    for version in (0, 1, 2, 4):
        streams.append(framed(b"\x0a\x06\x08" + bytes((version,)) + b"\x10\x01\x18\x05\xa2\x06\x04\x08\x07\x10\x09"))
    read = of_3[4:]
    streams += [
        framed(read[9:] + read[:9]),
        framed(read + b"\xc0\x0c\x05"),
        framed(b"\xc0\x0c\x05" + read),
        framed(read + b"\x00"),
        framed(read + read),
        framed(read[:-2]),
        framed(b"\x0a\x04\x08\x03\x10\x01" + read[9:]),
    ]
    dice = random.Random(SEED)
    streams += [_mutated(dice, dice.choice(good)) for _ in range(MUTANTS)]
    return streams


def _mutated(dice: random.Random, frame: bytes) -> bytes:
    body = bytearray(frame[4:])
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(min(len(body), 40) if dice.random() < 0.7 else len(body))
        match dice.randrange(4):
            case 0:
                body[place] = dice.randrange(256)
            case 1:
                body[place] ^= 1 << dice.randrange(8)
            case 2:
                body.insert(place, dice.randrange(256))
            case _ if len(body) > 1:
                del body[place]
    return framed(bytes(body)) + dice.choice([b"", b"", frame])


def lists() -> list[bytes]:
    """Lists of entries as we write them."""
    return [encode_availability(runs) for runs in RUNS]
