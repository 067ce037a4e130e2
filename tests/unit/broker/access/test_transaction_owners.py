"""A transaction is its owner's: behind a proxy that of whom it asks for, and nobody else's."""

from __future__ import annotations

import pytest

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.ports import Access
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.deciding import TakenAtTheirWord
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker

ACCESS = Access(authenticator=TakenAtTheirWord(), authorizer=ANONYMOUS_MAY, proxy_roles=frozenset(["proxy", "gate"]))


async def begin(client: Client) -> dict[str, int]:
    client.send(
        pb.BaseCommand(type=Type.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=1, txn_ttl_millis=60_000, tc_id=0))
    )
    answer = (await client.expect(Type.NEW_TXN_RESPONSE)).newTxnResponse
    assert not answer.HasField("error"), answer
    return {"txnid_most_bits": answer.txnid_most_bits, "txnid_least_bits": answer.txnid_least_bits}


async def end(client: Client, txn: dict[str, int]) -> int | None:
    request = pb.CommandEndTxn(request_id=2, txn_action=pb.ABORT, **txn)
    client.send(pb.BaseCommand(type=Type.END_TXN, endTxn=request))
    answer = (await client.expect(Type.END_TXN_RESPONSE)).endTxnResponse
    return answer.error if answer.HasField("error") else None


async def add(client: Client, txn: dict[str, int]) -> int | None:
    request = pb.CommandAddPartitionToTxn(request_id=3, partitions=[TOPIC], **txn)
    client.send(pb.BaseCommand(type=Type.ADD_PARTITION_TO_TXN, addPartitionToTxn=request))
    answer = (await client.expect(Type.ADD_PARTITION_TO_TXN_RESPONSE)).addPartitionToTxnResponse
    return answer.error if answer.HasField("error") else None


async def add_subscription(client: Client, txn: dict[str, int]) -> int | None:
    subscription = pb.Subscription(topic=TOPIC, subscription="sub")
    request = pb.CommandAddSubscriptionToTxn(request_id=4, subscription=[subscription], **txn)
    client.send(pb.BaseCommand(type=Type.ADD_SUBSCRIPTION_TO_TXN, addSubscriptionToTxn=request))
    answer = (await client.expect(Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE)).addSubscriptionToTxnResponse
    return answer.error if answer.HasField("error") else None


@pytest.mark.parametrize(
    ("owner", "other", "is_his"),
    [
        (("jane",), ("jane",), True),
        (("jane",), ("jim",), False),
        (("proxy", "jane"), ("proxy", "jane"), True),
        (("proxy", "jane"), ("gate", "jane"), True),
        (("proxy", "jane"), ("jane",), True),
        (("jane",), ("proxy", "jane"), True),
        # Both come by the same proxy: what it may itself says nothing of whose the transaction is.
        (("proxy", "jane"), ("proxy", "jim"), False),
    ],
)
def test_transaction_is_used_and_ended_by_its_owner_alone(owner, other, is_his: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        txn = await begin(await world.client(*owner))
        client = await world.client(*other)
        expected = None if is_his else pb.AuthorizationError
        for ask in (add, add_subscription, end):
            assert await ask(client, txn) == expected, ask
        if not is_his:
            assert await end(await world.client(*owner), txn) is None

    run_with_broker(scenario, access=ACCESS, transaction_coordinator_enabled=True)
