"""Tenants and namespaces are made and deleted, each with its question."""

from __future__ import annotations

import pytest

from support.worlds.console_pages import Visiting, form_of, visit
from support.worlds.handles_world import sim_admin


def test_tenant_is_made_and_deleted_once_it_is_empty() -> None:
    async def story(visitor: Visiting) -> None:
        admin = sim_admin(visitor.application)
        made = await visitor.act("create-tenant", {"tenant": "shop", "roles": "ann, bob,"})
        assert "Tenant shop is created." in made.text
        assert await admin.tenants.get("shop") == {
            "adminRoles": ["ann", "bob"],
            "allowedClusters": list(await admin.clusters.list()),
        }
        made = await visitor.act("create-namespace", {"namespace": "shop/orders"}, tenant="shop")
        assert "Namespace shop/orders is created." in made.text
        refused = await visitor.get("/acts/delete-tenant", tenant="shop")
        assert "It has 1 namespace; delete them first" in refused.text
        assert "Delete the tenant</button>" not in refused.html
        await visitor.act("delete-namespace", {}, namespace="shop/orders")
        assert await admin.namespaces.list("shop") == []
        gone = await visitor.act("delete-tenant", {}, tenant="shop")
        assert "Tenant shop is deleted." in gone.text
        assert "shop" not in await admin.tenants.list()

    visit(story)


@pytest.mark.parametrize(("partitions", "left"), [(0, "1 topic or partition"), (2, "2 topics and partitions")])
def test_namespace_with_topics_stays(partitions: int, left: str) -> None:
    async def story(visitor: Visiting) -> None:
        admin = sim_admin(visitor.application)
        await admin.namespaces.create("public/used")
        empty = await visitor.get("/acts/delete-namespace", namespace="public/used")
        assert "Delete namespace public/used, which has no topic, with its policies." in empty.text
        if partitions:
            await admin.topics.create_partitioned("persistent://public/used/late", partitions)
        else:
            await admin.topics.create("persistent://public/used/late")
        again = await visitor.post("delete-namespace", form_of(empty.html))
        assert again.status == 409
        assert f"It has {left}; delete them first" in again.text
        assert "Delete the namespace</button>" not in again.html
        assert "public/used" in await admin.namespaces.list("public")

    visit(story)


@pytest.mark.parametrize("name", ["shop", "a/b/c", "/b", "a/"])
def test_what_is_no_namespace_is_refused(name: str) -> None:
    async def story(visitor: Visiting) -> None:
        answer = await visitor.act("create-namespace", {"namespace": name})
        assert answer.status == 400
        assert "A namespace is tenant/namespace" in answer.text

    visit(story)


def test_a_tenant_without_clusters_is_refused() -> None:
    async def story(visitor: Visiting) -> None:
        answer = await visitor.act("create-tenant", {"tenant": "shop", "clusters": " , "})
        assert answer.status == 400
        assert "at least one cluster" in answer.text

    visit(story)
