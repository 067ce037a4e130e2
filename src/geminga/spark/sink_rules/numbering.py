"""Numbers of rows and plans: what makes a replay say the same numbers, and what the broker's answer to them means.

Two kinds of sequence ids, both 31 bits of batch number above 32 bits, so that they grow from batch to batch:

- a **row** has (batch, its number among the task's rows for that topic or partition, from 0 on);
- a **plan** has (batch, checksum of everything the task is going to write in that batch).

The broker keeps the highest id of each producer name and topic, and tells it when a producer of that name connects. Of
rows it says how many of the batch are stored, since they are stored in order; of plans, which plan was begun.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from geminga.model.crc32c import crc32c
from geminga.spark.sink_rules.errors import ReplayDiffersError, SupersededError
from geminga.spark.sink_rules.message_columns import BYTE_COLUMNS, MessageColumns

#: Rows of one task and batch for one topic or partition.
ROWS_MAX: Final = 1 << 32
#: Former numbers of partitions that are tried for one plan.
PARTITIONS_TRIED_MAX: Final = 10_000
_LOW_MASK: Final = ROWS_MAX - 1
_LOW_BITS: Final = 32
#: Rows that are joined for one step of the checksum.
_CHECKSUM_ROWS: Final = 1024


#: What is left where a batch can not be replayed: no advice here may write a row twice.
_WITHOUT_REPLAY: Final = (
    "find out which of the batch's rows are in the topics (they have producer names that begin with {producers!r} and "
    "sequence ids from {first} to {last}), write those that are missing with guarantee=at-least-once, and start a new "
    "query, with a checkpoint and a txnAppId of its own, behind this batch. Another sinkName alone would write the "
    "stored rows a second time"
)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Which task of which batch of which sink; attempts of the same task are equal but for ``attempt``."""

    #: Application (or streaming query) and name of the sink.
    sink_id: str
    batch_id: int
    partition: int
    attempt: int = 0

    @property
    def producer_name(self) -> str:
        """The name under which the task's rows and plans are numbered."""
        return f"{self.sink_id}-{self.partition}"


def sink_id_of(application_id: str, sink_name: str) -> str:
    """Neither part has a colon, so that no two sinks have the same."""
    return f"{application_id}:{sink_name}" if sink_name else application_id


def row_sequence_id(batch_id: int, row: int) -> int:
    """The sequence id of a row."""
    return batch_id << _LOW_BITS | row


def plan_sequence_id(batch_id: int, checksum: int) -> int:
    """The sequence id of a plan."""
    return batch_id << _LOW_BITS | checksum


def batch_of(sequence_id: int) -> int:
    """The batch of a row's or a plan's sequence id; -1 of -1, which says that there is none."""
    return sequence_id >> _LOW_BITS


def _stored_names(identity: TaskIdentity) -> dict[str, object]:
    first = row_sequence_id(identity.batch_id, 0)
    return {"producers": f"{identity.sink_id}-", "first": first, "last": first | _LOW_MASK}


def is_planned(identity: TaskIdentity, last_sequence_id: int, checksum: int) -> bool:
    """Whether this very plan was begun before; ``last_sequence_id`` is the newest plan's, -1 for none.

    Raises SupersededError after a later batch, ReplayDiffersError after another plan for this one.
    """
    check_not_superseded(identity, last_sequence_id)
    if batch_of(last_sequence_id) < identity.batch_id:
        return False
    if last_sequence_id & _LOW_MASK != checksum:
        raise ReplayDiffersError(
            f"batch {identity.batch_id} of sink {identity.sink_id}, task {identity.partition}: an earlier attempt was "
            "about to write other rows, or the same ones in other entries. What it wrote would be lost or doubled, so "
            "nothing more is written. A replay must give each task the same rows: no random values, the same number "
            "of tasks, options batchingMaxMessages, batchingMaxBytes, hashingScheme and orderedBy as they were, and a "
            "sinkName of its own for each of several writes in one foreachBatch. Set back what was changed. If that "
            f"can not be, {_WITHOUT_REPLAY.format(**_stored_names(identity))}"
        )
    return True


def plan_checksum(rows_checksum: int, partitions: Mapping[str, int]) -> int:
    """The checksum of a plan: of its rows, and of how many partitions each topic had for it (0: it had none)."""
    return text_checksum(",".join(f"{topic} {count}" for topic, count in sorted(partitions.items())), rows_checksum)


def planned_partitions(
    identity: TaskIdentity, last_sequence_id: int, rows_checksum: int, partitions: Mapping[str, int]
) -> Mapping[str, int]:
    """The numbers of partitions that rows are to be spread over: those of now, or those of the plan for this batch.

    A topic may have been given more partitions since an earlier attempt; its rows must go where they went then. What
    the topic had is not recorded, but few numbers are possible, and the plan's checksum tells the right one.
    """
    if batch_of(last_sequence_id) != identity.batch_id:
        return partitions
    tried = 0
    for topic, count in partitions.items():
        for fewer in range(count - 1, 0, -1):
            former = {**partitions, topic: fewer}
            tried += 1
            if plan_checksum(rows_checksum, former) == last_sequence_id & _LOW_MASK:
                return former
            if tried >= PARTITIONS_TRIED_MAX:
                return partitions
    return partitions


def check_not_superseded(identity: TaskIdentity, last_sequence_id: int) -> None:
    """Raise SupersededError if a later batch was begun."""
    newest = batch_of(last_sequence_id)
    if newest > identity.batch_id:
        raise SupersededError(
            f"batch {identity.batch_id} of sink {identity.sink_id}, task {identity.partition}: batch {newest} was "
            "written already. This is an old driver that still runs, an older copy of the checkpoint, or a txnVersion "
            "that does not grow; rows of a number that is used up would be dropped, so nothing is written"
        )


def stored_rows(identity: TaskIdentity, topic: str, last_sequence_id: int, rows: int, *, was_planned: bool) -> int:
    """How many of a task's ``rows`` for ``topic`` are stored, by what the broker remembers of the producer's name.

    Raises SupersededError, or ReplayDiffersError for what this plan can not have left behind.
    """
    check_not_superseded(identity, last_sequence_id)
    if batch_of(last_sequence_id) < identity.batch_id:
        return 0
    stored = (last_sequence_id & _LOW_MASK) + 1
    if not was_planned or stored > rows:
        where = f"batch {identity.batch_id} of sink {identity.sink_id}, task {identity.partition}: {topic}"
        if stored > rows:
            raise ReplayDiffersError(
                f"{where} holds {stored} rows, and the replay has {rows}: they are not the same. Nothing more is "
                f"written. Set back what was changed. If that can not be, "
                f"{_WITHOUT_REPLAY.format(**_stored_names(identity))}"
            )
        raise ReplayDiffersError(
            f"{where} holds {stored} rows of a plan that is not recorded: commitStateTopic was changed, or its topic "
            "was deleted. If the option was changed, set it back. If the topic is gone, and the replay gives each task "
            f"the same rows as before, run once with the option resumeWithoutPlan={identity.batch_id}: it goes on "
            "behind the rows that are stored and writes none of them again. Another sinkName would write them a second "
            "time"
        )
    return stored


def columns_checksum(messages: MessageColumns, checksum: int) -> int:
    """CRC32C over every field of every row, in order, from ``checksum`` on."""
    count = len(messages)
    for name in BYTE_COLUMNS:
        column: Sequence[bytes | None] | None = getattr(messages, name)
        if column is None:
            continue
        is_any_null = messages.has_null(name)
        for start in range(0, count, _CHECKSUM_ROWS):
            part = column[start : start + _CHECKSUM_ROWS]
            if is_any_null:
                sizes = array("q", [-1 if value is None else len(value) for value in part])
                known: Sequence[bytes] = [value for value in part if value is not None]
            else:
                known = cast("Sequence[bytes]", part)
                sizes = array("q", map(len, known))
            checksum = crc32c(b"".join(known), _ints_checksum(sizes, checksum))
    for times in (messages.event_times_ms, messages.deliver_at_ms):
        if times is not None:
            checksum = _ints_checksum(array("q", [-1 if time is None else time for time in times]), checksum)
    is_any_base64 = messages.base64_keys is not None and any(messages.base64_keys)
    if messages.base64_keys is not None and is_any_base64:
        checksum = crc32c(bytes(messages.base64_keys), checksum)
    shape = [count, is_any_base64, *(column is None for column in (messages.keys, messages.event_times_ms))]
    return _ints_checksum(array("q", map(int, shape)), checksum)


def _ints_checksum(values: array[int], checksum: int) -> int:
    # The same on every machine, whatever its byte order.
    if array("H", [1]).tobytes() != b"\x01\x00":
        values.byteswap()
    return crc32c(values.tobytes(), checksum)


def text_checksum(text: str, checksum: int) -> int:
    """CRC32C over a text with its length, from ``checksum`` on."""
    data = text.encode()
    return crc32c(b"%d:%b" % (len(data), data), checksum)


def plan_record(identity: TaskIdentity, checksum: int, rows: Mapping[str, int]) -> bytes:
    """What is written to the plan topic: for people, and for a later exactly-once sink."""
    record = {
        "v": 1,
        "sink": identity.sink_id,
        "batch": identity.batch_id,
        "partition": identity.partition,
        "attempt": identity.attempt,
        "checksum": f"{checksum:08x}",
        "rows": dict(sorted(rows.items())),
    }
    return json.dumps(record, separators=(",", ":")).encode()
