"""What is handed out after aborts, against a consumer that remembers every message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.client.consumer_rules.returned import Returned

#: Messages of each entry; 0: it is no batch.
sizes = st.lists(st.integers(0, 3), min_size=1, max_size=6)
#: A message is received, or some of those that the application has are given back.
steps = st.lists(st.one_of(st.just(None), st.sets(st.integers(0, 17), max_size=4)), max_size=25)

Message = tuple[tuple[int, int], int]


def messages_of(batches: list[int]) -> list[Message]:
    return [((1, entry), index) for entry, size in enumerate(batches) for index in range(size or 1)]


class Consumer:
    """Hands out what is not with the application, in order; everything comes again after each abort."""

    def __init__(self, batches: list[int]) -> None:
        self.batches = batches
        self.all = self.queue = messages_of(batches)
        self.held: set[Message] = set()
        self.last: Message | None = None
        self.kept: Returned | None = None

    def receive(self) -> None:
        if self.queue:
            message, *self.queue = self.queue
            if self.kept is not None and (self.last is None or self.last[0] != message[0]):
                self.kept.received(message[0])
            self.held.add(message)
            self.last = message

    def give_back(self, numbers: set[int]) -> None:
        returned = {self.all[number] for number in numbers if number < len(self.all)} & self.held
        if self.last is None or not returned:
            return
        place = (self.last[0], self.last[1] if self.batches[self.last[0][1]] else -1)
        if self.kept is None:
            self.kept = Returned(place)
        self.kept.received_up_to(place)
        if self.queue and self.queue[0][0] == self.last[0]:
            self.kept.cut_off(self.last[0], [index for key, index in self.queue if key == self.last[0]])
        for key, index in returned:
            self.kept.add(key, [index] if self.batches[key[1]] else [])
        self.held -= returned
        self.queue = []
        for entry, size in enumerate(self.batches):
            order = self.kept.wanted((1, entry), range(size or 1), is_batch=size > 0)
            self.queue += [((1, entry), index) for index in order]
        # The next one that is received begins an entry, whichever it is.
        self.last = (self.last[0], self.last[1]) if self.queue and self.queue[0][0] != self.last[0] else None


@given(sizes, steps)
def test_what_the_application_has_does_not_come_and_everything_else_does(batches, story) -> None:
    consumer = Consumer(batches)
    for step in story:
        if step is None:
            consumer.receive()
        else:
            consumer.give_back(step)
        assert consumer.queue == [message for message in consumer.all if message not in consumer.held]


def test_what_a_cumulative_acknowledgment_held_comes_up_to_where_it_was_received_again() -> None:
    kept = Returned(((1, 5), 1))
    kept.add_up_to((1, 3), 0)
    singles = [bool(kept.wanted((1, entry), (0,), is_batch=False)) for entry in (0, 1, 2, 4, 5, 6)]
    assert singles == [True, True, True, False, False, True]
    assert kept.wanted((1, 3), (0, 1, 2), is_batch=True) == [0]
    assert kept.wanted((1, 5), (0, 1, 2), is_batch=True) == [2]
    kept.received((1, 1))
    assert [bool(kept.wanted((1, entry), (0,), is_batch=True)) for entry in range(4)] == [False, False, True, True]
    whole = Returned(((1, 5), -1))
    whole.add_up_to((1, 5), -1)
    assert whole.wanted((1, 5), (0, 1), is_batch=True) == [0, 1]
