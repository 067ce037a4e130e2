"""Who is refused because a page in a browser may have sent the request: a table of what browsers and programs send."""

from __future__ import annotations

import pytest

from geminga.wire.pages import names_of, refusal_of

NAMES = names_of(["pulsar://Broker-1.example:6650", "http://[fd00::1]:8080", "", "machine"], ["Console.Example", ""])
PARTITIONS = "/admin/v2/persistent/public/default/t/partitions"
EVIL = {"Origin": "http://evil.example"}


def refused(method: str, headers: dict[str, str], path: str = "/admin/v2/clusters", names=NAMES) -> str:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return refusal_of(names, method, path, pairs)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8080",
        "10.1.2.3:1",
        "[::1]:8080",
        "[fe80::1%25eth0]",
        "localhost",
        "LocalHost:36690",
        "localhost.:8080",
        "broker-1.example:80",
        "machine:8080",
        "console.example",
        "",
    ],
)
def test_host_that_is_known_passes_whatever_its_port(host: str) -> None:
    assert not refused("GET", {"Host": host})
    assert not refused("POST", {"Host": host})
    assert not refused("POST", {"Host": host, "Origin": f"http://{host}"} if host and "%" not in host else {})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "broker-1.example.evil.example",
        "machine.evil.example",
        "127.1",
        "[evil]:80",
        "evil@127.0.0.1",
        "::1",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_host_that_is_rebound_is_refused_for_questions_too(host: str, method: str) -> None:
    reason = refused(method, {"Host": host})
    assert f'"{host}"' in reason
    assert "gemingaHttpAllowedHosts" in reason


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://127.0.0.1.evil.example"},
        {"Origin": "http://6.6.6.6"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://[::"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "something-new"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:3000"},
        {"Referer": "http://evil.example/page"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/admin/v2/brokers/shutdown"),
        ("PUT", "/admin/v2/tenants/x"),
        ("DELETE", "/admin/v2/tenants/x"),
        ("PATCH", "/"),
        ("GET", PARTITIONS),
        ("HEAD", f"{PARTITIONS}/"),
        ("GET", "/lookup/v2/topic/persistent/public/default/t"),
    ],
)
def test_change_that_a_foreign_page_asks_for_is_refused(headers: dict[str, str], method: str, path: str) -> None:
    assert "may not do this here" in refused(method, {"Host": "127.0.0.1:8080", **headers}, path)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://10.0.0.5:8080"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.9:3000"},
        {"Origin": "http://[::1]:3000"},
        {"Origin": "https://10.0.0.5"},
        {"Origin": "http://broker-1.example:9527"},
        {"Origin": "http://console.example"},
        {"Origin": "http://console.example", "Sec-Fetch-Site": "cross-site"},
        {"Referer": "http://10.0.0.5:8080/page"},
        {"Referer": "http://evil.example/", "Sec-Fetch-Site": "none"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/admin/v2/tenants/x"), ("GET", PARTITIONS)])
def test_programs_and_pages_of_ones_own_may_change_what_they_may(headers, method: str, path: str) -> None:
    assert not refused(method, {"Host": "10.0.0.5:8080", **headers}, path)


@pytest.mark.parametrize("headers", [EVIL, {"Sec-Fetch-Site": "cross-site"}])
def test_questions_of_foreign_pages_are_answered_for_the_browser_keeps_the_answer(headers) -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        assert not refused(method, {"Host": "localhost", **headers})


def test_each_of_several_headers_counts() -> None:
    pairs = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")]
    assert refusal_of(NAMES, "POST", "/", pairs)
    assert refusal_of(NAMES, "GET", "/", [(b"host", b"localhost"), (b"host", b"evil.example")])
    listed = [(b"origin", b"http://console.example"), (b"origin", b"http://evil.example")]
    assert refusal_of(NAMES, "POST", "/", listed)


def test_star_takes_all() -> None:
    names = names_of(["machine"], ["*"])
    assert not refused("POST", {"Host": "evil.example", **EVIL}, names=names)


def test_what_is_told_of_a_header_is_bounded_and_quoted() -> None:
    reason = refused("GET", {"Host": 'x"\n' + "y" * 5000})
    assert len(reason) < 500
    assert '\\"' in reason
    assert "\n" not in reason
