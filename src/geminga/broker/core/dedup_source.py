"""What deduplication goes by where another cluster's replicator publishes: where a message was stored there.

A replicator carries messages of many producers, whose sequence ids are their own cluster's business: they do not
ascend on the replicator's connection, and where that cluster does not deduplicate they begin anew with each session of
a producer. Judged by them, new messages would be taken for repetitions, and lost with a receipt (apache/pulsar#20128).
So an entry counts by its *source position*, which a replicator of Pulsar 4.0.4 or later writes into a property of the
metadata: ledger and entry id in its own cluster, which ascend as it sends. The two are one number here, so that they
are compared, stored and forgotten together.

What has no source position, as older replicators send, is stored whatever it is: a repetition is there twice then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from geminga.broker.core.dedup import Deduplication, Verdict
from geminga.model.errors import CorruptionError, PreconditionFailedError
from geminga.model.position import Position
from geminga.model.topic_name import REPLICATOR_PREFIX
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION, peek_metadata, text_of

#: Between that and the name of the cluster that it copies to.
_TO: Final = "-->"
#: Properties of the cursor that keep the two halves, behind the name: as in Pulsar.
_LEDGER: Final = "_LID"
_ENTRY: Final = "_EID"
_ENTRY_BITS: Final = 63
_HALF_MAX: Final = (1 << _ENTRY_BITS) - 1
_HALVES: Final = re.compile("([0-9]{1,19}):([0-9]{1,19})")
#: By which name and number an entry counts.
Source = tuple[str, int]
#: Of a topic's ledger, JSON: by cluster, the last entry here that says nothing any more of how far the cluster is
#: (``{"east": "12:34"}``). An operator took its source position away then, and a replay must not find it again.
FORGOTTEN_PROPERTY: Final = "geminga.forgotten-sources"
#: Clusters in it: the list of ledgers has what is left of the node.
FORGOTTEN_MAX: Final = 100


def is_replicator(producer_name: str) -> bool:
    """Whether a producer of this name carries another cluster's messages."""
    return producer_name.startswith(REPLICATOR_PREFIX)


def cluster_of(producer_name: str) -> str | None:
    """Whose replicator a producer of this name is; None: nobody's. Older ones do not name the cluster they copy to."""
    if not is_replicator(producer_name):
        return None
    return producer_name.removeprefix(REPLICATOR_PREFIX).partition(_TO)[0]


def source_of(metadata: pb.MessageMetadata, local_cluster: str) -> Source | None:
    """By which name and number a replicated entry counts; None: nothing tells whether it was here before."""
    if not metadata.replicated_from:
        return None
    for pair in metadata.properties:
        if pair.key == SOURCE_POSITION:
            number = number_of(text_of(pair.value))
            return None if number is None else (source_name(text_of(metadata.replicated_from), local_cluster), number)
    return None


def source_name(cluster: str, local_cluster: str) -> str:
    """By which name another cluster's entries count here."""
    return f"{REPLICATOR_PREFIX}{cluster}{_TO}{local_cluster}"


def source_cluster(name: str) -> str:
    """Whose entries count by that name. Who writes ``replicated_from`` may write an arrow into it."""
    return name.removeprefix(REPLICATOR_PREFIX).rpartition(_TO)[0]


def forgotten_in(properties: Mapping[str, str]) -> dict[str, Position]:
    """What :data:`FORGOTTEN_PROPERTY` says. Raises CorruptionError."""
    text = properties.get(FORGOTTEN_PROPERTY, "{}")
    try:
        found = {}
        for cluster, position in json.loads(text).items():
            ledger, _, entry = position.partition(":")
            found[cluster] = Position(int(ledger), int(entry))
        return found
    except (ValueError, AttributeError) as error:
        raise CorruptionError(f"the property {FORGOTTEN_PROPERTY}: {error}") from error


def is_forgotten(forgotten: Mapping[str, Position], cluster: str, position: Position) -> bool:
    """Whether what is stored up to ``position`` says nothing of how far the cluster is."""
    last = forgotten.get(cluster)
    return last is not None and position <= last


def with_forgotten(
    forgotten: Mapping[str, Position], cluster: str, position: Position, first_ledger_id: int
) -> dict[str, Position]:
    """The same and one more; those of ledgers before ``first_ledger_id``, which no replay reads, are left out.

    Raises PreconditionFailedError for more than :data:`FORGOTTEN_MAX`.
    """
    kept = {name: last for name, last in forgotten.items() if last.ledger_id >= first_ledger_id}
    kept[cluster] = position
    if len(kept) > FORGOTTEN_MAX:
        oldest = min(last for name, last in kept.items() if name != cluster)
        raise PreconditionFailedError(
            f"source positions of {FORGOTTEN_MAX} clusters were taken away, and are remembered until the ledgers are "
            f"trimmed that may have them: ledger {oldest.ledger_id} is the next one"
        )
    return kept


def forgotten_text(forgotten: Mapping[str, Position]) -> str:
    """As :data:`FORGOTTEN_PROPERTY` has it."""
    return json.dumps({name: f"{last}" for name, last in forgotten.items()}, separators=(",", ":"))


def judge(
    state: Deduplication, entries: Sequence[bytes], local_cluster: str
) -> tuple[list[tuple[Verdict, bool]], list[Source | None]]:
    """Verdicts of a replicator's entries, whether they are to be remembered, and by what (:func:`remember`).

    Behind one that is unknown nothing is judged: nothing else of its producer is taken, and what was judged would count
    as under way.
    """
    verdicts: list[tuple[Verdict, bool]] = []
    sources: list[Source | None] = []
    for entry in entries:
        source = _source_in(state, entry, local_cluster)
        verdict = Verdict.ACCEPTED if source is None else state.published(*source, source[1])
        verdicts.append((verdict, source is not None))
        sources.append(source)
        if verdict is Verdict.UNKNOWN:
            break
    return verdicts, sources


def remember(state: Deduplication, sources: Iterable[Source | None]) -> None:
    """A replicator's entries are stored, which were judged by these."""
    last: dict[str, int] = {}
    for source in sources:
        if source is not None:
            name, number = source
            if number > last.get(name, -1):
                last[name] = number
    for name, number in last.items():
        state.stored(name, number)


def sources_in(state: Deduplication, entries: Iterable[bytes], local_cluster: str) -> list[Source | None]:
    """By what each counts; None: it counts by nothing."""
    return [_source_in(state, entry, local_cluster) for entry in entries]


def _source_in(state: Deduplication, entry: bytes, local_cluster: str) -> Source | None:
    metadata = peek_metadata(entry)
    source = None if metadata is None else source_of(metadata, local_cluster)
    return source if source is not None and state.takes_source(source[0]) else None


def number_of(position: str) -> int | None:
    """The number of ``ledger:entry``; None for any other text."""
    halves = _HALVES.fullmatch(position)
    if halves is None:
        return None
    ledger_id, entry_id = int(halves[1]), int(halves[2])
    return None if ledger_id > _HALF_MAX or entry_id > _HALF_MAX else ledger_id << _ENTRY_BITS | entry_id


def shown(name: str, number: int) -> int | str:
    """A producer's number for people: a source position as it is written."""
    return f"{number >> _ENTRY_BITS}:{number & _HALF_MAX}" if is_replicator(name) else number


def as_properties(numbers: Mapping[str, int]) -> dict[str, int]:
    """Producers' numbers as a cursor keeps them, each of 63 bits: source positions in two halves."""
    found: dict[str, int] = {}
    for name, number in numbers.items():
        if is_replicator(name):
            found[name + _LEDGER] = number >> _ENTRY_BITS
            found[name + _ENTRY] = number & _HALF_MAX
        else:
            found[name] = number
    return found


def of_properties(properties: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """The reverse. Other numbers of replicators, as an older Geminga kept them, are no source positions: left out."""
    for name, number in properties.items():
        if not is_replicator(name):
            yield name, number
        elif name.endswith(_LEDGER):
            whole = name.removesuffix(_LEDGER)
            entry_id = properties.get(whole + _ENTRY)
            if entry_id is not None and number >= 0 and entry_id >= 0:
                yield whole, number << _ENTRY_BITS | entry_id
