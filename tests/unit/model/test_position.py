"""Positions and message ids."""

from __future__ import annotations

from geminga.model.position import EARLIEST, LATEST, MessageId, Position


def test_positions_compare_in_log_order() -> None:
    positions = [Position(2, 0), Position(1, 5), LATEST, Position(1, -1), EARLIEST]
    assert sorted(positions) == [EARLIEST, Position(1, -1), Position(1, 5), Position(2, 0), LATEST]


def test_position_reads_as_ledger_and_entry() -> None:
    assert str(Position(3, 14)) == "3:14"


def test_message_id_defaults_to_no_partition_and_no_batch() -> None:
    assert MessageId(1, 2) == (1, 2, -1, -1)
