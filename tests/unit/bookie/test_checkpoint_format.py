from __future__ import annotations

from geminga.bookie.core.checkpoint_format import (
    Checkpoint,
    Cookie,
    decode_checkpoint,
    decode_cookie,
    encode_checkpoint,
    encode_cookie,
)
from support.house.format_docs import documented_bytes

INSTANCE = bytes(range(16))
DOCUMENTED = Checkpoint(
    serial=1,
    mark_sequence=1,
    mark_journal_id=1,
    next_log_id=2,
    next_run_id=2,
    run_ids=(1,),
    logs=((1, 115),),
)


def test_checkpoint_is_as_documented():
    assert encode_checkpoint(DOCUMENTED, INSTANCE) == documented_bytes("checkpoint")
    assert decode_checkpoint(documented_bytes("checkpoint"), INSTANCE) == DOCUMENTED


def test_checkpoint_with_bitmaps_round_trip():
    checkpoint = Checkpoint(run_ids=(4, 9), logs=((1, 2), (3, 4)), deleted=b"some", limbo=b"bits")
    assert decode_checkpoint(encode_checkpoint(checkpoint, INSTANCE), INSTANCE) == checkpoint


def test_checkpoint_of_another_bookie_is_refused():
    assert decode_checkpoint(documented_bytes("checkpoint"), bytes(16)) is None
    assert decode_checkpoint(b"", INSTANCE) is None


def test_cookie_round_trip():
    cookie = Cookie(INSTANCE, "journal")
    data = encode_cookie(cookie)
    assert b"crc32c: ac79d242\n" in data
    assert decode_cookie(data) == cookie


def test_damaged_cookie_is_refused():
    data = encode_cookie(Cookie(INSTANCE, "journal"))
    assert decode_cookie(data.replace(b"journal", b"ledgers")) is None
    assert decode_cookie(b"") is None
    assert decode_cookie(b"\xff\xfe") is None
