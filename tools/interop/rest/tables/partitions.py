"""Partitioned topics."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_COUNTS: Final = [1, "3", 2.0, 2.5, "2.0", 0, -1, "x", "", None, True, {}, [], [2], {"partitions": 2}, 1 << 31]
_METADATA: Final = [
    {"partitions": 2},
    {"partitions": 2, "properties": {"a": "1"}},
    {"partitions": "2", "properties": {"a": 1}},
    {"partitions": 2, "properties": []},
    {"partitions": 2, "other": 1},
    {"partitions": 2, "deleted": True},
    {"partitions": 0},
    {"partitions": None},
    {"properties": {}},
    {},
    [],
    2,
    None,
]
_TYPE: Final = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}

STORIES: Final = [
    Story(
        "partitions made",
        *(put(f"persistent/{{ns}}/p{number}/partitions", value) for number, value in enumerate(_COUNTS)),
        *(get(f"persistent/{{ns}}/p{number}/partitions", exact=True) for number in range(3)),
        *(put(f"non-persistent/{{ns}}/p{number}/partitions", value) for number, value in enumerate(_COUNTS)),
        put("persistent/{ns}/q/partitions"),
        put("persistent/{ns}/q/partitions", raw=b"{"),
        put("persistent/{ns}/q/partitions", 2, headers={"Content-Type": "text/plain"}),
        get("persistent/{ns}"),
        get("non-persistent/{ns}/partitioned"),
    ),
    Story(
        "partitions with properties",
        *(
            put(f"persistent/{{ns}}/p{number}/partitions", value, headers=_TYPE)
            for number, value in enumerate(_METADATA)
        ),
        *(get(f"persistent/{{ns}}/p{number}/partitions", exact=True) for number in range(len(_METADATA))),
        *(get(f"persistent/{{ns}}/p{number}/properties", exact=True) for number in range(3)),
        put("non-persistent/{ns}/n/partitions", {"partitions": 2, "properties": {"a": "1"}}, headers=_TYPE),
        get("non-persistent/{ns}/n/partitions", exact=True),
    ),
    Story(
        "partitions grow",
        put("persistent/{ns}/p/partitions", 2),
        *(post("persistent/{ns}/p/partitions", value) for value in (2, 1, 3, "4", 4.0, "x", "", 0, -1, {}, [])),
        post("persistent/{ns}/p/partitions"),
        post("persistent/{ns}/p/partitions?updateLocalTopicOnly=true", 5),
        post("persistent/{ns}/p/partitions?force=true", 6),
        get("persistent/{ns}/p/partitions", exact=True),
        post("persistent/{ns}/p-partition-0/partitions", 7),
        put("persistent/{ns}/p/subscription/s"),
        post("persistent/{ns}/p/partitions", 8),
        get("persistent/{ns}/p-partition-7/subscriptions", exact=True),
        put("persistent/{ns}/t"),
        post("persistent/{ns}/t/partitions", 3),
        put("non-persistent/{ns}/n/partitions", 2),
        post("non-persistent/{ns}/n/partitions", 3),
        post("non-persistent/{ns}/n/partitions", 2),
        get("non-persistent/{ns}/n/partitions", exact=True),
    ),
    Story(
        "partitions and plain topics of one name",
        put("persistent/{ns}/t"),
        put("persistent/{ns}/t/partitions", 2),
        put("persistent/{ns}/p/partitions", 2),
        put("persistent/{ns}/p"),
        put("persistent/{ns}/p/partitions", 2),
        put("persistent/{ns}/p/partitions", 3),
        put("persistent/{ns}/p-partition-0"),
        put("persistent/{ns}/p-partition-5"),
        put("persistent/{ns}/p-partition-0/partitions", 2),
        put("persistent/{ns}/q-partition-0"),
        put("persistent/{ns}/q/partitions", 2),
        put("non-persistent/{ns}/t/partitions", 2),
        put("non-persistent/{ns}/p"),
        get("persistent/{ns}", exact=True),
        get("persistent/{ns}/partitioned", exact=True),
        delete("persistent/{ns}/t/partitions"),
        delete("persistent/{ns}/p-partition-1"),
        post("persistent/{ns}/p/createMissedPartitions"),
        get("persistent/{ns}", exact=True),
        post("persistent/{ns}/t/createMissedPartitions"),
        delete("persistent/{ns}/p/partitions?force=perhaps"),
        delete("persistent/{ns}/p/partitions"),
    ),
    Story(
        "partitions asked for",
        get("persistent/{ns}/m/partitions"),
        get("persistent/{ns}/m/partitions?checkAllowAutoCreation=false"),
        get("persistent/{ns}/m/partitions?checkAllowAutoCreation=true", exact=True),
        get("persistent/{ns}/m/partitions", exact=True),
        get("non-persistent/{ns}/m/partitions"),
        get("non-persistent/{ns}/m/partitions?checkAllowAutoCreation=true", exact=True),
        get("persistent/{ns}/m-partition-3/partitions?checkAllowAutoCreation=true"),
        post(
            "namespaces/{ns}/autoTopicCreation",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        ),
        get("persistent/{ns}/a/partitions"),
        get("persistent/{ns}/a/partitions?checkAllowAutoCreation=true", exact=True),
        get("non-persistent/{ns}/a/partitions?checkAllowAutoCreation=true", exact=True),
        put("persistent/{ns}/b/subscription/s"),
        get("persistent/{ns}/b/partitions", exact=True),
        get("persistent/{ns}"),
    ),
]
