"""A sample of ``make attack``: damaged frames from nobody, fed to connections of a broker that asks who is there."""

from __future__ import annotations

import itertools

import pytest
from tools.attack import strangers
from tools.attack.frames import attack, damaged, handshakes

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command
from geminga.wire.pulsar.frame import FrameDecoder

FRAMES = 2_000
#: More than that of a sample are left of what was made for one connection of many.
OBJECTS_MAX = 2_000


def test_damaged_frames_from_nobody_make_nothing_and_leave_nothing() -> None:
    found = attack(FRAMES, 1)
    assert found.changed == []
    assert found.left == 0
    assert found.grown_objects < OBJECTS_MAX
    # Most connections are sent away by what they say; the others when their time is up.
    assert found.closed > found.connections * 0.9
    assert found.told["AuthenticationError"] > 100
    # One line a second for refused credentials, one a minute for each other kind; none for each frame.
    assert found.log_lines <= found.seconds


def test_handshakes_of_the_attack_are_well_formed_and_their_damage_is_the_seeds() -> None:
    known = handshakes()
    kinds = {decode_command(command).type for data in known for command, _ in FrameDecoder(1 << 20).feed(data)}
    assert kinds == {pb.BaseCommand.CONNECT, pb.BaseCommand.AUTH_RESPONSE}
    first, again = ([*itertools.islice(damaged(known, 3), 50)] for _ in range(2))
    assert first == again
    assert len({*first} - {*known}) > 40


@pytest.mark.parametrize("data", [strangers.hello(), strangers.requests()[0]])
def test_what_is_damaged_begins_as_something_good(data: bytes) -> None:
    assert data.startswith((b"\x16\x03", b"GET /admin/v2/clusters HTTP/1.1\r\nHost: "))
