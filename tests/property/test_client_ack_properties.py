"""What goes along with acknowledgments, against a model that never groups them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.client.consumer_rules.ack_grouping import AckGrouping
from geminga.client.consumer_rules.ack_properties import NONE, AckProperties

entries = st.integers(0, 5).map(lambda number: (1, number))
brought = st.sampled_from([NONE, {"a": 1}, {"a": 2}, {"b": 3}])
steps = st.lists(st.one_of(st.tuples(entries, brought), st.just("send"), st.just("lose")), max_size=20)


@given(steps)
def test_the_newest_cumulative_acknowledgment_says_what_is_kept(story) -> None:
    """Sent and lost, restored and superseded: the newest position has what the last that moved there brought."""
    kept, tracker = AckProperties(), AckGrouping()
    newest, wanted = (0, 0), NONE
    stored: tuple[tuple[int, int], object] = ((0, 0), NONE)
    flying = []

    def send() -> None:
        group = tracker.flush()
        if group is not None and group.cumulative is not None:
            flying.append((group, kept.taken(group.cumulative[0])))

    for step in [*story, "send"]:
        if step == "send":
            send()
        elif step == "lose":
            for group, taken in flying:
                tracker.restore(group)
                kept.restore(group.cumulative[0], taken)
            flying.clear()
        else:
            entry, properties = step
            if entry > newest:
                newest, wanted = entry, properties
                kept.cumulative(entry, properties)
                tracker.add_cumulative(entry, None)
    for group, (properties, _) in flying:
        assert group.cumulative is not None
        if group.cumulative[0] > stored[0]:
            stored = (group.cumulative[0], properties)
    if newest != (0, 0):
        assert stored == (newest, wanted)


def test_single_ones_take_along_what_was_begun_and_what_waits_with_them() -> None:
    kept = AckProperties()
    kept.begin({"a": 1})
    assert kept.taken(None) == (NONE, {"a": 1})
    assert kept.taken(None) == (NONE, {"a": 1}), "the list goes on"
    kept.end()
    taken = kept.taken(None)
    assert kept.taken(None) == (NONE, NONE)
    kept.restore(None, taken)
    kept.begin({"a": 2, "b": 3})
    kept.end()
    assert kept.taken(None) == (NONE, {"a": 2, "b": 3})
