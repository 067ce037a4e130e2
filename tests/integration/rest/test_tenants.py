"""``tenants`` over HTTP."""

from __future__ import annotations

import pytest

from support.rest import Rest

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
