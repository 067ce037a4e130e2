"""Which requests go on to brokers, and what they are told of who asks."""

from __future__ import annotations

import pytest

from geminga.model.errors import UnavailableError
from geminga.proxy.core.http_rules import Destination, answer_headers, place_of, redirected, refusal_of, request_headers

OWN = [("Authorization", "Bearer proxy")]


@pytest.mark.parametrize("path", ["/admin/v2/clusters", "/lookup/v2/topic/persistent/a/b/c", "/admin/"])
def test_the_administration_goes_on(path: str) -> None:
    assert refusal_of(path) is None


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *(("/", 404), ("/adminx", 404), ("/metrics/x", 404), ("/ws/v2/producer", 404), ("//admin/v2", 404)),
        *(("/admin/../metrics", 400), ("/admin/./v2", 400), ("/lookup/..", 400)),
    ],
)
def test_nothing_else_does(path: str, status: int) -> None:
    refused = refusal_of(path)
    assert refused is not None
    assert refused[0] == status


def test_a_known_client_is_named_and_the_proxys_credentials_take_the_place_of_its_own() -> None:
    came = [
        *(
            (b"authorization", b"Bearer jane"),
            (b"x-pulsar-auth-method-name", b"token"),
            (b"x-original-principal", b"root"),
        ),
        *((b"accept", b"*/*"), (b"host", b"door"), (b"connection", b"keep-alive, X-Hop"), (b"x-hop", b"1")),
        *((b"transfer-encoding", b"chunked"), (b"x-forwarded-for", b"8.8.8.8"), (b"content-length", b"3")),
    ]
    assert request_headers(came, is_authenticated=True, role="jane", own=OWN, host="10.0.0.9") == [
        (b"accept", b"*/*"),
        (b"authorization", b"Bearer proxy"),
        (b"x-original-principal", b"jane"),
        (b"x-forwarded-for", b"10.0.0.9"),
    ]


def test_where_nobody_is_asked_a_clients_own_words_pass_but_for_whom_it_asks() -> None:
    came = [(b"authorization", b"Bearer jane"), (b"x-original-principal", b"root")]
    assert request_headers(came, is_authenticated=False, role="", own=OWN, host="") == [
        (b"authorization", b"Bearer jane")
    ]
    assert request_headers([], is_authenticated=False, role="", own=OWN, host="") == [
        (b"authorization", b"Bearer proxy")
    ]


def test_the_broker_is_told_the_trace_unless_the_client_has_one() -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    said = request_headers([], is_authenticated=True, role="", own=[], host="", trace=trace)
    assert said == [(b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-0af7651916cd43dd-01")]
    came = [(b"traceparent", b"its own")]
    assert request_headers(came, is_authenticated=True, role="", own=[], host="", trace=trace) == came


def test_an_answer_keeps_its_length_and_loses_what_is_of_the_connection() -> None:
    came = [
        (b"content-length", b"3"),
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"etag", b"x"),
        (b"x-trace-id", b"b"),
    ]
    assert answer_headers(came) == [(b"content-length", b"3"), (b"etag", b"x")]


def test_places_and_redirections() -> None:
    place = place_of("http://b:8080", b"/admin/v2/x?a=b")
    assert place == Destination("http", "b", 8080, b"/admin/v2/x?a=b")
    assert place.netloc == "b:8080"
    assert place_of("https://[::1]", b"/").netloc == "[::1]"
    assert redirected(place, "http://b2:8081/admin/v2/x?a=b") == Destination("http", "b2", 8081, b"/admin/v2/x?a=b")
    assert redirected(place, "/other") == Destination("http", "b", 8080, b"/other")
    for location in ("ftp://b/", "http://b:port/"):
        with pytest.raises(UnavailableError, match="no URL of a web service"):
            redirected(place, location)
    with pytest.raises(UnavailableError, match="no place"):
        redirected(place, "http://[x")


def test_credentials_are_not_carried_from_tls_to_plain() -> None:
    with pytest.raises(UnavailableError, match="without TLS"):
        redirected(place_of("https://b", b"/admin"), "http://b/admin")
