"""What the driver makes sure of before it says that a batch is written: a message of each task, all of one batch.

Tasks can not see how many they are. So the driver looks for plans of this batch that none of its tasks has: they were
left by an earlier attempt with more tasks, whose rows are then in the topic twice. It looks at the plans next behind
its own, once for each run of a query and number of tasks, and again when an attempt has failed; without a run, always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from geminga.spark.process.clients import session_for
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.plans import PLAN_PRODUCER, plan_topic
from geminga.spark.sink.producers import open_producer
from geminga.spark.sink_rules.errors import ReplayDiffersError, SinkError
from geminga.spark.sink_rules.numbering import TaskIdentity, batch_of
from geminga.spark.sink_rules.sink_options import SinkOptions

#: Plans behind those of the batch's own tasks that are looked at.
STRAY_PLANS_MAX: Final = 16
#: Sinks whose number of tasks a driver remembers; beyond, one more look does no harm.
_SINKS_MAX: Final = 1000

#: Sink -> run and number of tasks at its last commit, of this process, which outlives runs.
_tasks_seen: dict[str, tuple[str, int]] = {}


def check_numbered(options: SinkOptions, commits: Sequence[TaskCommit], batch_id: int | None, what: str) -> None:
    """Messages of tasks that numbered their rows; ``batch_id`` None: not known here. Raises SinkError."""
    identities = {(commit.sink_id, commit.batch_id) for commit in commits}
    partitions = sorted(commit.partition for commit in commits)
    if len(identities) > 1 or partitions != list(range(len(commits))):
        raise SinkError(f"{what}: messages of tasks {partitions} of {sorted(identities)} are not those of one batch")
    for sink_id, given in identities:
        if batch_id is not None and given != batch_id:
            raise SinkError(f"{what}: its tasks wrote batch {given} of sink {sink_id}")
        run = commits[0].run
        if not run or _tasks_seen.get(sink_id) != (run, len(commits)):
            _check_no_stray_plans(options, sink_id, given, len(commits), what)
            if len(_tasks_seen) >= _SINKS_MAX:
                _tasks_seen.clear()
            _tasks_seen[sink_id] = (run, len(commits))


def forget_tasks() -> None:
    """An attempt has failed, and may have had any number of tasks: the next commit of each sink looks."""
    _tasks_seen.clear()


def _check_no_stray_plans(options: SinkOptions, sink_id: str, batch_id: int, tasks: int, what: str) -> None:
    session = session_for(options.client)
    topic = plan_topic(options)

    async def newest_batch(partition: int) -> int:
        name = TaskIdentity(sink_id, batch_id, partition).producer_name
        producer = await open_producer(session.client, topic, PLAN_PRODUCER, None, name)
        try:
            return batch_of(producer.last_sequence_id())
        finally:
            await producer.close()

    async def look() -> list[int]:
        return list(await asyncio.gather(*(newest_batch(tasks + index) for index in range(STRAY_PLANS_MAX))))

    strays = [tasks + index for index, newest in enumerate(session.run(look)) if newest == batch_id]
    if strays:
        raise ReplayDiffersError(
            f"{what} of sink {sink_id} has {tasks} tasks now, and an earlier attempt had more: tasks {strays} of it "
            "began to write, so that some rows are in the topic twice. A replay must have the same number of tasks"
        )
