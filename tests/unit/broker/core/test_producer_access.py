"""Access modes of producers."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.broker.core.producer_access import AccessMode, Granted, ProducerAccess, Queued
from geminga.model.errors import GemingaError, ProducerBusyError, ProducerFencedError

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAIT, FENCING = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def test_shared_producers_live_together_and_keep_exclusive_out() -> None:
    access: ProducerAccess[str] = ProducerAccess(None)
    assert access.requested("a", "a", SHARED, None) == Granted("a", None)
    assert access.requested("b", "b", SHARED, None) == Granted("b", None)
    with pytest.raises(ProducerFencedError, match="existing shared producers"):
        access.requested("c", "c", EXCLUSIVE, None)


def test_exclusive_keeps_everybody_out_and_epochs_grow() -> None:
    access: ProducerAccess[str] = ProducerAccess(None)
    assert access.requested("a", "a", EXCLUSIVE, None) == Granted("a", 0)
    with pytest.raises(ProducerBusyError, match="existing exclusive producer: a"):
        access.requested("b", "b", SHARED, None)
    with pytest.raises(ProducerFencedError, match="existing exclusive producer: a"):
        access.requested("b", "b", EXCLUSIVE, None)
    assert access.left("a") is None
    assert access.requested("b", "b", EXCLUSIVE, None) == Granted("b", 1)


def test_producer_that_was_overtaken_is_fenced_for_good() -> None:
    access: ProducerAccess[str] = ProducerAccess(7)
    assert access.requested("b", "b", EXCLUSIVE, None) == Granted("b", 8)
    access.left("b")
    for mode in (EXCLUSIVE, WAIT, FENCING):
        with pytest.raises(ProducerFencedError, match="epoch has already moved"):
            access.requested("a", "a", mode, 7)
    assert access.requested("b", "b", EXCLUSIVE, 8) == Granted("b", 8)


def test_waiting_producers_get_their_turn_in_order() -> None:
    access: ProducerAccess[str] = ProducerAccess(None)
    assert access.requested("a", "a", WAIT, None) == Granted("a", 0)
    assert access.requested("b", "b", WAIT, None) == Queued()
    assert access.requested("c", "c", WAIT, None) == Queued()
    with pytest.raises(ProducerBusyError):
        access.requested("d", "d", SHARED, None)
    assert access.left("b") is None  # gave up
    assert access.left("a") == Granted("c", 1)
    assert access.left("c") is None
    assert not access.is_exclusive


def test_producer_waits_for_shared_ones_to_leave() -> None:
    access: ProducerAccess[str] = ProducerAccess(None)
    access.requested("a", "a", SHARED, None)
    access.requested("b", "b", SHARED, None)
    assert access.requested("c", "c", WAIT, None) == Queued()
    assert access.left("a") is None
    assert access.left("b") == Granted("c", 0)


def test_fencing_takes_the_topic_from_everybody() -> None:
    access: ProducerAccess[str] = ProducerAccess(None)
    access.requested("a", "a", EXCLUSIVE, None)
    access.requested("b", "b", WAIT, None)
    assert access.requested("c", "c", FENCING, None) == Granted("c", 1, ("a", "b"))
    assert access.left("a") is None
    assert access.is_exclusive
    assert access.waiting_count == 0


class AccessMachine(RuleBasedStateMachine):
    """Any order of requests and departures keeps exclusive access exclusive and epochs ascending."""

    def __init__(self) -> None:
        super().__init__()
        self.access: ProducerAccess[int] = ProducerAccess(None)
        self.connected: dict[int, AccessMode] = {}
        self.waiting: list[int] = []
        self.tokens = 0
        self.newest_epoch = -1

    def note(self, granted: Granted[int]) -> None:
        for token in granted.fenced:
            self.connected.pop(token, None)
            if token in self.waiting:
                self.waiting.remove(token)
        mode = self.connected.setdefault(granted.token, EXCLUSIVE)
        if mode is not SHARED:
            assert granted.epoch is not None
            assert granted.epoch >= self.newest_epoch
            self.newest_epoch = granted.epoch

    @rule(mode=st.sampled_from(AccessMode), epoch=st.one_of(st.none(), st.integers(0, 5)))
    def request(self, mode: AccessMode, epoch: int | None) -> None:
        self.tokens += 1
        token = self.tokens
        try:
            outcome = self.access.requested(token, str(token), mode, epoch)
        except GemingaError:
            return
        if isinstance(outcome, Queued):
            self.waiting.append(token)
            return
        self.connected[token] = mode
        self.note(outcome)

    @precondition(lambda self: self.connected or self.waiting)
    @rule(data=st.data())
    def leave(self, data) -> None:
        token = data.draw(st.sampled_from([*self.connected, *self.waiting]))
        self.connected.pop(token, None)
        if token in self.waiting:
            self.waiting.remove(token)
        granted = self.access.left(token)
        if granted is not None:
            assert granted.token == self.waiting.pop(0)
            self.note(granted)

    @invariant()
    def exclusive_is_alone(self) -> None:
        self.access.check_invariants()
        if any(mode is not SHARED for mode in self.connected.values()):
            assert len(self.connected) == 1
        assert self.connected or not self.waiting


TestAccess = AccessMachine.TestCase
TestAccess.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


class Compared:
    """A producer that counts how often one is compared with another."""

    count = 0

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return self is other


def test_who_leaves_is_compared_with_nobody_who_waits() -> None:
    access: ProducerAccess[Compared] = ProducerAccess(None)
    many = [Compared() for _ in range(100)]
    for number, token in enumerate(many):
        access.requested(token, f"p{number}", AccessMode.WAIT_FOR_EXCLUSIVE, None)
    Compared.count = 0
    for token in reversed(many):
        assert access.left(token) is None
    assert Compared.count <= len(many)
    access.check_invariants()
    assert access.waiting_count == 0
