"""Bytes of the hot commands by hand: worked examples beside the property tests."""

from __future__ import annotations

from geminga.wire.pulsar import hot


def test_send_example() -> None:
    command = bytes.fromhex("08 06 32 08 08 01 10 c0 c4 07 18 01")
    assert hot.decode_send(command) == (1, 123456, 0, 1, 0, None)


def test_send_cut_short_or_with_more_behind_is_not_read() -> None:
    command = bytes.fromhex("08 06 32 08 08 01 10 c0 c4 07 18 01")
    for size in range(len(command)):
        assert hot.decode_send(command[:size]) is None
    assert hot.decode_send(command + b"\x18\x02") is None


def test_send_without_required_fields_is_not_read() -> None:
    assert hot.decode_send(bytes.fromhex("08 06 32 02 08 01")) is None
    assert hot.decode_send(bytes.fromhex("08 06 32 02 10 01")) is None


def test_receipt_example() -> None:
    assert hot.encode_send_receipts(1, 2, 3, 1, [(4, 4)]) == bytes.fromhex(
        "00000014 00000010 08 07 3a 0c 08 01 10 04 1a 04 08 02 10 03 20 04"
    )


def test_receipts_of_duplicates_share_one_id() -> None:
    both = hot.encode_send_receipts(1, -1, -1, 0, [(4, 4), (5, 5)])
    assert both.count(b"\xff" * 9 + b"\x01") == 4


def test_message_head_example() -> None:
    assert hot.encode_message_head(1, 2, 3, -1, 5) == bytes.fromhex(
        "00000015 0000000c 08 09 4a 08 08 01 12 04 08 02 10 03"
    )


def test_flow_example() -> None:
    assert hot.decode_flow(bytes.fromhex("08 0b 5a 05 08 01 10 e8 07")) == (1, 1000)
    assert hot.decode_flow(bytes.fromhex("08 0b 5a 05 08 01 10 e8")) is None


def test_ack_example() -> None:
    command = bytes.fromhex("08 0a 52 0a 08 01 10 00 1a 04 08 02 10 03")
    assert hot.decode_ack(command) == hot.AckFields(1, False, [hot.AckedId(2, 3, None)], None)
