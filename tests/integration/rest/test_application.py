"""What every path has in common: errors, bounds."""

from __future__ import annotations

import socket

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_errors_are_pulsars(rest: Rest) -> None:
    assert rest.get("nothing/here").status == 404
    assert rest.get("nothing/here").reason
    assert rest.get("/elsewhere").status == 404
    assert rest.post("clusters").status == 405
    assert rest.call("PUT", "clusters/x", raw=b"{").status == 400
    assert rest.call("PUT", "clusters/x", raw=b"[" * 100_000).status in (400, 413)
    assert rest.call("PUT", "clusters/x", raw=b'"text"').status == 400
    assert rest.call("PUT", "clusters/x", raw=b'{"a":"' + b"x" * 200_000 + b'"}').status == 413
    assert rest.get("clusters/" + "x" * 600).status == 412


BROKEN_BODIES = [
    b"{",
    b"\xff\xfe\x00",
    b'{"a":"\\ud800"}',
    b'"\\ud800"',
    b"NaN",
    b'{"retentionTimeInMinutes":1e400,"retentionSizeInMB":NaN}',
    b"[" * 50_000,
    b"9" * 5000,
]


@pytest.mark.parametrize("body", BROKEN_BODIES, ids=lambda body: repr(body[:20]))
def test_broken_body_is_refused_with_a_reason_everywhere(rest: Rest, namespace: str, body: bytes) -> None:
    rest.put(f"persistent/{namespace}/t")
    for method, path in (
        ("PUT", f"namespaces/{namespace}-new"),
        ("POST", f"namespaces/{namespace}/retention"),
        ("POST", f"namespaces/{namespace}/permissions/role"),
        ("PUT", f"persistent/{namespace}/t/properties"),
        ("PUT", f"persistent/{namespace}/p/partitions"),
        ("PUT", f"persistent/{namespace}/t/subscription/s"),
        ("POST", f"persistent/{namespace}/t/subscription/s/resetcursor"),
        ("PUT", "tenants/broken"),
        ("POST", "clusters/standalone"),
    ):
        answer = rest.call(method, path, raw=body)
        assert answer.status == 400, (path, answer)
        assert answer.reason


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "%FF", "%ED%A0%80", "x" * 1100])
def test_name_that_is_no_text_is_refused_everywhere(rest: Rest, namespace: str, name: str) -> None:
    for method, path in (
        ("PUT", f"tenants/{name}"),
        ("GET", f"namespaces/public/{name}"),
        ("PUT", f"clusters/{name}"),
        ("PUT", f"persistent/{namespace}/{name}"),
        ("PUT", f"persistent/{namespace}/t/subscription/{name}"),
        ("POST", f"namespaces/{namespace}/permissions/{name}"),
        ("GET", f"/lookup/v2/topic/persistent/{namespace}/{name}"),
    ):
        answer = rest.call(method, path, {})
        assert answer.status == 412, (path, answer)
        assert answer.reason


def test_body_beyond_the_bound_is_refused(rest: Rest, namespace: str) -> None:
    answer = rest.call("PUT", f"namespaces/{namespace}-big", raw=b" " * 100_001)
    assert answer.status == 413
    assert "100000" in answer.reason


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("tenants/big", "", b"413"),
        ("tenants/%00", "", b"412"),
        ("nowhere", "", b"404"),
        ("tenants/big", "Connection: close\r\n", b"413"),
        ("tenants/%00", "Connection: close\r\n", b"412"),
    ],
)
def test_client_that_is_still_sending_a_body_hears_why_it_is_refused(
    rest: Rest, path: str, headers: str, status: bytes
) -> None:
    """The connection was closed under it."""
    size = 400_000
    address = rest.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((address[0], int(address[2])), timeout=20) as connection:
        head = f"PUT /admin/v2/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n{headers}\r\n"
        connection.sendall(head.encode())
        for _ in range(4):
            connection.sendall(b" " * (size // 4))
            for _ in range(3):  # the broker has seen it
                assert rest.get("clusters").status == 200
        answer = connection.recv(65536)
    assert answer.split()[1] == status, answer


def test_client_that_waits_for_leave_to_send_is_refused_at_once(rest: Rest) -> None:
    address = rest.base_url.removeprefix("http://").partition(":")
    with socket.create_connection((address[0], int(address[2])), timeout=20) as connection:
        head = (
            "PUT /admin/v2/tenants/%00 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head.encode())
        assert connection.recv(65536).split()[1] == b"412"


def test_names_and_paths_of_pulsar_1_are_called_that(rest: Rest) -> None:
    """They were read as a namespace with a slash that is not there; pulsar-admin sends a topic "a/b" to such paths."""
    for method, path in (
        ("PUT", "/admin/persistent/public/standalone/default/t"),
        ("GET", "/admin/persistent/public/default/a/b/stats"),
        ("GET", "/admin/namespaces/public/standalone/default"),
        ("GET", "/lookup/v2/destination/persistent/public/standalone/default/t"),
        ("GET", "/admin/schemas/public/default/a/b/schema"),
    ):
        answer = rest.call(method, path)
        assert (answer.status, "is a path of Pulsar 1, whose names have a cluster in them" in answer.reason) == (
            404,
            True,
        )
    for path in ("persistent/public/nowhere/ns%2Ft/stats", "/lookup/v2/topic/persistent/public/nowhere/ns%2Ft"):
        answer = rest.get(path)
        assert (answer.status, "a name with a cluster in it" in answer.reason) == (404, True), path
    assert "Pulsar 1" not in rest.get("persistent/public/nowhere/t/stats").reason
    assert "Pulsar 1" not in rest.get("/admin/nothing").reason


def test_positions_that_no_topic_has_are_refused_or_brought_into_range(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    path = f"persistent/{namespace}/t/subscription/s"
    longest = (1 << 63) - 1
    # Nothing can expire up to what is behind the end.
    for position, expired in (
        ({"ledgerId": longest, "entryId": longest - 1, "isExcluded": True}, 409),
        ({"ledgerId": longest, "entryId": 0}, 409),
        ({"ledgerId": -5, "entryId": -7}, 204),
        ({"ledgerId": 0, "entryId": 0, "batchIndex": 1_000_000_000}, None),
    ):
        assert rest.put(path, position).status == 204
        assert rest.post(f"{path}/resetcursor", position).status == 204
        assert rest.post(f"{path}/expireMessages", position).status in ([expired] if expired else [204, 409])
        assert rest.delete(path).status == 204
    for number in ("9" * 30, "9" * 5000, "-1", "x"):
        assert rest.get(f"persistent/{namespace}/t/ledger/{number}/entry/0").status == 404
        assert rest.get(f"{path}/position/{number}").status in (404, 412)
