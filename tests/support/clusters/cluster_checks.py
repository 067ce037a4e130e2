"""What must hold in a cluster: who may have a topic open, and what the log of a topic may look like."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from geminga.broker.ownership.core.bundles import Bundle, topic_hash
from geminga.broker.ownership.core.local_policies import bundles_in, decode_local_policies, local_policies_path
from geminga.broker.ownership.core.owner_data import OWNERS_PATH, decode_owner
from geminga.broker.ownership.ports import Elsewhere, Here
from geminga.model.errors import GemingaError
from geminga.model.topic_name import TopicName
from geminga.sim import NodeCrashedError
from support.clusters.cluster_world import BROKERS, NAMES, NAMESPACE, ClusterWorld
from support.clusters.two_brokers import Where, stored_at

#: Attempts to find who serves a topic and read all of it, and the seconds between two.
READS_MAX = 100
READ_AGAIN_S = 0.3


class Said(NamedTuple):
    """What a message says of itself."""

    topic: str
    producer: str
    #: Which life of the client.
    life: int
    number: int

    def encode(self) -> bytes:
        return " ".join(map(str, self)).encode()


def said(payload: bytes) -> Said:
    topic, producer, life, number = payload.decode().split()
    return Said(topic, producer, int(life), int(number))


class Excuses:
    """Until when a broker may have open what is not its any more: it can not know."""

    def __init__(self, cluster: ClusterWorld) -> None:
        self._world = cluster.world
        self._until: dict[str, float] = {}

    def give(self, broker: str, seconds: float) -> None:
        self._until[broker] = max(self._until.get(broker, 0), self._world.now + seconds)

    def has(self, broker: str) -> bool:
        return self._until.get(broker, 0) > self._world.now


def is_open_unknowingly(cluster: ClusterWorld, excuses: Excuses, topic: str) -> bool:
    """Whether a broker has it open that is not its any more, and can not know.

    It acknowledges nothing, but may give out what was acknowledged elsewhere since: so does Pulsar's, which goes on
    serving while the metadata store is gone.
    """
    value = topic_hash(topic)
    return any(
        topic in one.topics
        and excuses.has(broker)
        and not any(Bundle(NAMESPACE, *ends).has_hash(value) for ends in own_ranges(cluster, broker))
        for broker, one in cluster.brokers.items()
    )


def check_owners(cluster: ClusterWorld, excuses: Excuses) -> None:
    """Nobody has a topic open, and acknowledges, without a node of its session; so no two have."""
    for name in NAMES:
        value = topic_hash(str(name))
        holders: list[str] = []
        for broker, one in cluster.brokers.items():
            topic = one.topics.get(str(name))
            if topic is None or topic.is_closing or excuses.has(broker):
                continue
            ranges = own_ranges(cluster, broker)
            assert any(Bundle(NAMESPACE, *ends).has_hash(value) for ends in ranges), (
                f"{cluster.world.now:.3f} s: {name} is open at {broker}, whose session has {ranges}"
            )
            holders.append(broker)
        assert len(holders) <= 1, f"{cluster.world.now:.3f} s: {name} is open at {holders}"
    check_claims(cluster, excuses)


def check_claims(cluster: ClusterWorld, excuses: Excuses) -> None:
    """No hash is in what two say they serve, and have nodes for; but who can not know yet."""
    for namespace in cluster.namespaces:
        claims: list[tuple[int, int, str]] = []
        for broker in cluster.members:
            if not excuses.has(broker):
                has_node = set(own_ranges(cluster, broker, namespace))
                claims += [(*ends, broker) for ends in _served(cluster, broker, namespace) if ends in has_node]
        for (_, upper, one), (lower, _, other) in itertools.pairwise(sorted(claims)):
            at = f"{cluster.world.now:.3f} s: {namespace}"
            assert one == other or upper <= lower, f"{at}: {one} and {other} both serve {lower:#x}"


def own_ranges(cluster: ClusterWorld, broker: str, namespace: str = NAMESPACE) -> list[tuple[int, int]]:
    """Of the nodes of the session that the broker has now."""
    metadata = cluster.metadata
    session = metadata.session_of(cluster.stores[broker], broker)
    names = metadata.state.tree.children(f"{OWNERS_PATH}/{namespace}")
    return [_range(text) for text in names if metadata.is_own(f"{OWNERS_PATH}/{namespace}/{text}", session)]


def _served(cluster: ClusterWorld, broker: str, namespace: str) -> list[tuple[int, int]]:
    """What the broker says that it serves."""
    owned = cluster.members[broker].ownership.owned
    return [(bundle.lower, bundle.upper) for bundle in owned if bundle.namespace == namespace]


def _range(text: str) -> tuple[int, int]:
    lower, _, upper = text.partition("_")
    return int(lower, 16), int(upper, 16)


def check_bundles(cluster: ClusterWorld) -> None:
    """Once all is quiet: no hash is in the bundles of two, by what is stored and by what brokers say."""
    for namespace in cluster.namespaces:
        owned = _owned(cluster, namespace)
        for (one, owner), (other, another) in itertools.pairwise(owned):
            assert one[1] <= other[0], f"{namespace}: {owner} owns {one}, {another} owns {other}"
        served = sorted((ends, broker) for broker in cluster.members for ends in _served(cluster, broker, namespace))
        assert served == owned, f"{namespace}: served is {served}, and owned is {owned}"


def check_cuts(cluster: ClusterWorld, cuts: set[int]) -> None:
    """Splits that were answered hold."""
    path = local_policies_path(NAMESPACE)
    node = cluster.metadata.state.tree.get(path)
    assert node is not None
    boundaries = bundles_in(NAMESPACE, decode_local_policies(NAMESPACE, node.value)).boundaries
    assert cuts <= set(boundaries), f"cut at {sorted(cuts)}, and stored is {boundaries}"


def _owned(cluster: ClusterWorld, namespace: str = NAMESPACE) -> list[tuple[tuple[int, int], str]]:
    """Ranges, ascending, and whose they are by what is stored."""
    tree = cluster.metadata.state.tree
    owned: list[tuple[tuple[int, int], str]] = []
    for text in tree.children(f"{OWNERS_PATH}/{namespace}"):
        path = f"{OWNERS_PATH}/{namespace}/{text}"
        node = tree.get(path)
        assert node is not None
        owned.append((_range(text), _name_of(decode_owner(path, node.value).default.broker_url)))
    return sorted(owned)


def _name_of(broker_url: str) -> str:
    return broker_url.removeprefix("pulsar://").partition(":")[0]


async def check_lookups(cluster: ClusterWorld) -> None:
    """Once all is quiet: whoever is asked names the owner of a topic that has one."""
    for name in NAMES:
        value = topic_hash(str(name))
        owners = [owner for ends, owner in _owned(cluster) if Bundle(NAMESPACE, *ends).has_hash(value)]
        for broker, member in cluster.members.items():
            found = await cluster.world.node(broker).run(
                lambda _, member=member, name=name: member.ownership.owner_of(name)
            )
            if isinstance(found, Here):
                assert owners in ([], [broker]), f"{broker} says it has {name} of {owners}"
                owners = [broker]
            elif isinstance(found, Elsewhere) and found.is_owner:
                there = _name_of(found.endpoints.default.broker_url)
                assert owners == [there], f"{broker} sends to {there} for {name} of {owners}"
            else:
                assert not owners, f"{broker} does not find {name} of {owners}: {found}"


def check_order(topic: str, messages: Iterable[Said], *, deduplicates: bool) -> None:
    """Of each producer's life: in order when they come first; and each once, if that was asked for."""
    last: dict[tuple[str, int], int] = {}
    seen: set[Said] = set()
    for one in messages:
        key = (one.producer, one.life)
        if one in seen:
            assert not deduplicates, f"{topic}: {one} is there twice"
            continue
        seen.add(one)
        assert one.number > last.get(key, -1), f"{topic}: {one} comes after {last[key]}"
        last[key] = one.number


async def stored(cluster: ClusterWorld, name: TopicName) -> dict[Where, bytes]:
    """Every message of the topic, in order, read by whoever owns it."""
    for _ in range(READS_MAX):
        for broker in BROKERS:
            try:
                return await cluster.world.node(broker).run(lambda _, broker=broker: _stored(cluster, broker, name))
            except (GemingaError, NodeCrashedError):
                await cluster.world.sleep(READ_AGAIN_S)
    raise AssertionError(f"{name} is served nowhere")


async def _stored(cluster: ClusterWorld, broker: str, name: TopicName) -> dict[Where, bytes]:
    # As one whom the leader sent: what nobody asked for since it was let go is nobody's.
    await cluster.members[broker].ownership.owner_of(name, is_authoritative=True)
    return await stored_at(cluster.brokers[broker], name)
