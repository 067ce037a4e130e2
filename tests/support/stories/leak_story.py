"""Lives of a broker and its bookie in which nearly all that is made is deleted, most of them ended by a kill.

In the end everything is deleted and collected, and a look at the bookie's disk and at every metadata node compares what
there is with what there was before anything was made: nothing may be left of topics, trims, subscriptions, schemas,
policies, partitioned topics, snapshots of deduplication, namespaces and tenants, whatever end the process met.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.bookie import BookieConfig, LocalBookie
from geminga.bookie.core import entry_log_format
from geminga.bookkeeper import BookKeeper, LocalBookiePool, MetadataLiveLedgers
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.resources.remains import BUNDLE_ROOTS, PARENT_ROOTS
from geminga.broker.rest.namespace_routes.deletion import delete_namespace_and_topics
from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult, ManagedLedgerConfig
from geminga.metadata.memory import MemoryMetadata, MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.position import EARLIEST
from geminga.model.topic_name import TopicName
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import encode_entry
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.orphans import collect_now
from support.stories.lives import tell
from support.worlds.broker_world import BrokerWorld
from support.worlds.metadata_stores import all_paths

LIVES: Final = 4
STEPS: Final = 10
NAMESPACES: Final = ("going/a", "going/b", "other/c")
#: Made and deleted in one step: more than a bookie believes without a sign (``deletion_guard.BELIEVED_MAX``).
BURST: Final = 14
LEDGERS: Final = ManagedLedgerConfig(max_entries_per_ledger=5, min_rollover_minutes=0, cursor_max_entries_per_ledger=5)
#: Its rounds are seldom: most ends come between a deletion and the next round.
BOOKIE: Final = BookieConfig(
    flush_interval_ms=20_000, gc_wait_time_ms=3_600_000, journal_pre_alloc_size_mb=0.01, log_size_limit=8192
)
#: Nodes that stay whatever is deleted: ids that were given out, and the bookie's mark.
KEPT: Final = ("/ledgers", "/geminga/bookie-marks", "/geminga/installation", "/counters")
#: One for each kind.
ROOTS: Final = frozenset({*PARENT_ROOTS, *BUNDLE_ROOTS, "/loadbalance", "/geminga"})


class LeakStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("leak story")
        self.node = world.node("broker")
        self.server = MemoryMetadata()
        self.number = 0
        #: Metadata nodes that there were before the first step.
        self.before: set[str] | None = None
        self.told: list[str] = []

    # ---- one life

    async def live(self, node: SimNode, *, is_last: bool) -> None:
        store = MemoryMetadataStore(node.runtime, self.server)
        bookie = await self.open_bookie(node, store)
        self.w = BrokerWorld(node.runtime, BrokerConfig(deduplication=True), LEDGERS, bookie=bookie, store=store)
        await self.w.start()
        if self.before is None:
            self.before = set(await all_paths(store))
        for _ in range(STEPS):
            await self.step()
        if not is_last:
            # Killed where it stands, or a moment later.
            await asyncio.sleep(self.rng.choice((0, 0.1, 5)))
            return
        await self.delete_everything()
        await self.w.stop()
        await self.collect(node, store, bookie)

    async def step(self) -> None:
        namespace = self.rng.choice(NAMESPACES)
        act = self.rng.choice((self.burst, self.use, self.use, self.trim, self.partitioned, self.go, self.pause))
        self.told.append(f"{act.__name__} {namespace}")
        try:
            await self.make(namespace)
            await act(namespace)
        except GemingaError as error:
            self.told.append(f"  {error}")

    async def make(self, namespace: str) -> None:
        tenants, namespaces = self.w.resources.tenants, self.w.resources.namespaces
        tenant = namespace.partition("/")[0]
        if not await tenants.exists(tenant):
            await tenants.create(tenant, {"allowedClusters": ["standalone"]})
        if await namespaces.find(namespace) is None:
            await namespaces.create(namespace)

    async def topic(self, namespace: str, local_name: str, entries: int) -> PersistentTopic:
        topic = await self.w.broker.registry.get(TopicName.parse(f"persistent://{namespace}/{local_name}"), create=True)
        assert isinstance(topic, PersistentTopic)
        for _ in range(entries):
            self.number += 1
            metadata = pb.MessageMetadata(producer_name="p", sequence_id=self.number, publish_time=1)
            done: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
            topic.ledger.append([encode_entry(metadata, bytes(300))], done.set_result)
            await done
        return topic

    async def burst(self, namespace: str) -> None:
        """Many topics that are gone at once."""
        for number in range(BURST):
            topic = await self.topic(namespace, f"burst{number}", 1)
            await self.w.broker.registry.delete(topic.name, force=True)

    async def use(self, namespace: str) -> None:
        """A topic with subscriptions, a schema and a policy of its own; some of it goes again."""
        topic = await self.topic(namespace, self.rng.choice("xyz"), self.rng.randint(0, 12))
        for name in ("s", "t"):
            if name not in topic.subscriptions:
                await topic.create_subscription(name, EARLIEST)
            await topic.subscriptions[name].cursor.skip(self.rng.randint(0, 8))
        schema_id = f"{namespace}/{topic.name.local_name}"
        info = SchemaInfo("", SchemaType.STRING, b"")
        await self.w.broker.schemas.registry.put_if_absent(schema_id, info, Strategy.ALWAYS_COMPATIBLE)
        await self.w.broker.policies.topics.update(topic.name, lambda document: {**document, "maxConsumers": 7})
        if self.rng.random() < 0.5:
            await topic.delete_subscription("s")
        if self.rng.random() < 0.4:
            await self.w.broker.registry.delete(topic.name, force=True)

    async def trim(self, namespace: str) -> None:
        """Ledgers that nobody needs go by themselves."""
        topic = await self.topic(namespace, "trimmed", 40)
        for subscription in topic.subscriptions.values():
            await subscription.cursor.skip(1000)

    async def partitioned(self, namespace: str) -> None:
        name = TopicName.parse(f"persistent://{namespace}/parts")
        if await self.w.resources.partitioned_topics.find(name) is None:
            await self.w.broker.partitions.create(name, 3)
        else:
            await self.w.broker.administered.partitions.delete(name, force=True)

    async def go(self, namespace: str) -> None:
        await delete_namespace_and_topics(self.w.broker.administered, namespace)
        tenant = namespace.partition("/")[0]
        if not await self.w.resources.namespaces.list(tenant):
            await self.w.resources.tenants.delete(tenant)

    async def pause(self, namespace: str) -> None:
        await asyncio.sleep(self.rng.choice((1, 400, 4000)))

    # ---- the end

    async def delete_everything(self) -> None:
        for namespace in NAMESPACES:
            await self.make(namespace)
            await self.go(namespace)

    async def collect(self, node: SimNode, store: MemoryMetadataStore, bookie: LocalBookie) -> None:
        """Ledgers that a kill left without a name, then what the bookie has of those that are gone."""
        bookkeeper = BookKeeper(node.runtime, store, LocalBookiePool({"bookie": bookie}))
        await collect_now(node.runtime, store, bookkeeper)
        for _ in range(2):
            await bookie.collect_garbage(compact_below=1.0)
            await bookie.close()
            bookie = await self.open_bookie(node, store)
        known = set(bookie.storage.states.master_keys)
        await bookie.close()
        await self.check(node, store, known)

    async def open_bookie(self, node: SimNode, store: MemoryMetadataStore) -> LocalBookie:
        return await LocalBookie.open(node.runtime, "/data", BOOKIE, ledgers=MetadataLiveLedgers(store, "b"))

    async def check(self, node: SimNode, store: MemoryMetadataStore, known: set[int]) -> None:
        """By what lies on the disk and in the store; ``known``: the ledgers that a start found on the disk."""
        assert self.before is not None
        paths = set(await all_paths(store))
        # Roots stay, one for each kind.
        left = sorted(path for path in paths - self.before - ROOTS if not path.startswith(KEPT))
        assert not left, f"metadata nodes of what was deleted: {left}"
        listed = {path for path in paths if path.startswith("/ledgers/") and path.rpartition("/L")[2].isdigit()}
        named = {int("".join(path.removeprefix("/ledgers/").replace("/L", "").split("/"))) for path in listed}
        stored = stored_ledgers(node) | known
        assert stored <= named, f"ledgers on the disk that no metadata name: {sorted(stored - named)}"

    async def run(self) -> None:
        """Lives that are killed, then one that deletes all and counts."""
        for _ in range(LIVES - 1):
            self.node.start()
            try:
                await self.node.run(lambda node: self.live(node, is_last=False))
            except NodeCrashedError:
                pass
            self.world.crash(self.node, power_loss=self.rng.random() < 0.3, reason="killed")
            self.told.append("killed")
        self.node.start()
        await self.node.run(lambda node: self.live(node, is_last=True))


def stored_ledgers(node: SimNode) -> set[int]:
    """Ledgers with entries in an entry log on the disk, but for the newest, which is written on and never removed."""
    found: set[int] = set()
    logs = sorted(path for path in node.disk.paths() if path.endswith(".log"))
    for path in logs[:-1]:
        data = node.disk.contents(path)
        header = entry_log_format.decode_file_header(data)
        assert header is not None, path
        seed, offset = entry_log_format.log_seed(header[2], header[1]), entry_log_format.FILE_HEADER_BYTES
        while (chunk := entry_log_format.decode_chunk(memoryview(data), offset, seed)) is not None:
            offset = chunk.end
            if chunk.kind == entry_log_format.KIND_ENTRIES:
                found.add(chunk.ledger_id)
    return found


async def leak_story(world: SimWorld) -> None:
    """The scenario; a failure tells its story."""
    await tell(LeakStory(world))
