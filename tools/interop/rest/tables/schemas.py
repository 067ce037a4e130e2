"""Schemas of topics."""

from __future__ import annotations

import json
from typing import Any, Final

from tools.interop.rest.calls import Publish, Story, delete, get, post, put


def _record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


_A: Final = _record({"name": "a", "type": "int"})
_AB: Final = _record({"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None})
_OTHER: Final = _record({"name": "a", "type": "string"})


def _schema(kind: object, text: object = "", **more: object) -> dict[str, Any]:
    return {"type": kind, "schema": text, "properties": {}, **more}


_BODIES: Final = [
    _schema("STRING"),
    _schema("STRING", properties={"a": "1"}),
    _schema("STRING", properties={"a": 1}),
    _schema("STRING", properties=None),
    {"type": "STRING", "schema": ""},
    {"type": "STRING"},
    _schema("AVRO", _A),
    _schema("JSON", _A),
    _schema("AVRO", ""),
    _schema("JSON", ""),
    _schema("AVRO", "{"),
    _schema("JSON", "no schema"),
    _schema("JSON", "{}"),
    _schema("AVRO", '{"type":"nothing"}'),
    _schema("AVRO", 5),
    _schema("INT32"),
    _schema("INT32", "x"),
    _schema("BOOLEAN"),
    _schema("BYTES"),
    _schema("NONE"),
    _schema("AUTO_CONSUME"),
    _schema("PROTOBUF", _A),
    _schema("PROTOBUF_NATIVE", "x"),
    _schema("KEY_VALUE", '{"key":"","value":""}'),
    _schema("KEY_VALUE", "x"),
    _schema("KEY_VALUE", ""),
    _schema("avro", _A),
    _schema("NOTHING", _A),
    _schema("", _A),
    _schema(None, _A),
    _schema(5, _A),
    {"schema": _A},
    {**_schema("AVRO", _A), "other": 1},
    {},
    [],
    "text",
    5,
    None,
]
_VERSIONS: Final = ("0", "1", "2", "3", "99", "-1", "x", "1.5", "9223372036854775808")
_T: Final = "schemas/{ns}/t"
#: Where no schema can be looked for.
_NOWHERE: Final = (
    "schemas/{ns}/m",
    "schemas/public/nowhere/t",
    "schemas/nobody/nowhere/t",
    "schemas/public/no%20space/t",
)

STORIES: Final = [
    Story(
        "schemas where there are none",
        put("persistent/{ns}/t"),
        *(
            call
            for base in (_T, *_NOWHERE)
            for call in (
                get(f"{base}/schema"),
                get(f"{base}/schema/0"),
                get(f"{base}/schema/-1"),
                get(f"{base}/schema/x"),
                get(f"{base}/schemas", exact=True),
                post(f"{base}/version", _schema("AVRO", _A)),
                post(f"{base}/compatibility", _schema("AVRO", _A)),
                delete(f"{base}/schema"),
                delete(f"{base}/schema?force=true"),
            )
        ),
    ),
    Story(
        "schemas given to where there are none",
        *(
            call
            for base in _NOWHERE
            for call in (post(f"{base}/schema", _schema("AVRO", _A), exact=True), get(f"{base}/schema"))
        ),
        get("persistent/{ns}", exact=True),
    ),
    Story(
        "schema bodies",
        *(put(f"persistent/{{ns}}/t{number}") for number in range(len(_BODIES))),
        *(post(f"schemas/{{ns}}/t{number}/schema", body, exact=True) for number, body in enumerate(_BODIES)),
        *(get(f"schemas/{{ns}}/t{number}/schema") for number in range(len(_BODIES))),
        post("schemas/{ns}/t/schema"),
        post("schemas/{ns}/t/schema", raw=b"{"),
    ),
    Story(
        "schema versions",
        put("persistent/{ns}/t"),
        post(f"{_T}/schema", _schema("AVRO", _A), exact=True),
        post(f"{_T}/schema", _schema("AVRO", _A), exact=True),
        post(f"{_T}/schema", _schema("AVRO", _AB), exact=True),
        post(f"{_T}/schema", _schema("AVRO", _OTHER), exact=True),
        post(f"{_T}/schema", _schema("STRING"), exact=True),
        get(f"{_T}/schema"),
        get(f"{_T}/schemas"),
        *(get(f"{_T}/schema/{version}") for version in _VERSIONS),
        *(post(f"{_T}/version", body, exact=True) for body in _BODIES),
        post(f"{_T}/version", _schema("AVRO", _AB), exact=True),
        post(f"{_T}/version", _schema("AVRO", _OTHER), exact=True),
        *(post(f"{_T}/compatibility", body, exact=True) for body in _BODIES),
        post(f"{_T}/compatibility", _schema("AVRO", _AB), exact=True),
        post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
    ),
    Story(
        "schemas deleted",
        put("persistent/{ns}/t"),
        post(f"{_T}/schema", _schema("AVRO", _A)),
        post(f"{_T}/schema", _schema("AVRO", _AB)),
        delete(f"{_T}/schema"),
        *(get(f"{_T}/schema/{version}") for version in _VERSIONS),
        get(f"{_T}/schema"),
        get(f"{_T}/schemas", exact=True),
        post(f"{_T}/version", _schema("AVRO", _A), exact=True),
        post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
        delete(f"{_T}/schema"),
        post(f"{_T}/schema", _schema("AVRO", _OTHER)),
        *(get(f"{_T}/schema/{version}") for version in _VERSIONS),
        get(f"{_T}/schemas"),
        delete(f"{_T}/schema?force=true"),
        delete(f"{_T}/schema?force=true"),
        *(get(f"{_T}/schema/{version}") for version in _VERSIONS),
        get(f"{_T}/schemas", exact=True),
        post(f"{_T}/schema", _schema("AVRO", _A), exact=True),
        delete("persistent/{ns}/t"),
        get(f"{_T}/schema"),
    ),
    Story(
        "schemas of partitions",
        put("persistent/{ns}/p/partitions", 2),
        post("schemas/{ns}/p/schema", _schema("AVRO", _A), exact=True),
        get("schemas/{ns}/p/schema"),
        get("schemas/{ns}/p-partition-0/schema"),
        get("schemas/{ns}/p-partition-0/schema/0"),
        get("schemas/{ns}/p-partition-9/schema"),
        post("schemas/{ns}/p-partition-0/schema", _schema("AVRO", _AB), exact=True),
        get("schemas/{ns}/p/schemas"),
        delete("schemas/{ns}/p-partition-0/schema"),
        get("schemas/{ns}/p/schema"),
    ),
    Story(
        "schemas by strategy",
        put("persistent/{ns}/t"),
        post(f"{_T}/schema", _schema("AVRO", _A), exact=True),
        *(
            call
            for strategy in (
                "ALWAYS_COMPATIBLE",
                "ALWAYS_INCOMPATIBLE",
                "BACKWARD",
                "FORWARD",
                "FULL_TRANSITIVE",
                "UNDEFINED",
            )
            for call in (
                put("namespaces/{ns}/schemaCompatibilityStrategy", strategy),
                post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
                post(f"{_T}/compatibility", _schema("AVRO", _AB), exact=True),
                post(f"{_T}/compatibility", _schema("STRING"), exact=True),
            )
        ),
        Publish("persistent://{ns}/u", 1),
        post("schemas/{ns}/u/schema", _schema("AVRO", _A)),
        get("schemas/{ns}/u/schema"),
    ),
    Story(
        "schema metadata",
        put("persistent/{ns}/t"),
        *(get(f"{base}/metadata") for base in (_T, *_NOWHERE)),
        post(f"{_T}/schema", _schema("AVRO", _A)),
        get(f"{_T}/metadata", values=("info.version", "info.entryId")),
        post(f"{_T}/schema", _schema("AVRO", _AB)),
        get(f"{_T}/metadata", values=("info.version", "info.entryId")),
        delete(f"{_T}/schema"),
        get(f"{_T}/metadata", values=("info.version", "info.entryId")),
        delete(f"{_T}/schema?force=true"),
        get(f"{_T}/metadata"),
        put("persistent/{ns}/p/partitions", 2),
        post("schemas/{ns}/p/schema", _schema("AVRO", _A)),
        get("schemas/{ns}/p/metadata"),
        get("schemas/{ns}/p-partition-0/metadata"),
        get("schemas/{ns}/p-partition-9/metadata"),
        get("schemas/{ns}/%20/metadata"),
        post(f"{_T}/metadata"),
    ),
    Story(
        "schemas by the old strategy",
        put("persistent/{ns}/t"),
        post(f"{_T}/schema", _schema("AVRO", _A)),
        *(
            call
            for strategy in (
                "AlwaysCompatible",
                "AutoUpdateDisabled",
                "Backward",
                "Forward",
                "Full",
                "BackwardTransitive",
                "ForwardTransitive",
                "FullTransitive",
            )
            for call in (
                put("namespaces/{ns}/schemaAutoUpdateCompatibilityStrategy", strategy),
                get("namespaces/{ns}/schemaAutoUpdateCompatibilityStrategy", exact=True),
                post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
                post(f"{_T}/compatibility", _schema("AVRO", _AB), exact=True),
                get("namespaces/{ns}/schemaCompatibilityStrategy", exact=True),
            )
        ),
        put("namespaces/{ns}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE"),
        post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
        put("namespaces/{ns}/schemaCompatibilityStrategy", "UNDEFINED"),
        post(f"{_T}/compatibility", _schema("AVRO", _OTHER), exact=True),
    ),
]
