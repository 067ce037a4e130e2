"""Telling damage from a torn end in a log that SQLite itself wrote."""

from __future__ import annotations

import sqlite3

import pytest

from geminga.metadata.core.wal import FRAME_HEADER_BYTES, HEADER_BYTES, find_wal_damage

PAGE_BYTES = 512
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES


@pytest.fixture
def log(tmp_path) -> bytes:
    """Ten transactions, and behind them frames of a longer round of the log before."""
    path = tmp_path / "db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    for i in range(30):
        connection.execute("INSERT INTO t VALUES (?)", (f"before{i}",))
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    for i in range(10):
        connection.execute("INSERT INTO t VALUES (?)", (f"row{i}",))
    data = (tmp_path / "db-wal").read_bytes()
    connection.close()
    return data


def flipped(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 16]) + data[offset + 1 :]


def test_whole_log_and_frames_of_an_earlier_round_are_no_damage(log):
    assert find_wal_damage(log) is None
    assert len(log) > HEADER_BYTES + 20 * FRAME_BYTES


@pytest.mark.parametrize("data", [b"", b"x" * HEADER_BYTES])
def test_log_without_a_frame_is_no_damage(data):
    assert find_wal_damage(data) is None


@pytest.mark.parametrize("offset", [0, 9, 17, 30])
def test_damaged_header_is_told(log, offset):
    assert find_wal_damage(flipped(log, offset)) == 0


@pytest.mark.parametrize("at", [0, 9, 17, FRAME_HEADER_BYTES, FRAME_BYTES - 1])
def test_damaged_frame_before_others_is_told(log, at):
    second = HEADER_BYTES + FRAME_BYTES
    assert find_wal_damage(flipped(log, second + at)) == second


def test_torn_last_transaction_is_no_damage(log):
    # The header's salts are in every frame of its round.
    salts = log[16:24]
    frames = [
        at
        for at in range(HEADER_BYTES, len(log), FRAME_BYTES)
        if log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8])
    ]
    last = frames[-1]
    assert find_wal_damage(flipped(log, last + 100)) is None
    assert find_wal_damage(log[: last + 100]) is None
    assert find_wal_damage(flipped(log, frames[-2] + 100)) == frames[-2]
