"""CONNECT and AUTH_RESPONSE: what a client says about itself, and what keeps it from saying it."""

from __future__ import annotations

import pytest

from geminga.client._api.authentication import AuthenticationToken
from geminga.client._api.errors import AuthenticationError, ErrorGettingAuthenticationData
from geminga.client._transport.handshake import CLIENT_VERSION, Handshake
from geminga.wire._generated import pulsar_api_pb2 as pb


def command(frame: bytes) -> pb.BaseCommand:
    return pb.BaseCommand.FromString(frame[8:])


def test_connect_says_who_where_and_what_it_can() -> None:
    connect = command(Handshake(AuthenticationToken("secret"), "broker:6650", "billing").connect()).connect
    assert connect.client_version == f"{CLIENT_VERSION}-billing"
    assert (connect.auth_method_name, connect.auth_data) == ("token", b"secret")
    assert connect.proxy_to_broker_url == "broker:6650"
    assert connect.feature_flags.supports_topic_watchers
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


def test_token_that_can_not_be_had_is_named() -> None:
    def broken() -> str:
        raise OSError("no such file")

    handshake = Handshake(AuthenticationToken(broken), "", "")
    for say in (handshake.connect, handshake.answer_challenge):
        with pytest.raises(ErrorGettingAuthenticationData, match="no such file"):
            say()
