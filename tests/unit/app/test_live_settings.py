"""Settings that are changed at run time: what is taken, what is stored, and who follows."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from geminga.app.configuration.config import CONFIG_CLASSES, Config, load_config
from geminga.app.configuration.core.live_keys import INT, LIVE_KEYS, LONG, OF_OTHERS
from geminga.app.configuration.live_settings import TEXT_CHARACTERS_MAX, LiveSettings
from geminga.app.servers.broker_server import CONFIGURATION_PATH
from geminga.broker.load_rules.config import AVERAGE_SHEDDER, THRESHOLD_SHEDDER, UNIFORM_SHEDDER, LoadConfig
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.metadata.ports import SessionEvent
from geminga.model.errors import PreconditionFailedError
from geminga.model.settings import settings_of
from geminga.sim import SimWorld, run
from support.worlds.policy_levels import seconds


class Brokers:
    """The settings of several brokers over one metadata server."""

    def __init__(self, world: SimWorld) -> None:
        self.runtime = world.node("a").runtime
        self.server = MemoryMetadata()
        self.store = MemoryMetadataStore(self.runtime, self.server)
        self.changes = 0

    def new(self, *overrides: str, load: LoadConfig | None = None, hears: bool = True) -> tuple[LiveSettings, Config]:
        """``hears``: of the node's changes."""
        config = replace(load_config(overrides=overrides), load=load)
        store = MemoryMetadataStore(self.runtime, self.server)
        live = LiveSettings(config, store, CONFIGURATION_PATH, self._changed, lambda: None)
        if hears:
            store.watch_node(CONFIGURATION_PATH, lambda _: live.follow_soon())
        store.on_session_event(live.heard)
        return live, config

    async def _changed(self) -> None:
        self.changes += 1

    async def stored(self) -> bytes | None:
        node = await self.store.get(CONFIGURATION_PATH)
        return None if node is None else node.value

    async def write(self, document: object) -> None:
        """As another make would."""
        value = document if isinstance(document, bytes) else json.dumps(document).encode()
        await self.store.put(CONFIGURATION_PATH, value, expected_version=None)
        await seconds(1)


def with_brokers(scenario: Any) -> None:
    async def main(world: SimWorld) -> None:
        await scenario(Brokers(world))

    run(main)


def test_every_key_is_a_setting_and_its_default_is_a_good_value() -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new(load=LoadConfig())
        assert live.names == sorted(LIVE_KEYS)
        for key, text in config.values().items():
            if key in LIVE_KEYS and text:
                await live.set(key, text)
                assert (await live.values())[key] == text
        assert brokers.changes == 0

    with_brokers(scenario)


def test_no_key_is_both_ours_and_of_others_only() -> None:
    ours = {key for config_class in (*CONFIG_CLASSES, LoadConfig) for key in settings_of(config_class)}
    assert not OF_OTHERS & ours
    assert ours >= LIVE_KEYS.keys()


def test_a_value_is_followed_by_every_broker_and_taken_back_by_every_broker() -> None:
    async def scenario(brokers: Brokers) -> None:
        (here, mine), (_, theirs) = brokers.new("maxTopicsPerNamespace=3"), brokers.new("maxTopicsPerNamespace=5")
        await here.set("maxTopicsPerNamespace", "7")
        assert mine.broker.topics_per_namespace_max == 7
        await seconds(1)
        assert theirs.broker.topics_per_namespace_max == 7
        assert theirs.values()["maxTopicsPerNamespace"] == "7"
        assert await brokers.stored() == b'{"maxTopicsPerNamespace":"7"}'
        await here.delete("maxTopicsPerNamespace")
        await seconds(1)
        # Each has its own back.
        assert (mine.broker.topics_per_namespace_max, theirs.broker.topics_per_namespace_max) == (3, 5)
        assert await brokers.stored() == b"{}"

    with_brokers(scenario)


def test_what_keeps_a_broker_from_starting_is_told_where_another_make_was_told_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a cluster with Apache's brokers, which follow it: this one would keep alike what must not be."""

    async def scenario(brokers: Brokers) -> None:
        live, _ = brokers.new()
        await live.start()
        await brokers.write({"metadataSyncEventTopic": "persistent://public/default/sync"})
        await brokers.write({"metadataSyncEventTopic": "persistent://public/default/sync", "a": "b"})
        await brokers.write({"metadataSyncEventTopic": "", "preferLaterVersions": "true"})

    with caplog.at_level(logging.WARNING):
        with_brokers(scenario)
    told = [record.getMessage() for record in caplog.records if "is not followed" in record.getMessage()]
    assert len(told) == 1
    assert "metadataSyncEventTopic=persistent://public/default/sync: every write of one cluster" in told[0]


def test_what_is_read_at_the_start_is_told_where_another_make_was_told_it(caplog: pytest.LogCaptureFixture) -> None:
    key, topic = "configurationMetadataSyncEventTopic", "persistent://public/default/sync"

    async def scenario(brokers: Brokers) -> None:
        live, _ = brokers.new()
        await live.start()
        for _ in range(2):
            await brokers.write({key: topic})
        await brokers.write({key: ""})
        with pytest.raises(PreconditionFailedError, match=f"{key}={topic} is read at the start"):
            await live.set(key, topic)
        await live.delete(key)
        same, _ = brokers.new(f"{key}={topic}")
        await same.start()
        await brokers.write({key: topic})

    with caplog.at_level(logging.WARNING):
        with_brokers(scenario)
    assert sum("is read at the start" in record.getMessage() for record in caplog.records) == 1


def test_a_broker_that_starts_has_what_was_changed_before() -> None:
    async def scenario(brokers: Brokers) -> None:
        first, config = brokers.new()
        await first.set("managedLedgerCacheSizeMB", "9")
        await first.close()
        assert config.managed_ledger.cache_size_mb != 9
        second, config = brokers.new()
        await second.start()
        assert config.managed_ledger.cache_size_mb == 9

    with_brokers(scenario)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("maxTopicsPerNamespace", "-1"),
        ("maxTopicsPerNamespace", "many"),
        ("maxTopicsPerNamespace", ""),
        ("maxTopicsPerNamespace", " "),
        ("maxTopicsPerNamespace", "1_000"),
        ("maxTopicsPerNamespace", "\u0663"),
        ("maxTopicsPerNamespace", str(INT + 1)),
        ("maxTopicsPerNamespace", "9" * 100_000),
        ("dispatchThrottlingRateInByte", str(LONG + 1)),
        ("dispatcherMaxReadBatchSize", "0"),
        ("dispatcherMaxRoundRobinBatchSize", "0"),
        ("maxConcurrentTopicLoadRequest", "0"),
        ("brokerDeleteInactiveTopicsFrequencySeconds", "0"),
        ("brokerDeleteInactiveTopicsMaxInactiveDurationSeconds", "-5"),
        ("loadBalancerReportUpdateMinIntervalMillis", "0"),
        ("loadBalancerCPUResourceWeight", "NaN"),
        ("loadBalancerCPUResourceWeight", "Infinity"),
        ("loadBalancerCPUResourceWeight", "1e400"),
        ("loadBalancerMsgRateDifferenceShedderThreshold", "nan"),
        ("loadBalancerMsgRateDifferenceShedderThreshold", "1e300"),
        ("maxUnloadPercentage", "2"),
        ("allowAutoTopicCreation", "maybe"),
        ("allowAutoTopicCreationType", "round"),
        ("subscriptionTypesEnabled", "Several"),
        ("subscriptionTypesEnabled", ","),
        ("loadManagerClassName", "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"),
        ("loadBalancerSheddingExcludedNamespaces", "a/b," * TEXT_CHARACTERS_MAX),
        # Dynamic in Pulsar, not here; and not even there.
        ("namespaceBundleUnloadingTimeoutMs", "5"),
        ("maxMessageSize", "5"),
        ("a/../b", "5"),
        ("", "5"),
    ],
)
def test_a_bad_value_is_refused_with_a_reason_and_changes_nothing(key: str, text: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new(load=LoadConfig())
        await live.set("forceDeleteTenantAllowed", "true")
        before, stored = config.values(), await brokers.stored()
        with pytest.raises(PreconditionFailedError) as refused:
            await live.set(key, text)
        assert 10 < len(str(refused.value)) < 400
        assert (config.values(), await brokers.stored()) == (before, stored)

    with_brokers(scenario)


def test_what_another_make_wrote_is_kept_and_what_is_no_good_here_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new()
        foreign = {
            "namespaceBundleUnloadingTimeoutMs": "4",
            "maxTopicsPerNamespace": "-1",
            "allowAutoTopicCreation": "no",
            "defaultNumPartitions": 4,
            "forceDeleteTenantAllowed": True,
            "dispatcherMaxReadBatchSize": [3],
            "strange": {"a": None},
        }
        await brokers.write(foreign)
        values = config.values()
        assert (values["maxTopicsPerNamespace"], values["allowAutoTopicCreation"]) == ("0", "true")
        assert (values["defaultNumPartitions"], values["forceDeleteTenantAllowed"]) == ("4", "true")
        assert values["dispatcherMaxReadBatchSize"] == "100"
        assert (await live.values())["defaultNumPartitions"] == "4"
        await live.set("maxTopicsPerNamespace", "8")
        stored = json.loads(await brokers.stored() or b"")
        assert stored == {**foreign, "maxTopicsPerNamespace": "8", "strange": {"a": None}}
        # It is Apache's to set, and anybody's to take back.
        await live.delete("namespaceBundleUnloadingTimeoutMs")
        assert "namespaceBundleUnloadingTimeoutMs" not in await live.values()

    with caplog.at_level(logging.WARNING):
        with_brokers(scenario)
    told = [record.getMessage() for record in caplog.records if "is not followed" in record.getMessage()]
    assert len(told) == len(set(told)) == 2


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"7", b"\xff\xfe", b'{"maxTopicsPerNamespace":"4"} x'])
def test_a_node_that_is_no_object_changes_nothing_and_keeps_no_broker_from_starting(damaged: bytes) -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new()
        await live.set("maxTopicsPerNamespace", "4")
        await brokers.write(damaged)
        assert config.broker.topics_per_namespace_max == 4
        late, fresh = brokers.new()
        await late.start()
        assert fresh.broker.topics_per_namespace_max == 0
        with pytest.raises(Exception, match=CONFIGURATION_PATH):
            await late.set("maxTopicsPerNamespace", "5")
        # What nobody can read is not written over.
        assert await brokers.stored() == damaged
        await brokers.write({"maxTopicsPerNamespace": "6"})
        assert (config.broker.topics_per_namespace_max, fresh.broker.topics_per_namespace_max) == (6, 6)

    with_brokers(scenario)


def test_a_value_that_no_other_setting_goes_with_is_refused_and_not_followed() -> None:
    async def scenario(brokers: Brokers) -> None:
        load = LoadConfig(placement=AVERAGE_SHEDDER, shedding=AVERAGE_SHEDDER)
        live, config = brokers.new(load=load)
        with pytest.raises(PreconditionFailedError, match="needs the same"):
            await live.set("loadBalancerLoadSheddingStrategy", UNIFORM_SHEDDER)
        await brokers.write({"loadBalancerLoadSheddingStrategy": THRESHOLD_SHEDDER, "maxTopicsPerNamespace": "2"})
        assert load.shedding == AVERAGE_SHEDDER
        assert config.broker.topics_per_namespace_max == 2

    with_brokers(scenario)


def test_many_changes_at_once_by_several_brokers_all_count() -> None:
    async def scenario(brokers: Brokers) -> None:
        several = [brokers.new()[0] for _ in range(3)]
        keys = sorted(LIVE_KEYS)
        numbers = [key for key in keys if LIVE_KEYS[key] == INT and key.startswith("loadBalancer")]
        await asyncio.gather(*(several[i % 3].set(key, "42") for i, key in enumerate(numbers)))
        assert await several[0].values() == dict.fromkeys(numbers, "42")

    with_brokers(scenario)


def test_who_goes_away_while_it_changes_a_setting_leaves_nobody_behind() -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new(hears=False)
        told: list[int] = []
        waiting = asyncio.Event()

        async def changed() -> None:
            if not waiting.is_set():
                waiting.set()
                await asyncio.get_running_loop().create_future()
            told.append(config.broker.topics_per_namespace_max)

        live._changed = changed
        task = asyncio.get_running_loop().create_task(live.set("maxTopicsPerNamespace", "4"))
        await waiting.wait()
        task.cancel()
        await seconds(1)
        assert told == [4]

    with_brokers(scenario)


def test_what_changed_while_the_store_was_away_is_read_when_it_is_back() -> None:
    async def scenario(brokers: Brokers) -> None:
        live, config = brokers.new()
        await live.set("maxTopicsPerNamespace", "4")
        path, live._path = live._path, "/elsewhere"
        await brokers.write({"maxTopicsPerNamespace": "5"})
        live._path = path
        live.heard(SessionEvent.CONNECTION_LOST)
        await seconds(1)
        live.heard(SessionEvent.RECONNECTED)
        await seconds(1)
        assert config.broker.topics_per_namespace_max == 5

    with_brokers(scenario)
