"""The bench's look at message ids: gaps, overlaps and rows out of order are told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from bench.lake_ids import check_runs, ids_of, runs_of

from geminga.client import MessageId

IDS = [(3, entry, index) for entry in range(125, 131) for index in range(4)] + [(200, 0, index) for index in range(200)]


def batch(first: int, last: int, ids=IDS) -> pa.RecordBatch:
    chosen = ids[first:last]
    data = [MessageId(-1, ledger, entry, index, 300).serialize() for ledger, entry, index in chosen]
    values = [number.to_bytes(8, "big") + b"x" for number in range(first, last)]
    return pa.RecordBatch.from_arrays([pa.array(data), pa.array(values)], names=["__messageId", "value"])


def test_runs_that_follow_each_other_are_fine_in_any_order():
    runs = [run for at in range(0, len(IDS), 50) for run in runs_of(batch(at, min(at + 50, len(IDS))))]
    assert check_runs(runs[::-1], len(IDS)) == {3: 24, 200: 200}
    found = [column.tolist() for column in ids_of(batch(0, 5).column(0))]
    assert found == [[3] * 5, [125, 125, 125, 125, 126], [0, 1, 2, 3, 0]]


@pytest.mark.parametrize(
    "bounds", [[(0, 50), (51, 224)], [(0, 50), (49, 224)], [(0, 50), (0, 50), (50, 224)], [(0, 50)]]
)
def test_gap_overlap_and_end_are_told(bounds):
    with pytest.raises(ValueError, match="expected"):
        check_runs([run for first, last in bounds for run in runs_of(batch(first, last))], len(IDS))


def test_rows_out_of_order_or_with_the_same_id_are_told():
    for ids in (IDS[:3][::-1], [IDS[0], IDS[0]]):
        with pytest.raises(ValueError, match="do not follow"):
            runs_of(batch(0, len(ids), ids))
