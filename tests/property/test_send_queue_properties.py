"""The send queue against a list: nothing lost, nothing twice, order kept, whatever happens to the connection."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from geminga.client.producer_rules.send_queue import PendingSend, ReceiptMismatch, SendQueue


def pending(sequence_id: int, created_s: float) -> PendingSend:
    return PendingSend(b"frame", sequence_id, sequence_id, 1, 10 + sequence_id % 3, created_s, None)


class SendQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = SendQueue()
        self.next_id = 0
        self.now_s = 0.0
        #: Sequence ids that are out, in order; how many of them are written to this connection.
        self.model: list[int] = []
        self.written = 0
        self.given_up: list[int] = []
        #: Which of them wait for a gate.
        self.gates: dict[int, str] = {}
        #: Gates that hold, or held until it expired, something.
        self.asked: set[str] = set()
        #: One that was opened is not closed again: the next one of its letter is another.
        self.opened = dict.fromkeys("abcd", 0)
        #: Of frames that passed a gate that stands open as long as the connection does: which one.
        self.passed: dict[int, str] = {}

    @property
    def free(self) -> int:
        """How many may be written: those before the first that waits."""
        return next((index for index, one in enumerate(self.model) if one in self.gates), len(self.model))

    @rule(gate=st.sampled_from("ab"))
    def add_held(self, gate: str) -> None:
        gate += str(self.opened[gate])
        held = pending(self.next_id, self.now_s)
        if self.queue.hold(held, gate):  # else who opens it was asked already
            assert gate not in self.asked
        else:
            assert gate in self.asked
        self.asked.add(gate)
        self.queue.add(held)
        self.model.append(self.next_id)
        self.gates[self.next_id] = gate
        self.next_id += 1

    @precondition(lambda self: self.free == len(self.model))
    @rule(gate=st.sampled_from("cd"))
    def add_ahead(self, gate: str) -> None:
        gate += str(self.opened[gate])
        sent = pending(self.next_id, self.now_s)
        if gate in self.asked:  # it was closed with a connection
            assert not self.queue.hold(sent, gate)
            self.gates[self.next_id] = gate
        else:
            sent.gate = gate
            self.passed[self.next_id] = gate
        self.queue.add(sent)
        self.model.append(self.next_id)
        self.next_id += 1

    @rule(gate=st.sampled_from("cd"), is_refused=st.booleans())
    def answer_ahead(self, gate: str, is_refused: bool) -> None:
        """Those that are written, or may be, are answered one by one; once for a gate."""
        self.opened[gate] += 1
        gate += str(self.opened[gate] - 1)
        if is_refused:
            held = [one for one in self.model if self.gates.get(one) == gate]
            assert [p.sequence_id for p in self.queue.refuse_gate(gate)] == held
            self.model = [one for one in self.model if one not in held]
        else:
            self.queue.open_gate(gate)
        self.asked.discard(gate)
        self.passed = {one: its for one, its in self.passed.items() if its != gate}
        self.gates = {one: its for one, its in self.gates.items() if its != gate}

    @rule(gate=st.sampled_from("ab"))
    def open_gate(self, gate: str) -> None:
        self.opened[gate] += 1
        gate += str(self.opened[gate] - 1)
        self.queue.open_gate(gate)
        self.asked.discard(gate)
        self.gates = {one: its for one, its in self.gates.items() if its != gate}

    @rule(gate=st.sampled_from("ab"))
    def refuse_gate(self, gate: str) -> None:
        gate += str(self.opened[gate])
        refused = [one for one in self.model if self.gates.get(one) == gate]
        assert [p.sequence_id for p in self.queue.refuse_gate(gate)] == refused
        self.asked.discard(gate)
        self.model = [one for one in self.model if one not in refused]
        for one in refused:
            del self.gates[one]

    @rule(delay=st.floats(0, 3))
    def add(self, delay: float) -> None:
        self.now_s += delay
        self.queue.add(pending(self.next_id, self.now_s))
        self.model.append(self.next_id)
        self.next_id += 1

    @rule()
    def write(self) -> None:
        taken = self.queue.next_to_write()
        if self.written < self.free:
            assert taken is not None
            assert taken.sequence_id == self.model[self.written]
            self.written += 1
        else:
            assert taken is None

    @precondition(lambda self: self.written)
    @rule()
    def receipt(self) -> None:
        done = self.queue.receipt(self.model[0])
        assert done is not None
        assert done.sequence_id == self.model.pop(0)
        self.written -= 1

    @precondition(lambda self: self.given_up)
    @rule()
    def late_receipt_is_ignored(self) -> None:
        assert self.queue.receipt(self.given_up[0]) is None

    @precondition(lambda self: self.written > 1)
    @rule()
    def receipt_out_of_order_is_told(self) -> None:
        with pytest.raises(ReceiptMismatch):
            self.queue.receipt(self.model[1])

    @rule()
    def connection_lost(self) -> None:
        left = {one: gate for one, gate in self.passed.items() if one in self.model}
        self.queue.connection_lost(dict.fromkeys(left.values()))
        self.asked.update(left.values())
        self.gates |= left
        self.passed = {}
        self.written = 0

    @rule(age=st.floats(0.1, 5))
    def expire(self, age: float) -> None:
        for done in self.queue.expire(self.now_s - age):
            assert done.created_s <= self.now_s - age
            assert self.model.pop(0) == done.sequence_id
            self.given_up.append(done.sequence_id)
            self.gates.pop(done.sequence_id, None)
            self.written = max(self.written - 1, 0)
        oldest = self.queue.oldest
        assert oldest is None or oldest.created_s > self.now_s - age

    @rule()
    def take_all(self) -> None:
        assert [p.sequence_id for p in self.queue.take_all()] == self.model
        self.given_up += self.model
        self.model, self.written, self.gates, self.asked = [], 0, {}, set()

    @invariant()
    def queue_agrees_with_the_list(self) -> None:
        self.queue.check_invariants()
        assert len(self.queue) == self.queue.messages == len(self.model)
        assert (self.queue.in_flight, self.queue.queued) == (self.written, len(self.model) - self.written)
        oldest, newest = self.queue.oldest, self.queue.newest
        assert (oldest.sequence_id if oldest else None) == (self.model[0] if self.model else None)
        assert (newest.sequence_id if newest else None) == (self.model[-1] if self.model else None)


TestSendQueue = SendQueueMachine.TestCase
