"""Subscriptions of a whole namespace or bundle: ``clearBacklog``, ``unsubscribe``; and ``DELETE`` of a bundle.

A bundle's owner does it, to whatever topics are stored in it; Pulsar's to those alone that it has loaded, and nobody
to bundles that nobody owns. A topic that it is not about is not loaded for that. What one topic refuses does not keep
the others from being done: it is told at the end, and the same request, sent again, does what is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import NamespaceOperation
from geminga.broker.ownership.core.bundles import Bundle, Bundles
from geminga.broker.ownership.ports import Elsewhere
from geminga.broker.registry.namespaces import TopicMode
from geminga.broker.rest.calls.context import RestContext
from geminga.broker.rest.calls.owners import is_authoritative
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    names_subscription,
    namespace_of,
    no_content,
    path_text,
    subscription_name,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.namespace_routes.bundle_walk import ask_owner, at_owners, refusal
from geminga.broker.rest.namespace_routes.bundles import bundle_at_owner, cut_of, unload_topics
from geminga.broker.subscription import seek
from geminga.broker.subscription.subscription import Subscription
from geminga.broker.topic.base import Topic
from geminga.model.errors import (
    ConflictError,
    GemingaError,
    NotFoundError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
)
from geminga.model.topic_name import TopicName
from geminga.runtime import again

#: What cursors of replicators are called in Pulsar (``replicatorPrefix``): no subscription of anybody's.
REPLICATOR_PREFIX: Final = "pulsar.repl"

#: Done to one topic and the subscriptions that it is about.
_Act = Callable[[Topic, Sequence[str]], Awaitable[None]]


async def _clear(topic: Topic, names: Sequence[str]) -> None:
    for name in names:
        subscription = topic.subscriptions.get(name)
        if isinstance(subscription, Subscription):
            await seek.clear_backlog(subscription)


async def _unsubscribe(topic: Topic, names: Sequence[str]) -> None:
    for name in names:
        if name in topic.subscriptions:
            await topic.delete_subscription(name)


async def clear_namespace(request: Request) -> Response:
    """Acknowledge everything, for every subscription of every topic, or for those with the name in the path."""
    return await _everywhere(request, "clearBacklog", _clear, TopicMode.PERSISTENT)


async def clear_bundle(request: Request) -> Response:
    """The same in one bundle, at its owner."""
    return await _in_one(request, _clear, TopicMode.PERSISTENT)


async def unsubscribe_namespace(request: Request) -> Response:
    """Delete the subscription of that name from every topic; 412 at the end if some have consumers connected."""
    _refuse_replicators(request)
    return await _everywhere(request, "unsubscribe", _unsubscribe, TopicMode.ALL)


async def unsubscribe_bundle(request: Request) -> Response:
    """The same in one bundle, at its owner."""
    _refuse_replicators(request)
    return await _in_one(request, _unsubscribe, TopicMode.ALL)


def _refuse_replicators(request: Request) -> None:
    if subscription_name(request).startswith(REPLICATOR_PREFIX):
        raise RestError(412, "Cannot unsubscribe a replication cursor")


async def delete_bundle(request: Request) -> Response:
    """Give a bundle up; 409 if persistent topics are in it, unless with ``force``. The topics stay what they are."""
    context, namespace = context_of(request), namespace_of(request)
    bundle = (await cut_of(context, namespace)).named(path_text(request, "bundle"))
    membership = context.membership
    owner = None if membership is None else await membership.ownership.owner_now(bundle)
    if owner is not None and (away := bundle_at_owner(request, bundle, owner)) is not None:
        return away
    if not flag(request, "force"):
        steps = context.topics.steps()
        for text in await context.topics.registry.list(namespace, has_system=True, is_local=True):
            await steps.next()
            if bundle.has(TopicName.parse(text)):
                raise ConflictError("Cannot delete non empty bundle")
    if membership is None:
        await unload_topics(context, [bundle])
    elif owner is not None:
        await membership.ownership.release([bundle])
    return no_content()


async def _cut(request: Request) -> Bundles:
    context, namespace = context_of(request), namespace_of(request)
    if await context.resources.namespaces.find(namespace) is None:
        raise NotFoundError("Namespace not found")
    return await cut_of(context, namespace)


async def _in_one(request: Request, act: _Act, mode: TopicMode) -> Response:
    context = context_of(request)
    cut = await _cut(request)
    bundle = cut.named(path_text(request, "bundle"))
    if context.membership is not None:
        owner = await context.membership.ownership.owner_of_bundle(bundle, is_authoritative=is_authoritative(request))
        away = bundle_at_owner(request, bundle, owner)
        if away is not None:
            return away
    await _in_bundles(context, cut, {bundle}, act, mode, _wanted(request))
    return no_content()


def _wanted(request: Request) -> str | None:
    """The subscription that it is about; None: all."""
    return subscription_name(request) if names_subscription(request) else None


async def _everywhere(request: Request, what: str, act: _Act, mode: TopicMode) -> Response:
    context, wanted = context_of(request), _wanted(request)
    cut = await _cut(request)
    membership = context.membership
    if membership is None:
        await _in_bundles(context, cut, cut.all(), act, mode, wanted)
        return no_content()
    rest = what if wanted is None else f"{what}/{request.path_params['form_subscription']}"

    async def here(own: Sequence[Bundle]) -> None:
        if own:
            await _in_bundles(context, cut, set(own), act, mode, wanted)

    async def there(bundle: Bundle, owner: Elsewhere) -> None:
        if _is_of_another_make(context, owner):
            await _topic_by_topic(context, cut, bundle, act, wanted)
        else:
            await ask_owner(context, bundle, owner, "POST", rest)

    await at_owners(cut, membership.ownership.owner_of_bundle, here, there)
    return no_content()


def _is_of_another_make(context: RestContext, owner: Elsewhere) -> bool:
    peers = context.topics.elsewhere
    return peers is not None and peers.is_another_make(owner)


async def _topic_by_topic(context: RestContext, cut: Bundles, bundle: Bundle, act: _Act, wanted: str | None) -> None:
    """Asked of a broker of another make, to whatever is stored: of a whole bundle Apache's looks at loaded topics only,
    and 4.2.4 was seen to load none any more once it was asked. Raises the first refusal when all was tried."""
    topics, peers = context.topics, context.topics.elsewhere
    assert peers is not None
    steps, refused = topics.steps(), None
    for text in await topics.registry.list(cut.namespace, mode=TopicMode.PERSISTENT, is_local=True):
        await steps.next()
        name = TopicName.parse(text)
        if cut.find(name) != bundle:
            continue
        for subscription in await topics.registry.subscription_names(name):
            if wanted not in (None, subscription):
                continue
            rest = f"/subscription/{quote(quote(subscription, safe=''), safe='')}"
            answer = await (
                peers.ask(name, "POST", f"{rest}/skip_all") if act is _clear else peers.ask(name, "DELETE", rest)
            )
            if not answer.is_good and answer.status != 404:
                refused = refused or refusal(answer, str(name))
    if refused is not None:
        raise again(refused)


async def _in_bundles(
    context: RestContext, cut: Bundles, own: Collection[Bundle], act: _Act, mode: TopicMode, wanted: str | None
) -> None:
    """To each topic of these, which are this broker's; raises the first refusal when all was tried."""
    registry, steps = context.topics.registry, context.topics.steps()
    refused: GemingaError | None = None
    for text in await registry.list(cut.namespace, mode=mode, is_local=True):
        await steps.next()
        name = TopicName.parse(text)
        if cut.find(name) not in own:
            continue
        try:
            names = [one for one in await registry.subscription_names(name) if wanted is None or one == wanted]
            if names:
                await act(await registry.get(name, create=False, is_for_client=False), names)
        except (TopicNotFoundError, SubscriptionNotFoundError):
            continue  # it went meanwhile
        except GemingaError as error:
            refused = refused or error
    if refused is not None:
        raise again(refused)


_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_BUNDLE: Final = f"{_NAMESPACE}/{{bundle}}"
_CLEAR: Final = NamespaceOperation.CLEAR_BACKLOG
_UNSUBSCRIBE: Final = NamespaceOperation.UNSUBSCRIBE

ROUTES = [
    Route("POST", f"{_NAMESPACE}/clearBacklog", clear_namespace, _CLEAR),
    Route("POST", f"{_NAMESPACE}/clearBacklog/{{form_subscription}}", clear_namespace, _CLEAR),
    Route("POST", f"{_BUNDLE}/clearBacklog", clear_bundle, _CLEAR),
    Route("POST", f"{_BUNDLE}/clearBacklog/{{form_subscription}}", clear_bundle, _CLEAR),
    Route("POST", f"{_NAMESPACE}/unsubscribe/{{form_subscription}}", unsubscribe_namespace, _UNSUBSCRIBE),
    Route("POST", f"{_BUNDLE}/unsubscribe/{{form_subscription}}", unsubscribe_bundle, _UNSUBSCRIBE),
    Route("DELETE", _BUNDLE, delete_bundle, NamespaceOperation.DELETE_BUNDLE),
]
