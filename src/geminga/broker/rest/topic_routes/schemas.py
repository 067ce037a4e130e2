"""``/admin/v2/schemas``: the schemas of a topic: read, add, compare, delete.

A partition stands for its topic. Paths name no domain, as in Pulsar. In bodies the definition is a text; that of a
KEY_VALUE schema is JSON with ``key`` and ``value``.
"""

from __future__ import annotations

import json
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from geminga.broker.access.core.actions import TenantAdministration, TopicOperation
from geminga.broker.admission.topic_schemas import Schemas
from geminga.broker.core.coercion import LONG_MAX, VALUES_MAX, has_too_many_values, object_of, text_of
from geminga.broker.resources.documents import Document, Json
from geminga.broker.rest.calls.requests import (
    RestError,
    context_of,
    flag,
    json_response,
    nothing_set,
    object_body,
    path_int,
    topic_of,
)
from geminga.broker.rest.calls.routing import Route
from geminga.broker.schema.core.storage_format import IndexEntry, StoredSchema
from geminga.broker.schema.registry import SchemaRegistry, schema_id_of
from geminga.model.errors import IncompatibleSchemaError, InvalidSchemaError, NotFoundError
from geminga.model.topic_name import TopicName
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType, join_key_value, key_value_parts

#: What a topic without any live schema has as its version.
NO_VERSION: Final = -1


async def get_schema(request: Request) -> Response:
    """The newest schema."""
    found = await _registry(request).latest(schema_id_of(_topic(request)))
    return json_response(_schema_json(_require(found)))


async def get_version(request: Request) -> Response:
    """The schema of a version; one from before the last deletion is not there any more."""
    name, version = _topic(request), path_int(request, "version", LONG_MAX)
    return json_response(_schema_json(_require(await _registry(request).live_version(schema_id_of(name), version))))


async def get_schemas(request: Request) -> Response:
    """All versions since the last deletion, oldest first."""
    found = await _registry(request).live(schema_id_of(_topic(request)))
    versions: list[Json] = [_schema_json(schema) for schema in found]
    return json_response({"getSchemaResponses": versions})


async def get_metadata(request: Request) -> Response:
    """Which entries hold the topic's versions, and the newest of them, deleted or not; no body if there is none."""
    locator = await _registry(request).locator(schema_id_of(_topic(request)))
    if locator is None:
        return nothing_set()
    index: list[Json] = [_place_json(entry) for entry in locator.index]
    return json_response({"info": _place_json(locator.newest), "index": index})


async def post_schema(request: Request) -> Response:
    """Add a schema if it fits; answers its version, also if it was there."""
    name, info = await _topic_in_namespace(request), await _schema_body(request)
    schemas = _schemas(request)
    # An administrator may add schemas where producers may not.
    version = await schemas.registry.put_if_absent(schema_id_of(name), info, await schemas.strategy(name))
    return json_response({"version": {"version": version}})


async def delete_schema(request: Request) -> Response:
    """Delete: leave a mark behind which new schemas count on, or with ``force`` remove every version.

    Nothing is done where there is none, and that is no error.
    """
    name, registry = await _topic_in_namespace(request, "Tenant does not exist"), _registry(request)
    if flag(request, "force"):
        await registry.delete(schema_id_of(name))
        return json_response({"version": NO_VERSION})
    version = await registry.mark_deleted(schema_id_of(name))
    return json_response({"version": NO_VERSION if version is None else version})


async def find_version(request: Request) -> Response:
    """Which version a schema is; -1 if it is none."""
    name, info = _topic(request), await _schema_body(request)
    try:
        version = await _registry(request).find_version(schema_id_of(name), info)
    except InvalidSchemaError:
        version = None  # what is no schema was never added
    return json_response({"version": NO_VERSION if version is None else version})


async def check_compatibility(request: Request) -> Response:
    """Whether a schema could be added, and by which strategy; 409 says why not, as in Pulsar."""
    name, info = await _topic_in_namespace(request, "Tenant does not exist"), await _schema_body(request)
    schemas = _schemas(request)
    strategy = await schemas.strategy(name)
    try:
        await schemas.registry.check(schema_id_of(name), info, strategy)
    except IncompatibleSchemaError:
        # Any schema fits where there is none.
        if await schemas.registry.live(schema_id_of(name)):
            raise
    return json_response({"compatibility": True, "schemaCompatibilityStrategy": strategy.value}, 202)


# ---- names and bodies


def _schemas(request: Request) -> Schemas:
    return context_of(request).schemas


def _registry(request: Request) -> SchemaRegistry:
    return _schemas(request).registry


def _topic(request: Request) -> TopicName:
    return topic_of(request, "persistent")


async def _topic_in_namespace(request: Request, no_tenant: str = "") -> TopicName:
    """The topic; 404 without its namespace, and with ``no_tenant`` without its tenant, where that is said by itself."""
    name, resources = _topic(request), context_of(request).resources
    if no_tenant and not await resources.tenants.exists(name.tenant):
        raise NotFoundError(no_tenant)
    await resources.namespaces.get(name.namespace)
    return name


def _require(found: StoredSchema | None) -> StoredSchema:
    if found is None:
        raise NotFoundError("Schema not found")
    return found


async def _schema_body(request: Request) -> SchemaInfo:
    document = await object_body(request, None)
    kind, given = document.get("type"), document.get("properties")
    if not isinstance(kind, str) or kind not in SchemaType.__members__:
        raise RestError(400, f"type must be one of {', '.join(SchemaType.__members__)}")
    text = text_of(document.get("schema"), "schema")
    properties = {} if given is None else object_of(given, "properties")
    definition = _key_value_definition(text) if kind == SchemaType.KEY_VALUE.name else text.encode()
    return SchemaInfo("", SchemaType[kind], definition, {key: text_of(value, key) for key, value in properties.items()})


def _key_value_definition(text: str) -> bytes:
    if has_too_many_values(text):
        raise RestError(413, f"the schema has more than {VALUES_MAX} JSON values")
    try:
        document = json.loads(text)
        key, value = _part_bytes(document["key"]), _part_bytes(document["value"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidSchemaError('a KEY_VALUE schema is given as {"key": ..., "value": ...}') from error
    return join_key_value(key, value)


def _part_bytes(part: Json) -> bytes:
    """Of a part that has no definition: an empty text or object, as Pulsar's tools give it. Raises ValueError for half
    of a character, which JSON can write."""
    if part in ("", {}, None):
        return b""
    return part.encode() if isinstance(part, str) else json.dumps(part, separators=(",", ":")).encode()


def _place_json(entry: IndexEntry) -> Document:
    return {"ledgerId": entry.position.ledger_id, "entryId": entry.position.entry_id, "version": entry.version}


def _schema_json(schema: StoredSchema) -> Document:
    info = schema.info
    return {
        "version": schema.version,
        "type": info.type.name,
        "timestamp": schema.timestamp_ms,
        "data": _key_value_text(info) if info.type is SchemaType.KEY_VALUE else _text(info.schema),
        "properties": {**info.properties},
    }


def _key_value_text(info: SchemaInfo) -> str:
    try:
        parts = key_value_parts(info)
    except ValueError as error:
        raise IncompatibleSchemaError(f"the stored KEY_VALUE schema can not be read: {error}") from error
    document: Document = {"key": _part_json(parts.key), "value": _part_json(parts.value)}
    return json.dumps(document, separators=(",", ":"))


def _part_json(info: SchemaInfo) -> Json:
    text = _text(info.schema)
    if not text or not (info.type.is_avro_based or info.type is SchemaType.PROTOBUF_NATIVE):
        return text
    value: Json = json.loads(text)
    return value


def _text(definition: bytes) -> str:
    return definition.decode(errors="replace")


_TOPIC: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"

ROUTES = [
    Route("GET", f"{_TOPIC}/schema", get_schema, TopicOperation.GET_METADATA),
    Route("POST", f"{_TOPIC}/schema", post_schema, TopicOperation.PRODUCE),
    Route("DELETE", f"{_TOPIC}/schema", delete_schema, TopicOperation.PRODUCE),
    Route("GET", f"{_TOPIC}/schema/{{version}}", get_version, TopicOperation.GET_METADATA),
    Route("GET", f"{_TOPIC}/schemas", get_schemas, TopicOperation.GET_METADATA),
    Route("GET", f"{_TOPIC}/metadata", get_metadata, TopicOperation.GET_METADATA),
    Route("POST", f"{_TOPIC}/version", find_version, TopicOperation.GET_METADATA),
    Route("POST", f"{_TOPIC}/compatibility", check_compatibility, TenantAdministration.TRY_SCHEMA),
]
