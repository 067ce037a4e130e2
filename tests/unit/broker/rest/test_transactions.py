"""``/admin/v3/transactions``: what is told of transactions, and what administrators do to them.

Statuses, reasons and keys are held to Apache's by the table of REST calls; here is what is in them, and the limits.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from geminga.broker.peers.standings import QUESTIONS_MAX
from geminga.broker.resources.initialization import COORDINATORS_TOPIC
from geminga.model.limits import TRANSACTION_COORDINATORS_MAX
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.transaction.logs import LATER_MS
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting, transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, run_with_broker, send_frame
from support.worlds.ownership import OwnershipTable
from support.worlds.rest_world import ask, rest_application

BASE = "/admin/v3/transactions"
PLACE = "public/default/topic"
OTHER = "persistent://public/default/other"


class Asking:
    """Asks a broker's REST."""

    def __init__(self, world: BrokerWorld) -> None:
        self._application = rest_application(world.broker)

    async def __call__(self, path: str, status: int | None = 200, *, method: str = "GET", body: object = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        answer = await ask(self._application, method, f"{BASE}/{path}", data)
        assert status in (answer.status, None), answer
        return json.loads(answer.body) if answer.body else None


def run(scenario: Callable[[BrokerWorld, Asking, Transacting], Awaitable[None]], **settings) -> None:
    async def main(world: BrokerWorld) -> None:
        await scenario(world, Asking(world), await transacting(world))

    run_with_broker(main, transaction_coordinator_enabled=True, **settings)


@pytest.mark.parametrize("enabled", [True, False])
def test_clients_that_look_up_over_http_are_told_of_no_coordinators_where_there_are_no_transactions(
    enabled: bool,
) -> None:
    """The partitions that were made while there were some stay, and administrators see them."""

    async def scenario(world: BrokerWorld) -> None:
        if not enabled:
            await world.resources.partitioned_topics.create(COORDINATORS_TOPIC, 2)
        path = "/admin/v2/persistent/pulsar/system/transaction_coordinator_assign/partitions"
        for asked, expected in (("", 2), ("?checkAllowAutoCreation=true", 2 if enabled else 0)):
            answer = await ask(rest_application(world.broker), "GET", path + asked, b"")
            assert (answer.status, json.loads(answer.body)["partitions"]) == (200, expected)

    run_with_broker(scenario, transaction_coordinator_enabled=enabled)


def test_coordinators_are_told_and_none_is_made_by_being_asked_for() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        listed = await get("coordinators")
        assert [each["id"] for each in listed] == [0, 1]
        assert {each["brokerServiceUrl"] for each in listed} == {world.broker.endpoints.default.broker_url}
        unused = await get("coordinatorStats?coordinatorId=1")
        assert (unused["state"], unused["leastSigBits"], unused["ongoingTxnSize"]) == ("None", -1, 0)
        assert (await get("coordinatorStats"))["0"] == unused
        assert await get("slowTransactions/0") == {}
        assert (await get("coordinatorInternalStats/1", 404))["reason"].endswith("not found! coordinator id : 1")
        assert (await get("transactionMetadata/1/0", 404))["reason"] == "Transaction coordinator with id 1 not found!"
        await get("abortTransaction/1/0", 404, method="POST")
        assert world.broker.transactions is not None
        assert not world.broker.transactions.coordinators.open
        assert not await world.broker.ledgers.encoded_names("pulsar/system/persistent")

        begun = await client.begin(coordinator=1)
        await client.end(await client.begin(coordinator=1), commit=True)
        stats = await get("coordinatorStats?coordinatorId=1")
        assert (stats["state"], stats["leastSigBits"], stats["lowWaterMark"]) == ("Ready", 1, -1)
        assert stats["ongoingTxnSize"] == 1
        await wait_ms(2 * LATER_MS)  # that all have heard of the end
        assert 0 < stats["recoverStartTime"] <= stats["recoverEndTime"]
        log = (await get("coordinatorInternalStats/1"))["transactionLogStats"]
        assert log["managedLedgerName"] == "pulsar/system/persistent/__transaction_log_1"
        assert log["managedLedgerInternalStats"]["entriesAddedCounter"] == 4
        assert (await get(f"transactionMetadata/1/{begun.number}"))["status"] == "OPEN"

    run(scenario)


def test_transaction_is_told_with_topics_and_subscriptions_also_those_that_are_gone() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        await client.client.create_producer(OTHER, 2)
        await client.client.subscribe(OTHER, 2)
        await client.publish(b"x", producer_id=2)
        await wait_ms(50)
        ((taken, _),) = client.messages()
        txn_id = await client.begin(30_000)
        for topic in (TOPIC, OTHER):
            await client.add_partition(txn_id, topic)
        await client.add_subscription(txn_id, OTHER)
        await client.publish(b"a", txn_id)
        await client.acknowledge([taken], txn_id, consumer_id=2, is_cumulative=True)
        told = await get(f"transactionMetadata/0/{txn_id.number}")
        assert told["txnId"] == "(0,0)"
        assert (told["status"], told["timeoutAt"]) == ("OPEN", 30_000)
        assert "owner" not in told
        (topic,) = (each for each in world.broker.topics.values() if str(each.name) == TOPIC)
        first = f"{topic.ledger.ledgers.first_position}"
        assert told["producedPartitions"] == {
            TOPIC: {"startPosition": first, "aborted": False},
            OTHER: {"aborted": False},
        }
        held = f"{taken.ledgerId}:{taken.entryId}"
        assert told["ackedPartitions"] == {OTHER: {"sub": {"cumulativeAckPosition": held}}}
        await wait_ms(10)
        assert (await get("slowTransactions/9")) == {"(0,0)": told}
        assert (await get("slowTransactions/9?coordinatorId=0")) == {"(0,0)": told}
        assert (await get("slowTransactions/3600000")) == {}
        for name in list(world.broker.topics.values()):
            if str(name.name) in (TOPIC, OTHER):
                await world.broker.registry.delete(name.name, force=True)
        gone = await get(f"transactionMetadata/0/{txn_id.number}")
        assert gone["producedPartitions"] == {TOPIC: {"aborted": False}, OTHER: {"aborted": False}}
        assert gone["ackedPartitions"] == {OTHER: {"sub": {}}}

    run(scenario)


def test_topics_are_told_by_the_names_that_the_client_gave() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        await client.client.subscribe(TOPIC, 2)
        await client.publish(b"x")
        await wait_ms(50)
        ((taken, _),) = client.messages()
        txn_id = await client.begin(30_000)
        short = TOPIC.rpartition("/")[2]
        await client.add_partition(txn_id, short)
        await client.add_subscription(txn_id, f"public/default/{short}")
        await client.publish(b"a", txn_id)
        await client.acknowledge([taken], txn_id, consumer_id=2)
        told = await get(f"transactionMetadata/0/{txn_id.number}")
        assert list(told["producedPartitions"]) == [short]
        assert told["producedPartitions"][short]["aborted"] is False
        assert "startPosition" in told["producedPartitions"][short]
        assert list(told["ackedPartitions"]) == [f"public/default/{short}"]
        await client.finish(txn_id, commit=True)
        await wait_ms(50)
        assert client.payloads() == [b"a"]

    run(scenario)


def test_administrator_aborts_what_another_began() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        txn_id = await client.begin()
        await client.add_partition(txn_id)
        await client.publish(b"a", txn_id)
        assert (await get(f"transactionBufferStats/{PLACE}"))["ongoingTxnSize"] == 1
        for _ in range(2):
            await get(f"abortTransaction/0/{txn_id.number}", 204, method="POST")
        stats = await get(f"transactionBufferStats/{PLACE}?lowWaterMarks=true")
        assert (stats["state"], stats["ongoingTxnSize"], stats["totalAbortedTransactions"]) == ("Ready", 0, 1)
        assert "lowWaterMarks" in stats
        assert (await get(f"transactionInBufferStats/{PLACE}/0/{txn_id.number}")) == {"aborted": True}
        assert (await client.end(txn_id, commit=True)).error == pb.InvalidTxnStatus
        committed = await client.begin()
        await client.end(committed, commit=True)
        refused = await get(f"abortTransaction/0/{committed.number}", 409, method="POST")
        assert "but it is in COMMITTED status" in refused["reason"]

    run(scenario)


def test_abort_that_not_all_have_heard_of_is_answered_in_time() -> None:
    table = OwnershipTable(["here", "there"])

    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        txn_id = await client.begin()
        await client.add_partition(txn_id)
        await client.publish(b"a", txn_id)
        # Nobody can be told there.
        await table.give([TopicName.parse(TOPIC)], "there")
        before = world.broker.runtime.clock.monotonic()
        path = f"abortTransaction/0/{txn_id.number}"
        refused = await get(path, 503, method="POST")
        assert world.broker.runtime.clock.monotonic() - before < 11
        assert "is being aborted" in refused["reason"]
        await table.give([TopicName.parse(TOPIC)], "here")
        await get(path, 204, method="POST")

    run(scenario, ownership=table.brokers["here"])


@pytest.mark.parametrize("turns", range(8))
def test_abort_goes_on_when_the_request_is_cut_off(turns: int) -> None:
    """Otherwise nobody could end the transaction any more: its end would be on the way for good."""

    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        txn_id = await client.begin()
        await client.add_partition(txn_id)
        await client.publish(b"a", txn_id)
        path = f"abortTransaction/0/{txn_id.number}"
        request = spawn(get(path, None, method="POST"), name="request")
        for _ in range(turns):
            await next_turn()
        request.cancel()
        await wait_ms(1_000)
        await get(path, 204, method="POST")
        assert (await get("coordinatorStats?coordinatorId=0"))["ongoingTxnSize"] == 0

    run(scenario)


def test_owner_of_topic_or_coordinator_answers() -> None:
    table = OwnershipTable(["here", "there"])

    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.begin(coordinator=1)
        await table.give([TopicName.parse(TOPIC), COORDINATORS_TOPIC.with_partition(1)], "there")
        for path in (
            f"transactionBufferStats/{PLACE}",
            f"transactionBufferInternalStats/{PLACE}",
            f"pendingAckStats/{PLACE}/sub",
            "coordinatorStats?coordinatorId=1",
            "coordinatorInternalStats/1",
            "transactionMetadata/1/0",
            "slowTransactions/0?coordinatorId=1",
        ):
            await get(path, 307)
        await get("abortTransaction/1/0", 307, method="POST")
        await get("standings/1", 307, method="POST", body=[])
        assert [each["brokerServiceUrl"] for each in await get("coordinators")][1] == "pulsar://there:6650"
        # Of all, an answer that leaves some out would be taken for all there is.
        for path in ("coordinatorStats", "slowTransactions/0"):
            assert "1 is not served here" in (await get(path, 503))["reason"]

    run(scenario, ownership=table.brokers["here"])


@pytest.mark.parametrize(
    ("body", "status"), [(3, 204), (2, 406), (-1, 406), (TRANSACTION_COORDINATORS_MAX + 1, 412), (1 << 31, 400)]
)
def test_coordinators_become_more_up_to_a_limit(body: int, status: int) -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await get("transactionCoordinator/replicas", status, method="POST", body=body)
        count = 3 if status == 204 else 2
        assert len(await get("coordinators")) == count
        answer = await client.connect(2)
        assert answer.HasField("error") is (status != 204)

    run(scenario)


def test_messages_of_a_batch_are_told_one_by_one() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.client.create_producer()
        await client.client.subscribe(subType=pb.CommandSubscribe.Shared)
        single = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
        payload = (len(single).to_bytes(4, "big") + single + b"x") * 3
        client.client.send_bytes(send_frame(1, payload, metadata={"num_messages_in_batch": 3}, num_messages=3))
        await wait_ms(50)
        ((taken, _),) = client.messages()
        txn_id = await client.begin()
        await client.add_subscription(txn_id)
        left = pb.MessageIdData(ledgerId=taken.ledgerId, entryId=taken.entryId, ack_set=[0b101], batch_size=3)
        await client.acknowledge([left], txn_id)
        place = f"positionStatsInPendingAck/{PLACE}/sub/{taken.ledgerId}/{taken.entryId}"
        told = [(await get(f"{place}?batchIndex={index}"))["state"] for index in range(4)]
        assert told == ["NotInPendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition"]
        assert (await get(place))["state"] == "PendingAck"
        await client.acknowledge([taken], txn_id)
        told = [(await get(f"{place}?batchIndex={index}"))["state"] for index in (0, 3)]
        assert told == ["PendingAck", "InvalidPosition"]
        await get(f"{place}?batchIndex=-1", 412)

    run(scenario)


@pytest.mark.parametrize("timeout_ms", [0, 1 << 63, (1 << 64) - 1])
def test_time_out_of_nothing_or_less_is_over_at_once(timeout_ms: int) -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        txn_id = await client.begin(timeout_ms)
        assert txn_id == TxnId(0, 0)
        await wait_ms(200)
        await get("transactionMetadata/0/0", 404)

    run(scenario)


def test_time_out_has_a_bound() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        await client.begin((1 << 63) - 1)
        assert (await get("transactionMetadata/0/0"))["timeoutAt"] == 5_000
        await wait_ms(5_200)
        await get("transactionMetadata/0/0", 404)
        assert (await get("coordinatorStats?coordinatorId=0"))["ongoingTxnSize"] == 0

    run(scenario, transaction_timeout_max_ms=5_000)


def test_another_broker_is_told_how_a_transaction_stands_to_a_topic_and_to_a_subscription() -> None:
    async def scenario(world: BrokerWorld, get: Asking, client: Transacting) -> None:
        txn_id = await client.begin()

        async def standings(*questions: object, coordinator: int = 0, status: int = 200) -> Any:
            return await get(f"standings/{coordinator}", status, method="POST", body=list(questions))

        def question(number: int = txn_id.number, topic: str = TOPIC, **more: str) -> dict[str, object]:
            return {"number": number, "topic": topic, **more}

        async def standing(*args, **more) -> str:
            ((found,),) = (await standings(question(*args, **more))).values()
            return found

        await client.client.subscribe()
        assert await standing() == "untold"
        await client.add_partition(txn_id)
        await client.add_subscription(txn_id)
        asked = [question(), question(topic=OTHER), question(subscription="sub"), question(subscription="other")]
        told = ["taking", "untold", "taking", "untold"]
        assert await standings(*asked) == {"standings": told}
        await client.end(txn_id, commit=True)
        assert await standings(question(), question(txn_id.number + 1)) == {"standings": ["over", "over"]}
        assert await standings() == {"standings": []}
        for wrong in ({"number": 0}, {"topic": TOPIC}, question(-1), question(1 << 64), {**question(), "number": True}):
            assert "a question has the number" in (await standings(wrong, status=412))["reason"]
        await standings(*[question()] * (QUESTIONS_MAX + 1), status=412)
        await standings(question(), coordinator=2, status=404)

    run(scenario)


def test_snapshot_of_another_broker_is_kept_until_it_is_taken_away() -> None:
    """Its topic is there, the snapshots of its namespace are here."""

    async def scenario(world: BrokerWorld, asking: Asking, client: Transacting) -> None:
        path = f"bufferSnapshot/{PLACE}"
        assert await asking(path, 204) is None
        snapshot = {"ledgerId": 3, "entryId": 7, "aborts": [[1, 2, 3, 5]]}
        await asking(path, 204, method="PUT", body=snapshot)
        assert await asking(path) == snapshot
        await asking(path, 204, method="DELETE")
        assert await asking(path, 204) is None

    run(scenario)
