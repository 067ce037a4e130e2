"""Credentials in headers of HTTP, as Pulsar's brokers read them."""

from __future__ import annotations

import pytest

from geminga.model.http_credentials import credential_headers


@pytest.mark.parametrize(
    ("method", "data", "expected"),
    [
        ("token", b"a.b.c", {"Authorization": "Bearer a.b.c"}),
        ("basic", b"jane:x", {"Authorization": "Basic amFuZTp4", "X-Pulsar-Auth-Method-Name": "basic"}),
        ("tls", b"", {}),
        ("own", b"\xe9", {"Authorization": "\xe9", "X-Pulsar-Auth-Method-Name": "own"}),
    ],
)
def test_each_method_has_its_form(method: str, data: bytes, expected: dict[str, str]) -> None:
    assert credential_headers(method, data) == expected
