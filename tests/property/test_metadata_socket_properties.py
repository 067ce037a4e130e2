"""Messages of the metadata socket are read as sent, in any pieces; whatever else comes ends the connection."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.metadata.core.socket_codec import (
    CLIENT_FRAME_BYTES_MAX,
    SERVER_FRAME_BYTES_MAX,
    Decoder,
    client_decoder,
    decode_from_client,
    decode_from_server,
    decode_slowly_from_client,
    decode_slowly_from_server,
    encode,
    encode_numbered,
    encode_slowly,
    server_decoder,
)
from geminga.metadata.core.socket_messages import (
    SECRET_BYTES,
    VERSION,
    BrokenMessageError,
    CallFailure,
    Expired,
    Numbers,
    Ping,
    Pong,
    Reason,
    Refused,
    SessionHello,
    StoreOperation,
    StoreRequest,
    StoreResponse,
    Watch,
    Welcome,
)
from geminga.metadata.ports import ChangeKind, Node, Notification, PutResult, Stat
from support.house.format_docs import documented_bytes
from support.house.python_calls import counted_calls

UINT32 = st.integers(0, (1 << 32) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
SECRETS = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)
STATS = st.builds(Stat, INT64, INT64, INT64, st.booleans(), st.booleans())
PLAIN = st.sampled_from(
    [
        one
        for one in StoreOperation
        if one not in (StoreOperation.PUT, StoreOperation.DELETE, StoreOperation.TAKE_SEQUENCES)
    ]
)
EXPECTED = st.none() | INT64

FROM_CLIENT = st.one_of(
    st.builds(SessionHello, st.just(VERSION), UINT64, SECRETS, UINT32, TEXTS, TEXTS),
    st.just(Ping()),
    st.tuples(UINT32, PLAIN, TEXTS).map(lambda fields: StoreRequest(*fields)),
    st.tuples(UINT32, TEXTS, UINT32).map(
        lambda fields: StoreRequest(fields[0], StoreOperation.TAKE_SEQUENCES, fields[1], how_many=fields[2])
    ),
    st.tuples(UINT32, st.just(StoreOperation.DELETE), TEXTS, st.just(b""), EXPECTED).map(
        lambda fields: StoreRequest(*fields)
    ),
    st.tuples(
        UINT32, st.just(StoreOperation.PUT), TEXTS, st.binary(max_size=60), EXPECTED, st.booleans(), st.booleans()
    ).map(lambda fields: StoreRequest(*fields)),
    st.builds(Watch, TEXTS, st.booleans(), st.booleans(), st.booleans()),
)
RESULTS = st.one_of(
    st.none(),
    UINT64,
    st.lists(TEXTS, max_size=5).map(tuple),
    st.lists(UINT64, max_size=5).map(lambda taken: Numbers(tuple(taken))),
    st.builds(Node, st.binary(max_size=60), STATS),
    st.builds(PutResult, TEXTS, STATS),
    st.builds(CallFailure, st.integers(0, 255), TEXTS),
)
FROM_SERVER = st.one_of(
    st.builds(Welcome, UINT64, SECRETS, UINT32),
    st.builds(Refused, st.sampled_from(Reason), st.integers(0, 65535), TEXTS),
    st.sampled_from([Pong(), Expired()]),
    st.builds(StoreResponse, UINT32, RESULTS),
    st.builds(Notification, st.sampled_from(ChangeKind), TEXTS),
)


def fed(decoder: Decoder, data: bytes, cuts: list[int]):
    """What comes out of the bytes in these pieces, and whether the connection broke."""
    messages, is_broken = [], False
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        found, error = decoder.feed(data[start:end])
        assert not (is_broken and (found or error)), "after an error nothing more is taken"
        messages += found
        is_broken = is_broken or error is not None
    return messages, is_broken


@given(st.lists(FROM_CLIENT, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=8))
def test_messages_of_a_client_are_read_as_sent_in_any_pieces(sent, cuts) -> None:
    assert fed(server_decoder(), b"".join(map(encode, sent)), cuts) == (sent, False)


@given(st.lists(FROM_SERVER, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=8))
def test_messages_of_a_server_are_read_as_sent_in_any_pieces(sent, cuts) -> None:
    assert fed(client_decoder(), b"".join(map(encode, sent)), cuts) == (sent, False)


def read(decode, frame: bytes):
    """The message, or what is wrong."""
    try:
        return decode(frame)
    except BrokenMessageError as error:
        return str(error)


@given(FROM_CLIENT, FROM_SERVER, UINT32)
def test_messages_are_the_same_bytes_whichever_way_they_go(request, answer, number) -> None:
    for message in (request, answer):
        assert encode(message) == encode_slowly(message)
    if isinstance(request, StoreRequest):
        assert encode_numbered(request, number) == encode_slowly(request._replace(request_id=number))


@given(FROM_CLIENT | FROM_SERVER, st.data())
def test_bytes_are_the_same_message_or_as_wrong_whichever_way_they_go(message, data) -> None:
    """Cut, changed in a few places, or with bytes too many."""
    frame = bytearray(encode(message)[4:])
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    kept = data.draw(st.integers(0, len(frame) + 2))
    damaged = bytes(frame[:kept]) + b"!" * (kept - len(frame))
    for quickly, slowly in (
        (decode_from_client, decode_slowly_from_client),
        (decode_from_server, decode_slowly_from_server),
    ):
        assert read(quickly, damaged) == read(slowly, damaged)


STAT = Stat(3, 1, 2, False, False)
#: What comes by the thousand.
ASKED = [StoreRequest(1, StoreOperation.GET, "/a/b"), StoreRequest(2, StoreOperation.PUT, "/a/b", b"value", 3)]
TOLD = [
    StoreResponse(1, Node(b"value", STAT)),
    StoreResponse(2, PutResult("/a/b", STAT)),
    StoreResponse(3, None),
    Notification(ChangeKind.MODIFIED, "/a/b"),
]


@pytest.mark.parametrize("number", range(len(ASKED + TOLD)))
def test_a_wrong_byte_anywhere_is_as_wrong_whichever_way_the_message_goes(number) -> None:
    frame = encode((ASKED + TOLD)[number])[4:]
    for place in range(len(frame)):
        for byte in (0, 1, len(ChangeKind) + 1, 8, 255):
            wrong = frame[:place] + bytes([byte]) + frame[place + 1 :]
            assert read(decode_from_client, wrong) == read(decode_slowly_from_client, wrong)
            assert read(decode_from_server, wrong) == read(decode_slowly_from_server, wrong)


def test_what_a_topic_that_is_loaded_asks_and_hears_takes_few_calls() -> None:
    """Thousands are loaded at once, each with ten of these."""
    for messages, decoder in ((ASKED, server_decoder()), (TOLD, client_decoder())):
        with counted_calls() as calls:
            found, _ = decoder.feed(b"".join(map(encode, messages)))
        assert found == messages
        # Of functions in Python.
        assert calls() <= 8 * len(messages), calls()


@given(FROM_CLIENT, FROM_SERVER, st.data())
def test_a_message_that_is_cut_short_is_never_read(request, answer, data) -> None:
    for message, decoder in ((request, server_decoder()), (answer, client_decoder())):
        frame = encode(message)
        kept = data.draw(st.integers(0, len(frame) - 1))
        assert fed(decoder, frame[:kept], []) == ([], False), "the rest may come"
        # And where the size says that this is all, it is none.
        if kept > 4:
            shortened = (kept - 4).to_bytes(4, "big") + frame[4:kept]
            messages, is_broken = fed(type(decoder)(decoder._decode, decoder._frame_bytes_max), shortened, [])
            assert is_broken or messages != [message]


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_garbage_gives_messages_or_an_error_and_nothing_is_kept_behind_one(data, cuts) -> None:
    for decoder in (server_decoder(), client_decoder()):
        messages, is_broken = fed(decoder, data, cuts)
        for message in messages:
            encode(message)
        assert decoder.is_broken == is_broken
        assert decoder.buffered_bytes == 0 or not is_broken


@given(FROM_CLIENT, FROM_SERVER, st.data())
def test_a_flipped_bit_never_raises_anything_else(request, answer, data) -> None:
    for message, decoder in ((request, server_decoder()), (answer, client_decoder())):
        frame = bytearray(encode(message))
        place = data.draw(st.integers(0, len(frame) * 8 - 1))
        frame[place // 8] ^= 1 << place % 8
        fed(decoder, bytes(frame), [])


def test_a_frame_beyond_the_limit_is_refused_by_its_size_alone() -> None:
    for decoder, limit in ((server_decoder(), CLIENT_FRAME_BYTES_MAX), (client_decoder(), SERVER_FRAME_BYTES_MAX)):
        messages, error = decoder.feed((limit + 1).to_bytes(4, "big"))
        assert messages == []
        assert f"{limit + 1} bytes, expected 1 to {limit}" in str(error)
        assert decoder.buffered_bytes == 0


def test_a_hello_of_another_version_is_read_as_far_as_its_version() -> None:
    frame = bytearray(encode(SessionHello(VERSION, 0, bytes(SECRET_BYTES), 0, "", "")))
    frame[9:11] = (77).to_bytes(2, "big")
    (hello,), error = server_decoder().feed(bytes(frame[:4]) + bytes(frame[4:]))
    assert isinstance(hello, SessionHello)
    assert (hello.version, error) == (77, None)


def test_the_documented_example_is_what_is_sent() -> None:
    request = StoreRequest(7, StoreOperation.GET, "/a")
    answer = StoreResponse(7, Node(b"x", Stat(2, 0, 0, is_ephemeral=False, is_own=False)))
    assert documented_bytes("metadata-socket") == encode(request) + encode(answer)
