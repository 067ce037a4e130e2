"""A topic needs no broker: what it uses is given to it by name."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from geminga import sim
from geminga.bookkeeper.client import BookKeeper
from geminga.bookkeeper.local_pool import LocalBookiePool
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.dispatch.recent_candidates import RecentCandidates
from geminga.broker.failures import BrokenPart, Failures
from geminga.broker.policies.core.deletion_rows import MESSAGE_TTL
from geminga.broker.policies.rules import TopicRules
from geminga.broker.topic.base import Topic
from geminga.broker.topic.persistent import PersistentTopic
from geminga.broker.topic.registered_parts import PARTS
from geminga.broker.topic.services import TopicServices
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model import EARLIEST, TopicName
from geminga.model.histogram import Latencies
from support.house.source_tree import imports_of, product_modules

#: Parts of the broker that are above a topic, or beside it.
NOT_FOR_TOPICS = ("connection", "handlers", "registry", "rest", "service", "upkeep", "ownership")
NAME = TopicName.parse("persistent://public/default/alone")


def test_package_knows_nothing_of_what_is_above_it() -> None:
    modules = list(product_modules())
    known = frozenset(module.name for module in modules)
    found = [
        f"{module.name}:{imported.line} imports {imported.target}"
        for module in modules
        if module.name.startswith("geminga.broker.topic.")
        for imported in imports_of(module, known)
        if imported.target.startswith(tuple(f"geminga.broker.{part}" for part in NOT_FOR_TOPICS))
    ]
    assert found == []


def test_topic_lives_and_breaks_without_a_broker() -> None:
    dropped: list[Topic] = []

    async def on_node(node) -> None:
        runtime = node.runtime
        metadata = MemoryMetadataStore(runtime)
        ledgers = ManagedLedgerFactory(
            runtime, metadata, BookKeeper(runtime, metadata, LocalBookiePool({"b1": MemoryBookie()}))
        )

        async def nothing(*_args: object) -> None:
            return None

        async def rules(_name: TopicName) -> TopicRules:
            return TopicRules({MESSAGE_TTL: 7})

        services = TopicServices(
            runtime=runtime,
            config=BrokerConfig(),
            metadata=metadata,
            ledgers=ledgers,
            parts=PARTS,
            failures=Failures(runtime.clock),
            whole=SimpleNamespace(broke=None),
            unload=nothing,
            unload_fenced=nothing,
            drop_soon=dropped.append,
            rules=rules,
            rules_now=rules,
            admit_consumer=nothing,
            shadows=SimpleNamespace(),
            publish_latency=Latencies(),
            recent_candidates=RecentCandidates(),
            unacked_budget=None,
            recount_unacked=lambda: None,
        )
        topic = PersistentTopic(services, NAME, await ledgers.open(NAME.managed_ledger_name))
        await topic.load()
        assert topic.rules.ttl_ms == 7000
        await topic.create_subscription("sub", EARLIEST)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        topic.ledger.append([b"entry"], lambda _result: stored.set_result(None))
        await stored
        assert topic.subscriptions["sub"].cursor.backlog_count == 1
        topic.broke("a test", KeyError("planted"))
        assert dropped == [topic]
        assert services.failures.counts[BrokenPart.TOPIC] == 1
        await topic.drop_storage()
        await ledgers.close()

    async def main(world) -> None:
        await world.node("broker").run(on_node)

    sim.run(main, 0)
