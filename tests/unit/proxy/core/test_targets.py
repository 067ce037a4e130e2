"""Which brokers may be connected to, whatever a client names."""

from __future__ import annotations

import pytest

from geminga.model.errors import ConfigurationError, NotAllowedError
from geminga.proxy.core.targets import AllowedTargets, Target, parse_target

ANY = ("*",)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("broker-1.example:6650", Target("broker-1.example", 6650)),
        ("[::1]:6651", Target("::1", 6651)),
        ("10.0.0.1:1", Target("10.0.0.1", 1)),
        ("h:65535", Target("h", 65535)),
    ],
)
def test_a_target_is_host_and_port(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        *("", ":6650", "host", "host:", "host:0", "host:65536", "host:066500", "host:+1", "host:6650 ", "host:1e3"),
        *(
            "pulsar://host:6650",
            "user@host:6650",
            "ho st:6650",
            "host\n:6650",
            "host/x:6650",
            "host?:6650",
            "[::1:6650",
        ),
        *("host:٦٦٥٠", "h" * 400 + ":6650", "host\\x:6650", "#:6650"),
    ],
)
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(NotAllowedError, match="expected host:port"):
        parse_target(text)


def allowed(allowed: AllowedTargets, host: str, port: int = 6650) -> bool:
    try:
        allowed.check_name(Target(host, port))
    except NotAllowedError:
        return False
    return True


def test_ports_are_those_of_the_list() -> None:
    some = AllowedTargets(ANY, ANY, ["6650", "6651"])
    assert [port for port in (1, 80, 6649, 6650, 6651, 6652, 8080) if allowed(some, "h", port)] == [6650, 6651]
    assert allowed(AllowedTargets(ANY, ANY, ["6650", "*"]), "h", 22)


@pytest.mark.parametrize(
    ("pattern", "host", "is_allowed"),
    [
        ("*.brokers.svc", "b-1.brokers.svc", True),
        ("*.brokers.svc", "B-1.Brokers.SVC", True),
        ("*.brokers.svc", "brokers.svc", False),
        ("*.brokers.svc", "b-1.brokers.svc.evil.example", False),
        ("*.brokers.svc", "b-1xbrokers.svc", False),
        ("broker-*", "broker-12", True),
        ("broker-*", "xbroker-12", False),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abde", False),
        ("b.+", "bxx", False),
        ("broker", "broker", True),
        ("broker", "broker\n", False),
    ],
)
def test_host_names_match_whole_and_without_case(pattern: str, host: str, *, is_allowed: bool) -> None:
    assert allowed(AllowedTargets([pattern], ANY, ANY), host) is is_allowed
    assert allowed(AllowedTargets(["other", pattern], ANY, ANY), host) is is_allowed


def test_no_names_allow_none() -> None:
    assert not allowed(AllowedTargets([], ANY, ANY), "broker")


@pytest.mark.parametrize(
    ("network", "address", "is_allowed"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.1.0.0/255.255.0.0", "10.1.9.9", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.2.3/8", "10.9.9.9", True),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "fe80::1%eth0", False),
        ("fe80::/10", "fe80::1%eth0", True),
        # An IPv4 address that is written as IPv6 is what it is.
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("::/0", "::ffff:127.0.0.1", False),
        ("10.0.0.0/8", "what", False),
    ],
)
def test_addresses_are_those_of_the_networks(network: str, address: str, *, is_allowed: bool) -> None:
    some = AllowedTargets(ANY, [network], ANY)
    target = Target("h", 6650)
    if is_allowed:
        assert some.allowed(target, [address]) == [address]
    else:
        with pytest.raises(NotAllowedError, match="brokerProxyAllowedIPAddresses"):
            some.allowed(target, [address])


def test_of_several_addresses_those_that_are_not_allowed_are_left_out() -> None:
    some = AllowedTargets(ANY, ["10.0.0.0/8", "fd00::/8"], ANY)
    assert some.allowed(Target("h", 1), ["127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00::2"]) == [
        "10.0.0.1",
        "fd00::2",
    ]
    with pytest.raises(NotAllowedError):
        some.allowed(Target("h", 1), [])
    assert AllowedTargets(ANY, ["10.0.0.1", "*"], ANY).allowed(Target("h", 1), ["127.0.0.1"]) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("addresses", "ports", "told"),
    [
        (["10.0.0.0/33"], ANY, "brokerProxyAllowedIPAddresses=10.0.0.0/33"),
        (["host.example"], ANY, "brokerProxyAllowedIPAddresses=host.example"),
        (ANY, ["665O"], "brokerProxyAllowedTargetPorts=665O"),
        (ANY, ["0"], "brokerProxyAllowedTargetPorts=0"),
        (ANY, ["70000"], "brokerProxyAllowedTargetPorts=70000"),
    ],
)
def test_what_is_no_address_or_port_is_said_at_the_start(addresses: list[str], ports: list[str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told.replace(".", r"\.")):
        AllowedTargets(ANY, addresses, ports)
