"""``scanOffloadedLedgers``: each file of a namespace's ledgers in the lake, and whether a topic has it.

Statuses are Pulsar's: OK; NOT-FOUND, no topic of that directory names the ledger; NOT-OFFLOADED, it is not registered
as offloaded; BAD-UUID, another file of it is; UNKNOWN, no name of a ledger's file. All but OK are files that nobody
reads.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import PolicyName, reading
from geminga.broker.policies.core.storage_rows import OFFLOAD_POLICIES
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import context_of, json_response, namespace_of
from geminga.broker.rest.calls.routing import Route
from geminga.model.errors import ConfigurationError, PreconditionFailedError
from geminga.wire.managed_ledger.offload_context import decode_offload_context

if TYPE_CHECKING:
    from geminga.broker.rest.calls.context import RestContext
    from geminga.lake.service import Root
    from geminga.lake.store import StoredFile
    from geminga.wire.managed_ledger import LedgerRecord

#: Files that are told one by one; all are counted.
OBJECTS_MAX: Final = 10_000
_DOMAIN: Final = "persistent"


async def scan(request: Request) -> Response:
    """Look at the files of all topics of a namespace. 412: it has no lake."""
    context, namespace = context_of(request), namespace_of(request)
    root = await _root(context, namespace)
    from geminga.lake.core.names import topic_directory

    prefix = f"{namespace}/{_DOMAIN}"
    names = {
        topic_directory(f"{prefix}/{encoded}"): f"{prefix}/{encoded}"
        for encoded in await context.ledgers.encoded_names(prefix)
    }
    waiting = {(one.name, one.uid) for one in await context.ledgers.lake_deletions()}
    steps, counts = context.topics.steps(), Counter[str]()
    objects: list[Json] = []
    for directory in await root.directories(prefix):
        path = f"{prefix}/{directory}"
        name = names.get(path)
        records = await _records(context, name)
        for file in await root.list(path):
            await steps.next()
            found = _object(root, path, file, name, records, waiting)
            counts[str(found["status"])] += 1
            if len(objects) < OBJECTS_MAX:
                objects.append(found)
    total, unknown = sum(counts.values()), counts["UNKNOWN"]
    document: Document = {
        "objects": objects,
        "total": total,
        "errors": total - unknown - counts["OK"],
        "unknown": unknown,
    }
    return json_response(document)


async def _root(context: RestContext, namespace: str) -> Root:
    # Loaded by who asks, not with the rows of namespaces.
    from geminga.broker.policies.core.offload import Older, offload_policy

    policies = (await context.resources.namespaces.get(namespace)).document
    level = OFFLOAD_POLICIES.namespace
    assert level is not None
    value = level.reported(policies, context.cluster)
    try:
        policy = offload_policy(value if isinstance(value, dict) else None, Older(), context.ledgers.config)
    except ConfigurationError as error:
        raise PreconditionFailedError(f"{error}") from error
    if not policy.driver:
        raise PreconditionFailedError(f"no offload driver is set for namespace {namespace}: there is nothing to scan")
    return await context.ledgers.lake().root(policy.driver, policy.properties)


async def _records(context: RestContext, name: str | None) -> dict[int, LedgerRecord]:
    """What a managed ledger's node says of its ledgers; nothing where it is not there."""
    info = None if name is None else await context.ledgers.info(name)
    return {} if info is None else {record.ledger_id: record for record in info.record.ledgers}


def _object(
    root: Root,
    path: str,
    file: StoredFile,
    name: str | None,
    records: dict[int, LedgerRecord],
    waiting: set[tuple[str, str]],
) -> Document:
    from geminga.lake.core.names import parse_ledger_file

    found: Document = {"name": f"{path}/{file.name}", "uri": f"{root.where}/{path}/{file.name}"}
    found |= {"size": file.size_bytes, "managedLedgerName": name or ""}
    parsed = parse_ledger_file(file.name)
    if parsed is None:
        return {**found, "status": "UNKNOWN"}
    found |= {"ledger": parsed.ledger_id, "uuid": parsed.uid, "deletionWaits": (name, parsed.uid) in waiting}
    record = records.get(parsed.ledger_id)
    if record is None:
        return {**found, "status": "NOT-FOUND"}
    registered = decode_offload_context(record.offload_context) if record.offload_context else None
    is_offloaded = registered is not None and registered.is_complete
    found |= {"numEntries": record.entries, "offloaded": is_offloaded}
    if registered is None or not is_offloaded:
        return {**found, "status": "NOT-OFFLOADED"}
    return {**found, "status": "OK" if registered.uid == parsed.uid else "BAD-UUID"}


ROUTES = [
    Route("GET", "/admin/v2/namespaces/{tenant}/{namespace}/scanOffloadedLedgers", scan, reading(PolicyName.OFFLOAD)),
]
