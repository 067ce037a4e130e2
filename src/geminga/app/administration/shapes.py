"""What ``pulsar-admin`` prints, command by command, where it is not the broker's JSON: scripts read it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from geminga.admin.values import StoredMessage
from geminga.app.administration.arguments import Given
from geminga.app.administration.command import Command

#: Commands that print a line for each member, and what Java calls the values.
_BY_LINE: Final = {
    "brokers get-all-dynamic-config": "",
    "brokers get-runtime-config": "",
    "brokers namespaces": " ",
    "clusters list-failure-domains": "FailureDomainImpl",
    "namespaces get-backlog-quotas": "BacklogQuotaImpl",
    "namespaces permissions": "",
    "namespaces subscription-permission": "",
    "persistent permissions": "",
    "topicPolicies get-backlog-quota": "BacklogQuotaImpl",
    "topics get-backlog-quotas": "BacklogQuotaImpl",
    "topics get-properties": "",
    "topics get-replicated-subscription-status": "",
    "topics partitioned-lookup": "",
    "topics permissions": "",
    "transactions coordinator-stats": "TransactionCoordinatorStats",
    "transactions slow-transactions": "TransactionMetadata",
}
#: Members that Java calls otherwise.
_JAVA_NAMES: Final = {
    "auto_failover_policy": "autoFailoverPolicy",
    "policy_type": "policyType",
    "unload_scope": "unloadScope",
}
#: Lists that are printed as one value.
_SETS: Final = frozenset(
    {
        "clusters get-peer-clusters",
        "namespaces get-subscription-types-enabled",
        "topicPolicies get-replication-clusters",
        "topicPolicies get-subscription-types-enabled",
        "topics get-replication-clusters",
        "topics get-subscription-types-enabled",
    }
)
#: What is printed as JSON in one line unless ``--indent`` is given.
_COMPACT: Final = frozenset({"broker-stats mbeans", "broker-stats monitoring-metrics", "broker-stats topics"})
#: Answers that are not printed, and what is said for them.
_SAID: Final = {
    "brokers backlog-quota-check": "ok",
    "brokers shutdown": "Successfully shutdown broker gracefully",
    "schemas compatibility": "",
    "schemas delete": "",
    "schemas upload": "",
}
#: Texts that are not set: nothing is printed for them.
_EMPTY: Final = frozenset({"namespaces get-anti-affinity-group", "namespaces get-resource-group"})
_PROPERTY: Final = "x-pulsar-property-"


def lines_of(command: Command, given: Given, value: Any) -> Iterator[str]:  # noqa: ANN401
    """The lines."""
    words = command.words
    if words in _SAID:
        yield from [_SAID[words]] if _SAID[words] else []
    elif command.name == "compact":
        yield f"Topic compaction requested for {given.places['topic']}"
    elif value is None and (words in _EMPTY or not command.is_look):
        return
    elif words in _OWN:
        yield from _OWN[words](given, value)
    elif words in _COMPACT and not given["indent"]:
        yield json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    elif words in _COMPACT or words in _SETS:
        yield jackson(value)
    elif isinstance(value, dict) and words in _BY_LINE and given.values.get("?coordinatorId") is None:
        for key, one in value.items():
            yield f"{key}    {java(one, _BY_LINE[words])}"
    else:
        yield from _plain(words, value)


def _plain(words: str, value: Any) -> Iterator[str]:  # noqa: ANN401
    messages = value if isinstance(value, list) else [value]
    if messages and isinstance(messages[0], StoredMessage):
        for number, one in enumerate(messages):
            yield from (["-" * 73, ""] if number else [])
            yield from _message(words, one)
    elif isinstance(value, list):
        for one in value:
            yield one if isinstance(one, str) else jackson(one)
    else:
        yield value if isinstance(value, str) else jackson(value)


def java(value: Any, kind: str = "") -> str:  # noqa: ANN401
    """As Java's ``toString`` has it; ``kind``: of an object, a blank for members without commas."""
    if isinstance(value, list):
        return f"[{', '.join(map(java, value))}]"
    if isinstance(value, dict):
        inner = {"auto_failover_policy": "AutoFailoverPolicyDataImpl"}
        parts = [f"{_JAVA_NAMES.get(key, key)}={java(one, inner.get(key, ''))}" for key, one in value.items()]
        if kind == " ":
            return f"[{' '.join(parts)}]"
        return f"{kind}({', '.join(parts)})" if kind else "{" + ", ".join(parts) + "}"
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def _policies(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    for name, one in value.items():
        policy = one.get("auto_failover_policy") or {}
        ordered = {key: policy[key] for key in ("policy_type", "parameters") if key in policy}
        whole = {**one, "auto_failover_policy": ordered, "unload_scope": one.get("unload_scope")}
        yield f"{name}    {java(whole, 'NamespaceIsolationDataImpl')}"


def _terminated(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    yield f"Topic successfully terminated at {_id(value)}"


def _terminated_parts(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    for number, one in value.items():
        yield f"Topic {given.places['topic']}-partition-{number} successfully terminated at {_id(one)}"


def _id(value: Mapping[str, Any]) -> str:
    return f"{value['ledgerId']}:{value['entryId']}:{value.get('partitionIndex', -1)}"


def _broker(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    yield str(value["brokerUrl"])


def _one_line(given: Given, value: Any) -> Iterator[str]:  # noqa: ANN401
    yield json.dumps(value or {}, separators=(",", ":"), ensure_ascii=False)


def _gson(given: Given, value: Any) -> Iterator[str]:  # noqa: ANN401
    yield json.dumps(value, indent=2, ensure_ascii=False)


def _quoted(given: Given, value: Any) -> Iterator[str]:  # noqa: ANN401
    yield json.dumps(value, ensure_ascii=False)


def _text_in_json(given: Given, value: Any) -> Iterator[str]:  # noqa: ANN401
    yield json.dumps(json.dumps(value, separators=(",", ":"), ensure_ascii=False), ensure_ascii=False)


def _lag(given: Given, value: int | None) -> Iterator[str]:
    yield "Unset for namespace. Defaulting to broker setting." if value is None else f"{value // 60_000} minute(s)"


def _threshold(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{key}: {one}" for key, one in value.items())


def _coordinators(given: Given, value: list[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"{one['id']}    {one['brokerServiceUrl']}" for one in value)


def _schema(given: Given, value: Mapping[str, Any]) -> Iterator[str]:
    name = given.places["topic"].rpartition("/")[2]
    if "getSchemaResponses" in value:
        for one in value["getSchemaResponses"]:
            kept = {key: one.get(key) for key in ("type", "timestamp", "properties")}
            yield jackson({"name": name, "schema": "", **kept, "schemaDefinition": one["data"]})
        return
    try:
        schema = json.loads(value["data"])
    except ValueError:
        schema = value["data"]
    info = {"name": name, "schema": schema, **{key: value.get(key) for key in ("type", "timestamp", "properties")}}
    yield from _gson(given, info if given["version"] is not None else {"version": value["version"], "schemaInfo": info})


#: Commands with a shape of their own.
_OWN: Final[dict[str, Callable[[Given, Any], Iterator[str]]]] = {
    "namespaces get-offload-deletion-lag": _lag,
    "namespaces get-offload-threshold": _threshold,
    "namespaces get-subscription-auth-mode": _quoted,
    "non-persistent lookup": _broker,
    "ns-isolation-policy list": _policies,
    "persistent info-internal": _text_in_json,
    "persistent lookup": _broker,
    "persistent terminate": _terminated,
    "schemas get": _schema,
    "topics get-subscription-properties": _one_line,
    "topics info-internal": _gson,
    "topics lookup": _broker,
    "topics partitioned-terminate": _terminated_parts,
    "topics terminate": _terminated,
    "transactions coordinators-list": _coordinators,
}


def _message(words: str, message: StoredMessage) -> Iterator[str]:
    said = message.headers
    if words != "persistent get-message-by-id":
        yield f"Message ID: {said.get('x-pulsar-message-id', '')}"
        if count := said.get("x-pulsar-num-batch-message"):
            yield f"Batch of: {count}"
        yield f"Publish time: {_millis(said.get('x-pulsar-publish-time'))}"
        yield f"Event time: {_millis(said.get('x-pulsar-event-time'))}"
        if words == "topics get-message-by-id":
            yield "Redelivery count: 0"
        properties = {key.removeprefix(_PROPERTY): text for key, text in said.items() if key.startswith(_PROPERTY)}
        if properties:
            yield "Properties:"
            yield json.dumps(properties, separators=(",", ":"), ensure_ascii=False)
    yield from _dump(message.payload)


def _millis(text: str | None) -> int:
    if not text:
        return 0
    return int(text) if text.isdecimal() else round(datetime.fromisoformat(text).timestamp() * 1000)


def _dump(data: bytes) -> Iterator[str]:
    edge = "+--------+" + "-" * 49 + "+" + "-" * 16 + "+"
    yield " " * 9 + "+" + "-" * 49 + "+"
    yield " " * 9 + "|" + "".join(f"  {digit:x}" for digit in range(16)) + " |"
    yield edge
    for start in range(0, len(data), 16):
        part = data[start : start + 16]
        shown = "".join(chr(byte) if 31 < byte < 127 else "." for byte in part)
        yield f"|{start:08x}|{''.join(f' {byte:02x}' for byte in part):<48} |{shown:<16}|"
    yield edge


def jackson(value: Any, depth: int = 0) -> str:  # noqa: ANN401
    """JSON as Pulsar's tools write it for reading: members by line, elements of a list in one."""
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = "  " * (depth + 1)
        members = (f"{inner}{json.dumps(str(key))} : {jackson(one, depth + 1)}" for key, one in value.items())
        return "{\n" + ",\n".join(members) + "\n" + "  " * depth + "}"
    if isinstance(value, list):
        return "[ " + ", ".join(jackson(one, depth) for one in value) + " ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
