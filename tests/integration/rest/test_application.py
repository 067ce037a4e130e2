"""What every path has in common: errors, bounds."""

from __future__ import annotations

import pytest

from support.rest import Rest

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


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "%FF", "%ED%A0%80", "x" * 600])
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


def test_positions_that_no_topic_has_are_refused_or_brought_into_range(rest: Rest, namespace: str) -> None:
    rest.put(f"persistent/{namespace}/t")
    path = f"persistent/{namespace}/t/subscription/s"
    longest = (1 << 63) - 1
    for position in (
        {"ledgerId": 5, "entryId": longest, "isExcluded": True},
        {"ledgerId": longest, "entryId": 0},
        {"ledgerId": -5, "entryId": -7},
        {"ledgerId": 0, "entryId": 0, "batchIndex": 1_000_000_000},
    ):
        assert rest.put(path, position).status == 204
        assert rest.post(f"{path}/resetcursor", position).status == 204
        assert rest.post(f"{path}/expireMessages", position).status == 204
        assert rest.delete(path).status == 204
    for number in ("9" * 30, "9" * 5000, "-1", "x"):
        assert rest.get(f"persistent/{namespace}/t/ledger/{number}/entry/0").status == 404
        assert rest.get(f"{path}/position/{number}").status in (404, 412)
