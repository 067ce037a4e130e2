"""A standalone whose metadata were restored from an older backup loses nothing that newer metadata still name."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from pathlib import Path

import pulsar
import pytest

from geminga.app.servers.embedded import Standalone
from geminga.model.crc32c import crc32c
from support.processes.official import quiet_client


def topic(number: int) -> str:
    return f"persistent://public/default/restored-{number}"


def publish(data: Path, numbers: range, **config) -> list[int]:
    """One message to each topic, named after it; the ledgers they are in."""
    with Standalone(data, config=config) as broker:
        client = quiet_client(broker.service_url, data.parent)
        ids = [client.create_producer(topic(i)).send(str(i).encode()) for i in numbers]
        client.close()
    return [message_id.ledger_id() for message_id in ids]


def test_ledgers_that_restored_metadata_do_not_know_stay_and_their_ids_are_not_used_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    publish(data, range(1))
    shutil.copy(data / "metadata.sqlite", tmp_path / "older")
    before = publish(data, range(1, 13))
    shutil.copy(data / "metadata.sqlite", tmp_path / "newer")

    shutil.copy(tmp_path / "older", data / "metadata.sqlite")
    # Many rounds of garbage collection while it runs, and one when it stops.
    after = publish(data, range(20, 24), gcWaitTime=1)
    assert min(after) > max(before)

    shutil.copy(tmp_path / "newer", data / "metadata.sqlite")
    with Standalone(data) as broker:
        client = quiet_client(broker.service_url, tmp_path)
        for i in range(1, 13):
            reader = client.create_reader(topic(i), pulsar.MessageId.earliest)
            assert reader.read_next(10_000).data() == str(i).encode()
        client.close()
    assert "was metadata.sqlite restored from an older backup? The ids in between are skipped" in caplog.text
    assert "gemingaGarbageQuarantineShare=1" in caplog.text


def test_directory_of_an_older_program_goes_on_above_every_id_it_gave_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish(data, range(3))
    # As it was left by a program that counted in the node itself: a batch of ids was taken, most of them unused.
    connection = sqlite3.connect(data / "metadata.sqlite")
    select = "SELECT value, version, created_ms, modified_ms, session FROM node WHERE parent = '/ledgers' AND name = ?"
    _, version, created_ms, modified_ms, session = connection.execute(select, ("idgen",)).fetchone()
    numbers = struct.pack(">qqqqq", version, created_ms, modified_ms, session, 0)
    crc = crc32c(b"300", crc32c(b"/ledgers/idgen\0" + numbers))
    with connection:
        connection.execute(
            "UPDATE node SET value = ?, next_sequence = 0, crc = ? WHERE parent = '/ledgers' AND name = 'idgen'",
            (b"300", crc),
        )
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    after = publish(data, range(10, 12))
    assert min(after) >= 300
    assert publish(data, range(20, 21)) > after
