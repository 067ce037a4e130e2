"""Which clusters the topics of a mesh are copied to, as administrators change it, and when each change took effect."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from geminga.broker.composition.service import Broker
from geminga.model.topic_name import REPLICATOR_PREFIX, TopicName
from support.clusters.mesh_log import Said
from support.clusters.mesh_traffic import Sending
from support.clusters.mesh_world import NAMES, NAMESPACES, MeshCluster

#: Between two looks at whether a change took effect.
LOOK_S: Final = 0.05
#: ... and until it must have taken effect, whatever happens meanwhile.
FOLLOWED_S: Final = 60.0


@dataclass(slots=True)
class Window:
    """How long a topic is copied to a cluster. Of its two ends, when it was asked for and when it was seen."""

    began_s: float
    holds_s: float | None = None
    ending_s: float | None = None
    ended_s: float | None = None


class MeshPolicies:
    """Of one cluster."""

    def __init__(self, cluster: MeshCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = cluster.world.rng("policies", cluster.name)
        self.names = cluster.mesh.names
        self.others = tuple(name for name in self.names if name != cluster.name)
        self.of_namespace: dict[str, frozenset[str]] = dict.fromkeys(NAMESPACES, frozenset(self.others))
        self.of_topic: dict[str, frozenset[str]] = {}
        #: By name of the topic and cluster.
        self.windows: dict[tuple[str, str], list[Window]] = {
            (name.local_name, other): [Window(-1, -1)] for name in NAMES for other in self.others
        }

    def wanted(self, name: TopicName) -> frozenset[str]:
        """Clusters that the topic is copied to, by the policies as they were asked for last."""
        return self.of_topic.get(str(name), self.of_namespace[name.namespace])

    async def change(self) -> None:
        """Of a namespace, or of one topic; returns when all brokers follow."""
        chosen = frozenset(self.rng.sample(self.others, self.rng.randrange(len(self.others) + 1)))
        before = {name: self.wanted(name) for name in NAMES}
        clusters = sorted({self.cluster.name, *chosen})
        if self.rng.random() < 0.3:
            name = NAMES[0]
            path = f"{name.domain}/{name.namespace}/{name.local_name}/replication"
            if str(name) in self.of_topic and self.rng.random() < 0.5:
                del self.of_topic[str(name)]
                call = ("DELETE", path, None)
            else:
                self.of_topic[str(name)] = chosen
                call = ("POST", path, clusters)
            self.world.points.hits["mesh.policy of a topic"] += 1
        else:
            namespace = self.rng.choice(NAMESPACES)
            self.of_namespace[namespace] = chosen
            call = ("POST", f"namespaces/{namespace}/replication", clusters)
            self.world.points.hits["mesh.policy of a namespace"] += 1
        changed = [name for name in NAMES if self.wanted(name) != before[name]]
        for name in changed:
            self._asked(name, before[name])
        while await self.cluster.administer(*call) not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            await self.world.sleep(LOOK_S)
        asked_s = self.world.now
        for name in changed:
            while not await self.is_followed(name):
                assert self.world.now < asked_s + FOLLOWED_S, f"{name} has other cursors than for {clusters}"
                await self.world.sleep(LOOK_S)
            self._followed(name)

    async def allow(self) -> None:
        """A namespace may live in those clusters alone in which it does: it is not brought to another one."""
        namespace = self.rng.choice(NAMESPACES)
        path = f"namespaces/{namespace}"
        present = self.of_namespace[namespace]
        await self._insist(f"{path}/allowedClusters", [self.cluster.name, *sorted(present)])
        barred = sorted({*self.others} - present)
        if barred:
            status = await self.cluster.administer("POST", f"{path}/replication", [self.cluster.name, *barred])
            assert status in (0, HTTPStatus.BAD_REQUEST), f"{barred} are not allowed for {namespace}: {status}"
            self.world.points.hits["mesh.barred"] += 1
        await self._insist(f"{path}/allowedClusters", [*self.names])

    async def _insist(self, path: str, value: list[str]) -> None:
        while await self.cluster.administer("POST", path, value) not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            await self.world.sleep(LOOK_S)

    def stored_cursors(self, name: TopicName) -> frozenset[str]:
        """Clusters that the metadata hold a cursor of a topic for."""
        names = self.cluster.server.tree.children(f"/managed-ledgers/{name.managed_ledger_name}")
        return frozenset(one.removeprefix(REPLICATOR_PREFIX) for one in names if one.startswith(REPLICATOR_PREFIX))

    async def is_followed(self, name: TopicName) -> bool:
        """Whether the owner has cursors for the clusters that are wanted, and no others."""

        async def look(broker: Broker) -> frozenset[str]:
            topic = await broker.registry.get(name, create=True)
            prefixed = [one for one in topic.ledger.cursors if one.startswith(REPLICATOR_PREFIX)]
            return frozenset(one.removeprefix(REPLICATOR_PREFIX) for one in prefixed)

        return await self.cluster.at_owner(name, look) == self.wanted(name)

    def _asked(self, name: TopicName, before: frozenset[str]) -> None:
        after = self.wanted(name)
        for other in self.others:
            windows = self.windows[name.local_name, other]
            if other in after - before:
                windows.append(Window(self.world.now))
            elif other in before - after:
                windows[-1].ending_s = self.world.now

    def _followed(self, name: TopicName) -> None:
        for other in self.others:
            windows = self.windows[name.local_name, other]
            if windows and windows[-1].holds_s is None:
                windows[-1].holds_s = self.world.now
            if windows and windows[-1].ending_s is not None and windows[-1].ended_s is None:
                windows[-1].ended_s = self.world.now

    # ---- what follows for a message

    def must_go(self, one: Said, sending: Sending, other: str) -> bool:
        """Whether it is lost if it is not in ``other`` in the end."""
        if sending.acknowledged_s is None or (sending.wanted is not None and other not in sending.wanted):
            return False
        last = self.windows[one.topic, other][-1]
        return last.holds_s is not None and last.ending_s is None and sending.began_s > last.holds_s

    def may_go(self, one: Said, sending: Sending, other: str) -> bool:
        """Whether it may be in ``other``."""
        if sending.is_aborted or (sending.wanted is not None and other not in sending.wanted):
            return False
        if self.cluster.mesh.starts_at == "earliest":
            return True
        return any(
            (sending.acknowledged_s is None or sending.acknowledged_s >= window.began_s)
            and (window.ended_s is None or sending.began_s <= window.ended_s)
            for window in self.windows[one.topic, other]
        )
