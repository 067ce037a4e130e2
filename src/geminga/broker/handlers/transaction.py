"""Transaction commands, as a broker without a transaction coordinator answers them: NotAllowed, each its own way."""

from __future__ import annotations

from typing import Final

from geminga.broker.access.core.actions import Anyone
from geminga.broker.connection.connection import Connection
from geminga.broker.handlers.rows import CommandRow, without_services
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


#: Whoever builds transactions says here what each command needs.
_REFUSED: Final = Anyone("it is answered NotAllowed alone: there is no coordinator")

ROWS: Final = (
    CommandRow(pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST, without_services(handle_tc_connect), _REFUSED),
    CommandRow(pb.BaseCommand.NEW_TXN, without_services(handle_new_txn), _REFUSED),
    CommandRow(pb.BaseCommand.ADD_PARTITION_TO_TXN, without_services(handle_add_partition), _REFUSED),
    CommandRow(pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN, without_services(handle_add_subscription), _REFUSED),
    CommandRow(pb.BaseCommand.END_TXN, without_services(handle_end_txn), _REFUSED),
    CommandRow(pb.BaseCommand.END_TXN_ON_PARTITION, without_services(handle_end_on_partition), _REFUSED),
    CommandRow(pb.BaseCommand.END_TXN_ON_SUBSCRIPTION, without_services(handle_end_on_subscription), _REFUSED),
)
