"""Rights, brokers and bookies, replication, compaction: what several answers say together, and what is not told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from geminga.admin.errors import AdminError, ForbiddenError, UnauthorizedError
from geminga.app.console.core.cluster_rows import BookieRow, BrokerRow, LoadView, bookie_rows, broker_rows, load_view
from geminga.app.console.core.rights import RightsRow, rights_rows, subscription_rows
from geminga.app.console.core.standings import CompactionView, ReplicationRow, compaction_view, replication_rows
from geminga.model import TopicName

if TYPE_CHECKING:
    from geminga.admin import AdminClient

#: Brokers of which one page asks what they serve, and how many at a time.
BROKERS_TOLD_MAX: Final = 50
TOGETHER: Final = 4
#: Partitions of a topic that a page tells of.
PARTITIONS_TOLD_MAX: Final = 100
#: Seconds for a broker of several to answer: one that is gone does not hold the page.
PATIENCE_S: Final = 2.0


class Rights(NamedTuple):
    """Of a namespace, or a topic in it."""

    rows: Sequence[RightsRow]
    #: Subscriptions that only some roles may use.
    subscriptions: Sequence[tuple[str, list[str]]]
    #: What who asks may not see, in sentences.
    unseen: Sequence[str]


async def rights_of(admin: AdminClient, namespace: str, topic: str = "") -> Rights:
    """Raises AdminError where the rights themselves may not be seen."""
    of_namespace = await admin.permissions.get(namespace)
    of_topic = await admin.topics.permissions(topic) if topic else None
    unseen: list[str] = []
    own = await own_rights(admin, namespace, topic, unseen) if topic else None
    tenant = await _seen(
        partial(admin.tenants.get, namespace.partition("/")[0]), "administrators of the tenant", unseen
    )
    settings = await _seen(admin.brokers.runtime_configuration, "superusers", unseen)
    subscriptions = await _seen(
        partial(admin.permissions.get_of_subscriptions, namespace), "roles of subscriptions", unseen
    )
    superusers = str((settings or {}).get("superUserRoles") or "").split(",")
    return Rights(
        rights_rows(
            of_namespace,
            of_topic,
            own,
            tenant_admins=(tenant or {}).get("adminRoles") or (),
            superusers=[role.strip() for role in superusers if role.strip()],
        ),
        subscription_rows(subscriptions or {}),
        unseen,
    )


async def own_rights(
    admin: AdminClient, namespace: str, topic: str, unseen: list[str]
) -> Mapping[str, Sequence[str]] | None:
    """What a topic gives by itself, by role: its permissions have what the namespace gives in them. None: not told."""
    ask = partial(admin.namespaces.policies, namespace)
    policies = await _seen(ask, "which rights the topic gives beside those of the namespace", unseen)
    if policies is None:
        return None
    of_topics: Mapping[str, Mapping[str, Sequence[str]]] = (policies.get("auth_policies") or {}).get(
        "destination_auth"
    ) or {}
    return of_topics.get(topic) or {}


class ClusterView(NamedTuple):
    """The brokers and bookies."""

    health: str
    load: LoadView | None
    brokers: Sequence[BrokerRow]
    bookies: Sequence[BookieRow]
    unseen: Sequence[str]


async def cluster_of(admin: AdminClient) -> ClusterView:
    """Whatever of it may be seen; what does not answer is said."""
    unseen: list[str] = []
    health, report, names, leader, bookies, racks, clusters = await asyncio.gather(
        _health(admin),
        _seen(admin.brokers.load_report, "the load of this broker", unseen),
        _seen(admin.brokers.list, "the brokers", unseen),
        _seen(admin.brokers.leader, "the leading broker", unseen),
        _seen(admin.bookies.list, "the bookies", unseen),
        _seen(admin.bookies.racks, "the racks of the bookies", unseen),
        _seen(admin.clusters.list, "the clusters", unseen),
    )
    cluster = clusters[0] if clusters else "standalone"
    bundles = await _bundles(admin, cluster, sorted(names or ())[:BROKERS_TOLD_MAX])
    return ClusterView(
        health,
        load_view(report) if report is not None else None,
        broker_rows(names or (), leader or {}, report or {}, bundles),
        bookie_rows(bookies or {}, racks or {}),
        sorted(unseen),
    )


async def _health(admin: AdminClient) -> str:
    try:
        return await admin.brokers.health()
    except AdminError as error:
        return error.reason


async def _bundles(admin: AdminClient, cluster: str, names: Sequence[str]) -> dict[str, int | str]:
    """How many each broker serves, asked of itself; why not, where it does not answer."""
    turns = asyncio.Semaphore(TOGETHER)

    async def asked(name: str) -> int | str:
        async with turns:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return len(await admin.brokers.owned_namespaces(cluster, name))
            except TimeoutError:
                return f"no answer for {PATIENCE_S:g} s"
            except AdminError as error:
                return error.reason

    return dict(zip(names, await asyncio.gather(*(asked(name) for name in names)), strict=True))


async def replication_of(admin: AdminClient, topic: str) -> list[tuple[str, list[ReplicationRow]]]:
    """By topic, of a partitioned one by partition: those that stopped first where they are many. Raises AdminError."""
    found = await admin.topics.partitioned_metadata(topic)
    if not found.get("partitions"):
        return [(topic, replication_rows(await admin.topics.stats(topic)))]
    stats = await admin.topics.partitioned_stats(topic, per_partition=True)
    partitions: Mapping[str, Mapping[str, Any]] = stats.get("partitions") or {}
    rows = [(name, replication_rows(each)) for name, each in sorted(partitions.items(), key=_by_number)]
    if len(rows) > PARTITIONS_TOLD_MAX:
        rows.sort(key=_by_need)
    return rows[:PARTITIONS_TOLD_MAX]


async def replications_of(admin: AdminClient, topics: Sequence[str]) -> list[tuple[str, list[ReplicationRow]]]:
    """Of a page of topics, those that are copied; those that stopped first. What is not served is left out."""
    turns = asyncio.Semaphore(TOGETHER)

    async def asked(topic: str) -> list[ReplicationRow]:
        async with turns:
            try:
                stats = await admin.topics.stats(topic, without_publishers=True, without_consumers=True)
            except AdminError:
                return []
            return replication_rows(stats)

    rows = await asyncio.gather(*(asked(topic) for topic in topics))
    found = [(topic, each) for topic, each in zip(topics, rows, strict=True) if each]
    return sorted(found, key=_by_need)


def _by_need(row: tuple[str, Sequence[ReplicationRow]]) -> tuple[bool, int]:
    """What stopped, and then what is furthest behind."""
    return not any(each.state == "stopped" for each in row[1]), -max((each.backlog for each in row[1]), default=0)


def _by_number(row: tuple[str, object]) -> int:
    return TopicName.parse(row[0]).partition


async def compaction_of(admin: AdminClient, topic: str) -> CompactionView:
    """Of a topic without partitions, or one partition. Raises AdminError."""
    status = await admin.compaction.status(topic)
    stats = await admin.topics.stats(topic)
    internal = await admin.topics.internal_stats(topic)
    unseen: list[str] = []
    ask = partial(admin.topic_policies.compaction_threshold.get, topic, applied=True)
    threshold = await _seen(ask, "threshold", unseen)
    return compaction_view(status, stats, internal, threshold)


async def _seen(ask: Callable[[], Awaitable[Any]], what: str, unseen: list[str]) -> Any:  # noqa: ANN401  (documents of REST)
    """None where it can not be had, which is told. Who is cut off before it began has asked nothing."""
    try:
        return await ask()
    except (ForbiddenError, UnauthorizedError):
        unseen.append(f"You may not see {what}.")
    except AdminError as error:
        unseen.append(f"There is no answer about {what}: {error.reason.rstrip('.')}.")
    return None
