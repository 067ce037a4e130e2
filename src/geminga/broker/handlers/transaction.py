"""Transaction commands, as a broker without a transaction coordinator answers them: NotAllowed, each its own way."""

from __future__ import annotations

from typing import Final

from geminga.broker.connection.connection import Connection, Handler
from geminga.wire._generated import pulsar_api_pb2 as pb

TEXT: Final = (
    "Transaction manager is not started, please set transactionCoordinatorEnabled=true on a broker that has it"
)


def handle_tc_connect(connection: Connection, command: pb.BaseCommand) -> None:
    """TC_CLIENT_CONNECT_REQUEST."""
    answer = pb.CommandTcClientConnectResponse(
        request_id=command.tcClientConnectRequest.request_id, error=pb.NotAllowedError, message=TEXT
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=answer)
    )


def handle_new_txn(connection: Connection, command: pb.BaseCommand) -> None:
    """NEW_TXN."""
    answer = pb.CommandNewTxnResponse(request_id=command.newTxn.request_id, error=pb.NotAllowedError, message=TEXT)
    connection.send_command(pb.BaseCommand(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=answer))


def handle_add_partition(connection: Connection, command: pb.BaseCommand) -> None:
    """ADD_PARTITION_TO_TXN."""
    request = command.addPartitionToTxn
    answer = pb.CommandAddPartitionToTxnResponse(
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits,
        txnid_most_bits=request.txnid_most_bits,
        error=pb.NotAllowedError,
        message=TEXT,
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, addPartitionToTxnResponse=answer)
    )


def handle_add_subscription(connection: Connection, command: pb.BaseCommand) -> None:
    """ADD_SUBSCRIPTION_TO_TXN."""
    request = command.addSubscriptionToTxn
    answer = pb.CommandAddSubscriptionToTxnResponse(
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits,
        txnid_most_bits=request.txnid_most_bits,
        error=pb.NotAllowedError,
        message=TEXT,
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, addSubscriptionToTxnResponse=answer)
    )


def handle_end_txn(connection: Connection, command: pb.BaseCommand) -> None:
    """END_TXN."""
    request = command.endTxn
    answer = pb.CommandEndTxnResponse(
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits,
        txnid_most_bits=request.txnid_most_bits,
        error=pb.NotAllowedError,
        message=TEXT,
    )
    connection.send_command(pb.BaseCommand(type=pb.BaseCommand.END_TXN_RESPONSE, endTxnResponse=answer))


def handle_end_on_partition(connection: Connection, command: pb.BaseCommand) -> None:
    """END_TXN_ON_PARTITION."""
    request = command.endTxnOnPartition
    answer = pb.CommandEndTxnOnPartitionResponse(
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits,
        txnid_most_bits=request.txnid_most_bits,
        error=pb.NotAllowedError,
        message=TEXT,
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE, endTxnOnPartitionResponse=answer)
    )


def handle_end_on_subscription(connection: Connection, command: pb.BaseCommand) -> None:
    """END_TXN_ON_SUBSCRIPTION."""
    request = command.endTxnOnSubscription
    answer = pb.CommandEndTxnOnSubscriptionResponse(
        request_id=request.request_id,
        txnid_least_bits=request.txnid_least_bits,
        txnid_most_bits=request.txnid_most_bits,
        error=pb.NotAllowedError,
        message=TEXT,
    )
    connection.send_command(
        pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE, endTxnOnSubscriptionResponse=answer)
    )


HANDLERS: Final[dict[int, Handler]] = {
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST: handle_tc_connect,
    pb.BaseCommand.NEW_TXN: handle_new_txn,
    pb.BaseCommand.ADD_PARTITION_TO_TXN: handle_add_partition,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: handle_add_subscription,
    pb.BaseCommand.END_TXN: handle_end_txn,
    pb.BaseCommand.END_TXN_ON_PARTITION: handle_end_on_partition,
    pb.BaseCommand.END_TXN_ON_SUBSCRIPTION: handle_end_on_subscription,
}
