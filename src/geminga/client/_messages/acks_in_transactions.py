"""Sends what is acknowledged in transactions at one consumer of one topic, each command with its own answer.

What is acknowledged in one turn of the loop for one transaction goes as one command. It waits until the coordinator
knows of the subscription, and while there is no connection; what was not answered when a connection broke is sent again
(a broker takes the same acknowledgment of the same transaction twice). Nothing of it is done to the state of the
consumer before the transaction is committed; after an abort what was acknowledged in it is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from geminga.client._api.errors import PulsarException, Timeout, as_client_error
from geminga.client._api.transaction import refusal_of, wanted
from geminga.client._messages.acks import settle_receipts
from geminga.client._messages.entry_batch import EntryBatch
from geminga.client._transport.connection import ClientConnection
from geminga.client.consumer_rules.batch_acker import BatchAcker
from geminga.client.rules.stats import ConsumerCounters
from geminga.client.rules.transaction import TransactionCore
from geminga.runtime import Raised, attempt
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command

EntryKey = tuple[int, int]

#: Entries of one command.
IDS_MAX: Final = 1000


class GivenBack(NamedTuple):
    """What an aborted transaction had acknowledged with one command."""

    #: Entry -> messages of it (none: all), and how many it has.
    acked: Mapping[EntryKey, tuple[Collection[int], int]]
    is_cumulative: bool
    #: The batches that some of these messages were received of.
    batches: Collection[EntryBatch]


class Committed(Protocol):
    """The state of the consumer that committed acknowledgments change."""

    def held(self, key: EntryKey) -> Sequence[EntryKey]:
        """The rest of an entry is acknowledged: nothing asks for it again. The entries of the message."""
        ...

    def committed(self, key: EntryKey, indexes: Collection[int], size: int) -> None:
        """Messages of an entry are acknowledged for good; none: all of it."""
        ...

    def committed_up_to(self, key: EntryKey, index: int) -> None:
        """Everything up to there is."""
        ...

    def given_back(self, given: GivenBack) -> None:
        """None of these is acknowledged."""
        ...


class _Command:
    """One ACK, or several if it has very many entries: what waits to be sent, or for the answer."""

    __slots__ = ("acked", "answer", "batches", "error", "is_cumulative", "requests", "timer", "txn")

    def __init__(self, txn: TransactionCore, *, is_cumulative: bool, answer: asyncio.Future[None]) -> None:
        self.txn = txn
        self.is_cumulative = is_cumulative
        #: Entry -> messages of it, and how many it has; none of 0: the whole entry.
        self.acked: dict[EntryKey, tuple[set[int], int]] = {}
        #: What messages of batches were received of (a set that keeps its order).
        self.batches: dict[EntryBatch, None] = {}
        self.answer = answer
        #: Requests that are not answered.
        self.requests: set[int] = set()
        self.error: PulsarException | None = None
        self.timer: asyncio.TimerHandle | None = None


class AcksInTransactions:
    """See the module's docstring."""

    __slots__ = (
        "_connection",
        "_consumer_id",
        "_counters",
        "_ended",
        "_flights",
        "_gathering",
        "_held",
        "_loop",
        "_registering",
        "_state",
        "_target",
        "_timeout_s",
        "_waiting",
    )

    def __init__(
        self,
        consumer_id: int,
        target: tuple[str, str],
        state: Committed,
        *,
        timeout_s: float,
        counters: ConsumerCounters,
    ) -> None:
        """``target``: topic and subscription; ``timeout_s``: how long an answer may take, over all connections."""
        self._consumer_id = consumer_id
        self._target = target
        #: None once nothing is sent any more.
        self._state: Committed | None = state
        self._timeout_s = timeout_s
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._connection: ClientConnection | None = None
        self._ended: PulsarException | None = None
        #: Messages of batches that transactions acknowledged which are not over: how many, by entry and index.
        self._held: dict[EntryKey, Counter[int]] = {}
        #: What is gathered in this turn.
        self._gathering: dict[TransactionCore, _Command] = {}
        #: Whose coordinator is to know of the subscription first.
        self._registering: list[_Command] = []
        #: Ready to be sent, in order; there is no connection.
        self._waiting: list[_Command] = []
        #: Request -> what it belongs to.
        self._flights: dict[int, _Command] = {}

    def add(
        self,
        txn: TransactionCore,
        key: EntryKey,
        index: int,
        size: int,
        *,
        is_cumulative: bool,
        batch: EntryBatch | None = None,
    ) -> asyncio.Future[None]:
        """One message, or everything up to it; ``index`` -1: an entry that is no batch. ``batch``: what it was received
        of, if that is known. Done when it is answered.

        Counts as an operation of the transaction, which must have one under way.
        """
        state = self._state
        if state is None:
            return self._refused(txn)
        command = None if is_cumulative else self._gathering.get(txn)
        if command is None or len(command.acked) >= IDS_MAX:
            command = _Command(txn, is_cumulative=is_cumulative, answer=self._loop.create_future())
            txn.join()
            command.timer = self._loop.call_later(self._timeout_s, self._overdue, command)
            if not is_cumulative:
                self._gathering[txn] = command
            self._loop.call_soon(self._leave, command)
        if is_cumulative:
            command.acked[key] = (set(range(index + 1)), size)
        elif index < 0:
            for piece in state.held(key):
                command.acked[piece] = (set(), 0)
        else:
            indexes, _ = command.acked.setdefault(key, (set(), size))
            if index not in indexes:
                indexes.add(index)
                self._held.setdefault(key, Counter())[index] += 1
            if batch is not None:
                command.batches[batch] = None
        return command.answer

    def is_held(self, key: EntryKey, index: int) -> bool:
        """Whether a transaction that is not over acknowledged a message of a batch."""
        held = self._held.get(key)
        return held is not None and held[index] > 0

    def _let_go(self, command: _Command) -> None:
        if command.is_cumulative:
            return
        for key, (indexes, _) in command.acked.items():
            held = self._held.get(key)
            if held is not None:
                held.subtract(indexes)
                if not any(held.values()):
                    del self._held[key]

    def _refused(self, txn: TransactionCore) -> asyncio.Future[None]:
        assert self._ended is not None
        txn.fail(self._ended)
        refused: asyncio.Future[None] = self._loop.create_future()
        settle_receipts([refused], self._ended)
        return refused

    # ---- connection

    def connected(self, connection: ClientConnection) -> None:
        """Subscribed: what waited goes out."""
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for command in waiting:
            self._send(command)

    def disconnected(self) -> None:
        """The connection is gone: what was not answered waits again."""
        self._connection = None
        again = list(dict.fromkeys(self._flights.values()))
        self._flights.clear()
        for command in again:
            command.requests.clear()
        self._waiting[:0] = again

    def on_response(self, request_id: int, error: PulsarException | None) -> bool:
        """ACK_RESPONSE; False: to something else."""
        command = self._flights.pop(request_id, None)
        if command is None:
            return False
        command.requests.discard(request_id)
        command.error = command.error or error
        if not command.requests:
            self._settle(command, command.error)
        return True

    def close(self, error: PulsarException) -> None:
        """Nothing is sent any more; what was not answered fails with ``error``."""
        self._ended = error
        self._state = None
        self._connection = None
        flights, self._flights = self._flights, {}
        waiting, self._waiting = self._waiting, []
        gathering, self._gathering = self._gathering, {}
        registering, self._registering = self._registering, []
        for command in dict.fromkeys([*flights.values(), *waiting, *registering, *gathering.values()]):
            self._settle(command, error)

    # ---- inside

    def _leave(self, command: _Command) -> None:
        """The turn is over in which it was gathered."""
        if self._gathering.get(command.txn) is command:
            del self._gathering[command.txn]
        if command.answer.done():
            return
        txn = command.txn

        def registered(error: Exception | None) -> None:
            if command in self._registering:
                self._registering.remove(command)
            if error is not None:
                self._settle(command, as_client_error(error, "acknowledging"))
            else:
                self._send(command)

        self._registering.append(command)
        ready = attempt(wanted, txn, self._target, registered)
        if isinstance(ready, Raised):
            registered(ready.error)
        elif ready:
            registered(None)

    def _send(self, command: _Command) -> None:
        connection = self._connection
        if command.answer.done():
            return
        if connection is None:
            self._waiting.append(command)
            return
        refusal = refusal_of(command.txn)
        if refusal is not None:
            self._settle(command, refusal)
            return
        txn_id = command.txn.txn_id
        entries = list(command.acked.items())
        for start in range(0, len(entries), IDS_MAX):
            request_id = connection.next_request_id()
            command.requests.add(request_id)
            self._flights[request_id] = command
            names_all = not command.is_cumulative and connection.features.geminga_ack_sets_name_all
            ids = [_id_data(key, indexes, size, names_all) for key, (indexes, size) in entries[start : start + IDS_MAX]]
            ack = pb.CommandAck(
                consumer_id=self._consumer_id,
                ack_type=pb.CommandAck.Cumulative if command.is_cumulative else pb.CommandAck.Individual,
                message_id=ids,
                txnid_most_bits=txn_id.coordinator,
                txnid_least_bits=txn_id.number,
                request_id=request_id,
            )
            connection.write(encode_command(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=ack)))

    def _overdue(self, command: _Command) -> None:
        for request_id in command.requests:
            self._flights.pop(request_id, None)
        text = f"no answer to an acknowledgment in {command.txn.txn_id} within {self._timeout_s:g} s"
        self._settle(command, Timeout(text))

    def _settle(self, command: _Command, error: PulsarException | None) -> None:
        if command.answer.done():
            return
        if command.timer is not None:
            command.timer.cancel()
        settle_receipts([command.answer], error)
        if error is not None:
            self._counters.ack_failures += 1
            self._let_go(command)
        else:
            command.txn.when_over(lambda is_committed: self._over(command, is_committed=is_committed))
        command.txn.settle(error)

    def _over(self, command: _Command, *, is_committed: bool) -> None:
        self._let_go(command)
        state = self._state
        if state is None:
            return
        if not is_committed:
            state.given_back(GivenBack(command.acked, command.is_cumulative, command.batches))
            return
        for key, (indexes, size) in command.acked.items():
            if command.is_cumulative:
                state.committed_up_to(key, len(indexes) - 1)
            else:
                state.committed(key, indexes, size)


def _id_data(key: EntryKey, indexes: set[int], size: int, names_all: bool) -> pb.MessageIdData:
    """``names_all``: all of a batch are named, by an ack set that leaves nothing; without one it would be the rest."""
    data = pb.MessageIdData(ledgerId=key[0], entryId=key[1])
    if len(indexes) < size:
        acker = BatchAcker(size)
        acker.acknowledge_many(sorted(indexes))
        data.ack_set.extend(acker.words() or ())
        data.batch_size = size
    elif size and names_all:
        data.ack_set.append(0)
        data.batch_size = size
    return data
