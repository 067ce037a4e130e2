"""How far a topic may be read: the least of what its parts say, and never back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.read_limit import read_limit
from geminga.model.position import LATEST, Position

positions = st.builds(Position, st.integers(0, 3), st.integers(-1, 5)) | st.just(LATEST)


@given(st.lists(st.lists(positions, max_size=4), min_size=1, max_size=8), positions)
def test_limit_is_the_least_but_never_moves_back(rounds: list[list[Position]], end: Position) -> None:
    """``rounds``: what the parts of a topic say, one time after the other; ``end``: of its log, which stays."""
    limit = read_limit(rounds[0], None)
    assert limit == min([LATEST, *rounds[0]])
    readable = min(limit, end)
    for limits in rounds[1:]:
        limit = read_limit(limits, readable)
        assert all(limit <= each or each < readable for each in limits)
        assert limit in (*limits, readable, LATEST)
        before, readable = readable, min(limit, end)
        assert readable >= before
        # Nothing is held longer than anybody wants.
        if all(each >= end for each in limits):
            assert readable == end or limit == before
