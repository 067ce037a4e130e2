"""Brokers report what they carry; their leader moves, splits and remembers, and leaves alone what it can not read."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import NamedTuple

from geminga.broker.core.coercion import Document
from geminga.broker.load.chooser import LoadChooser
from geminga.broker.load_rules.config import THRESHOLD_SHEDDER, LoadConfig
from geminga.broker.load_rules.histories import BROKER_AVERAGES_PATH, BUNDLE_DATA_PATH, bundle_data_path
from geminga.broker.load_rules.isolation import isolation_path
from geminga.broker.load_rules.reports import BundleStats, LoadRates, decode_report, report_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import UnavailableError
from geminga.runtime import set_strict, wait_ms
from support.clusters.load_brokers import LoadedCluster, run_cluster
from support.stories.load_patterns import BALANCED_CONFIG, stats_of

MINUTE_S = 60


def fill(cluster: LoadedCluster, owner: str, messages: float = 30_000, pattern: str = "one to ten") -> None:
    cluster.stats.update(stats_of(pattern, 1, messages))
    cluster.owners.update(dict.fromkeys(cluster.stats, owner))


def even(cluster: LoadedCluster) -> bool:
    carried = cluster.carried().values()
    return max(carried) <= 1.2 * sum(carried) / len(carried)


def test_brokers_that_join_carry_their_share_within_ten_rounds() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first = cluster.join("a", BALANCED_CONFIG)
        fill(cluster, first.id)
        await cluster.run(2 * MINUTE_S)
        assert cluster.moved == []
        for name in ("b", "c"):
            cluster.join(name, BALANCED_CONFIG)
        await cluster.run(10 * MINUTE_S)
        assert even(cluster)
        assert len(cluster.moved) == len(set(cluster.moved))
        metrics = first.balancer.metrics()
        assert metrics["pulsar_lb_unload_bundle_total"] == len(cluster.moved)
        assert metrics["pulsar_lb_unload_broker_total"] >= 1
        assert metrics["pulsar_lb_cpu_usage"] == cluster.carried()[first.id] / 1000
        rows = {(name, labels): value for labels, values in first.balancer.rows() for name, value in values.items()}
        assert rows["pulsar_lb_cpu_usage", (("metric", "loadBalance"),)] == metrics["pulsar_lb_cpu_usage"]
        moved = rows["pulsar_lb_unload_broker_breakdown_total", (("result", "Success"), ("reason", "Overloaded"))]
        assert moved == len(cluster.moved)
        deviation = rows["pulsar_lb_resource_usage_stats", (("feature", "max_ema"), ("stat", "std"))]
        assert 0 <= deviation < rows["pulsar_lb_resource_usage_stats", (("feature", "max_ema"), ("stat", "avg"))]
        bundles = {dict(labels)["bundle"]: values for labels, values in first.balancer.bundle_rows()}
        assert sum(values["pulsar_bundle_topics_count"] for values in bundles.values()) >= len(bundles) > 0
        await cluster.run(40 * MINUTE_S)
        assert len(cluster.moved) == len(set(cluster.moved)), "something came back after the grace period"

    run_cluster(story)


def test_a_report_is_written_when_something_changed() -> None:
    async def story(cluster: LoadedCluster) -> None:
        one = cluster.join("a", LoadConfig())
        await cluster.run(20)
        assert one.reports == 1
        fill(cluster, one.id)
        await cluster.run(20)
        assert one.reports == 2
        node = await cluster.store.get(report_path(one.id))
        assert node is not None
        assert decode_report("/p", node.value).stats == cluster.stats
        assert json.loads(node.value)["lastBundleGains"] == sorted(cluster.stats)
        await cluster.run(10 * MINUTE_S)
        assert one.reports == 2
        await cluster.run(10 * MINUTE_S)
        assert one.reports == 3
        one.is_away = True
        cluster.stats.clear()
        await cluster.run(60)
        assert one.reports == 3

    run_cluster(story)


def test_who_leads_no_more_moves_nothing_and_who_leads_waits_a_round() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, first.id)
        cluster.leader = "nobody"
        await cluster.run(5 * MINUTE_S)
        assert cluster.moved == []
        cluster.leader = second.id
        await cluster.run(55)
        assert cluster.moved == []
        await cluster.run(5 * MINUTE_S)
        assert even(cluster)
        assert first.balancer.moves == 0

    run_cluster(story)


def test_a_bundle_whose_owner_does_not_answer_is_left_alone_for_a_while() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, first.id)
        first.is_deaf = True
        await cluster.run(3 * MINUTE_S)
        assert (cluster.moved, first.balancer.moves, second.balancer.moves) == ([], 0, 0)
        first.is_deaf = False
        await cluster.run(40 * MINUTE_S)
        assert even(cluster)

    run_cluster(story)


def test_without_the_metadata_store_nothing_moves_and_afterwards_it_does() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, _ = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        await cluster.run(5)
        fill(cluster, first.id)
        await cluster.run(10)
        first.store.expire_session(outage_ms=3 * MINUTE_S * 1000)
        await cluster.run(2 * MINUTE_S)
        assert cluster.moved == []
        await cluster.run(8 * MINUTE_S)
        assert even(cluster)

    run_cluster(story)


def test_a_report_that_can_not_be_read_is_nobody_to_give_to() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, first.id)
        await cluster.run(20)
        await cluster.store.put(report_path("c:8080"), b"{", expected_version=None)
        await cluster.run(6 * MINUTE_S)
        assert even(cluster)
        assert set(cluster.owners.values()) == {first.id, second.id}

    run_cluster(story)


def test_a_report_with_rates_that_nothing_has_keeps_nobody_from_being_balanced() -> None:
    """Sums of them are infinite: the leader's rounds broke, and so did every lookup that it was to answer."""

    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, first.id)
        await cluster.run(20)
        lies = {"lastStats": {"a/x/0x00000000_0xffffffff": {"msgRateIn": 1e304, "topics": 1}}}
        await cluster.store.put(report_path("c:8080"), json.dumps(lies).encode(), expected_version=None)
        await cluster.run(6 * MINUTE_S)
        assert even(cluster)
        assert set(cluster.owners.values()) == {first.id, second.id}
        registered = [Named(name, {} if name != "c:8080" else lies) for name in (first.id, "c:8080")]
        assert LoadChooser(first.balancer.assign).choose("a/y/0x00000000_0xffffffff", registered) == first.id
        assert (first.broken, second.broken) == ([], [])

    run_cluster(story)


class Named(NamedTuple):
    """A broker that is there."""

    broker_id: str
    document: Document


def test_isolation_holds_and_nothing_moves_where_it_can_not_be_read() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, second, third = (cluster.join(name, BALANCED_CONFIG) for name in "abc")
        fill(cluster, first.id)
        await cluster.store.put(isolation_path("standalone"), b"[]", expected_version=None)
        await cluster.run(3 * MINUTE_S)
        assert cluster.moved == []
        failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}}
        policy = {"namespaces": ["public/.*"], "primary": ["[ab]"], "secondary": [], "auto_failover_policy": failover}
        value = json.dumps({"p": policy}).encode()
        await cluster.store.put(isolation_path("standalone"), value, expected_version=None)
        await cluster.run(8 * MINUTE_S)
        assert set(cluster.owners.values()) == {first.id, second.id}
        assert third.id not in cluster.owners.values()

    run_cluster(story)


def test_a_bundle_that_is_too_large_is_split_once() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, _ = (cluster.join(name, LoadConfig(is_shedding=False)) for name in "ab")
        name = "a/x/0x00000000_0xffffffff"
        cluster.stats[name] = BundleStats(LoadRates(1.0), topics=1500)
        cluster.owners[name] = first.id
        await cluster.run(10 * MINUTE_S)
        assert cluster.split == [name]
        assert first.balancer.metrics()["pulsar_lb_bundles_split_total"] == 1

    run_cluster(story)


def test_histories_are_left_to_the_next_leader() -> None:
    async def story(cluster: LoadedCluster) -> None:
        config = LoadConfig(is_shedding=False, bundles_written_max=3, history_interval_minutes=2)
        first, second = (cluster.join(name, config) for name in "ab")
        fill(cluster, first.id)
        await cluster.run(5 * MINUTE_S)
        busiest = max(cluster.stats, key=lambda name: cluster.stats[name].rates.bytes)
        assert await cluster.store.get(bundle_data_path(busiest)) is not None
        kept = await cluster.store.children(f"{BUNDLE_DATA_PATH}/public/default")
        assert len(kept) == 6
        assert await cluster.store.children(BROKER_AVERAGES_PATH) == [first.id, second.id]
        del cluster.stats[busiest]
        await cluster.run(4 * MINUTE_S)
        assert await cluster.store.get(bundle_data_path(busiest)) is None
        # What "unknown" is answered to is written again, or read as it is.
        cluster.faults.next_writes.append(WriteFault.UNKNOWN_AFTER)
        await cluster.run(4 * MINUTE_S)

    run_cluster(story)


def test_bundles_that_are_too_large_at_the_same_time_are_split_in_the_same_round() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, _ = (cluster.join(name, LoadConfig(is_shedding=False)) for name in "ab")
        names = [f"a/{namespace}/0x00000000_0xffffffff" for namespace in "xyz"]
        cluster.stats.update(dict.fromkeys(names, BundleStats(LoadRates(1.0), topics=1500)))
        cluster.owners.update(dict.fromkeys(names, first.id))
        interval_s = LoadConfig().shedding_interval_minutes * MINUTE_S
        await cluster.run(interval_s + MINUTE_S)
        assert cluster.split == names

    run_cluster(story)


def test_who_leads_no_more_ends_in_the_middle_of_a_round() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, _ = (cluster.join(name, replace(BALANCED_CONFIG, is_splitting=True)) for name in "ab")
        fill(cluster, first.id)
        large = [f"a/{namespace}/0x00000000_0xffffffff" for namespace in "xyz"]
        unload, split = first.unload, first.split

        async def unload_and_lose(bundle: str, destination: str) -> None:
            await unload(bundle, destination)
            cluster.leader = "nobody"

        async def split_and_lose(bundle: str, *, unload: bool) -> None:
            await split(bundle, unload=unload)
            cluster.leader = "nobody"

        first.unload, first.split = unload_and_lose, split_and_lose
        await cluster.run(5 * MINUTE_S)
        assert (len(cluster.moved), cluster.split) == (1, [])
        cluster.stats.update(dict.fromkeys(large, BundleStats(LoadRates(1.0), topics=1500)))
        cluster.owners.update(dict.fromkeys(large, first.id))
        cluster.leader = first.id
        await cluster.run(5 * MINUTE_S)
        assert (len(cluster.moved), cluster.split) == (1, large[:1])

    run_cluster(story)


def test_the_leader_reports_what_it_carries_while_an_owner_does_not_answer() -> None:
    """Its report was as old as the round, which waited for each of the moves."""

    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, second.id)
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun: list[str] = []

        async def hang(bundle: str, destination: str) -> None:
            del destination
            begun.append(bundle)
            await asyncio.shield(answered)
            raise UnavailableError("no answer")

        first.unload = hang
        await cluster.run(2 * MINUTE_S)
        assert len(begun) == 1
        reports = first.reports
        name = "a/x/0x00000000_0xffffffff"
        cluster.stats[name] = BundleStats(LoadRates(20_000.0), topics=1)
        cluster.owners[name] = first.id
        await cluster.run(20)
        assert first.reports == reports + 1
        await cluster.run(2 * MINUTE_S)
        assert len(begun) == 1, "a second round beside the first"
        answered.set_result(None)

    run_cluster(story)


def test_a_broker_that_hangs_is_asked_once_in_a_round_and_the_others_are_relieved() -> None:
    """Each of its bundles was waited for as long as a request may take, one after the other, while others burnt."""

    async def story(cluster: LoadedCluster) -> None:
        config = replace(BALANCED_CONFIG, shedding=THRESHOLD_SHEDDER)
        first, hung, busy = (cluster.join(name, config) for name in "abc")
        names = [f"a/{owner}/0x{lower:08x}_0x{lower + 1:08x}" for owner in "bc" for lower in range(20)]
        cluster.stats.update(dict.fromkeys(names, BundleStats(LoadRates(1000.0, 1000.0, 1e8, 1e8), topics=5)))
        cluster.owners.update({name: hung.id if name.startswith("a/b/") else busy.id for name in names})
        unload = first.unload
        asked: list[str] = []

        async def unload_unless_hung(bundle: str, destination: str) -> None:
            if cluster.owners[bundle] == hung.id:
                asked.append(bundle)
                await wait_ms(60_000)
                raise UnavailableError("no answer")
            await unload(bundle, destination)

        first.unload = unload_unless_hung
        await cluster.run(3 * MINUTE_S)
        assert cluster.moved
        assert 1 <= len(asked) <= 2

    run_cluster(story)


def test_of_a_broker_that_hangs_one_bundle_is_to_be_split_in_a_round() -> None:
    async def story(cluster: LoadedCluster) -> None:
        first, hung, busy = (cluster.join(name, LoadConfig(is_shedding=False)) for name in "abc")
        names = [f"a/{owner}{number}/0x00000000_0xffffffff" for owner in "bc" for number in range(5)]
        cluster.stats.update(dict.fromkeys(names, BundleStats(LoadRates(1.0), topics=1500)))
        cluster.owners.update({name: hung.id if name.startswith("a/b") else busy.id for name in names})
        split = first.split
        asked: list[str] = []

        async def split_unless_hung(bundle: str, *, unload: bool) -> None:
            if cluster.owners[bundle] == hung.id:
                asked.append(bundle)
                await wait_ms(60_000)
                raise UnavailableError("no answer")
            await split(bundle, unload=unload)

        first.split = split_unless_hung
        await cluster.run(2 * MINUTE_S + 30)
        assert sorted(cluster.split) == [name for name in names if name.startswith("a/c")]
        assert 1 <= len(asked) <= 2

    run_cluster(story)


def test_a_leader_that_ends_waits_for_no_owner_that_does_not_answer() -> None:
    """Its stop waited as long as the request, and had no time left to give its bundles away."""

    async def story(cluster: LoadedCluster) -> None:
        first, second = (cluster.join(name, BALANCED_CONFIG) for name in "ab")
        fill(cluster, second.id)
        begun: list[str] = []

        async def hang(bundle: str, destination: str) -> None:
            del destination
            begun.append(bundle)
            await wait_ms(60_000)
            raise UnavailableError("no answer")

        first.unload = hang
        await cluster.run(MINUTE_S + 30)
        assert len(begun) == 1
        async with asyncio.timeout(1):
            await first.balancer.close()
        await cluster.run(2 * MINUTE_S)
        assert len(begun) == 1
        assert first.balancer.metrics()["pulsar_lb_unload_bundle_total"] == 0

    run_cluster(story)


def test_a_round_that_breaks_is_not_the_last() -> None:
    async def story(cluster: LoadedCluster) -> None:
        set_strict(asyncio.get_running_loop(), False)
        one = cluster.join("a", LoadConfig())
        await cluster.run(20)
        assert one.reports == 1
        one.stats_error = RuntimeError("nobody thought of it")
        fill(cluster, one.id)
        await cluster.run(20)
        assert set(one.broken) == {"the load of the cluster: nobody thought of it"}
        assert one.reports == 1
        one.stats_error = None
        await cluster.run(20)
        assert one.reports == 2

    run_cluster(story)
