"""Looks at what is not built whose answer is known."""

from __future__ import annotations

import json

import pytest

from geminga.broker.core.coercion import Json
from geminga.model.errors import MetadataError
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        (f"{TOPIC}/compaction", 200, {"status": "NOT_RUN", "lastError": ""}),
        ("/admin/v2/persistent/public/default/nowhere/compaction", 404, "not found"),
        (f"{TOPIC}/permissions", 200, {"reader": ["consume", "produce"], "writer": ["produce"], "third": ["consume"]}),
        ("/admin/v2/persistent/public/default/nowhere/permissions", 404, "not found"),
        (f"{NAMESPACE}/permissions/subscription", 200, {"s": ["reader"]}),
        ("/admin/v2/namespaces/public/nowhere/permissions/subscription", 404, "Namespace does not exist"),
        ("/admin/v2/namespaces/nobody/nowhere/resourcegroup", 404, "Tenant does not exist"),
        ("/admin/v2/resourcegroups", 200, []),
        ("/admin/v2/resourcegroups/group", 404, "ResourceGroup does not exist"),
        ("/admin/v2/metadata/migration/status", 200, {"phase": "NOT_STARTED"}),
    ],
)
def test_a_known_answer_is_given_and_what_is_missing_is_said(path: str, status: int, told: Json) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        assert (await ask(application, "PUT", TOPIC, b"")).status == 204
        # As Apache's broker leaves it in the metadata.
        auth: Json = {
            "namespace_auth": {"reader": ["consume"], "writer": ["produce"]},
            "destination_auth": {"persistent://public/default/t": {"reader": ["produce"], "third": ["consume"]}},
            "subscription_auth_roles": {"s": ["reader"]},
        }
        namespaces = world.broker.resources.namespaces
        await namespaces.set_policy("public/default", "auth_policies", auth)
        await namespaces.set_policy("public/default", "resource_group_name", "group")
        answer = await ask(application, "GET", path, b"")
        assert answer.status == status, answer
        if status == 200:
            assert json.loads(answer.body) == told
        else:
            assert str(told) in answer.reason

    run_quietly(scenario)


def test_a_namespace_leaves_its_resource_group() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        await world.broker.resources.namespaces.set_policy("public/default", "resource_group_name", "group")
        answer = await ask(application, "GET", f"{NAMESPACE}/resourcegroup", b"")
        assert (answer.status, answer.body) == (200, b"group")
        assert (await ask(application, "DELETE", f"{NAMESPACE}/resourcegroup", b"")).status == 204
        answer = await ask(application, "GET", f"{NAMESPACE}/resourcegroup", b"")
        assert (answer.status, answer.body) == (200, b"")

    run_quietly(scenario)


class StoreAway:
    """Settings that other brokers stored, while what is new can not be."""

    names = ()

    async def values(self) -> dict[str, str]:
        return {"brokerClientAuthenticationParameters": "token:abc", "maxTenants": "7"}

    async def set(self, key: str, text: str) -> None:
        raise MetadataError("the store is away")

    async def delete(self, key: str) -> None:
        raise MetadataError("the store is away")


def test_setting_that_is_a_secret_is_neither_told_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    path = "/admin/v2/brokers/configuration"

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker, live=StoreAway)
        told = json.loads((await ask(application, "GET", f"{path}/values")).body)
        assert told == {"brokerClientAuthenticationParameters": "......", "maxTenants": "7"}
        secret = f"{path}/brokerClientAuthenticationParameters/token:abc"
        assert (await ask(application, "POST", secret, b"")).status == 500
        assert "the store is away" in caplog.text
        assert "token:abc" not in caplog.text

    run_quietly(scenario)
