"""``clusters`` over HTTP."""

from __future__ import annotations

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_cluster_lives_and_dies(rest: Rest) -> None:
    assert "standalone" in rest.get("clusters").json
    assert rest.get("clusters/standalone").json["brokerServiceUrl"].startswith("pulsar://")
    assert rest.put("clusters/east", {"serviceUrl": "http://e"}).status == 200
    assert rest.put("clusters/east", {}).status == 409
    assert rest.post("clusters/east", {"serviceUrl": "http://f"}).status == 200
    assert rest.get("clusters/east").json["serviceUrl"] == "http://f"
    assert rest.delete("clusters/east").status == 204
    assert rest.delete("clusters/east").status == 404
    assert rest.get("clusters/east").reason
    assert rest.put("clusters/no%20good", {}).status == 412
