"""Why clusters' configuration is not alike, which a topic is to keep so: what brokers tell in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from geminga.app.handles.core.causes import Cause, Document, Finding, Severity, time_text

#: How long a change that came to nothing is a finding.
UNDONE_MS: Final = 24 * 3600 * 1000
#: Paths, and changes that came to nothing, that one sentence names.
_NAMED_MAX: Final = 3
#: Of the events, as Pulsar names it.
SUBSCRIPTION: Final = "metadata-syncer"
_LEADS: Final = {
    "lead": "Nothing is told and nothing followed",
    "tell": "Changes made here wait to be told",
    "receive": "Other clusters' changes can not be read",
    "follow": "Other clusters' changes wait to be made here",
}


class AlikeFacts(NamedTuple):
    """What was asked of a cluster that is kept alike with others."""

    now_ms: int
    #: ``brokers/configuration/synchronization``.
    state: Document
    #: ``stats`` of the topic of events; None: nobody answers for it, or it is not there.
    stats: Document | None = None
    #: Why not, in the words of who was asked.
    unserved: str = ""


def alike_findings(facts: AlikeFacts) -> list[Finding]:
    """Causes, those of the topic first."""
    return [*_of_topic(facts), *_of_clusters(facts), *_of_work(facts), *_of_changes(facts)]


def alike_lines(facts: AlikeFacts) -> list[str]:
    """How it stands, in sentences: what was told and followed last, how far others are behind."""
    state = facts.state
    lines = [_event("told", state.get("lastTold")), _event("followed", state.get("lastFollowed"))]
    for name in state.get("clusters", {}):
        copied = _copied(facts, name)
        if copied is None:
            lines.append(f"{name}: nothing is known of what it lacks")
        else:
            behind, delay_s = copied.get("replicationBacklog", 0), copied.get("replicationDelayInSeconds", 0)
            lines.append(f"{name}: {behind} events behind" + (f", the oldest for {delay_s} s" if behind else ""))
    return lines


def _event(what: str, event: Mapping[str, Any] | None) -> str:
    if event is None:
        return f"nothing was {what} since this broker leads"
    return (
        f"{what} last: {event['path']}, changed in {event['cluster']} at {time_text(event['changedMs'])}, "
        f"{what} at {time_text(event['atMs'])}"
    )


def _copied(facts: AlikeFacts, cluster: str) -> Document | None:
    found: Document | None = (facts.stats or {}).get("replication", {}).get(cluster)
    return found


def _of_topic(facts: AlikeFacts) -> Iterator[Finding]:
    topic, doubts = facts.state.get("topic", ""), facts.state.get("doubts", "")
    if doubts:
        yield Finding(
            Cause.ALIKE_TOPIC,
            Severity.STOPS,
            "",
            f"The configuration may not come to be alike: {doubts.rstrip('.')}.",
            "Make the namespace, and have it in all clusters (geminga admin namespaces create, set-clusters), without "
            "limits that lose events.",
        )
    elif facts.stats is None:
        yield Finding(
            Cause.ALIKE_TOPIC,
            Severity.STOPS,
            "",
            f"The topic of events is not there: {facts.unserved.rstrip('.')}.",
            f"It is made by the broker that leads, when it can be: see that {topic} may be made and served.",
        )


def _of_clusters(facts: AlikeFacts) -> Iterator[Finding]:
    for name, cluster in facts.state.get("clusters", {}).items():
        copied = _copied(facts, name) or {}
        behind, reason = copied.get("replicationBacklog", 0), copied.get("disconnectedReason", "")
        if behind and reason:
            yield Finding(
                Cause.REPLICATION,
                Severity.HOLDS,
                "",
                f"Cluster {name} is {behind} events behind: {reason.rstrip('.')}.",
                "Mend what that says: the copying goes on by itself.",
            )
        if not cluster.get("isHeard"):
            yield Finding(
                Cause.ALIKE_UNHEARD,
                Severity.HOLDS,
                "",
                f"Nothing was ever heard from cluster {name}, so it is not told how everything came to be.",
                f"Start its brokers with the same configurationMetadataSyncEventTopic; {facts.state.get('topic', '')} "
                "has to be copied from there to here, too.",
            )
        elif not cluster.get("isTold"):
            yield Finding(
                Cause.ALIKE_UNHEARD,
                Severity.WAITS,
                "",
                f"Cluster {name} is not told yet how everything came to be.",
                "It will be within half a minute of its first event.",
            )


def _of_work(facts: AlikeFacts) -> Iterator[Finding]:
    state = facts.state
    for what, why in state.get("troubles", {}).items():
        waiting = f" ({state['waiting']} paths)" if what == "tell" and state.get("waiting") else ""
        yield Finding(
            Cause.ALIKE_STUCK,
            Severity.STOPS,
            "",
            f"{_LEADS.get(what, what)}{waiting}: {why.rstrip('.')}.",
            "Mend what that says: it is tried again, within a minute.",
        )
    events = (facts.stats or {}).get("subscriptions", {}).get(SUBSCRIPTION, {})
    if events.get("msgBacklog") and not events.get("consumers"):
        yield Finding(
            Cause.ALIKE_STUCK,
            Severity.STOPS,
            SUBSCRIPTION,
            f"{events['msgBacklog']} events wait to be looked at, and no broker of this cluster takes them.",
            "The broker that leads does: see that one does (geminga admin brokers leader-broker), and that it may "
            "consume the topic.",
        )


def _of_changes(facts: AlikeFacts) -> Iterator[Finding]:
    differing = facts.state.get("differing", {})
    if differing.get("count"):
        paths = differing.get("paths", {})
        some = "; ".join(f"{path}: {why}" for path, why in [*paths.items()][:_NAMED_MAX])
        count = f"{differing['count']}{' or more' if differing.get('areMore') else ''}"
        yield Finding(
            Cause.ALIKE_DIFFERS,
            Severity.HOLDS,
            "",
            f"{count} paths are not as in another cluster, such as {some}.",
            "Say it once more in the cluster whose value is to hold: the next change holds in all. What is kept here "
            "for topics that are stored goes when they are deleted.",
        )
    undone = [each for each in facts.state.get("givenUp", []) if facts.now_ms - each["atMs"] <= UNDONE_MS]
    if undone:
        some = "; ".join(f"{time_text(each['atMs'])}, {each['what']}" for each in undone[-_NAMED_MAX:])
        yield Finding(
            Cause.ALIKE_UNDONE,
            Severity.HOLDS,
            "",
            f"Of the last day {len(undone)} changes or events came to nothing: {some}.",
            "Say again what is still wanted. The log of the broker that led has them all.",
        )
