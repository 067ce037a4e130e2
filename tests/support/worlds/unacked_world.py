"""What the limits of unacknowledged messages and the order of replay promise, as an oracle beside the dispatchers.

The model counts by itself what is outstanding, from what was delivered, acknowledged and given back, and says by the
rule in words who stands still: from the limit on, until half of it (rounded down) is left.
"""

from __future__ import annotations

from geminga.broker.core.dispatch.consumer_state import ConsumerState
from geminga.broker.core.dispatch.shared import ReadAgain, ReadOn, SharedDispatcher
from geminga.model import Position
from support.worlds.dispatch_world import LEDGER, DispatchWorld


class Gate:
    """One limit, of a consumer or of all; 0: none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_closed = False

    def sent(self, outstanding: int) -> None:
        self.is_closed = self.is_closed or 0 < self.limit <= outstanding

    def settled(self, outstanding: int) -> None:
        if outstanding <= self.limit // 2:
            self.is_closed = False

    def changed(self, limit: int, outstanding: int) -> None:
        self.limit = limit
        self.is_closed = 0 < limit <= outstanding


class UnackedWorld(DispatchWorld):
    """A :class:`DispatchWorld` that checks each delivery against the limits, and each read against the order."""

    def __init__(
        self, core: SharedDispatcher[ConsumerState], *, per_consumer: int, per_subscription: int, is_ordered: bool
    ) -> None:
        super().__init__(core, is_ordered=is_ordered, unacked_max=per_consumer)
        self.all = Gate(per_subscription)
        self.gates: dict[ConsumerState, Gate] = {}
        #: Times that somebody stood still, and went on.
        self.pauses = 0

    def outstanding(self, consumer: ConsumerState | None = None) -> int:
        return sum(self.left_of(e) for e, holder in self.holder.items() if consumer in (None, holder))

    def join(self, priority_level: int = 0) -> None:
        super().join(priority_level)
        self.gates[self.core.consumers[-1]] = Gate(self.unacked_max)

    def change_limits(self, per_consumer: int, per_subscription: int) -> None:
        super().change_limits(per_consumer, per_subscription)
        self.all.changed(per_subscription, self.outstanding())
        for consumer in self.core.consumers:
            self.gates[consumer].changed(per_consumer, self.outstanding(consumer))

    def leave(self, index: int) -> None:
        super().leave(index)
        self.settle()

    def acknowledge(self, holder_index: int, entry_index: int, by_index: int) -> None:
        super().acknowledge(holder_index, entry_index, by_index)
        self.settle()

    def acknowledge_part(self, holder_index: int, entry_index: int, by_index: int) -> None:
        super().acknowledge_part(holder_index, entry_index, by_index)
        self.settle()

    def redeliver(self, index: int, entry_index: int | None) -> None:
        super().redeliver(index, entry_index)
        self.settle()

    def settle(self) -> None:
        """Fewer messages are outstanding: who is at half of the limit goes on."""
        self.all.settled(self.outstanding())
        for gone in [consumer for consumer in self.gates if consumer not in self.core.consumers]:
            del self.gates[gone]
        for consumer, gate in self.gates.items():
            gate.settled(self.outstanding(consumer))

    def start_read(self) -> bool:
        was_idle = self.plan is None
        waits = sorted(e for e in range(self.read_index) if e not in self.acked and e not in self.holder)
        can_send = not self.all.is_closed and any(
            c.permits > 0 and not self.gates[c].is_closed for c in self.core.consumers
        )
        if not super().start_read():
            if was_idle and not self.is_ordered:
                assert not can_send, "nothing is read although somebody may be sent something"
            return False
        assert can_send, "a read although nobody may be sent anything"
        if isinstance(self.plan, ReadAgain):
            read = [position.entry_id for position in self.plan.positions]
            assert read == sorted(set(read))
            if self.is_ordered:
                assert set(read) <= set(waits)
            else:
                assert read == waits[: len(read)], f"{read} are sent again before {waits[0]}"
        elif isinstance(self.plan, ReadOn) and not self.is_ordered:
            assert not waits, f"the log is read on while {waits} wait to be sent again"
        return True

    def check_delivery(self, entry: int, consumer: ConsumerState) -> None:
        for gate, held in ((self.gates[consumer], self.outstanding(consumer)), (self.all, self.outstanding())):
            assert not gate.is_closed, (
                f"{entry} sent to {consumer.name}, which stands still with {held} of {gate.limit}"
            )
            # So that only the last entry, if it is a batch, can go over the limit.
            assert not gate.limit or held < gate.limit
        super().check_delivery(entry, consumer)
        self.gates[consumer].sent(self.outstanding(consumer))
        self.all.sent(self.outstanding())

    def check(self) -> None:
        """After each action: who was within half of a limit is free, and the dispatcher thinks so too."""
        self.settle()
        for consumer, gate in self.gates.items():
            assert consumer.was_blocked == gate.is_closed, f"{consumer.name}: {self.outstanding(consumer)} held"
            assert consumer.unacked_count == self.outstanding(consumer)
            self.pauses += gate.is_closed
        assert self.core.is_blocked == self.all.is_closed
        assert self.core.unacked_count == self.outstanding()
        self.pauses += self.all.is_closed
        for entry in self.holder:
            assert Position(LEDGER, entry) not in self.core.replay
        super().check()
