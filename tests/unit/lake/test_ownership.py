"""A root is one cluster's: whoever writes there first, whatever comes between any two steps of two of them."""

from __future__ import annotations

import threading  # noqa: TID251 - two claims whose steps are told when to go
from itertools import combinations
from typing import Any

import pytest

from geminga.lake.ownership import DIRECTORY, OWNER_FILE, Owner, claim, read_owner
from geminga.model.errors import CorruptionError, StorageError
from support.worlds.lake_world import MemoryLakeStore

ONE, OTHER = Owner("one", "1" * 32), Owner("other", "2" * 32)
#: Calls of the store that a first claim makes at most, where the store has no conditions.
STEPS_MAX = 7


class Turns:
    """A store whose calls wait for their turn: who goes next is told from outside.

    The claim's thread and the one that tells hand a single turn to and fro, so that either waits while the other goes.
    """

    root = MemoryLakeStore.root

    def __init__(self, store: MemoryLakeStore) -> None:
        self._store = store
        # Locks that the other side opens: semaphores are of many of them.
        self._may_go, self._stands = threading.Lock(), threading.Lock()
        self._may_go.acquire()
        self._stands.acquire()
        #: Set before the last turn is handed back: whoever has the turn can go by it.
        self.is_over = False
        self.outcome: StorageError | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "write_new" and not self._store.has_conditions:
            return self._store.write_new  # which does nothing then: it may come at any time

        def call(*arguments: Any) -> Any:
            self._stands.release()
            self._may_go.acquire()
            return getattr(self._store, name)(*arguments)

        return call

    def begin(self, owner: Owner) -> None:
        """Begin a claim, which then stands before its first call."""

        def run() -> None:
            try:
                claim(self, owner, 1)  # type: ignore[arg-type]
            except StorageError as error:
                self.outcome = error
            finally:
                self.is_over = True
                self._stands.release()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        self._stands.acquire()

    def step(self) -> None:
        """One call of the store is made, up to the next call or the claim's end."""
        self._may_go.release()
        self._stands.acquire()


#: By the steps made so far (whose each was): which of the two claims are over.
Known = dict[tuple[int, ...], list[bool]]


def is_known(order: list[int], known: Known) -> bool:
    """Whether the same steps were made before: an order may also name a claim that is over."""
    made: tuple[int, ...] = ()
    for number in order:
        if made not in known:
            return False
        if not known[made][number]:
            made = (*made, number)
    return made in known


def claims_in(
    order: list[int], has_conditions: bool, known: Known
) -> tuple[MemoryLakeStore, list[StorageError | None]]:
    store = MemoryLakeStore()
    store.has_conditions = has_conditions
    both = [Turns(store), Turns(store)]
    for turns, owner in zip(both, (ONE, OTHER), strict=True):
        turns.begin(owner)
    made: tuple[int, ...] = ()
    for number in order:
        known[made] = [turns.is_over for turns in both]
        if not both[number].is_over:
            both[number].step()
            made = (*made, number)
    known[made] = [turns.is_over for turns in both]
    assert all(known[made]), "a claim makes more calls"
    for turns in both:
        turns.thread.join()
    return store, [turns.outcome for turns in both]


@pytest.mark.parametrize("has_conditions", [True, False])
def test_of_two_that_begin_at_once_at_most_one_has_the_root_in_every_order(has_conditions):
    steps = 3 if has_conditions else STEPS_MAX
    known: Known = {}
    for firsts in combinations(range(2 * steps), steps):
        order = [0 if step in firsts else 1 for step in range(2 * steps)] + [0] * STEPS_MAX + [1] * STEPS_MAX
        if is_known(order, known):
            continue
        store, outcomes = claims_in(order, has_conditions, known)
        winners = [owner for owner, error in zip((ONE, OTHER), outcomes, strict=True) if error is None]
        assert len(winners) <= 1, order
        assert read_owner(store) in [*winners, None], order
        assert bool(winners) or not has_conditions
        # Nobody is in the way of the next attempt, which tells the loser whose it is.
        assert [path for path in store.files if path != OWNER_FILE] == []
        for owner in (ONE, OTHER):
            if not winners:
                claim(store, owner, 2)
                winners = [owner]
            elif owner not in winners:
                told = f"lake of cluster '{winners[0].cluster}'.*not of '{owner.cluster}'"
                with pytest.raises(StorageError, match=told):
                    claim(store, owner, 2)


def test_owner_goes_on_and_a_damaged_or_newer_mark_is_named():
    store = MemoryLakeStore()
    for _ in range(3):
        claim(store, ONE, 1)
    claim(store, ONE._replace(cluster="renamed"), 2)
    assert read_owner(store) == ONE
    for data, told in ((b"{", "is damaged"), (b'{"version": 2}', "version 2"), (b"[]", "is damaged")):
        store.files[OWNER_FILE] = data
        with pytest.raises(CorruptionError, match=f"{store.root}/{OWNER_FILE}.*{told}"):
            claim(store, ONE, 3)


def test_candidate_that_a_crash_left_is_named_and_its_own_cluster_goes_on():
    store = MemoryLakeStore()
    store.has_conditions = False
    left = f"{DIRECTORY}/candidate-{OTHER.installation}.json"
    store.files[left] = b"{}"
    with pytest.raises(StorageError, match=left):
        claim(store, ONE, 1)
    assert list(store.files) == [left]
    claim(store, OTHER, 2)
    assert list(store.files) == [OWNER_FILE]
