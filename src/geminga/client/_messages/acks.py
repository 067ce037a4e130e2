"""Sends the acknowledgments of one consumer of one topic: grouped, with receipts if wanted, over reconnects.

While there is no connection acknowledgments wait. With receipts, what was sent and not answered when the connection
broke is sent again; without, it counts as sent, and the broker may deliver it again. What the broker does not answer
over a connection that lives, within the operation timeout, ends with Timeout.

A group waits for others to go with it only as long as nobody waits for its receipt: what is awaited leaves at the end
of the loop's turn, in one command with all else that waits.
"""

from __future__ import annotations

import asyncio

from geminga.client._api.errors import PulsarException, Timeout
from geminga.client._transport.connection import ClientConnection
from geminga.client.consumer_rules.ack_grouping import AckGroup, AckSet, AckTracker, EntryKey
from geminga.client.consumer_rules.ack_properties import NONE, AckProperties, Properties
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.client.rules.stats import ConsumerCounters
from geminga.wire.pulsar.consumer_codec import ACK_IDS_MAX, encode_ack

#: Done when the broker answered; None: nobody is to wait.
Receipt = asyncio.Future[None] | None


class _Flight:
    """A group that was sent and is not answered."""

    __slots__ = ("error", "group", "properties", "receipts", "request_ids", "sent_s")

    def __init__(self, group: AckGroup, receipts: list[asyncio.Future[None]], sent_s: float) -> None:
        self.group = group
        #: What went along: with the cumulative acknowledgment, with the others.
        self.properties: tuple[Properties, Properties] = (NONE, NONE)
        self.receipts = receipts
        #: The loop's time.
        self.sent_s = sent_s
        self.request_ids: set[int] = set()
        self.error: PulsarException | None = None


class AckSender:
    """See the module's docstring."""

    __slots__ = (
        "_connection",
        "_consumer_id",
        "_counters",
        "_ended",
        "_flights",
        "_group_s",
        "_is_hurried",
        "_loop",
        "_patience_timer",
        "_properties",
        "_receipts",
        "_timeout_s",
        "_timer",
        "_with_receipts",
        "tracker",
    )

    def __init__(
        self,
        consumer_id: int,
        tracker: AckTracker,
        *,
        group_ms: float,
        with_receipts: bool,
        timeout_ms: float,
        counters: ConsumerCounters,
    ) -> None:
        """``timeout_ms``: how long an answer may take."""
        self.tracker = tracker
        self._consumer_id = consumer_id
        self._group_s = group_ms / 1000
        self._with_receipts = with_receipts
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        #: Nothing is sent any more, and why.
        self._ended: PulsarException | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: What waits leaves at the end of this turn.
        self._is_hurried = False
        self._timeout_s = timeout_ms / 1000
        #: Fires when the answer to what was sent first is overdue.
        self._patience_timer: asyncio.TimerHandle | None = None
        self._connection: ClientConnection | None = None
        #: Group -> who waits for its receipt.
        self._receipts: dict[int, list[asyncio.Future[None]]] = {}
        #: Request id -> what it belongs to.
        self._flights: dict[int, _Flight] = {}
        #: None: nobody ever gave any.
        self._properties: AckProperties | None = None

    # ---- what the application acknowledged

    def add(self, entry: EntryKey) -> Receipt:
        """A whole entry."""
        receipt = self._receipt() if self._with_receipts else None
        if self.tracker.add(entry):
            self.flush()
        elif self._timer is None:
            self._arm()
        return receipt

    def add_partial(self, entry: EntryKey, acker: BatchAcker) -> Receipt:
        """Some messages of a batch."""
        receipt = self._receipt() if self._with_receipts else None
        # Whoever wants a receipt asks for the one of each message.
        acker.is_waiting = receipt is None
        if self.tracker.add_partial(entry, acker):
            self.flush()
        elif self._timer is None:
            self._arm()
        return receipt

    def begin_properties(self, properties: Properties) -> None:
        """What is added until :meth:`end_properties`, in this turn, takes them along, and nothing else does."""
        self.flush()
        if self._properties is None:
            self._properties = AckProperties()
        self._properties.begin(properties)

    def end_properties(self) -> None:
        """See :meth:`begin_properties`."""
        if self._properties is not None:
            self._properties.end()
        self.flush()

    def add_cumulative(self, entry: EntryKey, acker: BatchAcker | None, properties: Properties = NONE) -> Receipt:
        """Everything up to an entry, or to a place in it; with ``properties`` it leaves at once."""
        receipt = self._receipt() if self._with_receipts else None
        if properties and self._properties is None:
            self._properties = AckProperties()
        if self._properties is not None:
            self._properties.cumulative(entry, properties)
        if self.tracker.add_cumulative(entry, acker) or properties:
            self.flush()
        elif self._timer is None:
            self._arm()
        return receipt

    async def heard(self, receipt: asyncio.Future[None]) -> None:
        """Until the broker answered; raises its error. What waits leaves in this turn of the loop."""
        if not receipt.done():
            self.hurry()
        # Shared by the whole group: one that gives up does not end it.
        try:
            await asyncio.shield(receipt)
        finally:
            del receipt  # see runtime's value_of

    def hurry(self) -> None:
        """Somebody waits for a receipt: what waits leaves at the end of this turn, with all that is added in it."""
        if not self._is_hurried and self._connection is not None and self.tracker.pending_count:
            self._is_hurried = True
            self._loop.call_soon(self._on_hurried)

    # ---- connection

    def connected(self, connection: ClientConnection) -> None:
        """Subscribed: what waited goes out."""
        self._connection = connection
        self.flush()

    def disconnected(self) -> None:
        """The connection is gone: what was not answered waits again."""
        self._connection = None
        self._stop_patience()
        flights = dict.fromkeys(self._flights.values())
        self._flights.clear()
        for flight in flights:
            self.tracker.restore(flight.group)
            if self._properties is not None:
                self._properties.restore(_cumulative_of(flight.group), flight.properties)
            self._receipts.setdefault(self.tracker.number, []).extend(flight.receipts)

    def on_response(self, request_id: int, error: PulsarException | None) -> None:
        """ACK_RESPONSE."""
        flight = self._flights.pop(request_id, None)
        if flight is None:
            return
        flight.request_ids.discard(request_id)
        if error is not None:
            flight.error = error
            self._counters.ack_failures += 1
        if not flight.request_ids:
            settle_receipts(flight.receipts, flight.error)
            if not self._flights:
                self._stop_patience()

    def flush(self) -> None:
        """Send what waits, if there is a connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        connection = self._connection
        if connection is None:
            return
        group = self.tracker.flush()
        if group is None:
            return
        flight = None
        properties = (NONE, NONE) if self._properties is None else self._properties.taken(_cumulative_of(group))
        if self._with_receipts:
            flight = _Flight(group, self._receipts.pop(group.number, []), self._loop.time())
            flight.properties = properties
            if self._patience_timer is None:
                self._patience_timer = self._loop.call_later(self._timeout_s, self._on_overdue)
        if group.cumulative is not None:
            self._send(connection, [group.cumulative], flight, properties[0], is_cumulative=True)
        individual = group.individual
        for start in range(0, len(individual), ACK_IDS_MAX):
            self._send(connection, individual[start : start + ACK_IDS_MAX], flight, properties[1], is_cumulative=False)

    def forget(self, error: PulsarException) -> None:
        """The subscription is moved: what waits was said of where it was, and is not sent; who waits for it gets
        ``error``."""
        group = self.tracker.flush()
        if group is not None and self._properties is not None:
            self._properties.taken(_cumulative_of(group))
        receipts, self._receipts = self._receipts, {}
        for waiting in receipts.values():
            settle_receipts(waiting, error)

    def close(self, error: PulsarException) -> None:
        """Nothing is sent any more; who waits for a receipt gets ``error``."""
        self._ended = error
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stop_patience()
        waiting = [flight.receipts for flight in dict.fromkeys(self._flights.values())]
        waiting.extend(self._receipts.values())
        self._flights.clear()
        self._receipts.clear()
        for receipts in waiting:
            settle_receipts(receipts, error)

    async def settled(self) -> None:
        """Until nothing that was sent waits for its answer (receipts only)."""
        for flight in list(dict.fromkeys(self._flights.values())):
            if flight.receipts:
                await asyncio.wait(flight.receipts)

    async def flushed(self) -> None:
        """Send what waits, and wait for the answers to all that was acknowledged before (receipts only); raises the
        first error among them."""
        self.flush()
        waiting = [receipt for flight in dict.fromkeys(self._flights.values()) for receipt in flight.receipts]
        waiting += [receipt for receipts in self._receipts.values() for receipt in receipts]  # without a connection
        receipt: asyncio.Future[None] | None = None
        try:
            for receipt in waiting:
                await asyncio.shield(receipt)
        finally:
            waiting.clear()
            del receipt  # see runtime's value_of

    def _send(
        self,
        connection: ClientConnection,
        ids: list[tuple[EntryKey, AckSet]],
        flight: _Flight | None,
        properties: Properties,
        *,
        is_cumulative: bool,
    ) -> None:
        request_id = None
        if flight is not None:
            request_id = connection.next_request_id()
            flight.request_ids.add(request_id)
            self._flights[request_id] = flight
        connection.write(
            encode_ack(
                self._consumer_id, ids, is_cumulative=is_cumulative, request_id=request_id, properties=properties
            )
        )

    def _receipt(self) -> asyncio.Future[None]:
        if self._ended is not None:
            receipt: asyncio.Future[None] = self._loop.create_future()
            settle_receipts([receipt], self._ended)
            return receipt
        waiting = self._receipts.setdefault(self.tracker.number, [])
        if not waiting:
            waiting.append(self._loop.create_future())
        return waiting[0]

    def _arm(self) -> None:
        if self._connection is not None and self.tracker.pending_count:
            self._timer = self._loop.call_later(self._group_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()

    def _on_hurried(self) -> None:
        self._is_hurried = False
        self.flush()

    def _on_overdue(self) -> None:
        self._patience_timer = None
        now_s = self._loop.time()
        for flight in list(dict.fromkeys(self._flights.values())):
            left_s = flight.sent_s + self._timeout_s - now_s
            if left_s > 0:
                self._patience_timer = self._loop.call_later(left_s, self._on_overdue)
                return
            for request_id in flight.request_ids:
                del self._flights[request_id]
            self._counters.ack_failures += 1
            text = f"no answer to an acknowledgment within {self._timeout_s:g} s: unknown whether it was stored"
            settle_receipts(flight.receipts, Timeout(text))

    def _stop_patience(self) -> None:
        if self._patience_timer is not None:
            self._patience_timer.cancel()
            self._patience_timer = None


def _cumulative_of(group: AckGroup) -> EntryKey | None:
    return None if group.cumulative is None else group.cumulative[0]


def settle_receipts(receipts: list[asyncio.Future[None]], error: PulsarException | None) -> None:
    """Tell who waits for them, as far as anybody does: they are stored, or ``error``."""
    for receipt in receipts:
        if receipt.done():
            continue
        if error is None:
            receipt.set_result(None)
        else:
            receipt.set_exception(error)
            receipt.exception()  # whoever waited may have given up
