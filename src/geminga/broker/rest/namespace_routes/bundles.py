"""``/admin/v2/namespaces/.../bundles`` and ``unload``, ``split``: how a namespace is cut, and who lets go of what.

A bundle is unloaded and split by its owner. A destination is told to the leader, which sends the bundle's next client
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation, SuperUser
from geminga.broker.core.coercion import number_of
from geminga.broker.ownership.core.bundle_split import RANGE_EQUALLY_DIVIDE, TopicLoad, split_keys
from geminga.broker.ownership.core.bundles import LAST_HASH, Bundle, BundleIndex, Bundles
from geminga.broker.ownership.core.direction import Direction, direct_request
from geminga.broker.ownership.core.local_policies import bundles_data
from geminga.broker.ownership.lookup import no_owner
from geminga.broker.ownership.owner_nodes import endpoints_in
from geminga.broker.ownership.ports import Elsewhere, Owner, Unknown
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.resources.documents import Json
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.owners import is_authoritative, redirection
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_body,
    json_response,
    namespace_of,
    no_content,
    path_text,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.cluster_routes.brokers import active_brokers
from geminga.broker.rest.namespace_routes.bundle_walk import ask_owner, at_owners
from geminga.model.errors import NotFoundError, PreconditionFailedError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import Turns

if TYPE_CHECKING:
    from geminga.broker.ownership.membership import Membership
    from geminga.broker.topic.base import Topic

#: Names of a bundle that are no range: the one with most topics, and the one that most goes through.
LARGEST: Final = "LARGEST"
HOT: Final = "HOT"
#: Where a bundle is to go: a parameter for the leader.
DESTINATION: Final = "destinationBroker"


async def cut_of(context: RestContext, namespace: str) -> Bundles:
    """How the namespace is cut into bundles; raises NotFoundError, StorageError."""
    if context.membership is not None:
        await context.resources.namespaces.get(namespace)
        found = await context.membership.ownership.bundles_of(namespace)
        if found is not None:
            return found
    return await context.resources.bundle_cuts.get(namespace)


async def get_bundles(request: Request) -> Response:
    """The hash boundaries of the namespace's bundles."""
    cut = await cut_of(context_of(request), namespace_of(request))
    return json_response(bundles_data(cut))


async def unload_namespace(request: Request) -> Response:
    """Unload every bundle of the namespace, each at its owner; alone: every topic."""
    context, namespace = context_of(request), namespace_of(request)
    if await context.resources.namespaces.find(namespace) is None:
        raise NotFoundError("Namespace not found")
    await unload_everywhere(context, namespace)
    return no_content()


async def unload_everywhere(context: RestContext, namespace: str) -> None:
    """Unload every bundle of a namespace, each at its owner; alone: every topic. Raises GemingaError."""
    cut = await cut_of(context, namespace)
    membership = context.membership
    if membership is None:
        await unload_topics(context, cut.all())
        return
    ownership = membership.ownership

    async def owner_of(bundle: Bundle) -> Owner | None:
        owner = await ownership.owner_now(bundle)
        # Whoever is letting go of it does what is asked.
        return None if isinstance(owner, Unknown) else owner

    async def there(bundle: Bundle, owner: Elsewhere) -> None:
        await ask_owner(context, bundle, owner, "PUT", "unload")

    await at_owners(cut, owner_of, ownership.release, there)


async def unload_bundle(request: Request) -> Response:
    """Let go of a bundle; with ``destinationBroker`` it goes to that one when it is next asked for.

    Nothing happens to one that nobody owns. Alone: its topics are unloaded.
    """
    context, namespace = context_of(request), namespace_of(request)
    bundle = (await cut_of(context, namespace)).named(path_text(request, "bundle"))
    membership = context.membership
    destination = request.query_params.get(DESTINATION, "").removeprefix("http://").removeprefix("https://")
    if destination and destination not in active_brokers(context):
        raise RestError(409, "Not allowed unload namespace bundle to inactive destination broker")
    if membership is None:
        await unload_topics(context, [bundle])
        return no_content()
    if destination and not is_authoritative(request):
        elsewhere = _send_to(request, membership, bundle, destination)
        if elsewhere is not None:
            return elsewhere
    owner = await membership.ownership.owner_now(bundle)
    if owner is None:
        return no_content()
    away = bundle_at_owner(request, bundle, owner)
    if away is not None:
        return away
    await membership.ownership.release([bundle])
    return no_content()


def _send_to(request: Request, membership: Membership, bundle: Bundle, destination: str) -> Response | None:
    """Tell the leader where a bundle is to go, by a redirection unless this broker leads; None: it was told."""
    election, placement = membership.election, membership.placement
    if election is None or placement is None:
        raise UnavailableError("the broker is starting")
    if election.is_leader:
        placement.send(bundle, destination)
        return None
    leader = None if election.leader is None else membership.brokers.find(election.leader.broker_id)
    if leader is None:
        raise PreconditionFailedError("The current leader is empty.")
    return redirection(request, endpoints_in(leader.owner).default, is_authoritative=False)


async def split_bundle(request: Request) -> Response:
    """Split a bundle by ``splitAlgorithmName`` at its owner; topics stay open.

    The path names it by its range, or as ``LARGEST`` or ``HOT``. Without an algorithm it is that of
    ``defaultNamespaceBundleSplitAlgorithm``. The body may be hashes to split at. With ``unload`` the parts are let go
    of afterwards. Where the algorithm finds nothing to split nothing happens.
    """
    context, namespace = context_of(request), namespace_of(request)
    positions = _positions(await json_body(request))
    load = context.load
    configured, limits = (RANGE_EQUALLY_DIVIDE, None) if load is None else (load.split_algorithm, load.flow_limits)
    algorithm = request.query_params.get("splitAlgorithmName") or configured
    bundle = await _named_bundle(context, await cut_of(context, namespace), path_text(request, "bundle"))
    # What is wrong with the request is told by any broker.
    split_keys(algorithm, bundle, {}, positions, limits)
    membership = context.membership
    if membership is not None:
        owner = await membership.ownership.owner_of_bundle(bundle, is_authoritative=is_authoritative(request))
        away = bundle_at_owner(request, bundle, owner)
        if away is not None:
            return away
    turns = Turns(context.clock)
    loads = {str(topic.name): await _load_of(context, topic, turns) for topic in _topics_in(context, [bundle])}
    keys = split_keys(algorithm, bundle, loads, positions, limits)
    if keys:
        await _split(context, bundle, keys, unload=flag(request, "unload"))
    return no_content()


async def _split(context: RestContext, bundle: Bundle, keys: Sequence[int], *, unload: bool) -> None:
    if context.membership is not None:
        parts = await context.membership.ownership.split(bundle, keys)
        if unload:
            await context.membership.ownership.release(parts)
        return
    await context.resources.bundle_cuts.split(bundle, keys)
    if unload:
        await unload_topics(context, [bundle])


async def _named_bundle(context: RestContext, cut: Bundles, text: str) -> Bundle:
    """The bundle of a range, the one with most topics or the one that most goes through.

    Raises NotFoundError (404) for the latter two where no topic is there, or goes through; PreconditionFailedError.
    """
    if text == LARGEST:
        measured = await _topic_counts(context, cut)
    elif text == HOT:
        measured = await _throughputs(context, cut)
    else:
        return cut.named(text)
    most = max(measured.values(), default=0)
    if not most:
        raise NotFoundError(f"Bundle range {text} not found")
    return min(bundle for bundle, amount in measured.items() if amount == most)


async def _topic_counts(context: RestContext, cut: Bundles) -> dict[Bundle, float]:
    steps, counts = context.topics.steps(), dict.fromkeys(cut.all(), 0.0)
    for text in await context.topics.registry.list(cut.namespace, mode=TopicMode.ALL):
        await steps.next()
        counts[cut.find(TopicName.parse(text))] += 1
    return counts


async def _throughputs(context: RestContext, cut: Bundles) -> dict[Bundle, float]:
    """Bytes a second; in a cluster as its leader keeps them."""
    if context.membership is not None:
        return {bundle: await context.resources.bundle_loads.bytes_per_s(str(bundle)) for bundle in cut.all()}
    sums, turns = dict.fromkeys(cut.all(), 0.0), Turns(context.clock)
    for topic in _topics_in(context, cut.all()):
        sums[cut.find(topic.name)] += (await _load_of(context, topic, turns)).bytes_per_s
    return sums


def _positions(body: Json) -> list[int]:
    if body is None:
        return []
    if not isinstance(body, list):
        raise RestError(400, "the body is a list of hashes to split at, or nothing")
    return [number_of(value, "a hash to split at", LAST_HASH) for value in body]


def bundle_at_owner(request: Request, bundle: Bundle, owner: Owner) -> Response | None:
    """The redirection to who owns it, None where that is this broker. Raises UnavailableError."""
    direction = direct_request(owner, is_authoritative=is_authoritative(request))
    if direction is Direction.STAY:
        return None
    if direction is Direction.TRY_AGAIN or not isinstance(owner, Elsewhere):
        raise no_owner(f"bundle {bundle}", owner)
    # The leader was told where it is to go: Apache's broker would send who asks for that back to the leader, and so on.
    return redirection(request, owner.endpoints.default, is_authoritative=owner.is_chosen, without=DESTINATION)


def _topics_in(context: RestContext, bundles: Sequence[Bundle]) -> list[Topic]:
    index = BundleIndex(bundles)
    return [topic for topic in context.topics.registry.loaded.values() if index.find(topic.name) is not None]


async def _load_of(context: RestContext, topic: Topic, turns: Turns) -> TopicLoad:
    messages, size = context.statistics.rates_in(topic)
    stats = await context.statistics.of_topic(topic, turns)
    out_messages, out_size = stats.get("msgRateOut"), stats.get("msgThroughputOut")
    return TopicLoad(
        messages + (out_messages if isinstance(out_messages, int | float) else 0),
        size + (out_size if isinstance(out_size, int | float) else 0),
    )


async def unload_topics(context: RestContext, bundles: Sequence[Bundle]) -> None:
    """Those of these bundles that this broker has loaded."""
    steps = context.topics.steps()
    for topic in _topics_in(context, bundles):
        await steps.next()
        await context.topics.registry.unload(topic.name)


_PATH = "/admin/v2/namespaces/{tenant}/{namespace}"

ROUTES = [
    Route("GET", f"{_PATH}/bundles", get_bundles, NamespaceOperation.GET_BUNDLE),
    Route("PUT", f"{_PATH}/unload", unload_namespace, SuperUser.UNLOAD_NAMESPACE),
    Route("PUT", f"{_PATH}/{{bundle}}/unload", unload_bundle, SuperUser.UNLOAD_NAMESPACE),
    Route("PUT", f"{_PATH}/{{bundle}}/split", split_bundle, SuperUser.UNLOAD_NAMESPACE),
]
