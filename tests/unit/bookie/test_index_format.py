from __future__ import annotations

from geminga.bookie.core.index import IndexRun, Row, make_location
from geminga.bookie.core.index_format import decode_run, encode_run
from geminga.bookie.core.ledger_states import LedgerStateRow
from support.house.format_docs import documented_bytes

INSTANCE = bytes(range(16))
STATES = [LedgerStateRow(7, b"key", True)]


def documented_run() -> IndexRun:
    run = IndexRun()
    run.add_ledger(7, [Row(0, 2, 51, make_location(1, 64))])
    run.state_ids.append(7)
    return run


def test_run_is_as_documented():
    assert encode_run(documented_run(), 1, STATES, INSTANCE) == documented_bytes("index")


def test_run_round_trip():
    decoded = decode_run(documented_bytes("index"), 1, INSTANCE)
    assert decoded is not None
    run, states = decoded
    run.check_invariants()
    assert (run.run_id, run.rows(7), list(run.state_ids)) == (1, documented_run().rows(7), [7])
    assert states == STATES


def test_run_of_another_number_or_bookie_is_refused():
    data = documented_bytes("index")
    assert decode_run(data, 2, INSTANCE) is None
    assert decode_run(data, 1, bytes(16)) is None
    assert decode_run(data[:40], 1, INSTANCE) is None
