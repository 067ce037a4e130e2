from __future__ import annotations

from geminga.bookie.core.index import make_location as at
from geminga.bookie.core.read_plan import plan_reads


def test_neighbours_share_a_read_up_to_the_limit():
    chunks = [(at(1, 164), 100), (at(1, 64), 100), (at(1, 264), 100), (at(1, 500), 10), (at(2, 510), 10)]
    reads = plan_reads([*chunks, chunks[0]], 200)
    assert [(read.location, read.size_bytes, len(read.chunks)) for read in reads] == [
        (at(1, 64), 200, 2),
        (at(1, 264), 100, 1),
        (at(1, 500), 10, 1),
        (at(2, 510), 10, 1),
    ]


def test_chunk_larger_than_the_limit_is_read_alone():
    assert [read.size_bytes for read in plan_reads([(at(1, 64), 500), (at(1, 564), 10)], 100)] == [500, 10]
