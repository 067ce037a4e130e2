"""How the end of a transaction reaches topics and subscriptions, whoever serves them: the commands of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from geminga.broker.peers.topics import PeerTopics
from geminga.client import Client, PulsarException, SubscriptionNotFound, TopicNotFound
from geminga.model.errors import SubscriptionNotFoundError, TopicNotFoundError, UnavailableError
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId, TxnSubscription
from geminga.transaction.ports import Participants
from geminga.wire._generated import pulsar_api_pb2 as pb

#: Seconds that a participant has for its answer; it is told again where that was not enough.
ANSWER_S_MAX: Final = 30.0


class PeerParticipants:
    """See the module; :class:`geminga.transaction.ports.Participants`."""

    __slots__ = ("_client", "_local", "_peers")

    def __init__(self, local: Participants, peers: PeerTopics, client: Callable[[], Client]) -> None:
        """``local``: those that are here. ``client`` of the cluster."""
        self._local = local
        self._peers = peers
        self._client = client

    async def end_on_partition(self, txn_id: TxnId, topic: str, *, commit: bool, low_watermark: int) -> None:
        """As the port says."""
        if await self._peers.is_here(TopicName.parse(topic)):
            await self._local.end_on_partition(txn_id, topic, commit=commit, low_watermark=low_watermark)
            return
        command = pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_PARTITION)
        command.endTxnOnPartition.topic = topic
        await self._tell(topic, command, command.endTxnOnPartition, txn_id, commit, low_watermark)

    async def end_on_subscription(
        self, txn_id: TxnId, subscription: TxnSubscription, *, commit: bool, low_watermark: int
    ) -> None:
        """As the port says."""
        topic = subscription.topic
        if await self._peers.is_here(TopicName.parse(topic)):
            await self._local.end_on_subscription(txn_id, subscription, commit=commit, low_watermark=low_watermark)
            return
        command = pb.BaseCommand(type=pb.BaseCommand.END_TXN_ON_SUBSCRIPTION)
        command.endTxnOnSubscription.subscription.topic = topic
        command.endTxnOnSubscription.subscription.subscription = subscription.subscription
        await self._tell(topic, command, command.endTxnOnSubscription, txn_id, commit, low_watermark)

    async def _tell(
        self,
        topic: str,
        command: pb.BaseCommand,
        request: pb.CommandEndTxnOnPartition | pb.CommandEndTxnOnSubscription,
        txn_id: TxnId,
        commit: bool,
        low_watermark: int,
    ) -> None:
        request.txnid_most_bits, request.txnid_least_bits = txn_id
        request.txn_action = pb.COMMIT if commit else pb.ABORT
        if low_watermark >= 0:
            request.txnid_least_bits_of_low_watermark = low_watermark
        client = self._client()
        try:
            address = await client.lookup.find_broker_once(topic)
            connection = await client.pool.broker_connection(address)
            request.request_id = connection.next_request_id()
            await connection.request(command, request.request_id, ANSWER_S_MAX)
        except TopicNotFound as error:
            raise TopicNotFoundError(f"Topic {topic} not found") from error
        except SubscriptionNotFound as error:
            raise SubscriptionNotFoundError(f"a subscription of {topic} that took part in {txn_id} is gone") from error
        except PulsarException as error:
            raise UnavailableError(f"{topic} could not be told of the end of {txn_id}: {error}") from error
