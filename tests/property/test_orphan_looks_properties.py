"""Orphan looks against an oracle that keeps the whole history: what goes was seen twice, an hour apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.orphan_looks import OrphanLooks, SeenLedger

OURS, THEIRS = b"ours", b"theirs"
AGE_MS, APART_S, AT_ONCE_MAX = 3_600_000, 3600.0, 3

#: Ledger -> (version, created, installation, is it in a list).
ledgers = st.dictionaries(
    st.integers(0, 7),
    st.tuples(
        st.integers(0, 1),
        st.sampled_from([0, 1_000_000, 3_600_000, 9_000_000, 50_000_000]),
        st.sampled_from([OURS, OURS, OURS, THEIRS, None]),
        st.booleans(),
    ),
)
#: Seconds since the look before, its duration, how far the wall clock jumps.
looks = st.lists(
    st.tuples(
        st.sampled_from([0.0, 60.0, 1800.0, 3599.0, 3600.0, 7200.0]),
        st.sampled_from([0.0, 1.0, 900.0]),
        st.sampled_from([-86_400_000, 0, 0, 0, 86_400_000]),
        ledgers,
    ),
    max_size=8,
)


@given(looks)
def test_only_what_two_looks_an_hour_apart_found_in_no_list_is_garbage(history):
    core = OrphanLooks(OURS, at_once_max=AT_ONCE_MAX, age_ms=AGE_MS, apart_s=APART_S)
    now_s, jump_ms = 0.0, 0
    past = []
    for gap_s, duration_s, jumped_ms, found in history:
        began_s = now_s + gap_s
        ended_s = now_s = began_s + duration_s
        jump_ms += jumped_ms
        wall_ms = int(ended_s * 1000) + jump_ms
        seen = [SeenLedger(i, version, created, owner) for i, (version, created, owner, _) in found.items()]
        named = {i for i, (_, _, _, is_named) in found.items() if is_named}
        verdict = core.look(seen, named, began_s=began_s, ended_s=ended_s, wall_ms=wall_ms)

        expected = set()
        for i, (version, created, owner, is_named) in found.items():
            if is_named or owner != OURS or wall_ms - created < AGE_MS:
                continue
            # Back through the looks, as long as each of them found it the same and in no list.
            for past_ended_s, past_found in reversed(past):
                if past_found.get(i, (None,))[0] != version or past_found[i][2] != OURS or past_found[i][3]:
                    break
                if began_s - past_ended_s >= APART_S:
                    expected.add(i)
        past.append((ended_s, found))

        garbage = {ledger.ledger_id for ledger in verdict.garbage}
        held = {ledger.ledger_id for ledger in verdict.held}
        assert garbage | held == expected
        assert not (garbage and held)
        assert bool(held) == (len(expected) > AT_ONCE_MAX)
        unnamed = found.keys() - named
        assert set(verdict.waiting) == {i for i in unnamed if found[i][2] == OURS} - expected
        assert set(verdict.foreign) == {i for i in unnamed if found[i][2] == THEIRS}
        assert set(verdict.unclaimed) == {i for i in unnamed if found[i][2] is None}


def test_a_ledger_that_is_young_by_the_time_of_day_waits_though_two_looks_are_apart():
    """The clock that stamped it was ahead, or this one was set back."""
    core = OrphanLooks(OURS, at_once_max=AT_ONCE_MAX, age_ms=AGE_MS, apart_s=APART_S)
    found = [SeenLedger(1, 0, 0, OURS), SeenLedger(2, 0, 7_200_000, OURS)]
    core.look(found, set(), began_s=0.0, ended_s=1.0, wall_ms=1_000)
    verdict = core.look(found, set(), began_s=7200.0, ended_s=7201.0, wall_ms=7_201_000)
    assert [ledger.ledger_id for ledger in verdict.garbage] == [1]
    assert verdict.waiting == [2]
