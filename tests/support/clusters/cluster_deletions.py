"""Whole clusters in which topics and namespaces are made, used and deleted while brokers come, go and take over.

Whoever is asked deletes a namespace at the owners of its topics, over REST, or stops half-way; others make topics in it
at that very moment, with policies that they remember. In the end a deletion that was answered leaves nothing: no topic
anywhere, open or stored, and what is made anew under the same names begins empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from geminga.broker.ownership.core.local_policies import LOCAL_POLICIES_PATH
from geminga.broker.ownership.core.owner_data import OWNERS_PATH
from geminga.broker.resources.remains import sweep_parents
from geminga.broker.topic.persistent import PersistentTopic
from geminga.managed_ledger import AppendResult
from geminga.metadata.memory import MemoryMetadataStore
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.cluster_checks import Excuses, check_owners
from support.clusters.cluster_faults import Faults
from support.clusters.cluster_peers import ask
from support.clusters.cluster_story import LOOK_S, ROUNDS_S
from support.clusters.cluster_world import NAMESPACE, ClusterWorld
from support.stories.leaks_checks import Tree

PASSING: Final = "public/passing"
#: In a namespace that stays, and in one that is deleted with them.
LONE: Final = TopicName.parse(f"persistent://{NAMESPACE}/passing")
WHOLE: Final = TopicName.parse(f"persistent://{PASSING}/whole")
PARTITIONS: Final = 3
IN_PASSING: Final = (
    *(TopicName.parse(f"persistent://{PASSING}/{name}") for name in ("one", "two")),
    *(TopicName.parse(f"{WHOLE}-partition-{index}") for index in range(PARTITIONS)),
)
CHANGES_S: Final = 15.0
#: Attempts to delete what is there at the end, and the seconds between two.
ATTEMPTS_MAX: Final = 60
AGAIN_S: Final = 1.0
LABELS: Final = ("cluster.topic used", "cluster.topic deleted", "cluster.namespace deleted", "cluster.deletion refused")


class DeletionStory:
    """See the module."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.rng = world.rng("deletions")
        self.cluster = ClusterWorld(world, has_peers=True)
        self.excuses = Excuses(self.cluster)
        self.faults = Faults(self.cluster, self.excuses)
        self.is_over = False
        #: What was answered last.
        self.told = ""

    async def run(self) -> None:
        await self.cluster.start()
        until_s = self.world.now + CHANGES_S
        watching = spawn(self._watch(), name="who has what open")
        work = [spawn(self._keep(until_s, step), name=step.__name__) for step in (self._use, self._delete, self._make)]
        await self.faults.run(until_s)
        await self.faults.calm_down()
        await asyncio.gather(*work)
        await self._insist(self._delete_lone)
        await self._insist(self._delete_namespace)
        await self.world.sleep(ROUNDS_S)
        self.is_over = True
        await watching
        await self._check_gone()
        await self._insist(self._make)
        for name in (LONE, *IN_PASSING):
            await self._insist(partial(self._use_one, name, is_first=True))

    async def _watch(self) -> None:
        while not self.is_over:
            check_owners(self.cluster, self.excuses)
            await self.world.sleep(LOOK_S)

    async def _keep(self, until_s: float, step: Callable[[], Awaitable[bool]]) -> None:
        while self.world.now < until_s:
            await self.world.sleep(self.rng.uniform(0, 1.5))
            try:
                await step()
            except (GemingaError, NodeCrashedError, OSError):
                continue

    async def _insist(self, step: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                if await step():
                    return
            except (GemingaError, NodeCrashedError) as error:
                self.told = repr(error)
            await self.world.sleep(AGAIN_S)
        raise AssertionError(f"{step} was refused {ATTEMPTS_MAX} times, at last: {self.told}")

    def _broker(self) -> str | None:
        up = [name for name in self.cluster.brokers if name not in self.cluster.away]
        return self.rng.choice(up) if up else None

    # ---- what is done; each says whether it was

    async def _make(self) -> bool:
        """The namespace and its partitioned topic."""
        broker = self._broker()
        if broker is None:
            return False
        status = await self._ask(broker, "PUT", f"/admin/v2/namespaces/{PASSING}", b'{"replication_clusters":["c"]}')
        path = f"/admin/v2/persistent/{PASSING}/{WHOLE.local_name}/partitions"
        return status in (204, 409) and await self._ask(broker, "PUT", path, b"%d" % PARTITIONS) in (204, 409)

    async def _use(self) -> bool:
        return await self._use_one(self.rng.choice((LONE, *IN_PASSING)), is_first=False)

    async def _use_one(self, name: TopicName, *, is_first: bool) -> bool:
        broker = self._broker()
        return broker is not None and await self.world.node(broker).run(
            lambda _: self._use_at(broker, name, is_first=is_first)
        )

    async def _use_at(self, broker: str, name: TopicName, *, is_first: bool) -> bool:
        """As a client that was sent there, and publishes."""
        await self.cluster.members[broker].ownership.owner_of(name, is_authoritative=True)
        topic = await self.cluster.brokers[broker].registry.get(name, create=True)
        assert isinstance(topic, PersistentTopic)
        assert not is_first or topic.ledger.ledgers.entry_count == 0, (
            f"{name} was deleted, and has {topic.ledger.ledgers.entry_count}"
        )
        done: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        topic.ledger.append([b"used"], lambda result: None if done.done() else done.set_result(result))
        if (await done).error is not None:
            return False
        self.world.points.hits["cluster.topic used"] += 1
        return True

    async def _delete(self) -> bool:
        return await (self._delete_lone() if self.rng.random() < 0.5 else self._delete_namespace())

    async def _delete_lone(self) -> bool:
        return await self._delete_at(f"/admin/v2/persistent/{NAMESPACE}/{LONE.local_name}", "topic deleted")

    async def _delete_namespace(self) -> bool:
        return await self._delete_at(f"/admin/v2/namespaces/{PASSING}", "namespace deleted")

    async def _delete_at(self, path: str, label: str) -> bool:
        broker = self._broker()
        if broker is None:
            return False
        status = await self._ask(broker, "DELETE", f"{path}?force=true")
        self.world.points.hits[f"cluster.{label}" if status == 204 else "cluster.deletion refused"] += 1
        return status in (204, 404)

    async def _ask(self, broker: str, method: str, path: str, body: bytes = b"") -> int:
        """The status, redirections followed."""
        for _ in range(4):
            application = self.cluster.applications.get(broker)
            if application is None:
                return 503

            async def carry_out(_: SimNode, application=application, path=path) -> tuple[int, str, bytes]:
                return await ask(application, method, path, body)

            status, location, told = await self.world.node(broker).run(carry_out)
            self.told = f"{broker} answered {method} {path} with {status}: {told[:300]!r}"
            if status != 307:
                return status
            _, _, rest = location.partition("://")
            host, _, path = rest.partition("/")
            broker, path = host.partition(":")[0], f"/{path}"
        return 503

    # ---- what must hold

    async def _check_gone(self) -> None:
        tree = self.cluster.metadata.state.tree
        # What a broker does five minutes after its start, and daily.
        await sweep_parents(MemoryMetadataStore(self.cluster.metadata.node.runtime, self.cluster.metadata.state))
        left = [path for path in sorted(Tree(tree).paths) if path.rpartition("/passing")[1]]
        assert not left, f"metadata nodes of what was deleted: {left}"
        for path in (f"/admin/policies/{PASSING}", f"{LOCAL_POLICIES_PATH}/{PASSING}"):
            assert not tree.exists(path), f"{path} is there"
        for path in (f"/managed-ledgers/{PASSING}/persistent", f"/admin/partitioned-topics/persistent/{PASSING}"):
            assert tree.children(path) == [], f"{path} has {tree.children(path)}"
        assert tree.children(f"{OWNERS_PATH}/{PASSING}") == [], "bundles of a namespace that is gone are owned"
        assert not tree.exists(f"/managed-ledgers/{LONE.managed_ledger_name}"), f"{LONE} is stored"
        for broker, one in self.cluster.brokers.items():
            left = [name for name in one.topics if name == str(LONE) or TopicName.parse(name).namespace == PASSING]
            assert not left, f"{broker} has {left} open"


async def cluster_deletions(world: SimWorld) -> None:
    """One story; raises where something deleted is there, or something that is there can not be deleted."""
    await DeletionStory(world).run()
