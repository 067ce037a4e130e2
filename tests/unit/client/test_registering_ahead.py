"""Messages that follow the registration of their topic without its answer: only where the broker said so, and whatever
becomes of the registration."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.client._transport import coordinators
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_coordinator import CoordinatorScript, Type

TOPIC = "persistent://public/default/topic"
ADD, SEND, END = Type.ADD_PARTITION_TO_TXN, Type.SEND, Type.END_TXN


def of_interest(script: CoordinatorScript) -> list[str]:
    """What was heard of one transaction, in order."""
    names = {ADD: "add", SEND: "send", END: "end"}
    return [names[command.type] for _, command in script.heard if command.type in names]


@pytest.mark.parametrize("answer", ["", "drop", pb.ServiceNotReady])
def test_messages_follow_the_registration_and_the_end_waits_for_its_answer(answer: object) -> None:
    script = CoordinatorScript(registers_ahead=True)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        script.instead[ADD] = [answer]
        async with client.transaction() as txn:
            for index in range(3):
                producer.send_nowait(b"%d" % index, txn=txn)
            await producer.flush()
            # All of them have their receipts, whatever the registration is at.
            assert of_interest(script)[:4] == ["add", "send", "send", "send"]
        again = ["add"] if answer else []
        assert of_interest(script) == ["add", "send", "send", "send", *again, "end"]
        assert txn.state is State.COMMITTED

    run_against(script, scenario)


@pytest.mark.parametrize("where", [ADD, SEND])
def test_after_a_lost_connection_messages_wait_for_the_answer(where: int) -> None:
    script = CoordinatorScript(registers_ahead=True)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        script.instead[ADD] = ["drop", "drop"] if where == SEND else ["cut", "drop"]
        script.instead[SEND] = ["drop", "cut"] if where == SEND else ["drop", "drop"]
        async with client.transaction() as txn:
            producer.send_nowait(b"1", txn=txn)
            producer.send_nowait(b"2", txn=txn)
            await wait_ms(1_000)
            assert of_interest(script) == ["add", "send", "send", "add"], "no message before an answer"
            producer.send_nowait(b"3", txn=txn)
            producer.send_nowait(b"plain")
            await wait_ms(100)
            assert of_interest(script) == ["add", "send", "send", "add"]
        assert of_interest(script)[4:] == ["add", "send", "send", "send", "send", "end"]
        sent = [command.send for _, command in script.heard if command.type == SEND]
        assert [one.sequence_id for one in sent] == [0, 1, 0, 1, 2, 3]
        assert txn.state is State.COMMITTED

    run_against(script, scenario)


def test_a_registration_that_is_refused_fails_the_transaction_though_its_messages_were_stored() -> None:
    script = CoordinatorScript(registers_ahead=True)

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC)
        script.instead[ADD] = [pb.InvalidTxnStatus]
        txn = await client.transaction()
        producer.send_nowait(b"1", txn=txn)
        with pytest.raises(gc.InvalidTxnStatusError, match="scripted"):
            await txn.commit()
        assert txn.state is State.ABORTED
        ends = [command.endTxn.txn_action for _, command in script.heard if command.type == END]
        assert ends == [pb.ABORT]
        await producer.send(b"2")
        assert producer.pending_messages == 0

    run_against(script, scenario)


def test_producers_of_a_topic_share_the_registration_and_another_broker_is_not_asked_so() -> None:
    for registers_ahead in (True, False):
        script = CoordinatorScript(registers_ahead=registers_ahead)

        async def scenario(client: gc.Client, script=script, registers_ahead=registers_ahead) -> None:
            producers = [await client.create_producer(TOPIC, batching_enabled=False) for _ in range(2)]
            script.instead[ADD] = ["drop"]
            txn = await client.transaction()
            for producer in producers:
                producer.send_nowait(b"1", txn=txn)
            await wait_ms(100)
            assert of_interest(script) == (["add", "send", "send"] if registers_ahead else ["add"])
            await txn.commit()
            assert of_interest(script).count("add") == 2
            assert txn.state is State.COMMITTED

        run_against(script, scenario)


def test_topics_of_one_turn_are_registered_with_one_command_before_the_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinators, "TOPICS_AT_ONCE", 4)
    script = CoordinatorScript(registers_ahead=True)

    async def scenario(client: gc.Client) -> None:
        topics = [f"{TOPIC}-{index}" for index in range(6)]
        producers = [await client.create_producer(topic, batching_enabled=False) for topic in topics]
        for answer in ("", "drop", pb.ServiceNotReady, "cut"):
            script.heard.clear()
            script.instead[ADD] = [answer]
            async with client.transaction() as txn, await client.transaction() as other:
                for producer in producers:
                    producer.send_nowait(b"1", txn=txn)
                    producer.send_nowait(b"2", txn=other)
            told: dict[tuple[int, int], list[str]] = {}
            sent: dict[tuple[int, int], int] = {}
            for _, command in script.heard:
                if command.type == SEND:
                    txn_id = command.send.txnid_most_bits, command.send.txnid_least_bits
                    sent[txn_id] = sent.get(txn_id, 0) + 1
                    assert len(told[txn_id]) >= min(sent[txn_id], len(topics)), "before its message"
                if command.type == ADD:
                    added = command.addPartitionToTxn
                    told.setdefault((added.txnid_most_bits, added.txnid_least_bits), []).extend(added.partitions)
            assert [sorted(set(each)) for each in told.values()] == [topics, topics]
            if not answer:
                assert all(len(each) == len(topics) for each in told.values()), "each once"
            assert txn.state is other.state is State.COMMITTED
        assert not client._coordinators._telling

    run_against(script, scenario)
