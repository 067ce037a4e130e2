from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminga.app.storage.core.bookie_set import BOOKIES_MAX, bookie_slot, bookies_to_run
from geminga.model.errors import ConfigurationError, DataDirectoryError

IDS = [bookie_slot(number).bookie_id for number in range(1, BOOKIES_MAX + 1)]
NAMES = [bookie_slot(number).name for number in range(1, BOOKIES_MAX + 1)]


def test_names_and_ids_are_what_they_were_for_ever() -> None:
    assert [bookie_slot(number)[1:] for number in (1, 2, 3)] == [
        ("bookie", "127.0.0.1:3181"),
        ("bookie-2", "127.0.0.1:3182"),
        ("bookie-3", "127.0.0.1:3183"),
    ]


@given(st.integers(1, 5), st.sets(st.sampled_from(NAMES[:6])), st.sets(st.sampled_from(IDS[:6])))
def test_everybody_who_is_remembered_runs_or_is_named(count: int, left_out: set[str], remembered: set[str]) -> None:
    missing = remembered - set(IDS[:count])
    if left_out - set(NAMES[:count]):
        with pytest.raises(ConfigurationError, match="there is no"):
            bookies_to_run(count, left_out, remembered)
    elif missing:
        with pytest.raises(DataDirectoryError) as raised:
            bookies_to_run(count, left_out, remembered)
        for number in range(1, 7):
            name, bookie_id = bookie_slot(number)[1:]
            assert (f"{name} ({bookie_id})" in str(raised.value)) == (bookie_id in missing)
        assert f"--bookies {max(IDS.index(name) + 1 for name in missing)}" in str(raised.value)
    elif len(left_out) == count:
        with pytest.raises(ConfigurationError, match="no bookie is left"):
            bookies_to_run(count, left_out, remembered)
    else:
        slots = bookies_to_run(count, left_out, remembered)
        assert [slot.name for slot in slots] == [name for name in NAMES[:count] if name not in left_out]


def test_bookie_of_somewhere_else_is_named() -> None:
    with pytest.raises(DataDirectoryError, match=r"10\.0\.0\.7:3181 too.*not of a standalone"):
        bookies_to_run(3, (), ["127.0.0.1:3181", "10.0.0.7:3181"])


def test_bookie_behind_the_last_that_a_standalone_can_have_is_of_somewhere_else() -> None:
    last, behind = bookie_slot(BOOKIES_MAX), bookie_slot(BOOKIES_MAX + 1)
    with pytest.raises(DataDirectoryError, match=f"start it with --bookies {BOOKIES_MAX}$"):
        bookies_to_run(3, (), [last.bookie_id])
    with pytest.raises(DataDirectoryError, match="they are not of a standalone"):
        bookies_to_run(3, (), [behind.bookie_id])
