"""Who may do what: the page, and roles that get rights and lose them."""

from __future__ import annotations

from support.worlds.broker_world import TOPIC
from support.worlds.console_pages import Visiting, visit
from support.worlds.handles_world import sim_admin

NAMESPACE = "public/default"


def test_roles_get_rights_and_lose_them() -> None:
    async def story(visitor: Visiting) -> None:
        assert "No role has a permission here." in await visitor.page("/permissions", namespace=NAMESPACE)
        asked = await visitor.get("/acts/grant", namespace=NAMESPACE)
        assert "Which role gets permissions at public/default?" in asked.text
        done = await visitor.act("grant", {"produce": "yes"}, namespace=NAMESPACE, role="app")
        assert "app has at public/default: produce." in done.text
        again = await visitor.get("/acts/grant", namespace=NAMESPACE, role="app")
        assert "It has now: produce. What is not ticked is taken away." in again.text
        none = await visitor.act("grant", {"produce": ""}, namespace=NAMESPACE, role="other")
        assert (none.status, "No action was chosen" in none.text) == (400, True)
        await visitor.act("grant", {"consume": "yes"}, topic=TOPIC, role="app")
        page = await visitor.page("/permissions", topic=TOPIC)
        assert "app namespace topic no no no no Revoke the rights of app" in page
        asked = await visitor.get("/acts/revoke", topic=TOPIC, role="app")
        assert f"Take consume at {TOPIC} from app. What the namespace gives stays." in asked.text
        assert "app has nothing more at" in (await visitor.act("revoke", {}, topic=TOPIC, role="app")).text
        assert (await sim_admin(visitor.application).permissions.get(NAMESPACE)) == {"app": ["produce"]}
        nothing = await visitor.get("/acts/revoke", topic=TOPIC, role="app")
        assert "app has nothing at" in nothing.text
        await visitor.act("revoke", {}, namespace=NAMESPACE, role="app")
        assert (await sim_admin(visitor.application).permissions.get(NAMESPACE)) == {}

    visit(story)


def test_right_of_the_namespace_hides_none_of_the_topic() -> None:
    """It is there after that of the namespace went, so it is shown, stays and is revoked."""

    async def story(visitor: Visiting) -> None:
        admin = sim_admin(visitor.application)
        await admin.permissions.grant(NAMESPACE, "app", ["produce"])
        await admin.topics.grant_permission(TOPIC, "app", ["produce"])
        assert "app namespace and topic no no no no no Revoke" in await visitor.page("/permissions", topic=TOPIC)
        asked = await visitor.get("/acts/grant", topic=TOPIC, role="app")
        assert "It has now: produce. What is not ticked is taken away." in asked.text
        asked = await visitor.get("/acts/revoke", topic=TOPIC, role="app")
        assert f"Take produce at {TOPIC} from app." in asked.text
        await visitor.act("revoke", {}, topic=TOPIC, role="app")
        await admin.permissions.revoke(NAMESPACE, "app")
        assert await admin.topics.permissions(TOPIC) == {}

    visit(story)


def test_right_that_came_since_the_question_is_asked_about_again() -> None:
    async def story(visitor: Visiting) -> None:
        admin = sim_admin(visitor.application)
        await admin.permissions.grant(NAMESPACE, "app", ["produce", "consume"])
        late = await visitor.act("revoke", {"hits": "1"}, namespace=NAMESPACE, role="app")
        assert (late.status, "Revoke 2 permissions" in late.text) == (409, True)
        assert (await admin.permissions.get(NAMESPACE)) == {"app": ["produce", "consume"]}

    visit(story)


def test_name_that_is_none_is_refused() -> None:
    async def story(visitor: Visiting) -> None:
        await visitor.page("/permissions")
        for query in ({"namespace": "public"}, {"namespace": "a/b/c"}):
            page = await visitor.get("/permissions", **query)
            assert (page.status, "A namespace is tenant/namespace" in page.text) == (400, True)

    visit(story)
