"""Bundles over REST: what a broker that is alone answers, and what its members of a cluster say to each other."""

from __future__ import annotations

import json

import pytest

from geminga.app.configuration.cluster_config import ClusterConfig
from geminga.app.configuration.config import cluster_config_from
from geminga.app.configuration.config_sources import ConfigEntry
from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.ownership.core.bundle_split import FlowLimits
from geminga.broker.ownership.core.bundles import equal_bundles
from geminga.broker.rest.namespace_routes.bundles import unload_topics
from geminga.model.errors import ConfigurationError
from geminga.model.topic_name import TopicName
from support.house.python_calls import counted_calls
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly, seconds
from support.worlds.rest_world import ask, rest_application, rest_context

NAMESPACE = "/admin/v2/namespaces/public/default"


def test_a_bundle_of_a_broker_that_is_alone_is_unloaded_and_nothing_of_the_others() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        names = [TopicName.parse(f"persistent://public/default/{number}") for number in range(8)]
        for name in names:
            await world.broker.registry.get(name, create=True)
        answer = await ask(application, "GET", f"{NAMESPACE}/bundles", b"")
        boundaries = json.loads(answer.body)["boundaries"]
        assert len(boundaries) == 5
        answer = await ask(application, "GET", "/lookup/v2/topic/persistent/public/default/0/bundle", b"")
        bundle = answer.body.decode()
        listed = await ask(application, "GET", f"/admin/v2/persistent/public/default?bundle={bundle}", b"")
        inside = set(json.loads(listed.body))
        assert "persistent://public/default/0" in inside
        assert len(inside) < len(names)
        assert (await ask(application, "PUT", f"{NAMESPACE}/{bundle}/unload", b"")).status == 204
        assert set(world.broker.topics) == {str(name) for name in names} - inside
        assert (await ask(application, "PUT", f"{NAMESPACE}/unload", b"")).status == 204
        assert not world.broker.topics

    run_quietly(scenario)


def test_hashes_of_a_bundle_are_of_all_its_topics_or_of_those_asked_for() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        names = [f"persistent://public/default/{number}" for number in range(8)]
        for name in names:
            await world.broker.registry.get(TopicName.parse(name), create=True)
        bundle = (
            await ask(application, "GET", "/lookup/v2/topic/persistent/public/default/0/bundle", b"")
        ).body.decode()
        path = f"{NAMESPACE}/{bundle}/topicHashPositions"
        of_all = json.loads((await ask(application, "GET", path, b"")).body)["topicHashPositions"]
        assert names[0] in of_all
        assert 1 < len(of_all) < len(names)
        for asked in (f"topics={names[0]}", f"topics={names[0]},persistent://public/default/none"):
            found = json.loads((await ask(application, "GET", f"{path}?{asked}", b"")).body)
            assert found["topicHashPositions"] == {names[0]: of_all[names[0]]}

    run_quietly(scenario)


def test_topics_of_very_many_bundles_are_unloaded_without_each_being_held_against_each_bundle() -> None:
    """10,000 topics that were loaded and 128 bundles: a broker stood still for more than a second."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        assert (await ask(application, "PUT", "/admin/v2/namespaces/public/other", b"")).status == 204
        inside = [f"persistent://public/default/{number}" for number in range(20)]
        outside = "persistent://public/other/0"
        for name in [*inside, outside]:
            await world.broker.registry.get(TopicName.parse(name), create=True)
        bundles = equal_bundles("public/default", 65_536).all()
        with counted_calls() as calls:
            await unload_topics(rest_context(world.broker), bundles)
            count = calls()
        assert list(world.broker.topics) == [outside]
        assert count < len(bundles)

    run_quietly(scenario)


def test_a_bundle_of_a_broker_that_is_alone_is_split_and_its_topics_stay_open() -> None:
    """By its range, as the one with most topics, and as the one that most goes through."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        index = equal_bundles("public/default", 4)
        names = [TopicName.parse(f"persistent://public/default/{number}") for number in range(40)]
        second = [name for name in names if index.find(name).lower == 0x40000000][:3]
        third = next(name for name in names if index.find(name).lower == 0x80000000)
        for name in (*second, third):
            await world.broker.registry.get(name, create=True)
        loaded = dict(world.broker.topics)

        async def split(bundle: str) -> list[str]:
            assert (await ask(application, "PUT", f"{NAMESPACE}/{bundle}/split", b"")).status == 204
            told = [
                json.loads((await ask(application, "GET", path, b"")).body)
                for path in (f"{NAMESPACE}/bundles", NAMESPACE)
            ]
            assert told[0] == told[1]["bundles"]
            found: list[str] = told[0]["boundaries"]
            return found

        first = ["0x00000000", "0x20000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
        assert await split("0x00000000_0x40000000") == first
        assert await split("LARGEST") == sorted([*first, "0x60000000"])
        client = await world.publisher(str(third))
        stats = f"/admin/v2/persistent/public/default/{third.local_name}/stats"
        for number in range(2):
            # A rate is between two looks.
            assert (await ask(application, "GET", stats, b"")).status == 200
            await seconds(10)
            await client.publish(number)
        assert "0xa0000000" in await split("HOT")
        assert dict(world.broker.topics) == loaded
        # Another broker, alone or of a cluster, finds it so.
        cuts = world.broker.resources.bundle_cuts
        assert [f"0x{bound:08x}" for bound in (await cuts.get("public/default")).boundaries] == sorted(
            [*first, "0x60000000", "0xa0000000"]
        )
        policies = await world.broker.resources.namespaces.get("public/default")
        assert "0x20000000" in policies.bundle_boundaries

    run_quietly(scenario)


def test_bundles_are_split_as_configured_where_nobody_says_how() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker, load=LoadConfig(split_algorithm="specified_positions_divide"))
        answer = await ask(application, "PUT", f"{NAMESPACE}/0x00000000_0x40000000/split", b"")
        assert (answer.status, "needs the positions" in answer.reason) == (412, True)

    run_quietly(scenario)


def test_a_cluster_is_split_by_its_own_limits() -> None:
    entries = [
        ConfigEntry("loadBalancerNamespaceBundleMaxMsgRate", "500", "test"),
        ConfigEntry("loadBalancerNamespaceBundleMaxBandwidthMbytes", "7", "test"),
        ConfigEntry("flowOrQpsDifferenceThresholdPercentage", "20", "test"),
        ConfigEntry("defaultNamespaceBundleSplitAlgorithm", "flow_or_qps_equally_divide", "test"),
    ]
    load = cluster_config_from(entries, ClusterConfig).load
    assert load is not None
    assert (load.flow_limits, load.split_algorithm) == (FlowLimits(500, 7, 20), "flow_or_qps_equally_divide")
    with pytest.raises(ConfigurationError, match="defaultNamespaceBundleSplitAlgorithm"):
        cluster_config_from([ConfigEntry("defaultNamespaceBundleSplitAlgorithm", "halves", "test")], ClusterConfig)


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("0x00000000_0x40000001/unload", b"", 412, "has no bundle 0x00000000_0x40000001"),
        ("x/unload", b"", 412, "a bundle is two boundaries"),
        ("HOT/split", b"", 404, "Bundle range HOT not found"),
        ("LARGEST/split", b"", 404, "Bundle range LARGEST not found"),
        ("0x00000000_0x40000000/split?splitAlgorithmName=no", b"", 412, "bundles are split by one of"),
        ("0x00000000_0x40000000/split?splitAlgorithmName=specified_positions_divide", b"", 412, "needs the positions"),
        ("0x00000000_0x40000000/split", b"[1]", 412, "positions are for specified_positions_divide"),
        ("0x00000000_0x40000000/split", b"{}", 400, "a list of hashes"),
        ("0x00000000_0x40000000/split", b'["x"]', 400, "a hash to split at"),
    ],
)
def test_what_is_wrong_with_a_request_is_told(path: str, body: bytes, status: int, reason: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        answer = await ask(rest_application(world.broker), "PUT", f"{NAMESPACE}/{path}", body)
        assert answer.status == status
        assert reason in answer.reason

    run_quietly(scenario)
