"""Looks at what a topic stores: a message by its number, bytes behind a message, what a subscription has to read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tools.interop.rest.calls import Call, Publish, Story, get, post, put
from tools.interop.rest.tables.topics import OTHERS

_TOPIC: Final = "persistent/{ns}/t"
_STARTS: Final = (
    "",
    "?initialPosition=earliest",
    "?initialPosition=latest",
    "?initialPosition=middle",
    "?initialPosition=EARLIEST",
    "?initialPosition=",
)
_NUMBERS: Final = (
    "1",
    "2",
    "3",
    "4",
    "5",
    "0",
    "-1",
    "x",
    "1.5",
    "",
    "%2B2",
    "9223372036854775807",
    "9223372036854775808",
)
_ONE_BY_ONE: Final[dict[str, Any]] = {"batching_enabled": False}


def _id(ledger: object, entry: object, **more: object) -> dict[str, object]:
    return {"ledgerId": ledger, "entryId": entry, **more}


_IDS: Final = [
    _id(-1, -1),
    _id(-1, 5),
    _id("{ledger}", -1),
    _id("{ledger}", 0),
    _id("{ledger}", 1),
    _id("{ledger}", 2),
    _id("{ledger}", 3),
    _id("{ledger}", 99),
    _id("{ledger}", -5),
    _id(0, 0),
    _id(-2, 0),
    _id(1 << 40, 0),
    _id((1 << 63) - 1, (1 << 63) - 1),
    _id(1 << 63, 0),
    _id(0, 1 << 63),
    _id("{ledger}", 0, partitionIndex=-1),
    _id("{ledger}", 0, partitionIndex=7),
    _id("{ledger}", 0, batchIndex=0),
    _id("{ledger}", 0, nothing=1),
    _id("x", 0),
    _id(1.5, 0),
    _id("0", "0"),
    _id(None, 0),
    {"ledgerId": 0},
    {"entryId": 0},
    {},
    "earliest",
    "latest",
    "text",
    5,
    [],
    None,
]
_COUNTS: Final = ("entries", "messages", "markerMessages", "aborted")


def _analyze(where: str, body: object = None, *, raw: bytes | None = None) -> Call:
    call = post(where, raw=raw) if raw is not None else post(where, body)
    return replace(call, values=_COUNTS)


def _examined(topic: str) -> str:
    return f"{topic}/examinemessage?initialPosition=earliest&messagePosition=1"


STORIES: Final = [
    Story(
        "messages examined",
        put(_TOPIC),
        get(f"{_TOPIC}/examinemessage"),
        get(_examined(_TOPIC)),
        Publish("persistent://{ns}/t", 3, _ONE_BY_ONE),
        *(get(f"{_TOPIC}/examinemessage{start}", exact=True) for start in _STARTS),
        *(
            get(f"{_TOPIC}/examinemessage?initialPosition={start}&messagePosition={number}", exact=True)
            for start in ("earliest", "latest")
            for number in _NUMBERS
        ),
        Publish("persistent://{ns}/t", 1, _ONE_BY_ONE),
        get(f"{_TOPIC}/examinemessage?messagePosition=2", exact=True),
        post(f"{_TOPIC}/examinemessage"),
    ),
    Story(
        "bytes behind a message",
        put(_TOPIC),
        *(put(f"{_TOPIC}/backlogSize", body) for body in _IDS),
        Publish("persistent://{ns}/t", 3, _ONE_BY_ONE),
        *(put(f"{_TOPIC}/backlogSize", body) for body in _IDS),
        put(f"{_TOPIC}/backlogSize"),
        put(f"{_TOPIC}/backlogSize", raw=b"{"),
        put(f"{_TOPIC}/backlogSize", _id(0, 0), headers={"Content-Type": "text/plain"}),
        get(f"{_TOPIC}/backlogSize"),
    ),
    Story(
        "backlogs analyzed",
        put(_TOPIC),
        put(f"{_TOPIC}/subscription/s", "earliest"),
        post(f"{_TOPIC}/subscription/s/analyzeBacklog"),
        _analyze(f"{_TOPIC}/subscription/s/analyzeBacklog"),
        Publish("persistent://{ns}/t", 3, _ONE_BY_ONE),
        Publish("persistent://{ns}/t", 2),
        post(f"{_TOPIC}/subscription/s/analyzeBacklog"),
        *(_analyze(f"{_TOPIC}/subscription/s/analyzeBacklog", body) for body in _IDS),
        _analyze(f"{_TOPIC}/subscription/s/analyzeBacklog", raw=b"{"),
        post(f"{_TOPIC}/subscription/s/skip/2"),
        _analyze(f"{_TOPIC}/subscription/s/analyzeBacklog"),
        post(f"{_TOPIC}/subscription/s/skip_all"),
        _analyze(f"{_TOPIC}/subscription/s/analyzeBacklog"),
        _analyze(f"{_TOPIC}/subscription/s/analyzeBacklog", _id("{ledger}", 0)),
        _analyze(f"{_TOPIC}/subscription/nobody/analyzeBacklog"),
        get(f"{_TOPIC}/subscription/s/analyzeBacklog"),
    ),
    Story(
        "looks at other topics",
        put("persistent/{ns}/p/partitions", 2),
        put("persistent/{ns}/p/subscription/s", "earliest"),
        put("non-persistent/{ns}/n"),
        *(
            call
            for topic in OTHERS
            for call in (
                get(_examined(topic)),
                get(f"{topic}/getMessageIdByIndex?index=0"),
                put(f"{topic}/backlogSize", _id(0, 0)),
                post(f"{topic}/subscription/s/analyzeBacklog"),
            )
        ),
        put(_TOPIC),
        get(f"{_TOPIC}/getMessageIdByIndex"),
        get(f"{_TOPIC}/getMessageIdByIndex?index=0"),
        get(f"{_TOPIC}/getMessageIdByIndex?index=x"),
        get(f"{_TOPIC}/getMessageIdByIndex?index=-1"),
    ),
]
