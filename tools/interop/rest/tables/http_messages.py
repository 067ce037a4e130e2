"""Publishing by REST."""

from __future__ import annotations

import base64
import json
from typing import Final

from tools.interop.rest.calls import Story, get, post, put


def _schema(kind: str, definition: str = "") -> str:
    encoded = base64.b64encode(definition.encode()).decode()
    return json.dumps({"name": "", "schema": encoded, "type": kind, "properties": {}})


def _body(*payloads: object, **more: object) -> dict[str, object]:
    return {"messages": [{"payload": payload} for payload in payloads], **more}


_RECORD: Final = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "int"}, {"name": "t", "type": ["null", "string"], "default": None}],
    }
)
_T: Final = "/topics/persistent/{ns}/"
#: Schema -> a payload that fits, and one that does not.
_PAYLOADS: Final = {
    "STRING": ("text", "äé"),
    "BYTES": ("text", ""),
    "BOOLEAN": ("true", "yes"),
    "INT8": ("-5", "300"),
    "INT16": ("300", "70000"),
    "INT32": ("70000", "x"),
    "INT64": ("5000000000", "1.5"),
    "FLOAT": ("1.5", "x"),
    "DOUBLE": ("-1.5", "x"),
    "TIMESTAMP": ("1700000000000", "x"),
    "TIME": ("1000", "x"),
    "INSTANT": ("2026-11-28T10:00:00Z", "x"),
    "LOCAL_DATE": ("2026-11-28", "x"),
    "LOCAL_TIME": ("10:00:00", "x"),
    "LOCAL_DATE_TIME": ("2026-11-28T10:00:00", "x"),
}

STORIES: Final = [
    Story(
        "published by rest",
        post(f"{_T}missing", _body("a")),
        put("persistent/{ns}/t"),
        post(f"{_T}t", _body("a"), exact=False),
        post(f"{_T}t", _body("a", "b", "c")),
        post(f"{_T}t", _body()),
        post(f"{_T}t", {}),
        post(f"{_T}t", raw=b""),
        post(f"{_T}t"),
        post(f"{_T}t", raw=b"{"),
        post(f"{_T}t", raw=b"[]"),
        post(f"{_T}t", {"messages": 5}),
        post(f"{_T}t", {"messages": [{}]}),
        post(f"{_T}t", _body(None)),
        post(f"{_T}t", _body(5)),
        post(f"{_T}t", _body({"a": 1})),
        post(f"{_T}t", raw=b'{"messages":[{"payload":"a"}]}', headers={"Content-Type": "text/plain"}),
        post(
            f"{_T}t",
            {
                "producerName": "me",
                "messages": [
                    {
                        "payload": "a",
                        "key": "k",
                        "properties": {"a": "b"},
                        "eventTime": "1700000000000",
                        "sequenceId": 3,
                        "replicationClusters": ["standalone"],
                        "context": "c",
                    },
                    {"payload": "b", "disableReplication": True, "deliverAfterMs": 5, "eventTime": "1700000000000"},
                ],
            },
        ),
        post(f"{_T}t", {"messages": [{"payload": "a", "sequenceId": "x"}]}),
        post(f"{_T}t", {"messages": [{"payload": "a", "eventTime": "x"}]}),
        post(f"{_T}t", {"messages": [{"payload": "a", "properties": {"a": 1}}]}),
        post(f"{_T}t", {"messages": [{"payload": "a", "unknown": 1}], "unknown": 1}),
        post(f"{_T}t", _body("a", schemaVersion=0)),
        post(f"{_T}t", _body("a", schemaVersion=99)),
        post(f"{_T}t", _body("a", valueSchema="{")),
        post(f"{_T}t", _body("a", valueSchema="")),
        post(f"{_T}t", _body("1", valueSchema=_schema("INT32"))),
        get(f"{_T}t"),
        post("/topics/persistent/public/nowhere/t", _body("a")),
        post("/topics/other/{ns}/t", _body("a")),
        get("persistent/{ns}/t/stats", values=("msgInCounter",)),
    ),
    Story(
        "published by rest to partitions",
        put("persistent/{ns}/p/partitions", 3),
        post(f"{_T}p", _body("a", "b", "c", "d")),
        post(f"{_T}p/partitions/1", _body("a", "b")),
        post(f"{_T}p/partitions/7", _body("a")),
        post(f"{_T}p/partitions/-1", _body("a")),
        post(f"{_T}p/partitions/x", _body("a")),
        post(f"{_T}p-partition-0", _body("a")),
        post(f"{_T}p-partition-0/partitions/0", _body("a")),
        put("persistent/{ns}/single"),
        post(f"{_T}single/partitions/0", _body("a")),
    ),
    Story(
        "published by rest without being stored",
        put("non-persistent/{ns}/t"),
        post("/topics/non-persistent/{ns}/t", _body("a", "b")),
        put("non-persistent/{ns}/p/partitions", 2),
        post("/topics/non-persistent/{ns}/p", _body("a", "b")),
        post("/topics/non-persistent/{ns}/p/partitions/1", _body("a")),
    ),
    Story(
        "published by rest with a schema",
        *(
            step
            for kind, (good, bad) in _PAYLOADS.items()
            for step in (
                put(f"persistent/{{ns}}/{kind}"),
                post(f"{_T}{kind}", _body(good, valueSchema=_schema(kind))),
                post(f"{_T}{kind}", _body(bad, valueSchema=_schema(kind))),
            )
        ),
        put("persistent/{ns}/json"),
        post(f"{_T}json", _body('{"n":1,"t":null}', valueSchema=_schema("JSON", _RECORD))),
        post(f"{_T}json", _body("no json", valueSchema=_schema("JSON", _RECORD))),
        put("persistent/{ns}/avro"),
        post(f"{_T}avro", _body('{"n":1,"t":{"string":"x"}}', valueSchema=_schema("AVRO", _RECORD))),
        post(f"{_T}avro", _body('{"n":"x","t":null}', valueSchema=_schema("AVRO", _RECORD))),
        post(f"{_T}avro", _body('{"n":1,"t":null}', schemaVersion=0)),
        post(f"{_T}avro", _body("a", valueSchema=_schema("STRING"))),
        put("persistent/{ns}/keyed"),
        post(
            f"{_T}keyed",
            {
                "keySchema": _schema("INT32"),
                "valueSchema": _schema("STRING"),
                "messages": [{"key": "7", "payload": "v"}],
            },
        ),
        get("schemas/{ns}/keyed/schema", keys=False),
    ),
]
