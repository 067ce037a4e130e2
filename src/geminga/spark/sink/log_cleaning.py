"""Lets go of what nobody needs of a log of decisions: says again what must stay, and moves the subscription.

Brokers delete ledgers whose last message lies before the subscription that holds the topic. Whoever dies in between
leaves a log that says the same (``docs/formats/spark-commits.md``, Cleaning).
"""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.client import ConsumerBusy, ConsumerType, MessageId, Reader
from geminga.runtime import crash_point, get_logger
from geminga.spark.process.clients import ClientSession
from geminga.spark.sink import crash_points
from geminga.spark.sink.plans import PLAN_PRODUCER, PLAN_SUBSCRIPTION
from geminga.spark.sink.producers import kept_producer
from geminga.spark.sink_rules.decisions import Kept, Position, encode
from geminga.spark.sink_rules.log_survey import LogSurvey

_log = get_logger(__name__)

#: Records on their way at the same time.
_SENDING_AT_ONCE: Final = 64


def clean_log(session: ClientSession, topic: str, target: Position, timeout_ms: int) -> Position | None:
    """Read the log up to ``target``, and let go of what nobody needs; the last record that goes, None if none does.

    Raises PulsarException, SinkError; nothing is lost by either.
    """
    producer = kept_producer(session, topic, PLAN_PRODUCER, None).producer
    survey = LogSurvey(session.client.runtime.clock.wall_ms())
    patience_s = timeout_ms / 1000 if timeout_ms else None

    async def clean() -> Position | None:
        reader = await session.client.create_reader(producer.topic(), MessageId.earliest)
        try:
            await _read_to(survey, reader, target, timeout_ms)
            at_once = asyncio.Semaphore(_SENDING_AT_ONCE)

            async def append(kept: Kept) -> MessageId:
                async with at_once, asyncio.timeout(patience_s):
                    return await producer.send(encode(kept), partition_key=kept.sink)

            stored = await asyncio.gather(*(append(kept) for kept in survey.to_keep()))
            crash_point(crash_points.KEPT_STORED)
            if stored:
                await _read_to(survey, reader, max((one.ledger_id(), one.entry_id()) for one in stored), timeout_ms)
        finally:
            await reader.close()
        needless = survey.needless()
        if needless is not None:
            await _let_go(session, producer.topic(), needless)
        return needless

    try:
        needless = session.run(clean)
    except TimeoutError:
        _log.warning("%s: no receipt within %d ms for what must stay: nothing goes for now", topic, timeout_ms)
        return None
    if needless is not None:
        _log.info("%s: of %d records those up to %d:%d may go", topic, survey.records, *needless)
    return needless


async def _read_to(survey: LogSurvey, reader: Reader[bytes], target: Position, timeout_ms: int) -> None:
    while survey.last < target:
        message = await reader.read_next(timeout_ms or None)
        found = (message.message_id().ledger_id(), message.message_id().entry_id())
        if found > survey.last:
            survey.take(message.data(), found)


async def _let_go(session: ClientSession, topic: str, needless: Position) -> None:
    try:
        consumer = await session.client.subscribe(
            topic, PLAN_SUBSCRIPTION, consumer_type=ConsumerType.Exclusive, receiver_queue_size=1
        )
    except ConsumerBusy:
        return  # another driver is at it
    try:
        ledger_id, entry_id = needless
        await consumer.acknowledge_cumulative(MessageId(-1, ledger_id, entry_id))
    finally:
        await consumer.close()
