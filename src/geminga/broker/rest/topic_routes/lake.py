"""What is offloaded: Pulsar's paths for topics and namespaces, and ``.../{topic}/lake``, which is Geminga's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, TopicOperation, reading, writing
from geminga.broker.core.coercion import LONG_MAX, number_of, object_of
from geminga.broker.policies.core.row import NO_NAMESPACE
from geminga.broker.policies.core.storage_rows import OFFLOAD_POLICIES
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    context_of,
    json_body,
    json_response,
    message_id_json,
    namespace_of,
    no_content,
    nothing_set,
    required_body,
    topic_of,
)
from geminga.broker.rest.calls.routing import TOPIC_PATH, Route
from geminga.broker.rest.calls.targets import persistent_topic, refuse_partitioned
from geminga.broker.rest.namespace_routes.policies import change_policy
from geminga.broker.rest.topic_routes.troubles import told
from geminga.managed_ledger.rules.offload import record_of
from geminga.model.errors import PreconditionFailedError

if TYPE_CHECKING:
    from geminga.broker.topic.offload import Offload
    from geminga.broker.topic.persistent import PersistentTopic

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"


async def _topic(request: Request) -> PersistentTopic:
    topics, name = context_of(request).topics, topic_of(request)
    await refuse_partitioned(topics, name, "Offload is done for the partitions of a topic one by one")
    return await persistent_topic(topics, name, "Offload")


def _offload_of(topic: PersistentTopic) -> Offload | None:
    # Loaded with the first topic, not with the rows of namespaces.
    from geminga.broker.topic.offload import Offload

    return topic.parts.find(Offload)


async def trigger(request: Request) -> Response:
    """Offload the ledgers before that of a message id; goes on in the background."""
    body = await required_body(request)
    ledger_id = number_of(object_of(body, "the message id").get("ledgerId"), "ledgerId", LONG_MAX)
    topic = await _topic(request)
    part = _offload_of(topic)
    if part is None or not part.offloading.policy.driver:
        why = part.refusal if part is not None and part.refusal else "no offload driver is set for this topic"
        raise PreconditionFailedError(f"{topic.name} can not be offloaded: {why}")
    part.offloading.start(ledger_id)
    return no_content()


async def status(request: Request) -> Response:
    """How the last command went."""
    topic = await _topic(request)
    part = _offload_of(topic)
    if part is None:
        return json_response({"status": "NOT_RUN", "lastError": ""})
    found = part.offloading.status
    document: Document = {"status": found.status, "lastError": found.last_error}
    if found.status == "SUCCESS":
        document["firstUnoffloadedMessage"] = message_id_json(found.first_unoffloaded, topic.name.partition)
    return json_response(document)


async def look(request: Request) -> Response:
    """The ledgers of a topic, and where each lies."""
    topic = await _topic(request)
    part = _offload_of(topic)
    ledgers: list[Json] = []
    for info in topic.ledger.ledgers.infos:
        record = record_of(info)
        ledgers.append(
            {
                "ledgerId": info.ledger_id,
                "entries": info.entries,
                "size": info.size_bytes,
                "closed": info.closed_ms,
                "isOffloaded": record is not None and record.is_complete,
                "isOnBookies": record is None or not record.is_bookkeeper_deleted,
                "offloaded": record.completed_ms if record is not None else 0,
                "uid": record.uid if record is not None else "",
                "driver": record.driver if record is not None else "",
                "root": record.properties.get("root", "") if record is not None else "",
            }
        )
    waiting = [one for one in await topic.services.ledgers.lake_deletions() if one.name == topic.ledger.name]
    policy = part.offloading.policy if part is not None else None
    restoring = part.offloading.restoring if part is not None else None
    document: Document = {
        "driver": policy.driver if policy is not None else "",
        "root": policy.properties.get("root", "") if policy is not None else "",
        "thresholdBytes": policy.threshold_bytes if policy is not None else -1,
        "thresholdMs": policy.threshold_ms if policy is not None else -1,
        "deletionLagMs": policy.deletion_lag_ms if policy is not None else -1,
        "status": part.offloading.status.status if part is not None else "NOT_RUN",
        "lastError": (part.refusal or part.offloading.last_error) if part is not None else "",
        "restore": {
            "status": restoring.status if restoring is not None else "NOT_RUN",
            "restored": restoring.restored if restoring is not None else 0,
            "lastError": restoring.last_error if restoring is not None else "",
        },
        "filesToDelete": [{"ledgerId": one.ledger_id, "uid": one.uid, "error": one.error} for one in waiting],
        "ledgers": ledgers,
    }
    return await told(request, document)


async def restore(request: Request) -> Response:
    """Ledgers leave the lake for the bookies, in the background; ``restore`` of :func:`look` says how far it is."""
    topic = await _topic(request)
    part = _offload_of(topic)
    if part is not None:
        part.offloading.start_restore()
    return no_content()


async def get_policies(request: Request) -> Response:
    """The namespace's offload policies."""
    level = OFFLOAD_POLICIES.namespace
    assert level is not None
    policies = await context_of(request).resources.namespaces.get(namespace_of(request))
    value = level.reported(policies.document, context_of(request).cluster)
    return nothing_set() if value is None else json_response(value)


async def set_policies(request: Request) -> Response:
    """Set them."""
    namespace_of(request)
    body = await json_body(request)
    if body is None:
        raise PreconditionFailedError("The offloadPolicies must be specified for namespace offload.")
    value = OFFLOAD_POLICIES.check(body)
    if OFFLOAD_POLICIES.bound is not None:
        OFFLOAD_POLICIES.bound(value, context_of(request).policies.settings)
    return await _change(request, value)


async def remove_policies(request: Request) -> Response:
    """Remove them: what was offloaded stays where it is."""
    return await _change(request, None)


async def _change(request: Request, value: Json) -> Response:
    level, cluster = OFFLOAD_POLICIES.namespace, context_of(request).cluster
    assert level is not None
    return await change_policy(request, lambda document: level.changed(document, cluster, value), NO_NAMESPACE)


ROUTES = [
    Route("PUT", f"{TOPIC_PATH}/offload", trigger, TopicOperation.OFFLOAD),
    Route("GET", f"{TOPIC_PATH}/offload", status, TopicOperation.OFFLOAD),
    Route("PUT", f"{TOPIC_PATH}/lake/restore", restore, writing(PolicyName.OFFLOAD)),
    Route("GET", f"{TOPIC_PATH}/lake", look, TopicOperation.GET_STATS),
]
NAMESPACE_ROUTES = [
    Route("GET", f"{_NAMESPACE}/offloadPolicies", get_policies, reading(PolicyName.OFFLOAD)),
    Route("POST", f"{_NAMESPACE}/offloadPolicies", set_policies, writing(PolicyName.OFFLOAD)),
    Route("DELETE", f"{_NAMESPACE}/removeOffloadPolicies", remove_policies, writing(PolicyName.OFFLOAD)),
]
