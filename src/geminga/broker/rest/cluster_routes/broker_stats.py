"""What one broker serves: ``brokers/{cluster}/{broker}/ownedNamespaces`` and ``/admin/v2/broker-stats``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import SuperUser
from geminga.broker.ownership.core.bundles import Bundle, BundleIndex, Bundles
from geminga.broker.ownership.owner_nodes import endpoints_in
from geminga.broker.resources.documents import Document, Json
from geminga.broker.resources.isolation import matcher, matches
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.owners import redirection
from geminga.broker.rest.calls.requests import RestError, context_of, json_response, namespace_of, path_text
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.cluster_routes.brokers import active_brokers, own_broker_id
from geminga.model.errors import NotFoundError
from geminga.runtime import Turns

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic

#: Allocators of memory that Pulsar's broker has.
_OF_NETTY: Final = ("default", "ml-cache")
#: Of each namespace that has topics here; Pulsar's other figures of that kind are of what is not there.
_OF_NAMESPACE: Final = (
    "brk_in_rate",
    "brk_in_tp_rate",
    "brk_out_rate",
    "brk_out_tp_rate",
    "brk_storage_size",
    "brk_msg_backlog",
    "brk_no_of_producers",
    "brk_no_of_subscriptions",
    "brk_no_of_consumers",
)
#: What Pulsar's broker says with its default load manager; it is a question of the one before.
_NOT_OF_THIS_MANAGER: Final = (
    "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerWrapper does not support this operation"
)


async def owned_namespaces(request: Request) -> Response:
    """The bundles that the named broker serves, and how it came to them; another broker is asked itself (307)."""
    context, broker = context_of(request), path_text(request, "broker")
    if broker not in active_brokers(context):
        raise RestError(404, f"Broker id '{broker}' not found in available brokers.")
    if broker != own_broker_id(context):
        return _sent_to(request, context, broker)
    try:
        policies = await context.resources.isolation.get(context.cluster)
    except NotFoundError:
        policies = {}
    steps, rules, owned = context.topics.steps(), list[_Rule](), Document()
    for policy in policies.values():
        await steps.next()
        rules.append(_rule(policy, broker))
    for bundle in await _owned(context):
        await steps.next()
        owned[str(bundle)] = _ownership(bundle, rules)
    return json_response(owned)


def _sent_to(request: Request, context: RestContext, broker: str) -> Response:
    there = None if context.membership is None else context.membership.brokers.find(broker)
    if there is None:
        raise RestError(404, f"Broker id '{broker}' not found in available brokers.")
    return redirection(request, endpoints_in(there.owner).default)


class _Rule(NamedTuple):
    """An isolation policy, for one broker."""

    has_namespace: Callable[[str], bool]
    assignment: str


def _rule(policy: Mapping[str, Json], broker: str) -> _Rule:
    assignment = "shared"
    for key in ("secondary", "primary"):
        assignment = key if matches(policy.get(key), broker) else assignment
    return _Rule(matcher(policy.get("namespaces")), assignment)


def _ownership(bundle: Bundle, rules: Sequence[_Rule]) -> Document:
    rule = next((one for one in rules if one.has_namespace(bundle.namespace)), None)
    assignment = "shared" if rule is None else rule.assignment
    return {"broker_assignment": assignment, "is_controlled": rule is not None, "is_active": True}


async def _owned(context: RestContext) -> list[Bundle]:
    """Alone, a broker serves what somebody uses."""
    if context.membership is not None:
        return context.membership.ownership.owned
    return sorted({bundle for bundle, _ in await _loaded(context)})


async def _loaded(context: RestContext) -> list[tuple[Bundle, Topic]]:
    """Each topic that is loaded, with its bundle; those of a namespace that is being deleted are left out."""
    steps = context.topics.steps()
    found: list[tuple[Bundle, Topic]] = []
    owned = None if context.membership is None else BundleIndex(context.membership.ownership.owned)
    cuts: dict[str, Bundles | None] = {}
    for topic in list(context.topics.registry.loaded.values()):
        await steps.next()
        if owned is not None:
            bundle = owned.find(topic.name)
        else:
            namespace = topic.name.namespace
            if namespace not in cuts:
                is_there = await context.resources.namespaces.find(namespace) is not None
                cuts[namespace] = await context.resources.bundle_cuts.get(namespace) if is_there else None
            cut = cuts[namespace]
            bundle = None if cut is None else cut.find(topic.name)
        if bundle is not None:
            found.append((bundle, topic))
    return found


async def topics(request: Request) -> Response:
    """Statistics of every topic that is loaded here: by namespace, bundle and domain."""
    from geminga.broker.rest.calls.long_json import long_json_response  # not at a start, for nobody has asked

    context, steps = context_of(request), context_of(request).topics.steps()
    tree: Document = {}
    async with context.statistics.turns() as turns:
        for bundle, topic in await _loaded(context):
            await steps.next()
            found = tree
            for part in (bundle.namespace, bundle.range, topic.name.domain):
                below = found.setdefault(part, {})
                assert isinstance(below, dict)
                found = below
            stats = await context.statistics.of_topic(topic, turns)
            found[str(topic.name)] = {**stats, "producerCount": len(topic.producers)}
        return await long_json_response(tree, turns)


async def load_report(request: Request) -> Response:
    """What this broker says of itself and its load to the others, as they read it last; alone, where it is and how
    much it serves."""
    context = context_of(request)
    membership = context.membership
    if membership is not None:
        seen = membership.brokers.find(membership.broker_id)
        return json_response({**(membership.document if seen is None else seen.document)})
    found = await _loaded(context)
    endpoint = context.status.endpoints.default
    report: Document = {
        "webServiceUrl": endpoint.web_url,
        "pulsarServiceUrl": endpoint.broker_url,
        "brokerVersionString": context.version,
        "lastUpdate": context.clock.wall_ms(),
        "numTopics": len(found),
        "numBundles": len({bundle for bundle, _ in found}),
        "numProducers": sum(len(topic.producers) for _, topic in found),
        "numConsumers": sum(len(one.consumers) for _, topic in found for one in topic.subscriptions.values()),
        "bundles": [*sorted({str(bundle) for bundle, _ in found})],
        "loadReportType": "LocalBrokerData",
    }
    return json_response({key: value for key, value in report.items() if value != ""})


async def metrics(request: Request) -> Response:
    """What Pulsar's older monitoring reads: a list of figures, each with what they are about."""
    context, steps = context_of(request), context_of(request).topics.steps()
    turns = Turns(context.clock)
    namespaces: dict[str, dict[str, float]] = {}
    for topic in list(context.topics.registry.loaded.values()):
        await steps.next()
        found = namespaces.setdefault(topic.name.namespace, dict.fromkeys(_OF_NAMESPACE, 0))
        stats = await context.statistics.of_topic(topic, turns)
        for name, value in _of_topic(topic, stats).items():
            found[name] += value
    cache = context.ledgers.cache
    open_now, opened = context.status.connection_counts
    host = context.status.web_url.partition("://")[2].rpartition(":")[0]
    of_broker = {"broker": host, "cluster": context.cluster, "metric": "broker_connection"}
    said: list[Json] = [_said({"namespace": name}, values) for name, values in sorted(namespaces.items())]
    said.append(_said({}, {"brk_ml_cache_used_size": cache.size_bytes, "brk_ml_count": _ledgers(context)}))
    said.append(
        _said(
            of_broker,
            {
                "brk_active_connections": open_now,
                "brk_connection_created_total_count": opened,
                "brk_connection_closed_total_count": opened - open_now,
            },
        )
    )
    return json_response(said)


def _ledgers(context: RestContext) -> int:
    return sum(topic.name.is_persistent for topic in context.topics.registry.loaded.values())


def _of_topic(topic: Topic, stats: Document) -> dict[str, float]:
    def number(value: object) -> float:
        return value if isinstance(value, int | float) else 0

    subscriptions = stats.get("subscriptions")
    each = [one for one in subscriptions.values() if isinstance(one, dict)] if isinstance(subscriptions, dict) else []
    return {
        "brk_in_rate": number(stats.get("msgRateIn")),
        "brk_in_tp_rate": number(stats.get("msgThroughputIn")),
        "brk_out_rate": number(stats.get("msgRateOut")),
        "brk_out_tp_rate": number(stats.get("msgThroughputOut")),
        "brk_storage_size": number(stats.get("storageSize")),
        "brk_msg_backlog": sum(number(one.get("msgBacklog")) for one in each),
        "brk_no_of_producers": len(topic.producers),
        "brk_no_of_subscriptions": len(topic.subscriptions),
        "brk_no_of_consumers": sum(len(one.consumers) for one in topic.subscriptions.values()),
    }


def _said(about: Mapping[str, str], values: Mapping[str, float]) -> Document:
    return {"metrics": {**values}, "dimensions": {**about}}


async def mbeans(request: Request) -> Response:
    """The process's own figures in the shape of a Java program's MBeans, under names of Geminga's."""
    beans = context_of(request).process()
    return json_response([_said({"MBean": name}, values) for name, values in beans.items()])


async def allocator(request: Request) -> Response:
    """406, as from Pulsar's broker for an allocator that it has not: there is none of Netty's here."""
    name = path_text(request, "allocator")
    why = ": this broker is no Java program; /metrics tells its memory" if name in _OF_NETTY else ""
    raise RestError(406, f"Invalid allocator name : {name}{why}")


async def bookie_ops(request: Request) -> Response:
    """What topics that are loaded here ask of bookies now, by namespace: ledgers that are being made.

    Pulsar's other members are of ledgers that are opened, closed or deleted: nobody counts those here.
    """
    context = context_of(request)
    steps = context.topics.steps()
    tree: dict[str, dict[str, Json]] = {}
    for topic in list(context.topics.registry.loaded.values()):
        await steps.next()
        if topic.name.is_persistent:
            of_data, of_cursors = context.ledgers.ledgers_being_made(topic.name.managed_ledger_name)
            said: Document = {"dataLedgerCreateOp": of_data, "cursorLedgerCreateOp": of_cursors}
            tree.setdefault(topic.name.namespace, {})[str(topic.name)] = said
    return json_response({namespace: tree[namespace] for namespace in sorted(tree)})


async def resource_availability(request: Request) -> Response:
    """409, as from Pulsar's broker with its default load manager."""
    namespace_of(request)
    raise RestError(409, _NOT_OF_THIS_MANAGER)


ROUTES = [
    Route("GET", "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces", owned_namespaces, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/load-report", load_report, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/topics", topics, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/metrics", metrics, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/mbeans", mbeans, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/bookieops", bookie_ops, SuperUser.LOOK_AT_BROKER),
    Route("GET", "/admin/v2/broker-stats/allocator-stats/{allocator}", allocator, SuperUser.LOOK_AT_BROKER),
    Route(
        "GET",
        "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}",
        resource_availability,
        SuperUser.LOOK_AT_BROKER,
    ),
]
