"""Messages: peeked at, read by their ids, found by time; the backlog."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Publish, Story, get, post, put

_POSITIONS: Final = ("1", "2", "3", "4", "0", "-1", "x", "1.5", "10000", "10001", "2147483648")
_IDS: Final = ("0/0", "999999/0", "-1/-1", "-1/0", "x/0", "0/x", "1.5/0", "9223372036854775808/0")
_ENTRIES: Final = ("0", "1", "2", "3", "99", "-1", "x")
_TIMES: Final = ("0", "1", "-1", "x", "1.5", "4102444800000", "9223372036854775807", "9223372036854775808")
_TOPIC: Final = "persistent/{ns}/t"
_PEEK: Final = f"{_TOPIC}/subscription/s/position"

STORIES: Final = [
    Story(
        "peeking",
        put(_TOPIC),
        put(f"{_TOPIC}/subscription/s", "earliest"),
        *(get(f"{_PEEK}/{position}") for position in _POSITIONS),
        Publish("persistent://{ns}/t", 3, {"batching_enabled": False}),
        *(get(f"{_PEEK}/{position}", exact=True) for position in _POSITIONS),
        post(f"{_TOPIC}/subscription/s/skip/1"),
        *(get(f"{_PEEK}/{position}", exact=True) for position in _POSITIONS),
        get(f"{_TOPIC}/subscription/nobody/position/1", keys=False),
        get(f"{_TOPIC}/subscription/nobody/position/x"),
        put("persistent/{ns}/p/partitions", 2),
        put("persistent/{ns}/p/subscription/s", "earliest"),
        get("persistent/{ns}/p/subscription/s/position/1"),
        get("persistent/{ns}/p-partition-0/subscription/s/position/1"),
    ),
    Story(
        "messages by id",
        put(_TOPIC),
        *(get(f"{_TOPIC}/ledger/{place.replace('/', '/entry/')}") for place in _IDS),
        Publish("persistent://{ns}/t", 3, {"batching_enabled": False}),
        *(get(f"{_TOPIC}/ledger/{{ledger}}/entry/{entry}", exact=True) for entry in _ENTRIES),
        *(get(f"{_TOPIC}/ledger/{place.replace('/', '/entry/')}") for place in _IDS),
        put("persistent/{ns}/other"),
        get("persistent/{ns}/other/ledger/{ledger}/entry/0"),
        get("persistent/{ns}/nowhere/ledger/{ledger}/entry/0"),
    ),
    Story(
        "messages by time",
        put(_TOPIC),
        *(get(f"{_TOPIC}/messageid/{time}") for time in _TIMES),
        Publish("persistent://{ns}/t", 3, {"batching_enabled": False}),
        *(get(f"{_TOPIC}/messageid/{time}") for time in _TIMES),
        get(f"{_TOPIC}/lastMessageId"),
    ),
    Story(
        "backlog",
        put(_TOPIC),
        get(f"{_TOPIC}/backlog"),
    ),
]
