"""Permissions given and taken by REST: what is stored, and what is said of what makes no sense."""

from __future__ import annotations

import json

import pytest

from geminga.broker.rest.namespace_routes.permissions import CHANGES_MAX
from support.worlds.broker_world import Type
from support.worlds.rest_world import ask
from support.worlds.rights_world import NAMESPACE, PATHS, TOPIC, Story, refusal, tell, was_sent


def test_several_topics_are_granted_and_revoked_in_one_change() -> None:
    async def scenario(story: Story) -> None:
        names = ["persistent://public/default/a", "non-persistent://public/default/b"]
        for name in names:
            await (await story.producer("root", name)).close_producer()
        before = (await story.world.resources.namespaces.get("public/default")).version
        items = [{"topic": name, "role": "jane", "actions": ["produce"]} for name in names]
        await story.do("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", items)
        assert (await story.world.resources.namespaces.get("public/default")).version == before + 1
        cooks = [await story.producer("jane", name) for name in names]
        await story.do("POST", "/admin/v2/namespaces/revokePermissionsOnTopics", items)
        assert all(was_sent(cook, Type.CLOSE_PRODUCER) for cook in cooks)

    tell(scenario)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (None, 400, "the body must be a list of topics, each with topic and role"),
        ([], 400, "the body must be a list of topics, each with topic and role"),
        ([{"topic": "persistent://a/b/c"}, {"topic": "persistent://a/d/c"}], 400, "The namespace should be the same"),
        ([{"topic": TOPIC, "role": "jane", "actions": ["fly"]}], 400, "not fly"),
        ([{"topic": TOPIC, "role": "jane"}], 400, "Actions should not be null"),
        ([{"topic": TOPIC, "actions": ["produce"]}], 400, "role"),
        ([{"topic": TOPIC, "role": "jane", "actions": ["produce"]}], 404, f"Topic {TOPIC} not found"),
        ([{"topic": TOPIC, "role": "j", "actions": []}] * (CHANGES_MAX + 1), 412, f"at most {CHANGES_MAX} are made"),
    ],
    ids=["nothing", "none", "two namespaces", "action", "no action", "no role", "no topic", "too many"],
)
def test_grant_at_several_topics_says_what_is_wrong_with_it(body: object, status: int, reason: str) -> None:
    async def scenario(story: Story) -> None:
        answer = await story.do("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", body, status=status)
        assert reason in answer.reason

    tell(scenario)


def test_grant_at_a_topic_that_is_not_there_is_refused_unless_configured() -> None:
    async def scenario(story: Story) -> None:
        answer = await story.do("POST", f"{PATHS[TOPIC]}/permissions/jane", ["produce"], status=404)
        assert answer.reason == f"Topic {TOPIC} not found"

    async def allowed(story: Story) -> None:
        await story.grant("jane", "produce", at=PATHS[TOPIC])
        await story.producer("jane")

    tell(scenario)
    tell(allowed, acl_changes_without_topics=True)


def test_grants_are_stored_as_pulsar_stores_them() -> None:
    async def scenario(story: Story) -> None:
        await (await story.producer("root")).close_producer()
        await story.grant("jane", "produce", "consume")
        await story.grant("jim", "consume", at=PATHS[TOPIC])
        await story.do("POST", f"{NAMESPACE}/permissions/subscription/sub", ["jim", "jane", "jim"])
        document = (await story.world.resources.namespaces.get("public/default")).document
        assert document["auth_policies"] == {
            "namespace_auth": {"jane": ["produce", "consume"]},
            "destination_auth": {TOPIC: {"jim": ["consume"]}},
            "subscription_auth_roles": {"sub": ["jim", "jane"]},
        }
        assert await story.read(f"{PATHS[TOPIC]}/permissions") == {"jane": ["produce", "consume"], "jim": ["consume"]}

    tell(scenario)


@pytest.mark.parametrize("has_wildcards", [False, True])
def test_star_in_a_role_is_a_letter_unless_it_is_configured(has_wildcards: bool) -> None:
    async def scenario(story: Story) -> None:
        await story.grant("j*", "produce")
        client = await story.world.client("jane")
        client.request_producer(TOPIC)
        if has_wildcards:
            await client.expect(Type.PRODUCER_SUCCESS)
        else:
            await refusal(client)

    tell(scenario, authorization_has_wildcards=has_wildcards)


@pytest.mark.parametrize("moves", [True, "true", 1])
def test_who_makes_a_namespace_says_that_it_moves_only_as_who_may_say_it_of_one_that_is_there(moves: object) -> None:
    async def scenario(story: Story) -> None:
        path, body = "/admin/v2/namespaces/public/moving", json.dumps({"migrated": moves}).encode()
        await story.do("POST", "/admin/v2/tenants/public", {"adminRoles": ["owner"], "allowedClusters": ["standalone"]})
        refused = await ask(story.application, "PUT", path, body, role="owner")
        assert (refused.status, refused.reason) == (401, "Unauthorized to migrate namespace for owner")
        assert await story.world.resources.namespaces.find("public/moving") is None
        stays = await ask(story.application, "PUT", f"{path}-not", b'{"migrated":false}', role="owner")
        assert stays.status == 204, stays
        await story.do("PUT", path, {"migrated": moves})
        assert (await story.world.resources.namespaces.get("public/moving")).document["migrated"] is True

    tell(scenario)
