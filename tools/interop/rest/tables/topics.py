"""Topics: each operation on each kind of topic, and odd input to those that take some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tools.interop.rest.calls import Call, Publish, Story, delete, get, post, put

#: Other topics than a plain one: a partitioned one, its first partition and one it has not; what is not there, in a
#: namespace and a tenant that are not there too; one without storage, and one that is not there; and no name at all.
OTHERS: Final = (
    "persistent/{ns}/p",
    "persistent/{ns}/p-partition-0",
    "persistent/{ns}/p-partition-9",
    "persistent/{ns}/nowhere",
    "persistent/public/nowhere/t",
    "persistent/nobody/nowhere/t",
    "non-persistent/{ns}/n",
    "non-persistent/{ns}/nowhere",
    "persistent/{ns}/%20",
)
#: A plain topic, a partitioned one, its first partition and one it has not, what is not there, and the same without
#: storage; a namespace and a tenant that are not there.
KINDS: Final = (
    "persistent/{ns}/t",
    "persistent/{ns}/p",
    "persistent/{ns}/p-partition-0",
    "persistent/{ns}/p-partition-7",
    "persistent/{ns}/m",
    "persistent/{ns}/m-partition-0",
    "non-persistent/{ns}/nt",
    "non-persistent/{ns}/np",
    "non-persistent/{ns}/np-partition-0",
    "non-persistent/{ns}/nm",
    "persistent/public/nowhere/t",
    "persistent/nobody/nowhere/t",
    "persistent/public/no%20space/t",
)


#: Where Apache's answer is another one from time to time: it names the partition that failed first.
_NOT_SETTLED: Final = {
    ("p", "POST /subscription/nobody/resetcursor/0"),
    ("np", "POST /subscription/nobody/resetcursor/0"),
    ("np", "POST /subscription/s/resetcursor/0"),
    ("np-partition-0", "PUT /partitions"),
}


def prepared(*, messages: int = 0, subscriptions: bool = True) -> Iterator[Call | Publish]:
    """What the kinds need: topics, subscriptions ``s`` and messages."""
    yield put("persistent/{ns}/t")
    yield put("persistent/{ns}/p/partitions", 2)
    yield put("non-persistent/{ns}/nt")
    yield put("non-persistent/{ns}/np/partitions", 2)
    if subscriptions:
        yield put("persistent/{ns}/t/subscription/s", "earliest")
        yield put("persistent/{ns}/p/subscription/s", "earliest")
    if messages:
        yield Publish("persistent://{ns}/p-partition-0", messages)
        yield Publish("persistent://{ns}/t", messages)


def on_each(method: str, suffix: str, *rest: object, keys: bool = True) -> Iterator[Call]:
    """A call on each kind of topic; ``rest`` is the body."""
    calls: dict[str, Callable[..., Call]] = {"PUT": put, "POST": post, "DELETE": delete}
    for kind in KINDS:
        path = f"{kind}{suffix}"
        if (kind.rpartition("/")[2], f"{method} {suffix}") not in _NOT_SETTLED:
            yield get(path, keys=keys) if method == "GET" else calls[method](path, *rest)


#: Without ``backlog``, which Apache's broker does not answer.
_READS: Final = (
    "/partitions",
    "/subscriptions",
    "/lastMessageId",
    "/properties",
    "/messageid/0",
    "/ledger/999999/entry/0",
    "/subscription/s/position/1",
    "/subscription/s/properties",
    "/subscription/nobody/properties",
)
#: Whose bodies are compared by their own tables.
_STATISTICS: Final = ("/stats", "/partitioned-stats", "/internalStats", "/internal-info", "/partitioned-internalStats")
_CHANGES: Final[tuple[tuple[Any, ...], ...]] = (
    ("PUT", "/unload"),
    ("PUT", "/properties", {"a": "1"}),
    ("DELETE", "/properties?key=a"),
    ("POST", "/createMissedPartitions"),
    ("POST", "/subscription/s/skip_all"),
    ("POST", "/subscription/s/skip/1"),
    ("POST", "/subscription/s/expireMessages/3600"),
    ("POST", "/subscription/s/expireMessages", {"ledgerId": -1, "entryId": -1}),
    ("POST", "/subscription/s/resetcursor/0"),
    ("POST", "/subscription/s/resetcursor", {"ledgerId": -1, "entryId": -1}),
    ("POST", "/subscription/nobody/skip_all"),
    ("POST", "/subscription/nobody/skip/1"),
    ("POST", "/subscription/nobody/expireMessages/3600"),
    ("POST", "/subscription/nobody/expireMessages", {"ledgerId": -1, "entryId": -1}),
    ("POST", "/subscription/nobody/resetcursor/0"),
    ("POST", "/subscription/nobody/resetcursor", {"ledgerId": -1, "entryId": -1}),
    ("POST", "/all_subscription/expireMessages/3600"),
    ("PUT", "/subscription/s/properties", {"a": "1"}),
    ("PUT", "/subscription/nobody/properties", {"a": "1"}),
    ("PUT", "/subscription/s2"),
    ("DELETE", "/subscription/nobody"),
    ("DELETE", "/subscription/s"),
    ("POST", "/terminate"),
    ("POST", "/terminate/partitions"),
    ("POST", "/partitions", 3),
    ("PUT", "/partitions", 2),
    ("PUT", ""),
    ("DELETE", "/partitions"),
    ("DELETE", ""),
)
_PROPERTIES: Final = [{"a": "1"}, {}, {"a": 1}, {"a": True}, {"a": None}, {"a": {}}, {"a": []}, [], "text", 5, None]
_NAMES: Final = (
    "a%2Fb",
    "a%252Fb",
    "a+b",
    "a%2Bb",
    "a%20b",
    "%20",
    "%C3%A4",
    "%FF",
    "a%25",
    "a%3Fb",
    "a%23b",
    "a*b",
    "n" * 200,
    "x-partition-0",
    "x-partition-",
    "x-partition-x",
    "x-partition-01",
    "x-partition--1",
    "p-partition-1",
    "p-partition-9",
    "partitioned",
)

STORIES: Final = [
    Story(
        "reading topics",
        *prepared(messages=3),
        *(call for suffix in _READS for call in on_each("GET", suffix)),
        *(call for suffix in _STATISTICS for call in on_each("GET", suffix, keys=False)),
        get("persistent/{ns}", exact=True),
        get("persistent/{ns}/partitioned", exact=True),
        get("non-persistent/{ns}/partitioned", exact=True),
        get("persistent/public/nowhere"),
        get("persistent/public/nowhere/partitioned"),
        get("persistent/nobody/nowhere"),
        get("persistent/public/no%20space"),
        get("non-persistent/public/nowhere"),
        get("persistent/{ns}?bundle=0x00000000_0xffffffff", exact=True),
        get("persistent/{ns}?bundle=0x40000000_0x80000000", exact=True),
        get("persistent/{ns}?includeSystemTopic=true"),
    ),
    *(
        Story(f"topics {number}", *prepared(messages=2), *on_each(*change))
        for number, change in enumerate(_CHANGES, start=1)
    ),
    Story(
        "topic names",
        put("persistent/{ns}/p/partitions", 2),
        *(
            call
            for name in _NAMES
            for call in (
                put(f"persistent/{{ns}}/{name}"),
                get(f"persistent/{{ns}}/{name}/partitions"),
                get(f"persistent/{{ns}}/{name}/subscriptions"),
            )
        ),
        get("persistent/{ns}"),
        *(delete(f"persistent/{{ns}}/{name}") for name in _NAMES),
        *(put(f"persistent/{{ns}}/{name}/partitions", 1) for name in _NAMES),
        get("persistent/{ns}/partitioned"),
        *(delete(f"persistent/{{ns}}/{name}/partitions") for name in _NAMES),
    ),
    Story(
        "topic properties",
        *(put(f"persistent/{{ns}}/t{number}", value) for number, value in enumerate(_PROPERTIES)),
        put("persistent/{ns}/u", raw=b"{"),
        put("persistent/{ns}/v", raw=b""),
        *(get(f"persistent/{{ns}}/t{number}/properties", exact=True) for number in range(4)),
        put("persistent/{ns}/t"),
        # Without null, after which Apache's broker does not answer any more.
        *(put("persistent/{ns}/t/properties", value) for value in _PROPERTIES if value != {"a": None}),
        put("persistent/{ns}/t/properties"),
        put("persistent/{ns}/t/properties", {"b": "2"}),
        get("persistent/{ns}/t/properties", exact=True),
        delete("persistent/{ns}/t/properties?key=nothing"),
        delete("persistent/{ns}/t/properties?key="),
        delete("persistent/{ns}/t/properties?key=a"),
        get("persistent/{ns}/t/properties", exact=True),
        put("persistent/{ns}/p/partitions", 2),
        put("persistent/{ns}/p/properties", {"a": "1"}),
        get("persistent/{ns}/p/properties", exact=True),
        get("persistent/{ns}/p-partition-0/properties", exact=True),
        put("persistent/{ns}/p-partition-0/properties", {"b": "2"}),
        get("persistent/{ns}/p/properties", exact=True),
        delete("persistent/{ns}/p/properties?key=a"),
    ),
    Story(
        "topics deleted",
        put("persistent/{ns}/t"),
        put("persistent/{ns}/t"),
        delete("persistent/{ns}/t?force=true"),
        delete("persistent/{ns}/t?force=true"),
        put("persistent/{ns}/t"),
        delete("persistent/{ns}/t?force=perhaps"),
        put("persistent/{ns}/t"),
        delete("persistent/{ns}/t?deleteSchema=true&authoritative=true"),
        put("persistent/{ns}/p/partitions", 2),
        delete("persistent/{ns}/p"),
        delete("persistent/{ns}/p?force=true"),
        delete("persistent/{ns}/p-partition-0"),
        get("persistent/{ns}", exact=True),
        get("persistent/{ns}/p/partitions", exact=True),
        delete("persistent/{ns}/p/partitions?force=true"),
        delete("persistent/{ns}/p/partitions"),
        get("persistent/{ns}", exact=True),
        put("persistent/{ns}/t2"),
        put("persistent/{ns}/t2/subscription/s"),
        delete("persistent/{ns}/t2"),
        put("persistent/{ns}/t2?force=true"),
        delete("persistent/{ns}/t2?force=true"),
        post("namespaces/{ns}/autoTopicCreation", {"allowAutoTopicCreation": False}),
        get("persistent/{ns}/t2/partitions?checkAllowAutoCreation=true"),
        put("persistent/{ns}/t2/subscription/s"),
        put("persistent/{ns}/t2"),
        post("namespaces/{ns}/maxTopicsPerNamespace", 1),
        put("persistent/{ns}/t3"),
        put("persistent/{ns}/p3/partitions", 2),
    ),
    Story(
        "topics ended",
        put("persistent/{ns}/empty"),
        post("persistent/{ns}/empty/terminate"),
        post("persistent/{ns}/empty/terminate"),
        put("persistent/{ns}/t"),
        Publish("persistent://{ns}/t", 2),
        post("persistent/{ns}/t/terminate"),
        post("persistent/{ns}/t/terminate"),
        get("persistent/{ns}/t/lastMessageId"),
        put("persistent/{ns}/t/unload"),
        post("persistent/{ns}/t/terminate"),
        delete("persistent/{ns}/t"),
        put("persistent/{ns}/p/partitions", 2),
        post("persistent/{ns}/p/terminate/partitions"),
        post("persistent/{ns}/p/terminate/partitions"),
        post("persistent/{ns}/p-partition-0/terminate"),
        post("persistent/{ns}/p-partition-0/terminate/partitions"),
    ),
]
