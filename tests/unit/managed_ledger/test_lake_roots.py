"""One place in the lake under two names: what the policies say of it changed, and its files are where they were."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.managed_ledger.rules.offload import record_of
from support.worlds.lake_world import POLICY, PROPERTIES, LakeWorld, MemoryLakeStore, everything, payloads
from support.worlds.ledger_world import NAME

OTHER_NAMES = {
    "a region": POLICY._replace(properties={**PROPERTIES, "region": "eu-west-1"}),
    "another name of the driver": POLICY._replace(driver="aws-s3"),
}


@pytest.mark.parametrize("named", OTHER_NAMES)
def test_manifest_of_a_root_with_two_names_has_all_files_and_is_not_written_without_need(named):
    async def scenario(w):
        ml, _ = await w.offloaded(15)
        offloading = w.offloading(ml, OTHER_NAMES[named])
        await offloading.look()
        await w.fill(ml, 10, "n")
        await offloading.look()
        uids = [record.uid for info in ml.ledgers.infos if (record := record_of(info)) is not None]
        assert len(uids) == len(w.lake_store.ledgers) == 2
        for policy in (POLICY, OTHER_NAMES[named]):
            root = await w.factory.lake().root(policy.driver, policy.properties)
            assert [one.uid for one in (await root.read_manifest(NAME)).ledgers] == uids
        w.lake_store.calls.clear()
        await offloading.write_manifests()
        assert "write" not in w.lake_store.calls
        assert "delete" not in w.lake_store.calls

    sim.run(lambda world: scenario(LakeWorld(world)))


def test_buckets_of_one_name_at_two_endpoints_are_looked_at_both():
    async def scenario(w):
        other = {**PROPERTIES, "serviceEndpoint": "http://second"}
        stores = {"": w.lake_store, "http://second": MemoryLakeStore()}
        w.factory._open_lake_store = lambda driver, found: stores[found.get("serviceEndpoint", "")]
        ml, _ = await w.offloaded(15)
        offloading = w.offloading(ml, POLICY._replace(properties=other))
        await w.fill(ml, 10, "n")
        await offloading.look()
        assert [len(store.ledgers) for store in stores.values()] == [1, 1]
        assert await ml.reader.missing_lake_files([info for info in ml.ledgers.infos if info.is_offloaded]) == []
        assert (await everything(ml))[:15] == payloads(15)
        for policy in (POLICY, POLICY._replace(properties=other)):
            root = await w.factory.lake().root(policy.driver, policy.properties)
            assert len((await root.read_manifest(NAME)).ledgers) == 1

    sim.run(lambda world: scenario(LakeWorld(world)))
