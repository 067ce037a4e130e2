"""``namespaces`` over HTTP."""

from __future__ import annotations

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_namespace_lives_and_dies(rest: Rest) -> None:
    assert rest.put("namespaces/public/ns1").status == 204
    assert rest.put("namespaces/public/ns1").status == 409
    assert rest.put("namespaces/nobody/ns1").status == 404
    assert rest.put("namespaces/public/no%20good").status == 412
    assert "public/ns1" in rest.get("namespaces/public").json
    assert rest.get("namespaces/public/ns1").json["bundles"]["numBundles"] == 4
    assert rest.get("namespaces/public/ns1/bundles").json["numBundles"] == 4
    assert rest.get("namespaces/public/ns1/topics").json == []
    assert rest.get("namespaces/public/ns1/topics?mode=SOME").status == 404
    assert rest.delete("namespaces/public/ns1").status == 204
    assert rest.delete("namespaces/public/ns1").status == 404
    assert rest.get("namespaces/public/ns1/topics").status == 404


def test_namespace_with_topics_is_deleted_by_force_only(rest: Rest, namespace: str) -> None:
    assert rest.put(f"persistent/{namespace}/t").status == 204
    assert rest.put(f"persistent/{namespace}/p/partitions", 2).status == 204
    assert rest.put(f"non-persistent/{namespace}/n/partitions", 2).status == 204
    assert rest.delete(f"namespaces/{namespace}").status == 409
    assert rest.delete(f"namespaces/{namespace}?force=true").status == 204
    assert rest.get(f"namespaces/{namespace}").status == 404
    assert rest.get(f"persistent/{namespace}/t/stats").status == 404


def test_permission_is_granted_and_revoked(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/permissions"
    assert rest.get(path).json == {}
    assert rest.post(f"{path}/alice", ["produce", "consume"]).status == 204
    assert rest.get(path).json == {"alice": ["produce", "consume"]}
    assert rest.post(f"{path}/alice", ["fly"]).status == 400
    assert rest.delete(f"{path}/alice").status == 204
    assert rest.get(path).json == {}
