"""Transaction coordinators: which there are, which broker has each, and what they are asked.

They are the partitions of one topic that nobody publishes to; a coordinator belongs to the broker that has its
partition. New transactions go to them in turn. Whatever is asked is asked again, of whoever has the coordinator by
then, until the operation timeout: all of it is the same done twice, but for a new transaction, of which the first one
then holds nothing and times out.

They are those of one cluster: a client that goes on with another one has others there, and an id names another
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from geminga.client._api.errors import (
    AuthorizationError,
    InvalidTxnStatusError,
    NotAllowedError,
    NotConnected,
    PulsarException,
    Timeout,
    TopicNotFound,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
)
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client.rules.transaction import Answer
from geminga.model.txn_id import TxnId
from geminga.runtime import spawn, value_of
from geminga.wire._generated import pulsar_api_pb2 as pb

ASSIGN_TOPIC: Final = "persistent://pulsar/system/transaction_coordinator_assign"
#: How often one is asked that says nothing, within the operation timeout.
ATTEMPTS_IN_SILENCE: Final = 3
#: Topics that one command adds to a transaction.
TOPICS_AT_ONCE: Final = 100
_Type = pb.BaseCommand

#: Request id -> command.
Make = Callable[[int], pb.BaseCommand]


class _Told(NamedTuple):
    """A command that tells of topics, until it leaves."""

    connection: ClientConnection
    topics: list[str]
    answer: asyncio.Future[pb.BaseCommand]


def _publishes_to(txn_id: TxnId, topics: list[str], request_id: int) -> pb.BaseCommand:
    request = pb.CommandAddPartitionToTxn(
        request_id=request_id,
        txnid_most_bits=txn_id.coordinator,
        txnid_least_bits=txn_id.number,
        partitions=topics,
    )
    return pb.BaseCommand(type=_Type.ADD_PARTITION_TO_TXN, addPartitionToTxn=request)


class Coordinators:
    """Of one client, in the cluster that it has now; see the module."""

    __slots__ = ("_cluster", "_connections", "_count", "_greetings", "_moves", "_telling", "_turn")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: How often the client had gone on with another cluster.
        self._moves = cluster.pool.moves
        #: How many there are; 0: nobody asked yet.
        self._count = 0
        self._turn = 0
        #: Coordinator -> the connection on which it was greeted.
        self._connections: dict[int, ClientConnection] = {}
        #: Topics that transactions begin with in this turn of the loop: one command for those of each.
        self._telling: dict[TxnId, _Told] = {}
        #: Those that are being greeted.
        self._greetings: dict[int, asyncio.Task[ClientConnection | PulsarException]] = {}

    @property
    def are_left(self) -> bool:
        """Whether the client went on with another cluster."""
        return self._cluster.pool.moves != self._moves

    async def begin(self, timeout_ms: int) -> TxnId:
        """A new transaction. Raises NotAllowedError where there are none, the broker's error, or Timeout."""
        if not self._count:
            try:
                self._count = await self._cluster.lookup.partitions(ASSIGN_TOPIC, auto_create=False)
            except TopicNotFound:
                pass
            except AuthorizationError as error:
                # A broker names neither the topic nor the role.
                raise AuthorizationError(
                    f"{error}: transactions take a right (produce or consume) in pulsar/system, "
                    "the namespace of their coordinators"
                ) from error
            if not self._count:
                raise NotAllowedError(
                    "the cluster has no transaction coordinators: transactionCoordinatorEnabled=true and "
                    "initialize-cluster-metadata make them"
                )

        async def attempt() -> TxnId:
            coordinator = self._turn % self._count
            self._turn += 1

            def make(request_id: int) -> pb.BaseCommand:
                request = pb.CommandNewTxn(request_id=request_id, tc_id=coordinator, txn_ttl_millis=timeout_ms)
                return pb.BaseCommand(type=_Type.NEW_TXN, newTxn=request)

            answer = (await self._ask_once(coordinator, make)).newTxnResponse
            return TxnId(answer.txnid_most_bits, answer.txnid_least_bits)

        return await self._cluster.lookup.retry(attempt, "a new transaction")

    async def add_partition(self, txn_id: TxnId, topic: str) -> None:
        """The transaction publishes to ``topic``. Raises the broker's error, or Timeout."""
        make = partial(_publishes_to, txn_id, [topic])
        await self._ask(txn_id, make, f"transaction {txn_id} on {topic}")

    def tell_partition(self, txn_id: TxnId, topic: str, way: object) -> asyncio.Future[pb.BaseCommand] | None:
        """The same, asked once, where ``way`` is the connection to the coordinator and its broker says that messages
        may follow before the answer (docs/formats/transactions.md); else None. Those of one turn are told together."""
        connection = self._connections.get(txn_id.coordinator)
        if connection is None or connection is not way or not connection.features.geminga_registers_ahead:
            return None
        told = self._telling.get(txn_id)
        if told is not None and told.connection is connection and len(told.topics) < TOPICS_AT_ONCE:
            told.topics.append(topic)
            return told.answer
        request_id = connection.next_request_id()
        topics = [topic]

        def make() -> pb.BaseCommand:
            over()
            return _publishes_to(txn_id, topics, request_id)

        try:
            answer = connection.start_late_request(make, request_id)
        except PulsarException:
            return None  # too many are under way
        told = self._telling[txn_id] = _Told(connection, topics, answer)
        patience_s = self._cluster.timeout_s / ATTEMPTS_IN_SILENCE

        def give_up() -> None:
            connection.forget_request(request_id)
            if not answer.done():
                answer.set_exception(Timeout(f"no answer to ADD_PARTITION_TO_TXN within {patience_s:g} s"))

        def over() -> None:
            if self._telling.get(txn_id) is told:
                del self._telling[txn_id]

        def done(_answer: object) -> None:
            timer.cancel()
            over()  # it may never have left

        timer = asyncio.get_running_loop().call_later(patience_s, give_up)
        answer.add_done_callback(done)
        return answer

    async def add_subscription(self, txn_id: TxnId, topic: str, subscription: str) -> None:
        """The transaction acknowledges in a subscription. Raises the broker's error, or Timeout."""

        def make(request_id: int) -> pb.BaseCommand:
            request = pb.CommandAddSubscriptionToTxn(
                request_id=request_id,
                txnid_most_bits=txn_id.coordinator,
                txnid_least_bits=txn_id.number,
                subscription=[pb.Subscription(topic=topic, subscription=subscription)],
            )
            return pb.BaseCommand(type=_Type.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=request)

        await self._ask(txn_id, make, f"transaction {txn_id} in {subscription} of {topic}")

    async def end(self, txn_id: TxnId, *, commit: bool) -> tuple[Answer, PulsarException | None]:
        """The transaction ends: what the coordinator said, and its error."""

        def make(request_id: int) -> pb.BaseCommand:
            request = pb.CommandEndTxn(
                request_id=request_id,
                txnid_most_bits=txn_id.coordinator,
                txnid_least_bits=txn_id.number,
                txn_action=pb.COMMIT if commit else pb.ABORT,
            )
            return pb.BaseCommand(type=_Type.END_TXN, endTxn=request)

        try:
            await self._ask(txn_id, make, f"{'commit' if commit else 'abort'} of transaction {txn_id}")
        except TransactionNotFound as error:
            return Answer.FORGOTTEN, error
        except PulsarException as error:
            # What trying again can not mend is a refusal, too: access that was taken away, say.
            is_final = isinstance(error, InvalidTxnStatusError) or not error.retriable
            return (Answer.REFUSED if is_final and not self._cluster.pool.is_closed else Answer.LOST), error
        return Answer.DONE, None

    # ---- how they are reached

    async def _ask(self, txn_id: TxnId, make: Make, what: str) -> pb.BaseCommand:
        return await self._cluster.lookup.retry(lambda: self._ask_once(txn_id.coordinator, make), what)

    async def _ask_once(self, coordinator: int, make: Make) -> pb.BaseCommand:
        if self.are_left:
            raise TransactionNotFound("the client went on with another cluster: the transaction belongs to the former")
        connection = await self._connected(coordinator)
        request_id = connection.next_request_id()
        try:
            patience_s = self._cluster.timeout_s / ATTEMPTS_IN_SILENCE
            # Other transactions' commands leave with it.
            return await connection.request(make(request_id), request_id, patience_s, is_urgent=False)
        except (TransactionCoordinatorNotFoundError, NotConnected, Timeout):
            # It has moved, or will have, or its broker hangs: who has it is looked up again.
            if self._connections.get(coordinator) is connection:
                del self._connections[coordinator]
            raise

    async def _connected(self, coordinator: int) -> ClientConnection:
        """A connection to the broker that has the coordinator, on which it was greeted."""
        connection = self._connections.get(coordinator)
        if connection is not None and not connection.is_closed:
            return connection
        greeting = self._greetings.get(coordinator)
        if greeting is None:
            greeting = spawn(self._greet(coordinator), name=f"greet coordinator {coordinator}")
            if not greeting.done():  # with an eager task factory it may be
                self._greetings[coordinator] = greeting
        # Of all who want it, as its error is: one after the other they would wait as often as long.
        try:
            return value_of(await asyncio.shield(greeting))
        finally:
            del greeting  # see value_of

    async def _greet(self, coordinator: int) -> ClientConnection | PulsarException:
        cluster = self._cluster
        try:
            address = await cluster.lookup.find_broker_once(f"{ASSIGN_TOPIC}-partition-{coordinator}")
            connection = await cluster.pool.broker_connection(address)
            request_id = connection.next_request_id()
            request = pb.CommandTcClientConnectRequest(request_id=request_id, tc_id=coordinator)
            command = pb.BaseCommand(type=_Type.TC_CLIENT_CONNECT_REQUEST, tcClientConnectRequest=request)
            await connection.request(command, request_id, cluster.timeout_s / ATTEMPTS_IN_SILENCE)
        except PulsarException as error:
            return error
        finally:
            self._greetings.pop(coordinator, None)
        self._connections[coordinator] = connection
        return connection
