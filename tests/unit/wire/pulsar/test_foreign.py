"""Which protocol the first bytes of a connection are, and what it is answered."""

from __future__ import annotations

import http.client
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.model.errors import ServerError
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command, encode_command
from geminga.wire.pulsar.foreign import HEAD_BYTES, Protocol, refusal, spoken_in
from geminga.wire.pulsar.frame import FrameDecoder


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n", Protocol.HTTP),
        (b"OPTIONS * HTTP/1.1\r\n", Protocol.HTTP),
        (b"PRI * HTTP/2.0\r\n", Protocol.HTTP),
        (b"HTTP/1.1 400 Bad Request\r\n", Protocol.HTTP),
        (bytes.fromhex("16030102000100"), Protocol.TLS),
        (bytes.fromhex("15030300020228"), Protocol.TLS),
        (bytes.fromhex("16030402000100"), Protocol.TLS),
        (bytes.fromhex("16030502000100"), None),
        (encode_command(pb.BaseCommand(type=2, connect=pb.CommandConnect(client_version="x"))), Protocol.PULSAR),
        (b"SSH-2.0-OpenSSH\r\n", None),
        (b"GETTING", None),
        (b"\x16\x03", None),
        (b"", None),
        (bytes(8), None),
    ],
)
def test_first_bytes_tell_the_protocol(data, protocol) -> None:
    assert spoken_in(data[:HEAD_BYTES]) is protocol


@given(st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES))
def test_what_is_http_or_tls_is_an_impossible_frame_and_never_a_connect(head) -> None:
    decoder = FrameDecoder(1 << 26)
    decoder.feed(head)
    if spoken_in(head) in (Protocol.HTTP, Protocol.TLS):
        assert decoder.error is not None
    if decoder.error is not None:
        assert decoder.error.head == head
        assert spoken_in(head) is not Protocol.PULSAR


def test_answers_are_in_the_protocol_that_came() -> None:
    class Socket:
        def makefile(self, _mode: str) -> io.BytesIO:
            return io.BytesIO(refusal(Protocol.HTTP, "not here"))

    answer = http.client.HTTPResponse(Socket())  # type: ignore[arg-type]
    answer.begin()
    assert (answer.status, answer.read(), answer.will_close) == (400, b"not here\n", True)
    ((command, _),) = FrameDecoder(1000).feed(refusal(Protocol.PULSAR, "not here"))
    error = decode_command(command).error
    assert (error.error, error.message) == (ServerError.UNSUPPORTED_VERSION_ERROR, "not here")
    alert = refusal(Protocol.TLS, "not here")
    # Record: alert, its version, two bytes: fatal.
    assert (alert[0], alert[3:5], alert[5], len(alert)) == (21, b"\0\2", 2, 7)
