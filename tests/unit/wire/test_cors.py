"""What pages of other origins may: as the Fetch standard has it, and never more than the settings say."""

from __future__ import annotations

from typing import Any

import pytest

from geminga.wire.cors import CorsError, CorsRules, answer_headers, cors_rules, preflight_headers
from geminga.wire.pages import names_of, refusal_of

PAGE = "https://console.example:8443"


def rules(*origins: str, methods: tuple[str, ...] = ("GET", "POST"), **more: Any) -> CorsRules:
    options = {"has_credentials": False, "max_age_s": 600} | more
    return cors_rules(origins or (PAGE,), methods, ("Authorization", "Content-Type"), **options)


def asked(origin: str = "", **more: str) -> list[tuple[bytes, bytes]]:
    found = [(b"host", b"localhost:8080")]
    if origin:
        found.append((b"origin", origin.encode()))
    return found + [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]


def told(headers: list[tuple[bytes, bytes]] | None) -> dict[str, str]:
    assert headers is not None
    return {name.decode(): value.decode() for name, value in headers}


def test_listed_origin_is_named_and_others_are_not() -> None:
    found = told(answer_headers(rules(), asked(PAGE)))
    assert found == {
        "access-control-allow-origin": PAGE,
        "access-control-expose-headers": "Location, Retry-After, X-Trace-Id",
        "vary": "Origin",
    }
    for other in ("", "https://console.example", "http://console.example:8443", "null", f"{PAGE}.evil.example"):
        assert told(answer_headers(rules(), asked(other))) == {"vary": "Origin"}
    assert answer_headers(rules(), [*asked(PAGE), (b"origin", b"https://evil.example")]) == [(b"vary", b"Origin")]


def test_credentials_are_for_listed_origins_where_that_is_said() -> None:
    allowed = rules(has_credentials=True)
    assert told(answer_headers(allowed, asked(PAGE)))["access-control-allow-credentials"] == "true"
    assert "access-control-allow-credentials" not in told(answer_headers(rules(), asked(PAGE)))


def test_every_page_may_read_without_credentials_and_change_nothing() -> None:
    any_page = rules("*", PAGE)
    assert told(answer_headers(any_page, asked("https://x.example")))["access-control-allow-origin"] == "*"
    assert told(answer_headers(any_page, asked(PAGE)))["access-control-allow-origin"] == PAGE
    assert not any_page.admits("https://x.example", "POST")
    assert any_page.admits(PAGE, "POST")
    assert "access-control-allow-origin" not in told(answer_headers(any_page, asked()))
    assert answer_headers(rules("*"), asked()) == []


def test_preflight_is_answered_to_pages_that_may_something() -> None:
    question = asked(PAGE, access_control_request_method="POST", access_control_request_private_network="true")
    assert told(preflight_headers(rules(), "OPTIONS", question)) == {
        "access-control-allow-methods": "GET, POST",
        "access-control-allow-headers": "Authorization, Content-Type",
        "access-control-max-age": "600",
        "access-control-allow-private-network": "true",
    }
    other = asked(
        "https://x.example", access_control_request_method="GET", access_control_request_private_network="true"
    )
    assert preflight_headers(rules(), "OPTIONS", other) is None
    assert "access-control-allow-private-network" not in told(preflight_headers(rules("*"), "OPTIONS", other))
    assert preflight_headers(rules(), "OPTIONS", asked(PAGE)) is None
    assert preflight_headers(rules(), "GET", question) is None
    assert preflight_headers(rules("*"), "OPTIONS", asked(access_control_request_method="GET")) is None


def test_listed_origin_passes_the_look_at_foreign_pages_with_its_methods() -> None:
    names, found = names_of(["broker"], []), rules()
    headers = asked(PAGE, sec_fetch_site="cross-site")
    assert refusal_of(names, "POST", "/x", headers, found.admits) == ""
    assert PAGE in refusal_of(names, "DELETE", "/x", headers, found.admits)
    assert refusal_of(names, "POST", "/x", headers)
    assert refusal_of(names, "POST", "/x", asked("https://evil.example"), found.admits)
    two = [*headers, (b"origin", b"https://evil.example")]
    assert refusal_of(names, "POST", "/x", two, found.admits)
    rebound = [(b"host", b"evil.example"), *headers[1:]]
    assert "none of this server's names" in refusal_of(names, "GET", "/x", rebound, found.admits)
    tail = "/topics/persistent/t/n/x/tail"
    assert refusal_of(names, "GET", tail, asked("https://evil.example"), found.admits)
    for method in ("GET", "HEAD", "OPTIONS"):
        assert refusal_of(names, method, tail, headers, found.admits) == ""


@pytest.mark.parametrize(
    ("origin", "seen"),
    [
        ("HTTPS://Console.Example", "https://console.example"),
        ("https://console.example:443/", "https://console.example"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://localhost:3000", "http://localhost:3000"),
    ],
)
def test_origin_is_what_browsers_write(origin: str, seen: str) -> None:
    assert rules(origin).origins == {seen}


@pytest.mark.parametrize(
    "origin",
    [
        "console.example",
        "https://",
        "https://a/b",
        "https://u@a",
        "ftp://a",
        "null",
        "https://a?x",
        "https://a:x",
        "https://[a",
    ],
)
def test_what_is_no_origin_is_refused_with_what_was_expected(origin: str) -> None:
    with pytest.raises(CorsError, match=r"gemingaHttpCorsAllowedOrigins has .*; expected origins such as"):
        rules(origin)


def test_settings_that_would_give_everybody_away_are_refused() -> None:
    with pytest.raises(CorsError, match=r"gemingaHttpCorsAllowCredentials=true with gemingaHttpCorsAllowedOrigins=\*"):
        rules("*", has_credentials=True)
    for methods in (("*",), ("G T",), ("",)):
        with pytest.raises(CorsError, match="gemingaHttpCorsAllowedMethods has"):
            rules(methods=methods)
