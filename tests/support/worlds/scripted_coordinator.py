"""A scripted broker with a coordinator: it records what is asked, and answers, refuses, says nothing or cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from geminga.wire.pulsar.hot import encode_partitions, encode_send_receipts
from support.worlds.scripted_broker import polite
from support.worlds.scripted_consumer import ConsumerScript

Type = pb.BaseCommand
#: A frame that can not be: the client gives the connection up.
CUT = b"\x7f\xff\xff\xff\x00\x00\x00\x04"
#: Request -> field of the request, field and type of the answer.
_ANSWERED = {
    Type.TC_CLIENT_CONNECT_REQUEST: (
        "tcClientConnectRequest",
        "tcClientConnectResponse",
        Type.TC_CLIENT_CONNECT_RESPONSE,
    ),
    Type.NEW_TXN: ("newTxn", "newTxnResponse", Type.NEW_TXN_RESPONSE),
    Type.ADD_PARTITION_TO_TXN: ("addPartitionToTxn", "addPartitionToTxnResponse", Type.ADD_PARTITION_TO_TXN_RESPONSE),
    Type.ADD_SUBSCRIPTION_TO_TXN: (
        "addSubscriptionToTxn",
        "addSubscriptionToTxnResponse",
        Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    ),
    Type.END_TXN: ("endTxn", "endTxnResponse", Type.END_TXN_RESPONSE),
}


class CoordinatorScript:
    """Two coordinators; what is in :attr:`instead` of a kind is done with the next of it, one after the other."""

    def __init__(
        self, entries: Sequence[bytes] = (), *, registers_ahead: bool = False, names_all: bool = False
    ) -> None:
        self._flags = pb.FeatureFlags(geminga_registers_ahead=registers_ahead, geminga_ack_sets_name_all=names_all)
        self.consumer = ConsumerScript(entries)
        #: Kind of request -> "drop", "cut", a ServerError, or "" to answer as usual.
        self.instead: dict[int, list[object]] = {}
        #: (virtual seconds, command) of transactions, SEND and ACK.
        self.heard: list[tuple[float, pb.BaseCommand]] = []
        self._number = 0
        self._entry_id = 0

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        kind = command.type
        if kind in _ANSWERED or kind in (Type.SEND, Type.ACK):
            self.heard.append((asyncio.get_running_loop().time(), command))
            planned = self.instead.get(kind)
            what = planned.pop(0) if planned else ""
            if what == "drop":
                return []
            if what == "cut":
                return [CUT]
            if kind in _ANSWERED:
                return [self._answer(command, what)]
            if kind == Type.ACK and what:
                response = pb.CommandAckResponse(
                    consumer_id=command.ack.consumer_id, request_id=command.ack.request_id, error=what, message="no"
                )
                return [commands.encode_command(Type(type=Type.ACK_RESPONSE, ackResponse=response))]
        if kind == Type.CONNECT:
            return [commands.connected("scripted", 21, 5 << 20, self._flags)]
        if kind == Type.SEND:
            self._entry_id += 1
            send = command.send
            high = send.highest_sequence_id or send.sequence_id
            return [encode_send_receipts(send.producer_id, 1, self._entry_id, 1, [(send.sequence_id, high)])]
        if kind == Type.PARTITIONED_METADATA and command.partitionMetadata.topic.endswith("coordinator_assign"):
            return [encode_partitions(command.partitionMetadata.request_id, 2)]
        if kind in (Type.SUBSCRIBE, Type.FLOW, Type.ACK, Type.CLOSE_CONSUMER):
            return self.consumer(command)
        return polite(command)

    def kinds(self) -> list[str]:
        """What was asked, by name and in order."""
        return [Type.Type.Name(command.type) for _, command in self.heard]

    def times(self, kind: int) -> list[float]:
        return [at for at, command in self.heard if command.type == kind]

    def _answer(self, command: pb.BaseCommand, error: object) -> bytes:
        asked, field, kind = _ANSWERED[command.type]
        request = getattr(command, asked)
        answer = Type(type=kind)
        body = getattr(answer, field)
        body.request_id = request.request_id
        if command.type == Type.NEW_TXN:
            self._number += 1
            body.txnid_most_bits, body.txnid_least_bits = request.tc_id, self._number
        elif command.type != Type.TC_CLIENT_CONNECT_REQUEST:
            body.txnid_most_bits, body.txnid_least_bits = request.txnid_most_bits, request.txnid_least_bits
        if error:
            body.error, body.message = error, "scripted"
        return commands.encode_command(answer)
