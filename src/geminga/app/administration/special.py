"""Commands that are more than one request, or whose request depends on what is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from geminga.admin import _paths
from geminga.admin._request import Request
from geminga.admin.errors import NotFoundError
from geminga.app.administration.arguments import Given, UsageError
from geminga.app.administration.command import Command
from geminga.app.administration.session import UNSENT, FailedError, Session, members, named, question_of
from geminga.app.administration.units import WrongWordError, position

#: Seconds between two looks at what runs.
_LOOK_EVERY_S: Final = 1.0
_BASE: Final = "/admin/v2"
_SHADOW: Final = "PULSAR.SHADOW_SOURCE"
_PARTITIONED: Final = "application/vnd.partitioned-topic-metadata+json"
_PUT: Final = "PUT"
_POST: Final = "POST"

Function = Callable[[Session, Command, Given], Any]


def _topic(given: Given) -> str:
    return f"{_BASE}/{_written(_paths.topic, given.places['topic'])}"


def _namespace(given: Given) -> str:
    return f"{_BASE}/namespaces/{_written(_paths.namespace, given.places['namespace'])}"


def _written(write: Callable[[str], str], name: str) -> str:
    try:
        return write(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _place(name: str, text: str) -> dict[str, Any]:
    try:
        return position(text)
    except WrongWordError as error:
        raise UsageError(f"{name}: {error}") from None


#: Topics whose statistics are looked at before a question.
TOPICS_TOLD_MAX: Final = 100


def list_topics(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Persistent ones and those that are not, unless one kind is asked for."""
    domain = (given["domain"] or "").replace("_", "-")
    namespace = _written(_paths.namespace, given.places["namespace"])
    query = {"bundle": given["bundle"], "includeSystemTopic": given["system"]}
    return _both(session, [f"{_BASE}/{one}/{namespace}" for one in _domains(domain)], query)


def list_partitioned(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Those with partitions, of both kinds."""
    namespace = _written(_paths.namespace, given.places["namespace"])
    query = {"includeSystemTopic": given["system"]}
    return _both(session, [f"{_BASE}/{one}/{namespace}/partitioned" for one in _domains("")], query)


def _domains(domain: str) -> tuple[str, ...]:
    return (domain,) if domain else ("persistent", "non-persistent")


def _both(session: Session, paths: list[str], query: Mapping[str, Any]) -> Any:  # noqa: ANN401
    found = [session.ask(Request("GET", path, query)) for path in paths]
    return UNSENT if session.is_dry else [topic for one in found for topic in one or []]


def partitioned_lookup(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The broker of each partition, or the partitions of each broker."""
    topic = given.places["topic"]
    names = [f"{topic}-partition-{number}" for number in range(session.partitions(topic))] or [topic]
    brokers: dict[str, str] = {}
    for name in names:
        found = session.ask(Request("GET", f"/lookup/v2/topic/{_written(_paths.topic, name)}"))
        if found is not UNSENT:
            brokers[name] = found["brokerUrl"]
    if session.is_dry:
        return UNSENT
    if not given["sort"]:
        return brokers
    by_broker: dict[str, list[str]] = {}
    for name, url in brokers.items():
        by_broker.setdefault(url, []).append(name)
    return by_broker


def delete_topics(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """One topic, those of a file, or those of a namespace that an expression fits. Raises FailedError, UsageError."""
    said = given.places["topic"]
    topics = [said]
    if given["file"] and given["regex"]:
        raise UsageError("either --regex or --from-file may be given")
    session.need_terminal(question_of(command, given))
    if given["file"]:
        try:
            with open(said.removeprefix("path://"), encoding="utf-8") as file:
                topics = [line.strip() for line in file if line.strip()]
        except OSError as error:
            raise UsageError(f"--from-file: {said}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--from-file: {said} is no UTF-8") from None
    elif given["regex"]:
        topics = list(_fitting(session, said))
    # All names before the first deletion: one that can not be is an error of who asks, and nothing was done.
    paths = [f"{_BASE}/{_written(_paths.topic, topic)}" for topic in topics]
    is_one = not (given["file"] or given["regex"])
    if topics:
        session.agree(question_of(command, given), lambda: "" if is_one else named(topics, "topic", "topics"))
    query = {"force": bool(given["force"]), "deleteSchema": True}
    requests = [(topic, Request("DELETE", path, query)) for topic, path in zip(topics, paths, strict=True)]
    if len(requests) == 1:
        session.ask(requests[0][1])
        return UNSENT
    session.each(requests, lambda done: f"{done} of {len(topics)} topics were deleted", "not")
    return UNSENT


def _fitting(session: Session, expression: str) -> Iterator[str]:
    import re

    domain, _, rest = expression.rpartition("://")
    parts = rest.split("/", 2)
    if len(parts) != 3:
        raise UsageError(f"--regex: expected tenant/namespace/EXPRESSION, not {expression!r}")
    try:
        pattern = re.compile(parts[2])
    except re.error as error:
        raise UsageError(f"--regex: {parts[2]!r}: {error}") from None
    place = _written(_paths.namespace, f"{parts[0]}/{parts[1]}")
    for one in _domains(domain):
        for topic in session.look(f"{_BASE}/{one}/{place}"):
            if pattern.fullmatch(topic.rpartition("/")[2]):
                yield topic


def create_subscription(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """With the place where it begins."""
    body = _place("--messageId", given["position"])
    if given["properties"]:
        body["properties"] = given["properties"]
    query = {"replicated": bool(given["replicated"])}
    path = f"{_topic(given)}/subscription/{_paths.subscription(given['subscription'])}"
    return session.ask(Request(_PUT, path, query, body))


def subscription_properties(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """All of them, or none. Raises UsageError."""
    if bool(given["clear"]) == bool(given["properties"]):
        raise UsageError("either --property or --clear must be given")
    path = f"{_topic(given)}/subscription/{_paths.subscription(given['subscription'])}/properties"
    return session.ask(Request(_PUT, path, body=given["properties"] or {}))


def expire_messages(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """By age, or up to a message. Raises UsageError."""
    if (given["time"] is None) == (given["position"] is None):
        raise UsageError("either --expireTime or --position must be given")
    return _moved(session, given, "expireMessages", given["time"], given["position"])


def reset_cursor(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """To a message, or to what was published so long ago. Raises UsageError."""
    if given["position"] is None and given["time"] is None:
        raise UsageError("either --messageId or --time must be given")
    place = None if given["position"] is None else _place("--messageId", given["position"])
    since = None if given["time"] is None else round((time.time() - given["time"]) * 1000)
    return _moved(session, given, "resetcursor", None if place else since, place)


def _moved(session: Session, given: Given, what: str, number: int | None, place: dict[str, Any] | None) -> Any:  # noqa: ANN401
    subscription = _paths.subscription(given["subscription"])

    def request(topic: str) -> Request[Any]:
        path = f"{_BASE}/{_written(_paths.topic, topic)}/subscription/{subscription}/{what}"
        if place is None:
            return Request(_POST, f"{path}/{number}")
        return Request(_POST, path, body={**place, "batchIndex": -1, "excluded": bool(given["excluded"])})

    topic = given.places["topic"]
    # A message is in one partition.
    return session.ask(request(topic)) if place is not None else session.on_each_partition(topic, request)


def create_partitioned(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """With properties, or without."""
    path, count = f"{_topic(given)}/partitions", given["partitions"]
    if not given["properties"]:
        return session.ask(Request(_PUT, path, body=count))
    return session.ask(_with_properties(path, count, given["properties"]))


def _with_properties(path: str, count: int, properties: Mapping[str, str]) -> Request[Any]:
    """A broker tells a number from an object by the type of the body."""
    body = {"partitions": count, "deleted": False, "properties": properties}
    return Request(_PUT, path, body=body, content_type=_PARTITIONED)


def peek_messages(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The next ones of a subscription, as many as there are."""
    found: list[Any] = []
    path = f"{_topic(given)}/subscription/{_paths.subscription(given['subscription'])}/position"
    for number in range(1, given["count"] + 1):
        try:
            one = session.ask(Request("GET", f"{path}/{number}", is_message=True))
        except NotFoundError as error:
            if error.reason != "Message not found":
                raise
            break
        found.append(one)
    return UNSENT if session.is_dry else found


def offload(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """All but the newest ledgers that are smaller than so much together."""
    ledgers = session.look(f"{_topic(given)}/internalStats")
    found = list(ledgers.get("ledgers", ()))
    if not found:
        return "Nothing to offload"
    # The newest is open: its size stands apart.
    found[-1] = {**found[-1], "size": ledgers.get("currentLedgerSize", 0)}
    total, first = 0, found[-1]["ledgerId"]
    for ledger in reversed(found):
        total += ledger["size"]
        if total > given["size"]:
            break
        first = ledger["ledgerId"]
    if total <= given["size"]:
        return "Nothing to offload"
    place = {"ledgerId": first, "entryId": 0, "partitionIndex": -1, "batchIndex": -1}
    answer = session.ask(Request(_PUT, f"{_topic(given)}/offload", body=place))
    topic = given.places["topic"]
    return answer if answer is UNSENT else f"Offload triggered for {topic} for messages before {first}:0:-1"


def wait_offload(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """How far it is; waits for its end if told to."""
    return _waited(session, given, "offload", "Offload")


def wait_compaction(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The same of compaction."""
    return _waited(session, given, "compaction", "Compaction")


def _waited(session: Session, given: Given, path: str, what: str) -> Any:  # noqa: ANN401
    request = Request("GET", f"{_topic(given)}/{path}")
    found = session.ask(request)
    while given["wait"] and found is not UNSENT and found["status"] == "RUNNING":
        time.sleep(_LOOK_EVERY_S)
        found = session.ask(request)
    if found is UNSENT:
        return UNSENT
    if found["status"] == "ERROR":
        raise FailedError(f"{what} of {given.places['topic']} failed: {found.get('lastError') or 'no reason given'}")
    return {
        "NOT_RUN": f"{what} has not been run for {given.places['topic']} since broker startup",
        "RUNNING": f"{what} is currently running",
        "SUCCESS": f"{what} was a success",
    }.get(found["status"], found)


def create_shadow(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """A topic that shows another one's messages, with as many partitions."""
    source = given["source"]
    count = session.partitions(source)
    properties = {**(given["properties"] or {}), _SHADOW: source}
    if count:
        return session.ask(_with_properties(f"{_topic(given)}/partitions", count, properties))
    return session.ask(Request(_PUT, _topic(given), body=properties))


def shadow_source(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """What it shows."""
    found = session.ask(Request("GET", f"{_topic(given)}/properties"))
    return found if found is UNSENT else (found or {}).get(_SHADOW)


def get_schema(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The newest, one version, or all. Raises UsageError."""
    if given["all"] and given["version"] is not None:
        raise UsageError("either --version or --all-version may be given")
    path = f"{_BASE}/schemas/{_written(_paths.place, given.places['topic'])}"
    version = "" if given["version"] is None else f"/{given['version']}"
    return session.ask(Request("GET", f"{path}/schemas" if given["all"] else f"{path}/schema{version}"))


def extract_schema(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Needs a Java program. Raises FailedError."""
    raise FailedError("schemas extract runs a class of Java, which is not built: schemas upload takes a file of it")


def create_namespace(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """With its clusters and bundles. Raises UsageError."""
    body: dict[str, Any] = {}
    if given["clusters"]:
        body["replication_clusters"] = given["clusters"]
    if given["bundles"] < 0:
        raise UsageError(f"--bundles: expected 1 or more, not {given['bundles']}")
    if given["bundles"]:
        body["bundles"] = {"numBundles": given["bundles"]}
    return session.ask(Request(_PUT, _namespace(given), body=body or None))


def set_namespace_clusters(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Asks before a cluster is taken out: what was not copied there yet is not kept for it.

    Pulsar's tool compares topics from 4.2 on unless told not to, and did not before: here who wants it says so.
    """
    path = f"{_namespace(given)}/replication"
    if session.is_to_ask:
        gone = [cluster for cluster in session.look(path) or () if cluster not in given["clusters"]]
        if gone:
            session.agree(f"Taking {', '.join(gone)} out of {_left_behind(session, given.places['namespace'], gone)}")
    query = {"compareTopicPartitions": True} if given["alike"] else None
    return session.ask(Request(_POST, path, query, given["clusters"]))


def _left_behind(session: Session, namespace: str, clusters: list[str]) -> str:
    """How many topics the namespace has, and entries that are for ``clusters`` and not copied yet."""
    topics = session.look(f"{_BASE}/persistent/{_written(_paths.namespace, namespace)}")
    counted, entries = topics[:TOPICS_TOLD_MAX], 0
    for topic in counted:
        copied = session.look(f"{_BASE}/{_written(_paths.topic, topic)}/stats").get("replication") or {}
        entries += sum(copied.get(cluster, {}).get("replicationBacklog", 0) for cluster in clusters)
    some = f", in the first {TOPICS_TOLD_MAX} of them," if len(topics) > TOPICS_TOLD_MAX else ""
    return f"{namespace}, with {len(topics)} topics{some} and {entries} entries that are not copied there yet,"


def unload_namespace(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """All bundles, or one. Raises UsageError."""
    if given["destination"] and not given["bundle"]:
        raise UsageError("--destinationBroker needs --bundle")
    if not given["bundle"]:
        return session.ask(Request(_PUT, f"{_namespace(given)}/unload"))
    query = {"destinationBroker": given["destination"]}
    return session.ask(Request(_PUT, f"{_namespace(given)}/{quote(given['bundle'], safe='')}/unload", query))


def split_bundle(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """In two, where an algorithm says, or at boundaries. Raises UsageError."""
    if given["bundle"] and given["type"]:
        raise UsageError("exactly one of --bundle, --bundle-type must be given")
    query = {"unload": bool(given["unload"]), "splitAlgorithmName": given["algorithm"]}
    path = f"{_namespace(given)}/{quote(given['bundle'] or given['type'], safe='')}/split"
    return session.ask(Request(_PUT, path, query, given["boundaries"]))


def clear_backlog(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Of all subscriptions or one, in all bundles or one."""
    return _emptied(session, given, "clearBacklog")


def unsubscribe(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The subscriptions of a name, in all bundles or one."""
    return _emptied(session, given, "unsubscribe")


def _emptied(session: Session, given: Given, what: str) -> Any:  # noqa: ANN401
    bundle = f"/{quote(given['bundle'], safe='')}" if given["bundle"] else ""
    name = f"/{quote(given['subscription'], safe='')}" if given["subscription"] else ""
    return session.ask(Request(_POST, f"{_namespace(given)}{bundle}/{what}{name}"))


def get_offload_threshold(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """In bytes and in seconds; -1: none."""
    found = [
        session.ask(Request("GET", f"{_namespace(given)}/{path}"))
        for path in ("offloadThreshold", "offloadThresholdInSeconds")
    ]
    names = ("offloadThresholdInBytes", "offloadThresholdInSeconds")
    return UNSENT if session.is_dry else dict(zip(names, found, strict=True))


def offload_threshold(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """In bytes, in seconds, or both."""
    answer: Any = None
    for key, path in (("size", "offloadThreshold"), ("time", "offloadThresholdInSeconds")):
        if given[key] is not None:
            answer = session.ask(Request(_PUT, f"{_namespace(given)}/{path}", body=given[key]))
    return answer


def get_rate(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Of all subscriptions of a topic, or of one."""
    return session.ask(Request("GET", _rate_path(given), {"applied": given["applied"], **_scope(given)}))


def set_rate(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The same, set."""
    return session.ask(Request(_POST, _rate_path(given), _scope(given), members(given)))


def remove_rate(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The same, no more."""
    return session.ask(Request("DELETE", _rate_path(given), _scope(given)))


def _rate_path(given: Given) -> str:
    name = given["subscription"]
    return f"{_topic(given)}/{quote(name, safe='') + '/dispatchRate' if name else 'subscriptionDispatchRate'}"


def _scope(given: Given) -> dict[str, Any]:
    return {"isGlobal": given["global"]}


def create_tenant(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Of all clusters unless told otherwise."""
    clusters = given["clusters"] or [name for name in session.look(f"{_BASE}/clusters") if name != "global"]
    body = {"adminRoles": given["roles"] or [], "allowedClusters": clusters}
    return session.ask(Request(_PUT, f"{_BASE}/tenants/{_paths.text(given.places['tenant'])}", body=body))


def update_tenant(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """What is not told stays."""
    path = f"{_BASE}/tenants/{_paths.text(given.places['tenant'])}"
    former = session.look(path) if given["roles"] is None or given["clusters"] is None else {}
    roles = former.get("adminRoles", []) if given["roles"] is None else given["roles"]
    clusters = former.get("allowedClusters", []) if given["clusters"] is None else given["clusters"]
    return session.ask(Request(_POST, path, body={"adminRoles": roles, "allowedClusters": clusters}))


def create_cluster(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """With its addresses."""
    return _clustered(session, given, _PUT)


def update_cluster(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The same, changed."""
    return _clustered(session, given, _POST)


def _clustered(session: Session, given: Given, method: str) -> Any:  # noqa: ANN401
    body = {**members(given), **(given["file"] or {})}
    return session.ask(Request(method, f"{_BASE}/clusters/{_paths.text(given.places['cluster'])}", body=body))


def delete_cluster(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """With ``--all``: after the namespaces that are in it alone, and their tenants."""
    cluster = given.places["cluster"]
    leaving: dict[str, list[str]] = {}

    def hits() -> str:
        if not given["all"]:
            return ""
        leaving.update(_leaving(session, cluster))
        namespaces = [name for each in leaving.values() for name in each]
        tenants = named([*leaving], "tenant", "tenants")
        return f"{tenants} and {named(namespaces, 'namespace', 'namespaces')}"

    session.agree(question_of(command, given), hits)
    if given["all"]:
        # Those that somebody agreed to, and none that came meanwhile.
        for tenant, namespaces in (leaving if session.is_to_ask else _leaving(session, cluster)).items():
            for namespace in namespaces:
                session.ask(Request("DELETE", f"{_BASE}/namespaces/{_paths.namespace(namespace)}", {"force": True}))
            session.ask(Request("DELETE", f"{_BASE}/tenants/{_paths.text(tenant)}"))
    return session.ask(Request("DELETE", f"{_BASE}/clusters/{_paths.text(cluster)}"))


def _leaving(session: Session, cluster: str) -> dict[str, list[str]]:
    """Tenants that are in this cluster alone, each with its namespaces."""
    found: dict[str, list[str]] = {}
    for tenant in session.look(f"{_BASE}/tenants"):
        if session.look(f"{_BASE}/tenants/{_paths.text(tenant)}").get("allowedClusters", []) == [cluster]:
            found[tenant] = list(session.look(f"{_BASE}/namespaces/{_paths.text(tenant)}"))
    return found


def list_clusters(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """All; ``--current`` marks the broker's own."""
    found = session.ask(Request("GET", f"{_BASE}/clusters"))
    if found is UNSENT or not given["current"]:
        return found
    own = session.look(f"{_BASE}/brokers/configuration/runtime").get("clusterName")
    return [f"{name}(*)" if name == own else name for name in found]


def set_isolation(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Which brokers serve which namespaces."""
    body: dict[str, Any] = {
        "namespaces": given["namespaces"],
        "primary": given["primary"],
        "secondary": given["secondary"] or [],
        "auto_failover_policy": {"policy_type": given["type"], "parameters": given["parameters"]},
    }
    if given["scope"]:
        body["unload_scope"] = given["scope"]
    cluster, policy = (_paths.text(given.places[name]) for name in ("cluster", "policy"))
    return session.ask(Request(_POST, f"{_BASE}/clusters/{cluster}/namespaceIsolationPolicies/{policy}", body=body))


def get_quota(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """Of a bundle, or of all."""
    return session.ask(Request("GET", _quota_path(given)))


def set_quota(session: Session, command: Command, given: Given) -> Any:  # noqa: ANN401
    """The same, set."""
    return session.ask(Request(_POST, _quota_path(given), body=members(given)))


def _quota_path(given: Given) -> str:
    namespace, bundle = given["namespace"], given["bundle"]
    if not namespace and not bundle:
        return f"{_BASE}/resource-quotas"
    if not namespace or not bundle:
        raise UsageError("both --namespace and --bundle must be given, or none of them")
    return f"{_BASE}/resource-quotas/{_written(_paths.namespace, namespace)}/{quote(bundle, safe='')}"


#: By the word that rows have.
FUNCTIONS: Final[Mapping[str, Function]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        list_topics,
        list_partitioned,
        partitioned_lookup,
        delete_topics,
        create_subscription,
        subscription_properties,
        expire_messages,
        reset_cursor,
        create_partitioned,
        peek_messages,
        offload,
        wait_offload,
        wait_compaction,
        create_shadow,
        shadow_source,
        get_schema,
        extract_schema,
        create_namespace,
        set_namespace_clusters,
        unload_namespace,
        split_bundle,
        clear_backlog,
        unsubscribe,
        get_offload_threshold,
        offload_threshold,
        get_rate,
        set_rate,
        remove_rate,
        create_tenant,
        update_tenant,
        create_cluster,
        update_cluster,
        delete_cluster,
        list_clusters,
        set_isolation,
        get_quota,
        set_quota,
    )
}
