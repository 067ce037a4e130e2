"""Lookup over HTTP."""

from __future__ import annotations

import json
import urllib.request
import zlib

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_lookup_gives_urls_that_are_never_null(rest: Rest, broker, namespace: str) -> None:
    answer = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t").json
    assert answer["brokerUrl"] == broker.service_url
    assert answer["httpUrl"] == broker.web_service_url
    assert all(isinstance(value, str) for value in answer.values())
    assert rest.get("/lookup/v2/topic/persistent/public/nowhere/t").status == 404
    assert rest.get(f"/lookup/v2/topic/persistent/{namespace}/t?listenerName=nobody").status == 503
    assert rest.get(f"/lookup/v2/topic/persistent/{namespace}/t?listenerName=internal").json == answer
    bundle = rest.get(f"/lookup/v2/topic/persistent/{namespace}/t/bundle").body.decode()
    low, high = (int(part, 16) for part in bundle.split("_"))
    assert low <= zlib.crc32(f"persistent://{namespace}/t".encode()) <= high


@pytest.mark.parametrize(
    ("host", "broker_host"), [("127.0.0.2:36680", "127.0.0.2"), ("[::1]:36680", "[::1]"), ("localhost", "localhost")]
)
def test_urls_have_the_host_of_the_request_by_whatever_port_it_came(
    broker, namespace: str, host: str, broker_host: str
) -> None:
    url = f"{broker.web_service_url}/lookup/v2/topic/persistent/{namespace}/t"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host})) as response:
        answer = json.load(response)
    port = broker.service_url.rpartition(":")[2]
    assert answer["brokerUrl"] == answer["nativeUrl"] == f"pulsar://{broker_host}:{port}"
    assert answer["httpUrl"] == f"http://{host}"
