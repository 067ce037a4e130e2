"""Bodies, and who asks."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from geminga.broker.rest.calls.requests import RestError
from geminga.broker.rest.message_routes.serving import peer_of, whole_body


def request(*headers: tuple[bytes, bytes], client: tuple[str, int] | None = ("10.0.0.7", 5)) -> Request:
    return Request({"type": "http", "headers": list(headers), "client": client})


def test_compressed_body_is_refused_before_it_is_read() -> None:
    with pytest.raises(RestError) as caught:
        asyncio.run(whole_body(request((b"content-encoding", b"GZIP"))))
    assert (caught.value.http_status, "gzip is not taken" in caught.value.told) == (415, True)


def test_who_asks_is_told_as_pulsar_prints_it() -> None:
    assert (peer_of(request()), peer_of(request(client=None))) == ("/10.0.0.7:5", "/unknown")
