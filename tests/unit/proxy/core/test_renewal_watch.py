"""AUTH_RESPONSE is found among the frames that pass, however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.proxy.core.renewal_watch import RESPONSE_BYTES_MAX, RenewalWatch
from geminga.proxy.core.saying import response_frame
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PING_FRAME, decode_command, encode_command
from geminga.wire.pulsar.frame import encode_frame, encode_frame_head

SEND = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=2)).SerializeToString()
FLOW = encode_command(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=9)))


def send_of(payload: bytes) -> bytes:
    return encode_frame_head(SEND, len(payload)) + payload


#: Of the kinds that matter: a payload that looks like a response is none; a command of one byte is shorter than a head.
FRAMES = st.one_of(
    st.just(PING_FRAME),
    st.just(FLOW),
    st.just(encode_frame(b"\x08")),
    st.just(encode_frame(b"")),
    st.binary(max_size=40).map(send_of),
    st.just(send_of(response_frame("raw", "token", b"in a message"))),
    st.binary(max_size=60).map(lambda data: response_frame("raw", "token", data)),
)


def is_response(frame: bytes) -> bool:
    return frame[8:10] == response_frame("raw", "", b"")[8:10] and int.from_bytes(frame[4:8], "big") >= 2


@given(frames=st.lists(FRAMES, max_size=12), cuts=st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_responses_are_found_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frames)
    watch, found, position, turn = RenewalWatch(), [], 0, 0
    while position < len(stream):
        step = cuts[turn % len(cuts)]
        found += watch.feed(stream[position : position + step])
        position, turn = position + step, turn + 1
    assert found == [frame[8:] for frame in frames if is_response(frame)]
    assert all(decode_command(command).type == pb.BaseCommand.AUTH_RESPONSE for command in found)


def test_a_response_that_is_too_long_is_passed_over_and_the_next_one_is_found() -> None:
    watch = RenewalWatch()
    assert watch.feed(response_frame("raw", "token", b"x" * RESPONSE_BYTES_MAX)) == []
    assert len(watch.feed(response_frame("raw", "token", b"y"))) == 1


def test_sizes_that_can_not_be_keep_nothing() -> None:
    watch = RenewalWatch()
    assert watch.feed(b"\0\0\0\6\0\0\xff\xff\x08\x25" + b"z" * 100_000) == []
    assert watch._kept is None
