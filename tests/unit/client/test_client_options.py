"""Options, service URLs, errors and authentication: what is refused, and how it says so."""

from __future__ import annotations

import dataclasses
from typing import get_type_hints

import pytest

from geminga.client._api.authentication import AuthenticationBasic, AuthenticationTLS, AuthenticationToken
from geminga.client._api.errors import (
    ERROR_OF_CODE,
    InvalidConfiguration,
    InvalidMessage,
    InvalidUrl,
    ProducerFenced,
    PulsarException,
    UnknownError,
    error_from_broker,
)
from geminga.client._api.options import (
    ClientArguments,
    ClientOptions,
    OutgoingMessage,
    PartitionsRoutingMode,
    ProducerOptions,
)
from geminga.client._api.producer import MessageFields
from geminga.client._producing.factory import ProducerArguments
from geminga.client._producing.messages import MessageBuilder, message_fields, outgoing_message
from geminga.client._transport.service_urls import ServiceUrls, parse_addresses
from geminga.model.errors import ServerError
from geminga.runtime import SystemClock
from geminga.runtime.tls.following import FollowedContext
from support.processes.certificates import Authority


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("pulsar://host", ["pulsar://host:6650"]),
        ("pulsar+ssl://host", ["pulsar+ssl://host:6651"]),
        ("pulsar://a:1,b,c:3/", ["pulsar://a:1", "pulsar://b:6650", "pulsar://c:3"]),
        ("pulsar://[::1]:6650", ["pulsar://[::1]:6650"]),
        ("pulsar://[::1]", ["pulsar://[::1]:6650"]),
    ],
)
def test_service_url_has_addresses(url: str, expected: list[str]) -> None:
    assert [address.url for address in parse_addresses(url)] == expected


@pytest.mark.parametrize(
    "url", ["", "host:6650", "ftp://host", "pulsar://", "pulsar://:1", "pulsar://a:0", "pulsar://a:x"]
)
def test_what_is_no_service_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_addresses(url)


def test_failed_address_is_passed_over_once_for_all_callers() -> None:
    urls = ServiceUrls("pulsar://a,b,c", start=4)
    first = urls.current
    assert first.host == "b"
    urls.failed(first)
    urls.failed(first)
    assert urls.current.host == "c"
    urls.failed(urls.current)
    assert urls.current.host == "a"


@pytest.mark.parametrize(
    "options",
    [
        {"send_timeout_millis": -1},
        {"batching_max_messages": 0},
        {"batching_max_messages": 1 << 30},
        {"batching_max_publish_delay_ms": 0},
        {"chunking_enabled": True},
        {"message_router": lambda message, count: 0},
        {"message_routing_mode": PartitionsRoutingMode.CustomPartition},
        {"encryption_key": "a"},
    ],
)
def test_producer_options_that_can_not_be_are_refused(options) -> None:
    with pytest.raises(InvalidConfiguration):
        ProducerOptions(**options).check()


@pytest.mark.parametrize("name", ["operation_timeout_ms", "keep_alive_interval_ms", "connections_per_broker"])
def test_client_options_that_can_not_be_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=name):
        ClientOptions(**{name: 0}).check()
    ClientOptions().check()


def test_certificates_that_can_not_be_read_are_named(tmp_path) -> None:
    with pytest.raises(InvalidConfiguration):
        ClientOptions(tls_trust_certs_file_path=str(tmp_path / "missing.pem")).tls_made()
    with pytest.raises(InvalidConfiguration):
        ClientOptions(authentication=AuthenticationTLS(str(tmp_path / "a"), str(tmp_path / "b"))).tls_made()
    context = ClientOptions(tls_allow_insecure_connection=True).tls_made().context
    assert not context.check_hostname
    assert ClientOptions().tls_made().context.check_hostname


def test_certificates_of_a_client_that_are_exchanged_are_used_from_the_next_connection_on(tmp_path, caplog) -> None:
    authority = Authority(tmp_path, "authority")
    own = tmp_path / "own.pem"
    authority.store("first").replace(own)
    options = ClientOptions(
        tls_trust_certs_file_path=str(authority.certificate), authentication=AuthenticationTLS(str(own), str(own))
    )
    followed = FollowedContext("the client", options.tls_files(), options.tls_made, at_each=True)
    first = followed.context()
    assert followed.context() is first
    own.write_text("nothing")
    assert followed.context() is first
    assert f"TLS: {own}, {own}: " in caplog.text
    authority.store("second").replace(own)
    assert followed.context() is not first


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(ClientArguments, ClientOptions), (ProducerArguments, ProducerOptions), (MessageFields, OutgoingMessage)],
)
def test_arguments_are_the_fields_of_the_options(arguments, options) -> None:
    names = {field.name for field in dataclasses.fields(options)} - {"content"}
    assert set(arguments.__annotations__) == names
    assert get_type_hints(MessageFields)


def test_every_code_of_a_broker_has_an_error_class() -> None:
    assert set(ERROR_OF_CODE) == set(ServerError)
    for code, kind in ERROR_OF_CODE.items():
        error = error_from_broker(code, "why")
        assert type(error) is kind
        assert str(error) == "why"
    assert isinstance(error_from_broker(ServerError.PRODUCER_FENCED, ""), ProducerFenced)
    assert type(error_from_broker(9999, "new")) is UnknownError


def test_error_names_are_those_of_the_official_client() -> None:
    pulsar_exceptions = pytest.importorskip("pulsar.exceptions")
    import geminga.client

    theirs = {name for name in dir(pulsar_exceptions) if name[0].isupper()}
    missing = {name for name in theirs if not issubclass(getattr(geminga.client, name, int), PulsarException)}
    assert missing == set()


def test_authentication_gives_its_data() -> None:
    tokens = iter(["one", "two"])
    token = AuthenticationToken(lambda: next(tokens))
    assert (token.method_name, token.data(), token.data()) == ("token", b"one", b"two")
    basic = AuthenticationBasic("user", "pass")
    assert (basic.method_name, basic.data()) == ("basic", b"user:pass")
    assert AuthenticationBasic(auth_params_string='{"username": "u", "password": "p"}').data() == b"u:p"
    with pytest.raises(InvalidConfiguration):
        AuthenticationBasic("user")
    with pytest.raises(InvalidConfiguration):
        AuthenticationBasic(auth_params_string="nonsense")
    assert AuthenticationTLS("a", "b").data() == b""


@pytest.mark.parametrize(
    "fields",
    [
        {"properties": {"a": 1}},
        {"sequence_id": -1},
        {"event_timestamp": "now"},
        {"deliver_at": 1 << 63},
    ],
)
def test_message_fields_that_can_not_be_are_refused(fields) -> None:
    builder = MessageBuilder(SystemClock())
    with pytest.raises(InvalidMessage):
        builder.build(b"", fields)


def test_message_becomes_bytes_and_back_to_its_fields() -> None:
    builder = MessageBuilder(SystemClock())
    assert builder.build(None, {}).is_null
    assert builder.build(bytearray(b"a"), {}).payload == b"a"
    with pytest.raises(InvalidMessage):
        builder.build("text", {})
    message = builder.build(b"x", {"partition_key": b"\x00", "ordering_key": "o", "disable_replication": True})
    assert (message.partition_key, message.is_key_base64, message.ordering_key) == ("AA==", True, b"o")
    assert message.replicate_to == ["__local__"]
    outgoing = outgoing_message(b"x", {"partition_key": "k"})
    outgoing.properties = {"a": "b"}
    assert message_fields(outgoing)["properties"] == {"a": "b"}
    assert message_fields(outgoing)["partition_key"] == "k"
