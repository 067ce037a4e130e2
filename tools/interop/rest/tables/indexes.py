"""Messages found by their index, at a broker that numbers them."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Publish, Story, get, post, put

_TOPIC: Final = "persistent/{ns}/t"
_INDEXES: Final = (
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "99",
    "-1",
    "x",
    "1.5",
    "",
    "9223372036854775807",
    "9223372036854775808",
)

STORIES: Final = [
    Story(
        "messages by index",
        put(_TOPIC),
        get(f"{_TOPIC}/getMessageIdByIndex?index=0"),
        get(f"{_TOPIC}/getMessageIdByIndex"),
        Publish("persistent://{ns}/t", 4, {"batching_enabled": False}),
        *(get(f"{_TOPIC}/getMessageIdByIndex?index={index}", values=("entryId",)) for index in _INDEXES),
        get(f"{_TOPIC}/getMessageIdByIndex"),
        get(f"{_TOPIC}/getMessageIdByIndex?index=2"),
        post(f"{_TOPIC}/getMessageIdByIndex?index=2"),
        put("persistent/{ns}/p/partitions", 2),
        put("non-persistent/{ns}/n"),
        *(
            get(f"{topic}/getMessageIdByIndex?index=0")
            for topic in (
                "persistent/{ns}/p",
                "persistent/{ns}/p-partition-0",
                "persistent/{ns}/nowhere",
                "persistent/public/nowhere/t",
                "non-persistent/{ns}/n",
            )
        ),
        Publish("persistent://{ns}/p-partition-1", 2, {"batching_enabled": False}),
        get("persistent/{ns}/p-partition-1/getMessageIdByIndex?index=1", values=("entryId", "partitionIndex")),
    ),
]
