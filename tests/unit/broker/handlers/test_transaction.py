"""A broker without transactions: clients are answered ERROR, as by Pulsar, other brokers in kind."""

from __future__ import annotations

import pytest

from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker

TXN = {"request_id": 5, "txnid_most_bits": 1, "txnid_least_bits": 2}
COMMANDS = [
    (
        {"tcClientConnectRequest": pb.CommandTcClientConnectRequest(request_id=5, tc_id=0)},
        Type.TC_CLIENT_CONNECT_REQUEST,
    ),
    ({"newTxn": pb.CommandNewTxn(request_id=5)}, Type.NEW_TXN),
    ({"addPartitionToTxn": pb.CommandAddPartitionToTxn(**TXN)}, Type.ADD_PARTITION_TO_TXN),
    ({"addSubscriptionToTxn": pb.CommandAddSubscriptionToTxn(**TXN)}, Type.ADD_SUBSCRIPTION_TO_TXN),
    ({"endTxn": pb.CommandEndTxn(**TXN)}, Type.END_TXN),
    ({"endTxnOnPartition": pb.CommandEndTxnOnPartition(**TXN)}, Type.END_TXN_ON_PARTITION),
    ({"endTxnOnSubscription": pb.CommandEndTxnOnSubscription(**TXN)}, Type.END_TXN_ON_SUBSCRIPTION),
]


OF_BROKERS = (Type.END_TXN_ON_PARTITION, Type.END_TXN_ON_SUBSCRIPTION)


@pytest.mark.parametrize(("field", "kind"), COMMANDS)
def test_transactions_are_not_allowed(field: dict, kind: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.send(pb.BaseCommand(type=kind, **field))
        if kind in OF_BROKERS:
            # Every response follows its request in the list of types.
            command = await client.expect(kind + 1)
            answer = getattr(command, pb.BaseCommand.DESCRIPTOR.fields_by_number[kind + 1].name)
        else:
            answer = (await client.expect(Type.ERROR)).error
        assert answer.request_id == 5
        assert answer.error == pb.NotAllowedError
        assert answer.message == "Transactions are not enabled."
        assert not client.is_closed

    run_with_broker(scenario)


@pytest.mark.parametrize("creates", [True, False])
def test_there_are_no_coordinators_to_look_up(creates: bool) -> None:
    """Java's client waits for ever where it is told of coordinators that then refuse it; told of none, it says so."""

    async def scenario(world: BrokerWorld) -> None:
        other = TopicName.parse("persistent://pulsar/system/other")
        for name in (COORDINATORS_TOPIC, other):
            await world.resources.partitioned_topics.create(name, 16)
        client = await world.client()
        for topic, expected in ((COORDINATORS_TOPIC, 0), (other, 16)):
            request = pb.CommandPartitionedTopicMetadata(
                topic=str(topic), request_id=7, metadata_auto_creation_enabled=creates
            )
            client.send(pb.BaseCommand(type=Type.PARTITIONED_METADATA, partitionMetadata=request))
            answer = (await client.expect(Type.PARTITIONED_METADATA_RESPONSE)).partitionMetadataResponse
            assert (answer.response, answer.partitions) == (answer.Success, expected)

    run_with_broker(scenario)
