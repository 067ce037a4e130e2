"""How many may be there, of all clients and of one address; and what is counted."""

from __future__ import annotations

from geminga.proxy.core.guests import ASKED_BYTES_MAX, AskedRequests, Counters, Guests
from geminga.proxy.core.requests import KINDS
from geminga.wire._generated import pulsar_api_pb2 as pb

LOOKUP = KINDS[pb.BaseCommand.LOOKUP]


def test_beyond_the_limit_of_all_nobody_stays() -> None:
    guests = Guests(2, 0)
    assert [guests.enter("a"), guests.enter("b")] == ["", ""]
    assert guests.enter("c") == "reached maxConcurrentInboundConnections=2"
    guests.leave("c")
    guests.leave("a")
    assert guests.enter("c") == ""
    assert (guests.active, guests.new, guests.rejected) == (2, 4, 1)


def test_beyond_the_limit_of_an_address_others_stay() -> None:
    guests = Guests(100, 2)
    assert [guests.enter(host) for host in ("a", "a", "b")] == ["", "", ""]
    assert guests.enter("a") == "reached maxConcurrentInboundConnectionsPerIp=2"
    guests.leave("a")
    guests.leave("a")
    assert guests.enter("a") == ""
    for host in ("a", "a", "b"):
        guests.leave(host)
    assert not guests._by_host


def test_requests_have_a_limit_over_all_kinds() -> None:
    requests = AskedRequests(2)
    kinds = list(KINDS.values())
    assert [requests.begin(kind, 10) for kind in kinds[:3]] == [True, True, False]
    requests.end(10)
    assert requests.begin(LOOKUP, 5)
    metrics = Counters(Guests(1, 0), requests).metrics()
    assert metrics["pulsar_proxy_lookup_requests"] == 2
    assert metrics["pulsar_proxy_rejected_get_topics_of_namespace_requests"] == 1
    assert metrics["geminga_proxy_requests_under_way"] == 2
    assert metrics["geminga_proxy_requests_under_way_bytes"] == 15


def test_requests_have_a_limit_of_their_bytes() -> None:
    requests = AskedRequests(10)
    assert requests.begin(LOOKUP, ASKED_BYTES_MAX - 1)
    assert not requests.begin(LOOKUP, 2)
    assert requests.begin(LOOKUP, 1)
    requests.end(ASKED_BYTES_MAX - 1)
    assert requests.begin(LOOKUP, 2)
    assert (requests.under_way, requests.under_way_bytes, requests.rejected["lookup"]) == (2, 3, 1)
