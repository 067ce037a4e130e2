"""Topics truncated and trimmed."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Publish, Story, delete, get, post, put
from tools.interop.rest.tables.topics import OTHERS

_TOPIC: Final = "persistent/{ns}/t"
_PEEK: Final = f"{_TOPIC}/subscription/s/position/1"

STORIES: Final = [
    Story(
        "topics truncated",
        put(_TOPIC),
        put(f"{_TOPIC}/subscription/s", "earliest"),
        delete(f"{_TOPIC}/truncate"),
        Publish("persistent://{ns}/t", 3, {"batching_enabled": False}),
        get(_PEEK, exact=True),
        delete(f"{_TOPIC}/truncate"),
        get(f"{_TOPIC}/stats", values=("subscriptions.s.msgBacklog",)),
        delete(f"{_TOPIC}/truncate"),
        Publish("persistent://{ns}/t", 2, {"batching_enabled": False}),
        get(_PEEK, exact=True),
        post(f"{_TOPIC}/terminate"),
        delete(f"{_TOPIC}/truncate"),
        get(f"{_TOPIC}/stats", values=("subscriptions.s.msgBacklog",)),
        put("persistent/{ns}/p/partitions", 2),
        put("non-persistent/{ns}/n"),
        *(delete(f"{topic}/truncate") for topic in OTHERS),
        get(f"{_TOPIC}/truncate"),
        post(f"{_TOPIC}/truncate"),
    ),
    Story(
        "topics trimmed",
        put(_TOPIC),
        put(f"{_TOPIC}/subscription/s", "earliest"),
        post(f"{_TOPIC}/trim"),
        Publish("persistent://{ns}/t", 3, {"batching_enabled": False}),
        post(f"{_TOPIC}/trim"),
        get(_PEEK, exact=True),
        post(f"{_TOPIC}/trim", {}),
        put("persistent/{ns}/p/partitions", 2),
        put("non-persistent/{ns}/n"),
        *(post(f"{topic}/trim") for topic in OTHERS),
        get(f"{_TOPIC}/trim"),
    ),
]
