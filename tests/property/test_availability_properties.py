"""Whether a message is left and how many fit into a batch, against lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.client import MessageId
from geminga.client.consumer_rules.availability import Start, is_available
from geminga.client.consumer_rules.batch_receive import fitting

NONE = MessageId(-1, 1, -1)


def ids(entries: list[int]) -> list[MessageId]:
    return [MessageId(-1, 1, entry) for entry in entries]


@given(
    entries=st.lists(st.integers(0, 30), max_size=8, unique=True).map(sorted),
    start=st.one_of(st.sampled_from(list(Start)), st.integers(0, 30)),
    taken=st.integers(0, 8),
    is_inclusive=st.booleans(),
    begins_at=st.integers(0, 8),
)
def test_a_message_is_available_if_one_of_those_to_come_was_not_received(
    entries: list[int], start: Start | int, taken: int, is_inclusive: bool, begins_at: int
) -> None:
    topic = ids(entries)
    if isinstance(start, Start):
        # Where it began: so many messages were acknowledged, or there were so many.
        acknowledged, to_come = topic[:begins_at], topic[begins_at:]
        place: MessageId | Start = start
    else:
        place = MessageId(-1, 1, start)
        to_come = [one for one in topic if one > place or (is_inclusive and one == place)]
        acknowledged = [one for one in topic if one not in to_come]
    marked = acknowledged[-1] if acknowledged else NONE
    received = to_come[:taken]
    if start is Start.LATEST and not acknowledged and not received:
        to_come = []  # a mark before the first entry says nothing: the broker may have just begun the ledger
    found = is_available(
        topic[-1] if topic else NONE,
        marked=marked,
        received=received[-1] if received else None,
        start=place,
        is_inclusive=is_inclusive,
    )
    assert found == bool(to_come[len(received) :])


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(0, 500), st.booleans())
def test_as_many_messages_fit_as_their_sizes_sum_up_to(sizes: list[int], room: int, has_some: bool) -> None:
    whole = max(count for count in range(len(sizes) + 1) if sum(sizes[:count]) <= room)
    assert fitting(iter(sizes), room, has_some=has_some) == (whole or (0 if has_some else 1))
