"""Advertised listeners and bind addresses."""

from __future__ import annotations

import pytest

from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.broker_server import addresses_of
from geminga.app.servers.core.addresses import is_loopback
from geminga.app.servers.listeners import BoundPorts, advertised_listeners, bound_addresses, endpoints, parse_listener
from geminga.model.errors import ConfigurationError


def test_listener_is_taken_apart() -> None:
    item = parse_listener("advertisedListeners", "internal:pulsar+ssl://host:6651")
    assert item == ("internal", "pulsar+ssl", "host", 6651)
    assert item.url == "pulsar+ssl://host:6651"
    assert parse_listener("k", "v6:http://[::1]:80").url == "http://[::1]:80"


@pytest.mark.parametrize("text", ["", "x", "a:pulsar://host", "a:ftp://host:1", ":pulsar://h:1", "a:pulsar://h:99999"])
def test_listener_that_is_none_names_key_and_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="bindAddresses="):
        parse_listener("bindAddresses", text)


def test_listeners_are_grouped_and_the_internal_one_comes_first() -> None:
    texts = ["out:pulsar://a:1", "in:pulsar://b:2", "out:http://a:80"]
    assert [endpoint.name for endpoint in advertised_listeners(texts, "")] == ["out", "in"]
    found = advertised_listeners(texts, "in")
    assert [endpoint.name for endpoint in found] == ["in", "out"]
    assert found[1].broker_url == "pulsar://a:1"
    assert found[1].web_url == "http://a:80"


def test_listeners_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two pulsar URLs"):
        advertised_listeners(["a:pulsar://h:1", "a:pulsar://h:2"], "")
    with pytest.raises(ConfigurationError, match="internalListenerName=b"):
        advertised_listeners(["a:pulsar://h:1"], "b")


@pytest.mark.parametrize(
    ("config", "broker_url"),
    [
        (ServerConfig(), "pulsar://127.0.0.1:10"),
        (ServerConfig(advertised_address="broker.example"), "pulsar://broker.example:10"),
        (ServerConfig(bind_address="0.0.0.0"), "pulsar://machine:10"),
        (ServerConfig(bind_address="::1"), "pulsar://[::1]:10"),
        (ServerConfig(advertised_listeners=("a:pulsar://h:1",)), "pulsar://h:1"),
    ],
)
def test_clients_are_told_the_advertised_address(config: ServerConfig, broker_url: str) -> None:
    found = endpoints(config, BoundPorts(10, 20), host_name="machine")
    assert found[0].broker_url == broker_url
    assert found[0].web_url.endswith(":20")


@pytest.mark.parametrize(
    ("config", "comes_back"),
    [
        (ServerConfig(), [True]),
        (ServerConfig(bind_address="0.0.0.0"), [True]),
        (ServerConfig(bind_address="10.0.0.5"), [True]),
        (ServerConfig(advertised_address="127.0.0.9"), [True]),
        (ServerConfig(advertised_address="localhost"), [True]),
        (ServerConfig(advertised_address="::1"), [True]),
        (ServerConfig(advertised_address="broker.example"), [False]),
        (ServerConfig(advertised_listeners=("a:pulsar://h:1", "b:pulsar://localhost:2")), [False, True]),
    ],
)
def test_lone_broker_tells_clients_to_come_back_where_they_asked(config: ServerConfig, comes_back: list[bool]) -> None:
    found = endpoints(config, BoundPorts(10, 20), host_name="machine", is_alone=True)
    assert [endpoint.is_through_service_url for endpoint in found] == comes_back
    # Behind one address of several brokers the client would come to any of them.
    found = endpoints(config, BoundPorts(10, 20), host_name="machine")
    assert not any(endpoint.is_through_service_url for endpoint in found)


def test_bound_addresses_speak_tls_or_not() -> None:
    found = bound_addresses(["a:pulsar://127.0.0.1:0", "b:https://127.0.0.1:8443"])
    assert [(item.scheme, item.port) for item in found] == [("pulsar", 0), ("https", 8443)]


def test_ports_with_tls_are_told_beside_the_plain_ones_or_instead_of_them() -> None:
    (both,) = endpoints(ServerConfig(), BoundPorts(10, 20, 11, 21), host_name="machine")
    assert (both.broker_url, both.broker_url_tls) == ("pulsar://127.0.0.1:10", "pulsar+ssl://127.0.0.1:11")
    assert (both.web_url, both.web_url_tls) == ("http://127.0.0.1:20", "https://127.0.0.1:21")
    (one,) = endpoints(ServerConfig(), BoundPorts(None, None, 11, 21), host_name="machine", is_alone=True)
    assert (one.broker_url, one.web_url, one.is_through_service_url) == ("", "", True)
    assert addresses_of(one, BoundPorts(None, None, 11, 21))[:4] == (one.broker_url_tls, one.web_url_tls, 11, 21)
    named = ServerConfig(advertised_listeners=("out:pulsar+ssl://h:1",))
    (out,) = endpoints(named, BoundPorts(10, 20, 11, 21), host_name="machine")
    assert (out.broker_url, out.broker_url_tls, out.web_url_tls) == ("", "pulsar+ssl://h:1", "https://127.0.0.1:21")


def test_loopback_is_told_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
