"""Lookup over HTTP."""

from __future__ import annotations

import zlib

import pytest

from support.rest import Rest

pytestmark = pytest.mark.integration


def test_lookup_gives_urls_that_are_never_null(rest: Rest, broker, namespace: str) -> None:
    answer = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t").json
    assert answer["brokerUrl"] == broker.service_url
    assert answer["httpUrl"] == broker.web_service_url
    assert all(isinstance(value, str) for value in answer.values())
    assert rest.get("/lookup/v2/topic/persistent/public/nowhere/t").status == 404
    assert rest.get(f"/lookup/v2/topic/persistent/{namespace}/t?listenerName=nobody").status == 503
    bundle = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t/bundle").body.decode()
    low, high = (int(part, 16) for part in bundle.split("_"))
    assert low <= zlib.crc32(f"persistent://{namespace}/t".encode()) <= high
