"""Each cause made on purpose in a broker, asked by REST, and named: alone and in pairs; none where nothing is wrong."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga.admin.errors import NotFoundError
from geminga.app.handles.core.causes import Cause, DoctorFacts, Finding, Severity, findings_of
from geminga.app.handles.doctor import examine
from geminga.broker.core.compaction import newest
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import MetadataUnavailableError, StorageError, UnavailableError
from geminga.model.position import EARLIEST
from geminga.runtime import next_turn, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, producing
from support.house.weekly_sample import sampled
from support.stories.compaction_story import CompactionStory
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.handles_world import SimAdmin
from support.worlds.hole_world import BOOKIE_LEDGERS, LAKE_LEDGERS, Ground, HoleBroker, run_lives
from support.worlds.other_cluster import join, replicate
from support.worlds.ownership import OwnershipTable
from support.worlds.policy_levels import seconds, set_namespace, topic_of
from support.worlds.rest_world import rest_application

LIMITS: dict[str, Any] = {
    "transaction_coordinator_enabled": True,
    "max_unacked_messages_per_consumer": 25,
    "max_unacked_messages_per_subscription": 28,
}


class Ward:
    """A topic with a broker; each subscription begins with what its own cause publishes."""

    def __init__(self, world: BrokerWorld, client: Transacting) -> None:
        self.world = world
        self.admin = SimAdmin(rest_application(world.broker))
        self.client = client
        self._consumers = 0

    async def publish(self, count: int, **more: Any) -> None:
        for number in range(count):
            metadata = {"partition_key": f"k{number % 6}", **more.get("metadata", {})}
            answer = await self.client.send(b"payload", metadata=metadata)
            assert answer.type == pb.BaseCommand.SEND_RECEIPT, answer

    async def subscribe(self, name: str, kind: int = pb.CommandSubscribe.Shared, permits: int = 1000) -> int:
        self._consumers += 1
        await self.client.client.subscribe(
            TOPIC, self._consumers, permits, subscription=name, subType=kind, consumer_name=f"c{self._consumers}"
        )
        return self._consumers

    async def subscription(self, name: str) -> None:
        await self.admin.subscriptions.create(TOPIC, name, "latest")

    async def found(self, subscription: str = "") -> list[Finding]:
        await seconds(1)
        now_ms = self.world.runtime.clock.wall_ms()
        (findings,) = (await examine(self.admin, TOPIC, subscription, now_ms=now_ms)).values()
        return findings


async def no_consumer(ward: Ward) -> None:
    await ward.subscription("alone")
    await ward.publish(2)


async def no_permits(ward: Ward) -> None:
    await ward.subscription("full")
    await ward.publish(4)
    await ward.subscribe("full", permits=2)


async def unacked_consumer(ward: Ward) -> None:
    await ward.subscription("slow")
    await ward.publish(40)
    await ward.subscribe("slow")


async def unacked_subscription(ward: Ward) -> None:
    await ward.subscription("both")
    await ward.subscribe("both")
    await ward.subscribe("both")
    await ward.publish(40)


async def key(ward: Ward) -> None:
    await ward.subscription("keys")
    first = await ward.subscribe("keys", pb.CommandSubscribe.Key_Shared, 6)
    await ward.publish(6)
    await ward.subscribe("keys", pb.CommandSubscribe.Key_Shared)
    ward.client.flow(first, 1000)
    await ward.publish(6)


async def delayed(ward: Ward) -> None:
    await ward.subscription("late")
    await ward.subscribe("late")
    await ward.publish(1, metadata={"deliver_at_time": ward.world.runtime.clock.wall_ms() + 3_600_000})


async def transaction(ward: Ward) -> None:
    await ward.subscription("hidden")
    await ward.subscribe("hidden")
    txn_id = await ward.client.begin(600_000)
    await ward.client.add_partition(txn_id)
    await ward.client.publish(b"hidden", txn_id)


async def rate(ward: Ward) -> None:
    await ward.subscription("throttled")
    await ward.publish(5)
    limits = {"dispatchThrottlingRateInMsg": 1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 3600}
    await ward.admin.subscriptions.set_dispatch_rate(TOPIC, "throttled", limits)
    await ward.subscribe("throttled")


async def filters(ward: Ward) -> None:
    ward.world.broker.entry_filters.launch = SimulatedProcesses({})
    await set_namespace(ward.world, "entryFilters", {"entryFilterNames": "absent"})
    await ward.subscription("filtered")
    await ward.publish(1)
    await ward.subscribe("filtered")


async def quota(ward: Ward) -> None:
    await no_consumer(ward)
    limits = {"limit": 1, "limitSize": 1, "limitTime": -1, "policy": "producer_request_hold"}
    await set_namespace(ward.world, "backlog_quota_map", {"destination_storage": limits})


async def terminated(ward: Ward) -> None:
    await ward.admin.topics.terminate(TOPIC)


async def bookies(ward: Ward) -> None:
    for bookie in ward.world.more_bookies.values():
        bookie.is_writable = False


Maker = Callable[[Ward], Awaitable[None]]
EXPECTED: dict[Maker, set[Cause]] = {
    no_consumer: {Cause.NO_CONSUMER},
    no_permits: {Cause.NO_PERMITS},
    unacked_consumer: {Cause.UNACKED_CONSUMER},
    unacked_subscription: {Cause.UNACKED_SUBSCRIPTION},
    key: {Cause.KEY},
    delayed: {Cause.DELAYED},
    transaction: {Cause.TRANSACTION},
    rate: {Cause.RATE},
    filters: {Cause.FILTER},
    quota: {Cause.QUOTA, Cause.NO_CONSUMER},
    terminated: {Cause.TERMINATED},
    bookies: {Cause.BOOKIES},
}
PAIRS = [
    (no_permits, bookies),
    (unacked_consumer, rate),
    (key, terminated),
    (no_permits, transaction),
    (unacked_subscription, quota),
]


def in_ward(scenario: Callable[[Ward], Awaitable[None]], seed: int = 0) -> None:
    async def main(world: BrokerWorld) -> None:
        client = await producing(world)
        await client.connect()
        await scenario(Ward(world, client))

    run_with_broker(
        main,
        seed=seed,
        bookies=2,
        ledger_config=ManagedLedgerConfig(ensemble_size=2, write_quorum=2),
        allow_override_entry_filters=True,
        **LIMITS,
    )


@pytest.mark.parametrize(
    "makers", [*((each,) for each in EXPECTED), *PAIRS], ids=lambda one: "+".join(each.__name__ for each in one)
)
def test_what_was_made_is_named_and_nothing_else(makers: tuple[Maker, ...]) -> None:
    async def scenario(ward: Ward) -> None:
        await topic_of(ward.world)
        assert await ward.found() == []
        for make in makers:
            await make(ward)
        found = await ward.found()
        assert {each.cause for each in found} == set().union(*(EXPECTED[make] for make in makers)), found
        for each in found:
            assert each.sentence.endswith(".")
            assert each.mends.endswith(".")

    in_ward(scenario)


def test_bookies_that_are_full_are_told_apart_from_those_that_are_away() -> None:
    """It was "start the missing bookies" of a bookie that runs, and "a smaller ensemble" than one."""

    async def scenario(ward: Ward) -> None:
        await topic_of(ward.world)
        full, *_ = ward.world.more_bookies.values()
        full.is_writable = False
        (found,) = await ward.found()
        assert "1 bookies take entries, 1 are read-only, and a new ledger needs 2" in found.sentence
        assert "Make room on the disks" in found.mends
        assert "smaller ensemble" in found.mends
        full.go_down(StorageError("down"))
        (found,) = await ward.found()
        assert "read-only" not in found.sentence
        assert found.mends == "Start the missing bookies, or set a smaller ensemble (persistence policy)."

    in_ward(scenario)


def test_no_smaller_ensemble_than_one_is_advised() -> None:
    bookies = {"available": 0, "ensembleSize": 1, "readOnly": 1}
    (found,) = findings_of(DoctorFacts("t", 0, {}, internal={"geminga": {"bookies": bookies}}))
    assert found.cause is Cause.BOOKIES
    assert found.mends.endswith("or start more bookies.")


def test_a_broker_without_its_metadata_store_is_not_told_as_none() -> None:
    (found,) = findings_of(DoctorFacts("t", 0, unserved=MetadataUnavailableError("zk:a:1: away").public_text))
    assert (found.cause, found.severity) == (Cause.METADATA, Severity.STOPS)
    assert "ZooKeeper" in found.mends


def test_a_transaction_is_told_with_its_time_and_a_delay_with_its_end() -> None:
    async def scenario(ward: Ward) -> None:
        await delayed(ward)
        await transaction(ward)
        await seconds(20)
        by_cause = {each.cause: each for each in await ward.found("late")}
        assert "(0,0), open since " in by_cause[Cause.TRANSACTION].sentence
        assert "(21 s)" in by_cause[Cause.TRANSACTION].sentence
        assert by_cause[Cause.DELAYED].severity is Severity.WAITS
        assert "1 of 1 entries of late are delayed" in by_cause[Cause.DELAYED].sentence
        assert "(in 357" in by_cause[Cause.DELAYED].sentence

    in_ward(scenario)


def test_a_cluster_that_lacks_messages_is_told_with_the_reason() -> None:
    async def main(world: BrokerWorld) -> None:
        other = join(world)
        other.away = UnavailableError("no route to west")
        await replicate(world, "standalone", "west")
        client = await world.publisher()
        admin = SimAdmin(rest_application(world.broker))
        await seconds(1)
        assert [*(await examine(admin, TOPIC, "", now_ms=0)).values()] == [[]]
        await client.publish(0)
        ((found,),) = (await examine(admin, TOPIC, "", now_ms=0)).values()
        assert (found.cause, found.severity) == (Cause.REPLICATION, Severity.HOLDS)
        assert found.sentence == "Nothing is copied to cluster west, which lacks 1 entries: no route to west."
        assert "set-replication-clusters" in found.mends

    run_with_broker(main)


def test_a_compaction_that_fails_is_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "KEY_BYTES", 1 << 21)  # the first key is too many

    async def main(world: BrokerWorld) -> None:
        story = CompactionStory(world)
        admin = SimAdmin(rest_application(world.broker))
        await story.publish(("a", "1"), ("b", "2"))
        await story.compact()
        ((found,),) = (await examine(admin, TOPIC, "", now_ms=0)).values()
        assert (found.cause, found.severity, found.subscription) == (Cause.COMPACTION, Severity.HOLDS, "")
        assert found.sentence.startswith(
            "The last compaction failed, and 2 entries behind the beginning are kept in the log: no temporary file can "
            "be made in /nowhere/at/all"
        )
        assert "geminga admin topics compact" in found.mends
        monkeypatch.setattr(newest, "KEY_BYTES", 1)
        await story.compact()
        assert [*(await examine(admin, TOPIC, "", now_ms=0)).values()] == [[]]

    run_with_broker(main, compaction_directory="/nowhere/at/all", compaction_keys_mb=1)


def test_readers_that_wait_for_the_end_of_a_compaction_are_told() -> None:
    told = {"status": "RUNNING", "lastError": "the metadata store is away.", "horizon": "3:4", "entriesBehind": 7}
    facts = DoctorFacts(TOPIC, 0, {}, internal={"geminga": {"compaction": told}})
    (found,) = findings_of(facts)
    assert (found.cause, found.severity) == (Cause.COMPACTION, Severity.HOLDS)
    assert found.sentence.endswith("readers of compacted messages wait: the metadata store is away.")
    (found,) = findings_of(facts._replace(internal={"geminga": {"compaction": {**told, "status": "ERROR"}}}))
    assert "and 7 entries behind 3:4 are kept in the log: the metadata store is away." in found.sentence
    assert not findings_of(facts._replace(internal={"geminga": {"compaction": {**told, "lastError": ""}}}))


def test_acknowledged_in_an_open_transaction() -> None:
    async def scenario(ward: Ward) -> None:
        await ward.subscription("acks")
        await ward.publish(1)
        consumer = await ward.subscribe("acks")
        await seconds(1)
        ((taken, _),) = ward.client.messages()
        txn_id = await ward.client.begin(600_000)
        await ward.client.add_subscription(txn_id, subscription="acks")
        await ward.client.acknowledge([taken], txn_id, consumer_id=consumer)
        (finding,) = await ward.found()
        assert (finding.cause, finding.subscription) == (Cause.TRANSACTION, "acks")
        assert "acknowledged in open transactions" in finding.sentence

    in_ward(scenario)


def test_a_subscription_that_is_not_there_is_told_with_those_that_are() -> None:
    async def scenario(ward: Ward) -> None:
        await no_consumer(ward)
        with pytest.raises(NotFoundError, match="there is no subscription nobody; there are: alone"):
            await ward.found("nobody")
        assert await ward.admin.topics.create_partitioned("parts", 2) is None
        found = await examine(ward.admin, "parts", now_ms=0)
        assert found == {f"persistent://public/default/parts-partition-{number}": [] for number in (0, 1)}

    in_ward(scenario)


def test_nobody_serves_it() -> None:
    table = OwnershipTable(["here"])

    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        await table.give([topic.name], None)
        found = await examine(SimAdmin(rest_application(world.broker)), TOPIC, now_ms=0)
        ((finding,),) = found.values()
        assert finding.cause is Cause.NO_OWNER
        assert finding.sentence.startswith(f"No broker serves {TOPIC}: ")

    run_with_broker(scenario, ownership=table.brokers["here"])


def test_a_fenced_log() -> None:
    async def scenario(ward: Ward) -> None:
        (await topic_of(ward.world)).ledger.tenure.is_fenced = True
        (finding,) = await ward.found()
        assert finding.cause is Cause.FENCED

    in_ward(scenario)


async def _fill(world: HoleBroker) -> list[int]:
    """Ledgers of three entries, and who has read none; their ids."""
    topic = await world.topic()
    await topic.create_subscription("sub", EARLIEST)
    client = await world.publisher()
    for sequence_id in range(10):
        await client.publish(sequence_id)
    return [info.ledger_id for info in topic.ledger.ledgers.infos]


@pytest.mark.parametrize("is_in_lake", [True, False])
def test_what_can_not_be_read(is_in_lake: bool) -> None:
    ground, ids = Ground(), []

    async def first(world: HoleBroker) -> None:
        ids.extend(await _fill(world))
        if is_in_lake:
            assert ids[1] in await world.offload()
            ground.take_file(ids[1])

    async def second(world: HoleBroker) -> None:
        if not is_in_lake:
            ground.lose_ledger(ids[1])
        await world.subscriber()
        await seconds(5)
        now_ms = world.runtime.clock.wall_ms()
        ((finding,),) = (await examine(SimAdmin(world.rest), TOPIC, now_ms=now_ms)).values()
        assert finding.cause is (Cause.LAKE if is_in_lake else Cause.HOLE)
        assert f"sub stands behind message {ids[0]}:2: ledger {ids[1]} can not be read" in finding.sentence
        assert "skip-hole" in finding.mends

    run_lives(first, second, ground=ground, ledger_config=LAKE_LEDGERS if is_in_lake else BOOKIE_LEDGERS)


@pytest.mark.parametrize("seed", sampled("worlds without a cause", range(100), 2))
def test_nothing_is_named_where_all_gets_on(seed: int) -> None:
    """100 rounds of consumers of every type that acknowledge what comes, some of it ten rounds later, and ask on."""

    async def scenario(ward: Ward) -> None:
        kinds = pb.CommandSubscribe
        for name, kind in (("e", kinds.Exclusive), ("s", kinds.Shared), ("k", kinds.Key_Shared), ("f", kinds.Failover)):
            await ward.subscription(name)
            await ward.subscribe(name, kind)
            if kind != kinds.Exclusive:
                await ward.subscribe(name, kind)
        chance = ward.world.runtime.rng
        later: list[tuple[int, pb.CommandMessage]] = []
        for number in range(100):
            while later and later[0][0] <= number:
                message = later.pop(0)[1]
                await ward.client.acknowledge([message.message_id], consumer_id=message.consumer_id)
            await ward.publish(chance.below(4))
            await seconds(chance.random())
            for command, _ in list(ward.client.client.received):
                if command.type == pb.BaseCommand.MESSAGE:
                    message = command.message
                    if chance.random() < 0.9:
                        await ward.client.acknowledge([message.message_id], consumer_id=message.consumer_id)
                    else:
                        later.append((number + 10, message))
                    ward.client.flow(message.consumer_id, 1)
            ward.client.messages()
            assert await ward.found() == [], number

    in_ward(scenario, seed)


def test_shadows_and_topics_that_move_say_why_they_wait() -> None:
    told = {
        "shadow": {"source": "persistent://a/b/c", "reason": "it does not exist", "lost": {"s": 3}},
        "shadows": {"persistent://a/b/s": {"reason": "no answer"}, "persistent://a/b/t": {"reason": ""}},
        "migration": {"url": "pulsar://green:6650", "reason": "3 partitions here, 2 there"},
    }
    found = findings_of(DoctorFacts(TOPIC, 0, stats={}, internal={"geminga": told}))
    assert [(one.cause, one.severity, one.subscription) for one in found] == [
        (Cause.SHADOW, Severity.HOLDS, ""),
        (Cause.SHADOW, Severity.WAITS, "s"),
        (Cause.SHADOW, Severity.WAITS, ""),
        (Cause.MOVING, Severity.HOLDS, ""),
    ]
    assert found[0].sentence == "It shows persistent://a/b/c, and nothing new of it: it does not exist."
    assert "3 partitions here" in found[-1].sentence


@pytest.mark.filterwarnings("error")
def test_who_is_cut_off_at_any_step_leaves_no_question_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that nobody awaits is told of when it is collected."""
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)

    async def scenario(ward: Ward) -> None:
        await ward.subscription("s")
        steps = 0
        is_whole = False
        while not is_whole:
            steps += 1
            task = spawn(examine(ward.admin, TOPIC, now_ms=0), name="examine")
            for _ in range(steps):
                await next_turn()
            task.cancel()
            await asyncio.wait([task])
            is_whole = not task.cancelled()
            del task
            gc.collect()
        assert steps > 5

    in_ward(scenario)
    assert left == []
