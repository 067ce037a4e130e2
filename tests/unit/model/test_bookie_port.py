from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.model.bookie_port import ID_MAX, Availability, AvailabilityState, ids_error
from geminga.model.errors import StorageError

small = st.integers(-3, 3)
large = st.integers(ID_MAX - 2, ID_MAX + 2)
numbers = st.one_of(small, large)
steps = st.sampled_from((1, 2, -1))
ranges = st.one_of(st.builds(range, small, small, steps), st.builds(range, large, large, steps))


@given(st.one_of(st.lists(numbers, max_size=4), ranges), st.integers(0, 1))
def test_ids_are_refused_exactly_where_one_is_no_int64_or_their_number_is_wrong(entry_ids, missing):
    listed = list(entry_ids)
    entries = [b""] * (len(listed) - missing)
    error = ids_error(1, entry_ids, entries)
    is_good = 0 < len(listed) == len(entries) and all(0 <= entry_id <= ID_MAX for entry_id in listed)
    assert (error is None) == is_good
    assert error is None or type(error) is StorageError


def test_range_longer_than_any_list_is_refused_too():
    assert ids_error(1, range(ID_MAX + 5), [b""]) is not None


def test_listeners_hear_of_changes_only():
    state, heard = AvailabilityState(Availability.WRITABLE), []
    state.watch(heard.append)
    for availability in (Availability.WRITABLE, Availability.DOWN, Availability.DOWN, Availability.READ_ONLY):
        state.set(availability)
    assert heard == [Availability.DOWN, Availability.READ_ONLY]
    assert state.current is Availability.READ_ONLY
