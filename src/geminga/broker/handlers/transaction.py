"""Commands of transactions: from clients to coordinators, and from other brokers' coordinators to what is served here.

Each has an answer of its own type, with an error in it or none. Without ``transactionCoordinatorEnabled`` those of
clients are answered ERROR, as by Pulsar: the Go client looks at nothing else there. Those of other brokers get their
own answers, with the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from geminga.broker.access.core.actions import EVERYTHING, Anyone, Resource, SuperUser
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import Asks, CommandRow
from geminga.broker.handlers.services import CommandServices, Transactions
from geminga.model.errors import (
    AuthorizationError,
    GemingaError,
    InvalidTopicNameError,
    NotAllowedError,
    TransactionNotFoundError,
)
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId, TxnSubscription
from geminga.runtime import Raised, again, attempt
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command

if TYPE_CHECKING:  # what no transaction needs is not loaded
    from geminga.transaction.coordinator import TransactionCoordinator

#: Pulsar's words.
TEXT: Final = "Transactions are not enabled."
#: Of Java's long in an uint64.
_SIGN_BIT: Final = 63
#: Pulsar's word to clients that are not whom the transaction belongs to.
NOT_YOURS: Final = "Client is not the owner of the transaction"


class TransactionCommand(NamedTuple):
    """A command and its answer, by the names of their fields in ``BaseCommand``."""

    request: str
    answer: str
    answer_type: pb.BaseCommand.Type
    #: The answer says which transaction it is about, as the request did.
    has_id: bool = True
    #: Other brokers ask, not clients.
    is_brokers: bool = False

    def not_enabled(self, connection: Connection, command: pb.BaseCommand) -> None:
        """There are no transactions here."""
        error = NotAllowedError(TEXT)
        if self.is_brokers:
            self.answered(connection, command, error)
        elif not connection.is_closed:
            connection.send_error(getattr(command, self.request).request_id, error)

    def answered(
        self,
        connection: Connection,
        command: pb.BaseCommand,
        error: GemingaError | None = None,
        txn_id: TxnId | None = None,
    ) -> None:
        """Send the answer."""
        if connection.is_closed:
            return
        request = getattr(command, self.request)
        response = pb.BaseCommand(type=self.answer_type)
        answer = getattr(response, self.answer)
        answer.request_id = request.request_id
        if txn_id is not None:
            answer.txnid_most_bits, answer.txnid_least_bits = txn_id
        elif self.has_id:
            answer.txnid_most_bits, answer.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
        if error is not None:
            code: int = error.server_error  # the model's enum has the numbers of the wire's
            answer.error = cast("pb.ServerError", code)
            answer.message = connection.told(error)
        # With what else this turn answers: many transactions of a client are under way at once.
        connection.output.write_soon(encode_command(response))


CONNECT: Final = TransactionCommand(
    "tcClientConnectRequest", "tcClientConnectResponse", pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, has_id=False
)
NEW: Final = TransactionCommand("newTxn", "newTxnResponse", pb.BaseCommand.NEW_TXN_RESPONSE, has_id=False)
ADD_PARTITION: Final = TransactionCommand(
    "addPartitionToTxn", "addPartitionToTxnResponse", pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE
)
ADD_SUBSCRIPTION: Final = TransactionCommand(
    "addSubscriptionToTxn", "addSubscriptionToTxnResponse", pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE
)
END: Final = TransactionCommand("endTxn", "endTxnResponse", pb.BaseCommand.END_TXN_RESPONSE)
END_ON_PARTITION: Final = TransactionCommand(
    "endTxnOnPartition", "endTxnOnPartitionResponse", pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE, is_brokers=True
)
END_ON_SUBSCRIPTION: Final = TransactionCommand(
    "endTxnOnSubscription",
    "endTxnOnSubscriptionResponse",
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    is_brokers=True,
)

#: What a command does; the id of a new transaction, or None.
Work = Callable[[Transactions, Connection, pb.BaseCommand], Coroutine[Any, Any, TxnId | None]]


def _handled(kind: TransactionCommand, work: Work) -> Callable[[CommandServices, Connection, pb.BaseCommand], None]:
    def handle(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
        if services.transactions is None:
            kind.not_enabled(connection, command)
            return
        connection.run(run(services.transactions, connection, command), f"{kind.request} of {connection.peer}")

    async def run(transactions: Callable[[], Transactions], connection: Connection, command: pb.BaseCommand) -> None:
        txn_id, error = None, None
        try:
            txn_id = await work(transactions(), connection, command)
        except GemingaError as raised:
            error = again(raised)
        kind.answered(connection, command, error, txn_id)

    return handle


async def _connect(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    await transactions.coordinators.find(command.tcClientConnectRequest.tc_id)


def _handle_begin(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """NEW_TXN, at once where that waits for nothing."""
    txn_id, error, coordinator = None, None, None
    try:
        if services.transactions is not None:
            coordinator = services.transactions().coordinators.open.get(command.newTxn.tc_id)
        if coordinator is None or not coordinator.has_numbers:
            _begin_in_a_while(services, connection, command)
            return
        txn_id = coordinator.begin_now(_timeout_ms(command), connection.principal.speaker or None)
    except GemingaError as raised:
        error = again(raised)
    NEW.answered(connection, command, error, txn_id)


async def _begin(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> TxnId:
    coordinator = await transactions.coordinators.find(command.newTxn.tc_id)
    return await coordinator.begin(_timeout_ms(command), connection.principal.speaker or None)


def _timeout_ms(command: pb.BaseCommand) -> int:
    # Java's negative numbers are no time at all.
    given = command.newTxn.txn_ttl_millis
    return 0 if given >> _SIGN_BIT else given


_begin_in_a_while: Final = _handled(NEW, _begin)


def _open_coordinator(services: CommandServices, number: int) -> TransactionCoordinator | None:
    """One that can be asked in this turn; None: it is to be found first, or there is an error to tell."""
    if services.transactions is None:
        return None
    outcome = attempt(services.transactions)
    return None if isinstance(outcome, Raised) else outcome.coordinators.open.get(number)


def _handle_add_partition(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """ADD_PARTITION_TO_TXN, taken in this turn where the coordinator is open: what the client sends behind it without
    waiting for the answer (``geminga_registers_ahead``) finds that the transaction knows of the topic."""
    request = command.addPartitionToTxn
    txn_id = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    coordinator = _open_coordinator(services, txn_id.coordinator)
    if coordinator is None:
        _add_partition_in_a_while(services, connection, command)
        return

    def done(error: GemingaError | None) -> None:
        ADD_PARTITION.answered(connection, command, error)
        connection.load.done()

    connection.load.begins()
    try:
        _check_owner(coordinator.owner(txn_id), connection)
        coordinator.add_partitions_now(txn_id, [_persistent(name) for name in request.partitions], done)
    except GemingaError as error:
        done(error)


async def _add_partition(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    request = command.addPartitionToTxn
    txn_id = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    coordinator = await transactions.coordinators.find(txn_id.coordinator)
    _check_owner(coordinator.owner(txn_id), connection)
    await coordinator.add_partitions(txn_id, [_persistent(name) for name in request.partitions])


_add_partition_in_a_while: Final = _handled(ADD_PARTITION, _add_partition)


async def _add_subscription(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    request = command.addSubscriptionToTxn
    txn_id = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    coordinator = await transactions.coordinators.find(txn_id.coordinator)
    _check_owner(coordinator.owner(txn_id), connection)
    added = [TxnSubscription(_persistent(each.topic), each.subscription) for each in request.subscription]
    await coordinator.add_subscriptions(txn_id, added)


def _handle_end(services: CommandServices, connection: Connection, command: pb.BaseCommand) -> None:
    """END_TXN, decided in this turn where its coordinator is open and knows it."""
    request = command.endTxn
    txn_id = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    coordinator = _open_coordinator(services, txn_id.coordinator)
    if coordinator is None or txn_id.number not in coordinator.state.open:
        _end_in_a_while(services, connection, command)
        return

    def done(error: GemingaError | None) -> None:
        END.answered(connection, command, error)
        connection.load.done()

    connection.load.begins()
    try:
        _check_owner(coordinator.owner(txn_id), connection)
        coordinator.end_now(txn_id, commit=request.txn_action == pb.COMMIT, done=done)
    except GemingaError as error:
        done(error)


async def _end(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    request = command.endTxn
    txn_id = TxnId(request.txnid_most_bits, request.txnid_least_bits)
    coordinator = await transactions.coordinators.find(txn_id.coordinator)
    try:
        _check_owner(coordinator.owner(txn_id), connection)
    except TransactionNotFoundError:
        pass  # it may be over: the coordinator knows for a while how it ended
    await coordinator.end(txn_id, commit=request.txn_action == pb.COMMIT)


_end_in_a_while: Final = _handled(END, _end)


async def _end_on_partition(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    request = command.endTxnOnPartition
    await transactions.participants.end_on_partition(
        TxnId(request.txnid_most_bits, request.txnid_least_bits),
        request.topic,
        commit=request.txn_action == pb.COMMIT,
        low_watermark=_watermark(request),
    )


async def _end_on_subscription(transactions: Transactions, connection: Connection, command: pb.BaseCommand) -> None:
    request = command.endTxnOnSubscription
    await transactions.participants.end_on_subscription(
        TxnId(request.txnid_most_bits, request.txnid_least_bits),
        TxnSubscription(request.subscription.topic, request.subscription.subscription),
        commit=request.txn_action == pb.COMMIT,
        low_watermark=_watermark(request),
    )


def _watermark(request: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription) -> int:
    if not request.HasField("txnid_least_bits_of_low_watermark"):
        return -1
    watermark = request.txnid_least_bits_of_low_watermark
    return -1 if watermark >> _SIGN_BIT else watermark  # Java's -1


def _persistent(text: str) -> str:
    """The name as the client told it, which is how it is told back."""
    name = TopicName.parse(text)
    if not name.is_persistent:
        raise InvalidTopicNameError(f"{name} stores no messages: transactions need persistent topics")
    return text


def _check_owner(owner: str | None, connection: Connection) -> None:
    if owner is not None and owner != connection.principal.speaker:
        raise AuthorizationError(NOT_YOURS)


def _the_cluster(connection: Connection, command: pb.BaseCommand) -> Resource:
    return EVERYTHING


#: Producers and consumers were asked about when they were made, and a transaction is its owner's.
_OWNERS: Final = Anyone("a transaction touches only what its owner's producers and consumers may")


def _asks(kind: TransactionCommand) -> Asks:
    return Asks(SuperUser.END_TRANSACTION, _the_cluster, kind.answered)


ROWS: Final = (
    CommandRow(
        pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        _handled(CONNECT, _connect),
        Anyone("it asks whether a coordinator is here"),
    ),
    CommandRow(pb.BaseCommand.NEW_TXN, _handle_begin, _OWNERS),
    CommandRow(pb.BaseCommand.ADD_PARTITION_TO_TXN, _handle_add_partition, _OWNERS),
    CommandRow(pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN, _handled(ADD_SUBSCRIPTION, _add_subscription), _OWNERS),
    CommandRow(pb.BaseCommand.END_TXN, _handle_end, _OWNERS),
    CommandRow(
        pb.BaseCommand.END_TXN_ON_PARTITION, _handled(END_ON_PARTITION, _end_on_partition), _asks(END_ON_PARTITION)
    ),
    CommandRow(
        pb.BaseCommand.END_TXN_ON_SUBSCRIPTION,
        _handled(END_ON_SUBSCRIPTION, _end_on_subscription),
        _asks(END_ON_SUBSCRIPTION),
    ),
)
