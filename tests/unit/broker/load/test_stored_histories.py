"""What a leader before wrote, or an operator said, is what a history begins with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.broker.load.stored_histories import StoredHistories
from geminga.broker.load_rules.cluster_load import ClusterLoad
from geminga.broker.load_rules.histories import (
    BROKER_AVERAGES_PATH,
    BUNDLE_DATA_PATH,
    BundleData,
    encode_bundle_data,
    quota_path,
)
from geminga.broker.load_rules.histories import bundle_data_path as data_path
from geminga.broker.load_rules.reports import BrokerReport, BundleStats, LoadRates
from geminga.metadata import MemoryMetadata, MemoryMetadataStore

ONE, TWO, THREE = (f"a/x/0x0000000{number}_0x0000000{number + 1}" for number in range(3))
OTHER = "b/y/0x00000000_0xffffffff"


def test_histories_come_from_a_leader_before_or_an_operator() -> None:
    async def story(node: sim.SimNode) -> None:
        store = MemoryMetadataStore(node.runtime, MemoryMetadata())
        data = BundleData().with_sample(BundleStats(LoadRates(7.0)))
        quota = b'{"msgRateIn":5.0,"bandwidthOut":6.0}'
        await store.put(data_path(ONE), encode_bundle_data(data), expected_version=None)
        await store.put(quota_path(ONE), quota, expected_version=None)
        await store.put(quota_path(TWO), quota, expected_version=None)
        await store.put(data_path(THREE), b"[", expected_version=None)
        found = await StoredHistories(store).read([ONE, TWO, THREE])
        assert found.keys() == {ONE, TWO}
        assert found[ONE] == data
        assert found[TWO].long.rates == LoadRates(5.0, 0.0, 0.0, 6.0)
        assert found[TWO].long.samples == 1000
        await store.close()

    run(story)


def test_what_is_gone_leaves_nothing_behind() -> None:
    async def story(node: sim.SimNode) -> None:
        store = MemoryMetadataStore(node.runtime, MemoryMetadata())
        histories = StoredHistories(store)
        data = {name: BundleData().with_sample(BundleStats(LoadRates(7.0))) for name in (ONE, TWO, OTHER)}
        reports = {broker: BrokerReport(stats={ONE: BundleStats()}) for broker in ("a:1", "b:1")}
        await histories.write(ClusterLoad(reports, data), data)
        assert await store.children(BROKER_AVERAGES_PATH) == ["a:1", "b:1"]
        assert await store.children(f"{BUNDLE_DATA_PATH}/b") == ["y"]
        del reports["b:1"], data[TWO], data[OTHER]
        await histories.write(ClusterLoad(reports, data), data)
        assert await store.children(BROKER_AVERAGES_PATH) == ["a:1"]
        assert (await store.get(data_path(ONE)), await store.get(data_path(TWO))) != (None, None)
        assert await store.get(data_path(TWO)) is None
        assert await store.children(BUNDLE_DATA_PATH) == ["a"]
        await store.close()

    run(story)


def run(story: Callable[[sim.SimNode], Awaitable[None]]) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        await world.node("a").run(story)

    sim.run(scenario, seed=1)
