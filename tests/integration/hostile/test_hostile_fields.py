"""Every field of every command and of message metadata, one at a time, with values at its borders.

What is tried comes from the descriptors: a new command or field is tried as soon as it is there. Each week
draws another sample for the short test, HOSTILE_SEED any other; the long one tries everything.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from itertools import cycle, groupby
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.weekly_sample import week
from support.processes.hostile import (
    PING,
    TOPIC,
    TYPES_ALL,
    Session,
    Trial,
    Type,
    command,
    command_frame,
    metadata_frame,
    single_metadata_frame,
)
from support.processes.hostile_values import Case, cases_of, command_fields
from support.processes.raw_protocol import RawConnection, frame

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEED = os.environ.get("HOSTILE_SEED") or week()
SETTINGS = {
    "brokerDeduplicationEnabled": "true",
    "managedLedgerCacheSizeMB": 8,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "activeConsumerFailoverDelayTimeMillis": 0,
}
#: What only a broker sends: a client that does is cut off, whatever the fields are.
VALUES_PER_FIELD = {"metadata": 3, "command": 2, "answer": 1}
ACKNOWLEDGED_TOGETHER = 20
ANSWERS = (
    "_RESPONSE",
    "SUCCESS",
    "ERROR",
    "CONNECTED",
    "RECEIPT",
    "MESSAGE",
    "CHANGE",
    "REACHED",
    "UPDATE",
    "CHALLENGE",
)


def command_cases() -> Iterator[Case]:
    """Of every command."""
    for field in command_fields():
        yield from cases_of(field.message_type, (field,))


def is_answer(case: Case) -> bool:
    """Whether only brokers send this command."""
    name = pb.BaseCommand.Type.Name(case.path[0].number)
    return any(part in name for part in ANSWERS)


def sample(cases: Iterable[Case], choose: random.Random, kind: str) -> list[Case]:
    """Some values of each field."""
    chosen: list[Case] = []
    for _, group in groupby(cases, key=lambda case: case.path):
        values = list(group)
        count = VALUES_PER_FIELD["answer" if kind == "command" and is_answer(values[0]) else kind]
        chosen += choose.sample(values, min(count, len(values)))
    return chosen


def attack(process: StandaloneProcess, commands: list[Case], metadata: list[Case], single: list[Case]) -> Trial:
    """Feed everything, look at the broker, restart it, read and acknowledge what it stored."""
    trial = Trial(process)
    types = cycle(TYPES_ALL)
    trial.run(commands, lambda session, case: command_frame(session, case, next(types)))
    trial.run(metadata, metadata_frame)
    trial.run(single, single_metadata_frame)
    trial.finish()
    failures = [
        line
        for line in process.request("GET", "/metrics/").decode().splitlines()
        if line.startswith("geminga_failures_total") and not line.endswith(" 0")
    ]
    print(
        f"{len(trial.fields)} fields, {trial.tried} fields x values tried, deaths {len(trial.deaths)}, "
        f"slowest look {trial.slowest_s * 1000:.0f} ms"
    )
    assert not trial.deaths
    assert not trial.complaints, "\n".join(trial.complaints[:40])
    assert not failures
    return trial


def read_everything(process: StandaloneProcess, sub_type: int, subscription: str) -> int:
    """Receive and acknowledge everything there is, up to a message published now; how many entries that were."""
    session = Session(process.broker_port)
    last = session.position
    connection = RawConnection(process.broker_port, timeout_s=30.0)
    subscribe = pb.CommandSubscribe(
        topic=TOPIC,
        subscription=subscription,
        subType=sub_type,
        consumer_id=1,
        request_id=1,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    flow = pb.CommandFlow(consumer_id=1, messagePermits=1 << 30)
    connection.send(frame(command(Type.SUBSCRIBE, "subscribe", subscribe)))
    connection.expect(Type.SUCCESS)
    connection.send(frame(command(Type.FLOW, "flow", flow)))
    count, waiting, position = 0, [], (-1, -1)
    while position != last or waiting:
        if position == last or len(waiting) == ACKNOWLEDGED_TOGETHER:
            # Soon, or the limit of unacknowledged messages holds the consumer.
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=2)
            for ledger_id, entry_id in waiting:
                ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
            connection.send(frame(command(Type.ACK, "ack", ack)))
            count, waiting = count + len(waiting), []
            continue
        answer = connection.receive()
        assert answer is not None
        assert answer.type != Type.ERROR, str(answer)
        if answer.type == Type.MESSAGE:
            position = (answer.message.message_id.ledgerId, answer.message.message_id.entryId)
            waiting.append(position)
        elif answer.type == Type.ACK_RESPONSE:
            assert not answer.ackResponse.HasField("error")
    connection.send(PING)
    while (answer := connection.receive()) is not None and answer.type != Type.PONG:
        assert answer.type == Type.ACK_RESPONSE
        assert not answer.ackResponse.HasField("error")
    connection.close()
    session.close()
    return count


def run_attack(tmp_path: Path, commands: list[Case], metadata: list[Case], single: list[Case]) -> None:
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SETTINGS)
    with process:
        attack(process, commands, metadata, single)
        assert process.stop() == 0, process.log_tail()
        process.start()
        counts = {read_everything(process, sub_type, f"after-{sub_type}") for sub_type in TYPES_ALL}
        assert min(counts) > 0
        assert process.is_running
        assert "Traceback" not in process.log.read_text(encoding="utf-8", errors="replace")


def test_sample_of_fields_at_their_borders_kills_nothing(tmp_path) -> None:
    choose = random.Random(SEED)
    print(f"HOSTILE_SEED={SEED}")
    run_attack(
        tmp_path,
        sample(command_cases(), choose, "command"),
        sample(cases_of(pb.MessageMetadata.DESCRIPTOR), choose, "metadata"),
        sample(cases_of(pb.SingleMessageMetadata.DESCRIPTOR), choose, "metadata"),
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_field_at_its_borders_kills_nothing(tmp_path) -> None:
    run_attack(
        tmp_path,
        list(command_cases()),
        list(cases_of(pb.MessageMetadata.DESCRIPTOR)),
        list(cases_of(pb.SingleMessageMetadata.DESCRIPTOR)),
    )
