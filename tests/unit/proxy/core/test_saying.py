"""What a broker is told in a client's name."""

from __future__ import annotations

from geminga.broker.access.core.handshake import REFRESH, Credentials
from geminga.proxy.core.saying import Caller, connect_frame, is_about_caller, response_frame
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command

FLAGS = pb.FeatureFlags(supports_broker_entry_metadata=True)
SHOWN = Credentials("token", b"jane's")


def said(caller: Caller, *, is_relayed: bool, method: str = "tls", data: bytes = b"own") -> pb.CommandConnect:
    frame = connect_frame(caller, method, data, "proxy-1", is_relayed=is_relayed)
    return decode_command(frame[8:]).connect


def test_the_proxy_shows_its_own_credentials_and_names_the_client() -> None:
    connect = said(Caller("raw", 15, FLAGS, "jane"), is_relayed=True)
    assert (connect.auth_method_name, connect.auth_data) == ("tls", b"own")
    assert connect.original_principal == "jane"
    assert not connect.HasField("original_auth_data")
    assert not connect.HasField("original_auth_method")
    assert not connect.HasField("proxy_to_broker_url")
    assert (connect.client_version, connect.protocol_version, connect.proxy_version) == ("raw", 15, "proxy-1")


def test_what_the_client_brought_goes_along_where_it_is_to() -> None:
    connect = said(Caller("raw", 21, FLAGS, "jane", SHOWN), is_relayed=True)
    assert (connect.original_auth_data, connect.original_auth_method) == ("jane's", "token")


def test_where_nobody_is_asked_nothing_is_said_of_the_client() -> None:
    connect = said(Caller("raw", 99, FLAGS), is_relayed=True, method="")
    assert not any(
        connect.HasField(name) for name in ("auth_data", "auth_method_name", "original_principal", "original_auth_data")
    )
    assert connect.protocol_version == pb.v21


def test_what_the_client_can_do_is_told_where_it_is_at_the_other_end() -> None:
    assert said(Caller("raw", 21, FLAGS), is_relayed=True).feature_flags == FLAGS
    flags = said(Caller("raw", 21, FLAGS), is_relayed=False).feature_flags
    assert flags.supports_auth_refresh
    assert not flags.supports_broker_entry_metadata


def test_a_challenge_is_about_the_client_if_new_credentials_of_it_are_meant() -> None:
    def challenge(data: bytes) -> pb.CommandAuthChallenge:
        return pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="tls", auth_data=data))

    assert is_about_caller(challenge(REFRESH), Caller("raw", 21, FLAGS, "jane", SHOWN))
    assert not is_about_caller(challenge(b"more"), Caller("raw", 21, FLAGS, "jane", SHOWN))
    assert not is_about_caller(challenge(REFRESH), Caller("raw", 21, FLAGS, "jane"))


def test_an_answer_is_of_the_method_it_is_given() -> None:
    answer = decode_command(response_frame("raw", "token", b"new")[8:]).authResponse
    assert (answer.response.auth_method_name, answer.response.auth_data) == ("token", b"new")
