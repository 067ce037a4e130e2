"""What is remembered of tenants: for a minute, until a change is heard of, and only of those that are there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga.broker.registry import tenant_infos
from geminga.broker.registry.namespaces import POLICIES_AGE_MS_MAX
from geminga.broker.registry.tenant_infos import TenantInfos
from geminga.runtime import delay
from support.worlds.broker_world import BrokerWorld, run_with_broker

INFO = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}


def with_infos(scenario: Callable[[BrokerWorld, TenantInfos, list[str]], Awaitable[None]]) -> None:
    async def run(world: BrokerWorld) -> None:
        changed: list[str] = []
        broker = world.broker
        infos = TenantInfos(broker.runtime.clock, world.resources.tenants, broker.metadata, changed.append, part=broker)
        await world.resources.tenants.create("t", INFO)
        await scenario(world, infos, changed)
        infos.close()

    run_with_broker(run)


def test_tenant_is_remembered_until_it_changes() -> None:
    async def scenario(world: BrokerWorld, infos: TenantInfos, changed: list[str]) -> None:
        assert infos.known("t") is None
        assert await infos.read("t") == INFO
        assert infos.known("t") == INFO
        before = infos.changes
        await world.resources.tenants.update("t", {**INFO, "adminRoles": ["other"]})
        while not changed:
            await delay(10)
        assert changed == ["t"]
        assert infos.known("t") is None
        assert infos.changes == before + 1
        found = await infos.read("t")
        assert found is not None
        assert found["adminRoles"] == ["other"]

    with_infos(scenario)


def test_tenant_that_went_is_not_remembered() -> None:
    async def scenario(world: BrokerWorld, infos: TenantInfos, changed: list[str]) -> None:
        await infos.read("t")
        await world.resources.tenants.delete("t")
        while not changed:
            await delay(10)
        assert await infos.read("t") is None
        assert infos.known("t") is None
        assert not infos._watched

    with_infos(scenario)


def test_what_is_a_minute_old_is_read_again() -> None:
    async def scenario(world: BrokerWorld, infos: TenantInfos, changed: list[str]) -> None:
        await infos.read("t")
        await delay(POLICIES_AGE_MS_MAX - 1000)
        assert infos.known("t") == INFO
        await delay(1000)
        assert infos.known("t") is None
        assert await infos.read("t") == INFO

    with_infos(scenario)


def test_names_of_tenants_that_are_not_there_leave_nothing_behind() -> None:
    async def scenario(world: BrokerWorld, infos: TenantInfos, changed: list[str]) -> None:
        for name in ("nobody", "no body", ""):
            assert await infos.read(name) is None
        assert not infos._infos
        assert not infos._watched

    with_infos(scenario)


def test_so_many_are_remembered(monkeypatch) -> None:
    monkeypatch.setattr(tenant_infos, "TENANTS_REMEMBERED_MAX", 3)

    async def scenario(world: BrokerWorld, infos: TenantInfos, changed: list[str]) -> None:
        for number in range(6):
            await world.resources.tenants.create(f"t{number}", INFO)
            await infos.read(f"t{number}")
        assert list(infos._infos) == ["t3", "t4", "t5"]
        assert list(infos._watched) == ["t3", "t4", "t5"]

    with_infos(scenario)
