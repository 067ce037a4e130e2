"""Why nothing moves: facts about a topic in, findings out.

Facts are documents of the admin REST as they stand there. A finding names a cause by a code that stays the same, says
it in a sentence and says what would mend it. What is not known is not concluded from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from geminga.model.errors import MetadataUnavailableError

Document = Mapping[str, Any]

_NOTHING: Final[Document] = MappingProxyType({})


class Severity(StrEnum):
    """How much of it stands."""

    #: Nothing is published, or nothing of a subscription is delivered.
    STOPS = "stops"
    #: Some of it.
    HOLDS = "holds"
    #: As it was asked for: it goes on by itself.
    WAITS = "waits"


class Cause(StrEnum):
    """What is found."""

    NO_OWNER = "no-owner"
    METADATA = "metadata-away"
    FENCED = "fenced"
    TERMINATED = "terminated"
    QUOTA = "quota"
    BOOKIES = "bookies-missing"
    LAKE = "lake-file-away"
    HOLE = "hole"
    NO_CONSUMER = "no-consumer"
    NO_PERMITS = "no-permits"
    UNACKED_CONSUMER = "unacked-limit-of-consumer"
    UNACKED_SUBSCRIPTION = "unacked-limit-of-subscription"
    KEY = "key-blocked"
    DELAYED = "delayed"
    TRANSACTION = "transaction-open"
    RATE = "rate-limit"
    FILTER = "entry-filter"
    REPLICATION = "not-replicated"
    COMPACTION = "not-compacted"
    SHADOW = "shadow"
    MOVING = "not-moved"
    SNAPSHOT = "no-snapshot"
    ALIKE_TOPIC = "configuration-topic"
    ALIKE_UNHEARD = "configuration-unheard"
    ALIKE_STUCK = "configuration-stuck"
    ALIKE_DIFFERS = "configuration-differs"
    ALIKE_UNDONE = "configuration-undone"


class Finding(NamedTuple):
    """One cause."""

    cause: Cause
    severity: Severity
    #: Empty: it is about the topic.
    subscription: str
    sentence: str
    mends: str


class DoctorFacts(NamedTuple):
    """What was asked about a topic without partitions, or one partition."""

    topic: str
    now_ms: int
    #: ``stats``; None: nobody answers for the topic.
    stats: Document | None = None
    #: Why not, in the words of who was asked.
    unserved: str = ""
    #: ``internalStats``.
    internal: Document = _NOTHING
    #: ``backlogQuotaMap`` as it applies.
    quotas: Document = _NOTHING
    #: Transactions by id that are open, with their topics and subscriptions.
    transactions: Mapping[str, Document] = _NOTHING
    #: ``transactionBufferStats``.
    buffer: Document = _NOTHING


#: Actions of quotas that hold producers.
_HOLDING: Final = frozenset({"producer_request_hold", "producer_exception"})
#: Types whose consumers each take messages; of others one does.
_SHARED: Final = frozenset({"Shared", "Key_Shared"})
#: Hashes and consumers that one sentence names.
_NAMED_MAX: Final = 3


def findings_of(facts: DoctorFacts, subscription: str = "") -> list[Finding]:
    """Causes, those of the topic first; ``subscription``: of the others only its own."""
    if facts.stats is None and facts.unserved == MetadataUnavailableError.public_text:
        return [
            Finding(
                Cause.METADATA,
                Severity.STOPS,
                "",
                f"A broker answers, and does not reach its metadata store: who serves {facts.topic} is not known.",
                "See that ZooKeeper runs, a majority of its servers, and is reached from the broker, whose log says "
                "why not. What is open is served meanwhile.",
            )
        ]
    if facts.stats is None:
        return [
            Finding(
                Cause.NO_OWNER,
                Severity.STOPS,
                "",
                f"No broker serves {facts.topic}: {facts.unserved.rstrip('.')}.",
                "See that a broker of the cluster runs and has its bundle: geminga admin brokers list, topics lookup.",
            )
        ]
    found = list(_of_topic(facts, facts.stats))
    for name, document in facts.stats.get("subscriptions", {}).items():
        if not subscription or name == subscription:
            found += _of_subscription(facts, name, document)
    return found


def position_of(text: str) -> tuple[int, int]:
    """``5:3`` as numbers; raises ValueError."""
    ledger, _, entry = text.partition(":")
    return int(ledger), int(entry)


def time_text(time_ms: int) -> str:
    """UTC, to the second."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# ---- the topic


def _of_topic(facts: DoctorFacts, stats: Document) -> Iterator[Finding]:
    state = facts.internal.get("state")
    if state == "Terminated":
        yield Finding(
            Cause.TERMINATED,
            Severity.STOPS,
            "",
            "The topic was ended: nothing can be published any more. What is stored is delivered.",
            "Publish to another topic; an end is not taken back.",
        )
    if state == "Fenced":
        yield Finding(
            Cause.FENCED,
            Severity.STOPS,
            "",
            "The topic's log is fenced here: another broker took it, or a write failed with its outcome unknown.",
            "Unload the topic, so that its owner loads it anew: geminga admin topics unload.",
        )
    yield from _quotas(facts.quotas, stats)
    yield from _of_shadows(facts.internal.get("geminga", {}))
    yield from _missing_bookies(facts)
    yield from _compaction(facts)
    for cluster, document in stats.get("replication", {}).items():
        backlog = document.get("replicationBacklog", 0)
        if document.get("disconnectedReason") and backlog:
            yield Finding(
                Cause.REPLICATION,
                Severity.HOLDS,
                "",
                f"Nothing is copied to cluster {cluster}, which lacks {backlog} entries: "
                f"{document['disconnectedReason'].rstrip('.')}.",
                f"Mend what that says, or take {cluster} out (geminga admin topics set-replication-clusters); "
                "the copying goes on by itself.",
            )


def _of_shadows(told: Document) -> Iterator[Finding]:
    """Of the topic's own statistics: what it shows, who shows it, where it goes."""
    shadow = told.get("shadow", {})
    if shadow.get("stays"):
        yield Finding(
            Cause.MOVING,
            Severity.HOLDS,
            "",
            f"It shows {shadow['source']}: {shadow['stays']}.",
            "Make a shadow of the source over there (topics create-shadow-topic, set-shadow-topics), with "
            "the same subscriptions, and lead its consumers there.",
        )
    if shadow.get("reason"):
        yield Finding(
            Cause.SHADOW,
            Severity.HOLDS,
            "",
            f"It shows {shadow['source']}, and nothing new of it: {shadow['reason'].rstrip('.')}.",
            "Have the source name it (geminga admin topics set-shadow-topics), or mend what that says.",
        )
    for name, entries in shadow.get("lost", {}).items():
        yield Finding(
            Cause.SHADOW,
            Severity.WAITS,
            name,
            f"{entries} entries went at the source {shadow['source']} before they were read here.",
            "Give the source a longer retention (geminga admin topics set-retention).",
        )
    for name, document in told.get("shadows", {}).items():
        if document.get("reason"):
            yield Finding(
                Cause.SHADOW,
                Severity.WAITS,
                "",
                f"Its shadow {name} can not be told what is new: {document['reason'].rstrip('.')}.",
                "The shadow shows it when its broker answers again.",
            )
    moving = told.get("migration", {})
    if moving.get("reason"):
        yield Finding(
            Cause.MOVING,
            Severity.HOLDS,
            "",
            f"It does not move to {moving['url']} yet: {moving['reason'].rstrip('.')}.",
            "Mend what that says; it tries again by itself.",
        )


def _no_snapshot(facts: DoctorFacts, name: str, document: Document) -> Iterator[Finding]:
    """A replicated subscription whose position goes to no other cluster."""
    own = facts.internal.get("geminga", {})
    snapshots = own.get("replicatedSubscriptions", {})
    reason = snapshots.get("reason", "")
    if own and "replicatedSubscriptions" not in own and (facts.stats or {}).get("replication"):
        reason = "the broker makes none (enableReplicatedSubscriptions=false)"
    if not document.get("isReplicated") or not reason:
        return
    last_ms = snapshots.get("lastCompletedSnapshotTimestamp", 0)
    since = f"since {time_text(last_ms)}" if last_ms > 0 else "since the topic was loaded"
    yield Finding(
        Cause.SNAPSHOT,
        Severity.HOLDS,
        name,
        f"{name} is replicated, and no snapshot was made {since}: {reason.rstrip('.')}. Who goes over to another "
        "cluster now sees again what was acknowledged in the meantime.",
        "Mend what that says, or take the cluster out (geminga admin topics set-replication-clusters); "
        "snapshots go on by themselves.",
    )


def _quotas(quotas: Document, stats: Document) -> Iterator[Finding]:
    for quota in quotas.values():
        if quota.get("policy") not in _HOLDING:
            continue
        used, limit = stats.get("backlogSize", 0), quota.get("limitSize", quota.get("limit", -1))
        age_s, limit_s = stats.get("oldestBacklogMessageAgeSeconds", -1), quota.get("limitTime", -1)
        why = f"{used} bytes are not acknowledged, of at most {limit}" if 0 < limit <= used else ""
        if not why and 0 < limit_s <= age_s:
            why = f"the oldest message that is not acknowledged is {age_s} s old, of at most {limit_s} s"
        if why:
            of = stats.get("oldestBacklogMessageSubscriptionName")
            behind = f", furthest behind is subscription {of}" if of else ""
            yield Finding(
                Cause.QUOTA,
                Severity.STOPS,
                "",
                f"The backlog quota holds producers ({quota['policy']}): {why}{behind}.",
                "Have the backlog consumed or skipped, or raise the quota.",
            )


def _missing_bookies(facts: DoctorFacts) -> Iterator[Finding]:
    told = facts.internal.get("geminga", {}).get("bookies", {})
    there, ensemble = told.get("available", 0), told.get("ensembleSize", 0)
    if there >= ensemble:
        return
    read_only = told.get("readOnly", 0)
    others = f", {read_only} are read-only" if read_only else ""
    fewer = ", or set a smaller ensemble (persistence policy)" if ensemble > 1 else ""
    mends = f"Start the missing bookies{fewer}."
    if read_only:
        mends = (
            "Make room on the disks of those that are read-only, whose logs say which, unless they were started so "
            f"(forceReadOnlyBookie); or start more bookies{fewer}."
        )
    yield Finding(
        Cause.BOOKIES,
        Severity.STOPS,
        "",
        f"{there} bookies take entries{others}, and a new ledger needs {ensemble} (ensemble size): what is published "
        "can not be stored once the present ledger ends or loses a bookie.",
        mends,
    )


def _compaction(facts: DoctorFacts) -> Iterator[Finding]:
    told = facts.internal.get("geminga", {}).get("compaction") or {}
    error = str(told.get("lastError") or "").rstrip(".")
    if not error:
        return
    behind = f"{told.get('entriesBehind', 0)} entries behind {told.get('horizon') or 'the beginning'}"
    if told.get("status") == "RUNNING":
        yield Finding(
            Cause.COMPACTION,
            Severity.HOLDS,
            "",
            "Nobody knows yet what came of the last write of a compaction, and readers of compacted messages wait: "
            f"{error}.",
            "Bring back the bookies or the metadata store that it names; it is tried again each second.",
        )
        return
    yield Finding(
        Cause.COMPACTION,
        Severity.HOLDS,
        "",
        f"The last compaction failed, and {behind} are kept in the log: {error}.",
        "Mend what that says and compact again: geminga admin topics compact (with a threshold it is tried by itself).",
    )


# ---- a subscription


def _of_subscription(facts: DoctorFacts, name: str, stats: Document) -> Iterator[Finding]:
    yield from _unreadable(facts, name, stats)
    yield from _transactions(facts, name, stats)
    yield from _no_snapshot(facts, name, stats)
    backlog = stats.get("msgBacklog", 0)
    consumers: Sequence[Document] = stats.get("consumers", ())
    if backlog <= 0:
        return
    if not consumers:
        yield Finding(
            Cause.NO_CONSUMER,
            Severity.STOPS,
            name,
            f"Nobody consumes {name}: {backlog} entries wait.",
            "Connect a consumer; if nobody needs the subscription any more, delete it.",
        )
        return
    delayed = stats.get("msgDelayed", 0)
    if delayed > 0:
        yield _delayed(facts, name, stats, delayed, backlog)
    yield from _limits(name, stats, consumers)
    yield from _blocked_keys(name, consumers)
    # What consumers hold, and what waits for its time, asks for no permits.
    if _is_anything_to_send(facts, name, stats):
        yield from _permits(name, stats, consumers)
    if stats.get("heldByRate"):
        level = str(stats["heldByRate"]).lower().replace("resourcegroup", "resource group")
        yield Finding(
            Cause.RATE,
            Severity.HOLDS,
            name,
            f"{name} waits for the dispatch rate of the {level}: it had its messages or bytes of this period.",
            f"Raise the dispatch rate of the {level}, or wait: it goes on by itself.",
        )
    yield from _filters(name, stats)


def _filters(name: str, stats: Document) -> Iterator[Finding]:
    failure = stats.get("filterFailure")
    if not failure:
        return
    filters, error = failure.get("filters"), failure.get("error")
    if failure.get("isHeld"):
        told, severity = f"{name} is sent nothing: its entry filters ({filters}) fail: {error}.", Severity.STOPS
    else:
        told = f"Messages pass {name} unfiltered: its entry filters ({filters}) fail: {error}."
        severity = Severity.HOLDS
    yield Finding(
        Cause.FILTER,
        severity,
        name,
        told,
        "Mend the filters, which are asked again later each time, set others, or remove them: set-entry-filters.",
    )


def _unreadable(facts: DoctorFacts, name: str, stats: Document) -> Iterator[Finding]:
    error = stats.get("readError")
    if not error:
        return
    ledger_id = error.get("ledgerId")
    ledgers = {each["ledgerId"]: each for each in facts.internal.get("ledgers", ())}
    before = max((each for each in ledgers if each < ledger_id), default=None)
    cursor = facts.internal.get("cursors", {}).get(name, {})
    behind = f"{before}:{ledgers[before]['entries'] - 1}" if before is not None else cursor.get("markDeletePosition")
    told = f"{name} stands behind message {behind}: ledger {ledger_id} can not be read: {error.get('error')}."
    if ledgers.get(ledger_id, {}).get("offloaded"):
        yield Finding(
            Cause.LAKE,
            Severity.STOPS,
            name,
            f"{told} It is in the lake alone, and its file is away or does not answer.",
            "Bring the lake or the file back: geminga lake list names it; if it is lost: geminga lake skip-hole.",
        )
    else:
        lost = "Its bookies do not have it any more" if error.get("isLost") else "Its bookies do not answer"
        yield Finding(
            Cause.HOLE,
            Severity.STOPS,
            name,
            f"{told} {lost}.",
            "Bring the bookies back that had it; if it is lost: geminga lake skip-hole gives it up, and says of whom.",
        )


def _transactions(facts: DoctorFacts, name: str, stats: Document) -> Iterator[Finding]:
    producing, acking = _open_here(facts, name)
    if not producing and not acking:
        return
    if producing and _is_hidden(facts):
        last = facts.buffer["maxReadPosition"]
        yield Finding(
            Cause.TRANSACTION,
            Severity.STOPS if not stats.get("msgBacklog", 0) else Severity.HOLDS,
            name,
            f"Messages behind {last} are shown once open transactions end: {_told_transactions(producing, facts)}.",
            "Have their owners commit or abort, or abort them: geminga admin transactions abort-transaction.",
        )
    if acking:
        yield Finding(
            Cause.TRANSACTION,
            Severity.HOLDS,
            name,
            f"Messages of {name} are acknowledged in open transactions, and neither done nor sent again until they "
            f"end: {_told_transactions(acking, facts)}.",
            "Have their owners commit or abort, or abort them: geminga admin transactions abort-transaction.",
        )


def _open_here(facts: DoctorFacts, name: str) -> tuple[dict[str, Document], dict[str, Document]]:
    """Transactions that published to the topic, and that acknowledged in the subscription."""
    producing: dict[str, Document] = {}
    acking: dict[str, Document] = {}
    for txn_id, document in facts.transactions.items():
        if (document.get("producedPartitions") or {}).get(facts.topic, {}).get("startPosition"):
            producing[txn_id] = document
        if name in (document.get("ackedPartitions") or {}).get(facts.topic, {}):
            acking[txn_id] = document
    return producing, acking


def _is_hidden(facts: DoctorFacts) -> bool:
    """Whether something is stored that may not be read yet."""
    limit, last = facts.buffer.get("maxReadPosition"), facts.internal.get("lastConfirmedEntry")
    return bool(limit and last) and position_of(str(limit)) < position_of(str(last))


def _told_transactions(found: Mapping[str, Document], facts: DoctorFacts) -> str:
    oldest = sorted(found.items(), key=lambda item: item[1].get("openTimestamp", 0))
    texts = []
    for txn_id, document in oldest[:_NAMED_MAX]:
        opened_ms = document.get("openTimestamp", facts.now_ms)
        whose = f" of {document['owner']}" if document.get("owner") else ""
        texts.append(
            f"{txn_id}{whose}, open since {time_text(opened_ms)} ({max(0, facts.now_ms - opened_ms) // 1000} s)"
        )
    return _listed(texts, len(oldest))


def _delayed(facts: DoctorFacts, name: str, stats: Document, delayed: int, backlog: int) -> Finding:
    due_ms = stats.get("nextDueTimestamp")
    until = f", the first until {time_text(due_ms)}" if due_ms else ""
    left_ms = due_ms - facts.now_ms if due_ms else 0
    soon = f" (in {left_ms // 1000} s)" if left_ms > 0 else ""
    return Finding(
        Cause.DELAYED,
        Severity.WAITS,
        name,
        f"{delayed} of {backlog} entries of {name} are delayed by their producers{until}{soon}.",
        "Nothing is to be mended: they come at their time.",
    )


def _limits(name: str, stats: Document, consumers: Sequence[Document]) -> Iterator[Finding]:
    if stats.get("blockedSubscriptionOnUnackedMsgs"):
        unacked = stats.get("unackedMessages", 0)
        yield Finding(
            Cause.UNACKED_SUBSCRIPTION,
            Severity.STOPS,
            name,
            f"{name} is at its limit: its consumers have {unacked} messages that they did not acknowledge.",
            "Have them acknowledge, or close those that hang; or raise maxUnackedMessagesPerSubscription.",
        )
    blocked = [each for each in consumers if each.get("blockedConsumerOnUnackedMsgs")]
    if blocked:
        texts = [f"{_who(each)} has {each.get('unackedMessages', 0)}" for each in blocked[:_NAMED_MAX]]
        yield Finding(
            Cause.UNACKED_CONSUMER,
            Severity.STOPS if len(blocked) == len(consumers) else Severity.HOLDS,
            name,
            f"Consumers of {name} are at their limit of messages that are not acknowledged: "
            f"{_listed(texts, len(blocked))}.",
            "Have them acknowledge, or close them; or raise maxUnackedMessagesPerConsumer.",
        )


def _blocked_keys(name: str, consumers: Sequence[Document]) -> Iterator[Finding]:
    texts: list[str] = []
    count = 0
    for consumer in consumers:
        hashes = [each for each in consumer.get("drainingHashes", ()) if each.get("blockedAttempts", 0) > 0]
        if not hashes:
            continue
        count += 1
        numbers = _listed([str(each["hash"]) for each in hashes[:_NAMED_MAX]], len(hashes))
        unacked = sum(each.get("unackMsgs", 0) for each in hashes)
        texts.append(f"{_who(consumer)} has {unacked} messages of hashes {numbers} that moved on to others")
    if texts:
        yield Finding(
            Cause.KEY,
            Severity.HOLDS,
            name,
            f"Keys of {name} wait for who had them before: {_listed(texts[:_NAMED_MAX], count)}.",
            "Have these consumers acknowledge those messages, or close them.",
        )


def _is_anything_to_send(facts: DoctorFacts, name: str, stats: Document) -> bool:
    """Whether an entry waits to be sent: one to send again, or one that was not read."""
    if stats.get("readError"):
        return False
    if stats.get("msgInReplay", 0) > 0:
        return True
    read = facts.internal.get("cursors", {}).get(name, {}).get("readPosition")
    last = facts.buffer.get("maxReadPosition") or facts.internal.get("lastConfirmedEntry")
    return bool(read and last) and position_of(str(read)) <= position_of(str(last))


def _permits(name: str, stats: Document, consumers: Sequence[Document]) -> Iterator[Finding]:
    kind = stats.get("type")
    asked = consumers
    if kind not in _SHARED:
        active = stats.get("activeConsumerName")
        asked = [each for each in consumers if each.get("consumerName") == active] if active else consumers
    full = [
        each for each in asked if each.get("availablePermits", 1) <= 0 and not each.get("blockedConsumerOnUnackedMsgs")
    ]
    # Of Shared consumers one that takes messages is enough; a key has one that may have it.
    if not full or (kind == "Shared" and len(full) < len(asked)):
        return
    texts = [f"{_who(each)} ({each.get('unackedMessages', 0)} not acknowledged)" for each in full[:_NAMED_MAX]]
    yield Finding(
        Cause.NO_PERMITS,
        Severity.STOPS if len(full) == len(asked) else Severity.HOLDS,
        name,
        f"Consumers of {name} ask for no more messages: {_listed(texts, len(full))}.",
        "Their programs do not take what was sent: see what they do with it, or use a larger receiver queue.",
    )


def _who(consumer: Document) -> str:
    address = consumer.get("address")
    return (
        f"{consumer.get('consumerName')} at {str(address).lstrip('/')}"
        if address
        else str(consumer.get("consumerName"))
    )


def _listed(texts: Sequence[str], count: int) -> str:
    more = f" and {count - len(texts)} more" if count > len(texts) else ""
    return ", ".join(texts) + more
