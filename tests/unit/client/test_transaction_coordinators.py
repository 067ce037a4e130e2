"""What coordinators are asked, when, and after which answers again: a script refuses, cuts or is silent."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client import TransactionState as State
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_coordinator import CoordinatorScript, Type

TOPIC = "persistent://public/default/topic"
END = Type.END_TXN


async def _ended(client: gc.Client, *, commit: bool) -> gc.Transaction:
    txn = await client.transaction()
    await (txn.commit() if commit else txn.abort())
    return txn


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    "instead",
    [
        ["cut"],
        ["cut", "cut"],
        ["drop"],
        [pb.TransactionCoordinatorNotFound],
        [pb.ServiceNotReady],
        ["cut", pb.TransactionCoordinatorNotFound],
    ],
    ids=str,
)
def test_the_end_is_asked_for_again_until_it_is_answered(instead: list[object], commit: bool) -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        script.instead[END] = list(instead)
        # A silent broker is noticed by its silence.
        txn = await _ended(client, commit=commit)
        assert txn.state is (State.COMMITTED if commit else State.ABORTED)
        ends = [command.endTxn for _, command in script.heard if command.type == END]
        assert len(ends) == len(instead) + 1
        assert {(end.txnid_most_bits, end.txnid_least_bits) for end in ends} == {tuple(txn.id)}
        assert {end.txn_action for end in ends} == {pb.COMMIT if commit else pb.ABORT}

    run_against(script, scenario)


def test_who_has_no_right_at_the_coordinators_is_told_where_it_is_given() -> None:
    script = CoordinatorScript()

    def refusing(command: pb.BaseCommand) -> list[bytes]:
        if command.type != Type.PARTITIONED_METADATA:
            return script(command)
        request_id = command.partitionMetadata.request_id
        return [commands.partitions_failed(request_id, pb.AuthorizationError, "Client is not authorized to lookup")]

    async def scenario(client: gc.Client) -> None:
        with pytest.raises(
            gc.AuthorizationError, match=r"not authorized to lookup: .* in pulsar/system, the namespace"
        ):
            await client.transaction()

    run_against(refusing, scenario)


def test_after_a_lost_connection_or_a_move_the_coordinator_is_greeted_again_and_else_once() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        for _ in range(6):
            await _ended(client, commit=True)
        assert script.kinds().count("TC_CLIENT_CONNECT_REQUEST") == 2
        script.instead[END] = ["cut"]
        await _ended(client, commit=True)
        assert script.kinds()[-3:] == ["END_TXN", "TC_CLIENT_CONNECT_REQUEST", "END_TXN"]
        # It is not there any more: it is looked up and greeted, though the connection is alive.
        await client.transaction()
        for instead in (pb.TransactionCoordinatorNotFound, pb.TransactionCoordinatorNotFound, "drop"):
            script.instead[END] = [instead]
            await _ended(client, commit=True)
            assert script.kinds()[-3:] == ["END_TXN", "TC_CLIENT_CONNECT_REQUEST", "END_TXN"]

    run_against(script, scenario)


def test_a_greeting_that_was_forgotten_costs_no_transaction() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        script.instead[Type.TC_CLIENT_CONNECT_REQUEST] = ["drop"]
        first, second = await asyncio.gather(client.transaction(), client.transaction())
        assert first.state is second.state is State.OPEN

    run_against(script, scenario)


def test_many_that_wait_for_a_silent_coordinator_wait_together() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        script.instead[Type.TC_CLIENT_CONNECT_REQUEST] = ["drop"] * 1000
        loop = asyncio.get_running_loop()
        began = loop.time()
        outcomes = await asyncio.gather(*(client.transaction() for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {gc.Timeout}
        assert loop.time() - began < 2 * client.cluster.timeout_s

    run_against(script, scenario)


def test_what_the_coordinator_says_of_an_end_decides_the_state() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        for commit, code, error, state in (
            (True, pb.InvalidTxnStatus, gc.InvalidTxnStatusError, State.ERROR),
            (False, pb.InvalidTxnStatus, gc.InvalidTxnStatusError, State.ERROR),
            (True, pb.TransactionNotFound, gc.TransactionNotFound, State.ERROR),
            (False, pb.TransactionNotFound, None, State.ABORTED),
            (True, pb.AuthorizationError, gc.AuthorizationError, State.ERROR),
        ):
            script.instead[END] = [code]
            txn = await client.transaction()
            end = txn.commit() if commit else txn.abort()
            if error is None:
                await end
            else:
                with pytest.raises(error) as raised:
                    await end
                if error is gc.TransactionNotFound:
                    assert "nobody knows" in str(raised.value)
            assert txn.state is state
            with pytest.raises(gc.InvalidTxnStatusError, match=state.value):
                await txn.commit()

    run_against(script, scenario)


def test_a_commit_nobody_answers_ends_with_the_operation_timeout_and_may_be_asked_for_again() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        txn = await client.transaction()
        script.instead[END] = [pb.ServiceNotReady] * 1000
        began = asyncio.get_running_loop().time()
        with pytest.raises(gc.ServiceUnitNotReady):
            await txn.commit()
        assert 6 < asyncio.get_running_loop().time() - began <= 8, "the operation timeout"
        assert txn.state is State.COMMITTING
        with pytest.raises(gc.InvalidTxnStatusError):
            await txn.abort()
        script.instead[END] = []
        await txn.commit()
        assert txn.state is State.COMMITTED

    run_against(script, scenario)


def test_concurrent_sends_share_one_registration_and_wait_for_it_in_order() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, batching_enabled=False)
        await producer.send(b"before")
        script.instead[Type.ADD_PARTITION_TO_TXN] = ["cut"]
        async with client.transaction() as txn:
            sends = [asyncio.ensure_future(producer.send(b"%d" % index, txn=txn)) for index in range(3)]
            await wait_ms(0)
            producer.send_nowait(b"plain")
            assert script.kinds().count("SEND") == 1, "nothing leaves before the coordinator knows"
            ids = await asyncio.gather(*sends)
            assert [one.entry_id() for one in ids] == sorted(one.entry_id() for one in ids)
        kinds = script.kinds()
        assert kinds.count("ADD_PARTITION_TO_TXN") == 2, "one request, and one again after the cut"
        sent = [command.send for _, command in script.heard if command.type == Type.SEND]
        assert [one.sequence_id for one in sent] == [0, 1, 2, 3, 4]
        assert [(one.txnid_most_bits, one.txnid_least_bits) for one in sent[1:4]] == [tuple(txn.id)] * 3
        assert not sent[4].HasField("txnid_least_bits")
        last_add = len(kinds) - 1 - kinds[::-1].index("ADD_PARTITION_TO_TXN")
        assert kinds.index("END_TXN") > last_add
        assert "SEND" not in kinds[kinds.index("NEW_TXN") : last_add]

    run_against(script, scenario)


def test_a_partition_the_coordinator_refuses_fails_its_messages_alone_and_the_transaction() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC)
        script.instead[Type.ADD_PARTITION_TO_TXN] = [pb.InvalidTxnStatus]
        txn = await client.transaction()
        heard: list[object] = []
        producer.send_nowait(b"1", lambda error, _: heard.append(type(error)), txn=txn)
        producer.send_nowait(b"2")
        await producer.flush()
        assert heard == [gc.InvalidTxnStatusError]
        with pytest.raises(gc.InvalidTxnStatusError, match="scripted"):
            await txn.commit()
        assert txn.state is State.ABORTED
        assert producer.pending_messages == 0

    run_against(script, scenario)


def test_a_send_that_times_out_in_its_transaction_aborts_it() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        producer = await client.create_producer(TOPIC, send_timeout_millis=1000)
        script.instead[Type.SEND] = ["drop"] * 10
        txn = await client.transaction()
        producer.send_nowait(b"1", txn=txn)
        with pytest.raises(gc.Timeout, match="no receipt"):
            await txn.commit()
        assert txn.state is State.ABORTED
        # Without a send timeout the transaction's own is the limit.
        patient = await client.create_producer(TOPIC, send_timeout_millis=0)
        txn = await client.transaction(3)
        patient.send_nowait(b"1", txn=txn)
        with pytest.raises(gc.Timeout, match="no answer in its time"):
            await txn.commit()
        assert txn.state is State.ABORTED

    run_against(script, scenario)


def test_closing_the_client_aborts_what_is_open_and_a_timeout_forgets_it() -> None:
    script = CoordinatorScript()

    async def scenario(client: gc.Client) -> None:
        async with gc.connect(client.service_urls.addresses[0].url, runtime=client.runtime) as other:
            open_ = [await other.transaction() for _ in range(3)]
            await other.transaction(1)
            assert len(other.lifetime.others) == 4
            await wait_ms(1100)
            assert len(other.lifetime.others) == 3
        assert [txn.state for txn in open_] == [State.ABORTED] * 3
        assert script.kinds().count("END_TXN") == 3

    run_against(script, scenario)
