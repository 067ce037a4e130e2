"""CONNECT and AUTH_RESPONSE: what a client says about itself, and what keeps it from saying it."""

from __future__ import annotations

import asyncio

import pytest

from geminga.client._api.authentication import AuthenticationToken
from geminga.client._api.errors import (
    AuthenticationError,
    ConnectError,
    ErrorGettingAuthenticationData,
    WrongProtocol,
)
from geminga.client._transport.handshake import CLIENT_VERSION, Handshake, lost_in_handshake, say, wrong_protocol
from geminga.runtime import LaneThreads
from geminga.wire._generated import pulsar_api_pb2 as pb


def command(frame: object) -> pb.BaseCommand:
    assert isinstance(frame, bytes)
    return pb.BaseCommand.FromString(frame[8:])


def test_connect_says_who_where_and_what_it_can() -> None:
    connect = command(Handshake(AuthenticationToken("secret"), "broker:6650", "billing").connect()).connect
    assert connect.client_version == f"{CLIENT_VERSION}-billing"
    assert (connect.auth_method_name, connect.auth_data) == ("token", b"secret")
    assert connect.proxy_to_broker_url == "broker:6650"
    assert connect.feature_flags.supports_topic_watchers
    # Without it an Apache target judges a replicator by sequence ids, and loses messages.
    assert connect.feature_flags.supports_repl_dedup_by_lid_and_eid
    plain = command(Handshake(None, "", "").connect()).connect
    assert plain.client_version == CLIENT_VERSION
    assert not plain.HasField("auth_method_name")
    assert not plain.HasField("proxy_to_broker_url")


def test_challenge_is_answered_with_the_token_of_the_moment() -> None:
    tokens = iter(["first", "second"])
    handshake = Handshake(AuthenticationToken(lambda: next(tokens)), "", "")
    assert command(handshake.connect()).connect.auth_data == b"first"
    assert command(handshake.answer_challenge()).authResponse.response.auth_data == b"second"
    with pytest.raises(AuthenticationError, match="the client has none"):
        Handshake(None, "", "").answer_challenge()


def test_credentials_that_are_kept_are_had_anew_for_a_challenge_alone() -> None:
    class Kept:
        method_name = "token"
        renewed = 0

        def renew(self) -> None:
            self.renewed += 1

        def data(self) -> bytes:
            return b"%d" % self.renewed

    handshake = Handshake(Kept(), "", "")
    assert command(handshake.connect()).connect.auth_data == b"0"
    assert command(handshake.answer_challenge()).authResponse.response.auth_data == b"1"
    assert command(handshake.connect()).connect.auth_data == b"1"


def test_what_can_not_be_said_is_told_and_nothing_is_written() -> None:
    written, failed = [], []
    say(Handshake(None, "", "").answer_challenge, written.append, failed.append)
    assert written == []
    assert [type(error) for error in failed] == [AuthenticationError]


@pytest.mark.parametrize(
    ("head", "kind", "told"),
    [
        (b"HTTP/1.1 400 Bad Request", WrongProtocol, "speaks HTTP: the service URL is that of the binary protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x0a", WrongProtocol, "speaks TLS: the service URL begins with pulsar"),
        (b"", ConnectError, "closed, before it said anything; a port of HTTP or TLS"),
    ],
)
def test_first_bytes_of_another_protocol_are_told(head: bytes, kind: type, told: str) -> None:
    found = lost_in_handshake("pulsar://h:1", head, "closed")
    assert type(found) is kind
    assert told in str(found)
    assert (wrong_protocol("pulsar://h:1", head) is None) is (kind is ConnectError)


def test_token_that_can_not_be_had_is_named() -> None:
    def broken() -> str:
        raise OSError("no such file")

    handshake = Handshake(AuthenticationToken(broken), "", "")
    for made in (handshake.connect, handshake.answer_challenge):
        with pytest.raises(ErrorGettingAuthenticationData, match="no such file"):
            made()


def test_credentials_that_are_awaited_are_said_when_they_are_there() -> None:
    async def token() -> str:
        return "later"

    async def main() -> None:
        handshake = Handshake(AuthenticationToken(token), "", "")
        written: list[bytes] = []
        said = asyncio.Event()

        def write(frame: bytes) -> None:
            written.append(frame)
            said.set()

        for frame in (handshake.connect, handshake.answer_challenge):
            said.clear()
            say(frame, write, lambda error: pytest.fail(str(error)))
            await asyncio.wait_for(said.wait(), 10)
        assert command(written[0]).connect.auth_data == b"later"
        assert command(written[1]).authResponse.response.auth_data == b"later"

    asyncio.run(main())


def test_credentials_that_block_are_asked_for_on_a_thread() -> None:
    class Slow:
        method_name = "token"
        is_blocking = True

        def data(self) -> bytes:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return b"on a thread"
            return b"on the loop"

    async def main() -> bytes:
        threads = LaneThreads()
        made = Handshake(Slow(), "", "", threads).connect()
        assert not isinstance(made, bytes)
        name = command(await made).connect.auth_data
        await threads.close()
        return name

    assert asyncio.run(main()) == b"on a thread"


def test_credentials_that_fail_later_end_the_connection_with_what_was_wrong() -> None:
    async def broken() -> str:
        raise OSError("no such issuer")

    async def main() -> None:
        failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        say(Handshake(AuthenticationToken(broken), "", "").connect, lambda _: None, failed.set_result)
        error = await asyncio.wait_for(failed, 10)
        assert isinstance(error, ErrorGettingAuthenticationData)
        assert "no such issuer" in str(error)

    asyncio.run(main())
