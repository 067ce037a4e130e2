"""The shares of a process's descriptors add up, whatever the limit."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from geminga.app.lifecycle.core.descriptors import LIMIT_ASSUMED, plan_descriptors


@given(st.integers(16, 1 << 21) | st.none(), st.integers(2, 5000), st.integers(1, 5000), st.booleans())
@example(256, 64, 2048, True)
@example(16, 2, 1, True)
def test_every_share_is_there_and_no_two_overlap(limit, open_logs, web_max, has_files) -> None:
    plan = plan_descriptors(limit, open_logs=open_logs, web_connections_max=web_max, has_files=has_files)
    assert plan.limit == (LIMIT_ASSUMED if limit is None else limit)
    # Storage may open what it needs, or half of all; the other half is for connections.
    assert 2 <= plan.open_logs <= open_logs
    assert plan.storage <= plan.limit / 2
    assert plan.open_logs <= plan.storage or not has_files
    # HTTP always finds something that clients may not take, and never takes half of what clients may.
    assert plan.keep_free_of_clients > plan.keep_free_of_web == plan.storage
    assert 1 <= plan.web_connections_max <= web_max
    assert plan.limit - plan.keep_free_of_clients - plan.web_connections_max >= plan.connections_max // 2 - plan.web
    assert plan.limit - plan.keep_free_of_clients >= plan.limit / 4


def test_large_limit_lowers_nothing() -> None:
    plan = plan_descriptors(1024, open_logs=64, web_connections_max=100)
    assert (plan.open_logs, plan.web_connections_max) == (64, 100)
    assert (plan.storage, plan.web) == (112, 32)
