"""``tenants`` over HTTP."""

from __future__ import annotations

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_tenant_lives_and_dies(rest: Rest) -> None:
    assert rest.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]}).status == 204
    assert rest.put("tenants/acme", {"allowedClusters": ["standalone"]}).status == 409
    assert rest.get("tenants/acme").json == {"adminRoles": [], "allowedClusters": ["standalone"]}
    assert rest.post("tenants/acme", {"allowedClusters": ["standalone"], "adminRoles": ["r"]}).status == 204
    assert "acme" in rest.get("tenants").json
    assert rest.put("tenants/x", {}).status == 412
    assert rest.put("namespaces/acme/orders").status == 204
    assert rest.delete("tenants/acme").status == 409
    assert rest.delete("tenants/acme?force=true").status == 405
    assert rest.delete("namespaces/acme/orders").status == 204
    assert rest.delete("tenants/acme").status == 204
    assert rest.get("tenants/acme").status == 404


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_name_with_a_slash_in_it_is_no_way_to_something_else(rest: Rest, namespace: str, method: str) -> None:
    """A tenant was found that is a namespace; deleted, it left the namespace's topics without one."""
    assert rest.put(f"persistent/{namespace}/t").status == 204
    info = {"allowedClusters": ["standalone"]}
    for name in (namespace.replace("/", "%2F"), "%2F", "..%2Fclusters%2Fstandalone"):
        assert rest.call(method, f"tenants/{name}", info if method == "POST" else None).status == 404, name
    cluster = {"serviceUrl": "http://127.0.0.1:1"}
    for name in ("..%2Fpolicies%2F" + namespace.replace("/", "%2F"), "%2F"):
        assert rest.call(method, f"clusters/{name}", cluster if method == "POST" else None).status == 404, name
    assert rest.get(f"namespaces/{namespace}").json["bundles"]["numBundles"] == 4
    assert rest.get(f"namespaces/{namespace}/topics").json == [f"persistent://{namespace}/t"]
