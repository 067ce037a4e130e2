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


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("token", b"secret\n"),
        ("token", b"old-secret\nsecret"),
        ("token", "secret\u2603".encode()),
        ("token", b"secret\xff"),
        ("token", b"secret "),
        ("own", b"secret\r\nX-Original-Principal: root"),
        ("own", b" secret"),
        ("own", b"sec\x00ret"),
    ],
)
def test_what_can_not_stand_in_a_header_is_refused_without_repeating_it(method: str, data: bytes) -> None:
    """Whoever writes the header says which bytes are wrong, and shows all of them: in an error, or in a log."""
    with pytest.raises(ValueError, match=f"^the credentials of the method {method} can not stand in a header") as told:
        credential_headers(method, data)
    assert "sec" not in repr(told.value)
    assert told.value.__context__ is None
