"""Ledgers that can not be read: what the topic does without them, who is told, and how one is given up."""

from __future__ import annotations

import errno
import json

import pytest

from geminga.broker.subscription.stats import oldest_stored_ms
from geminga.broker.upkeep.policies import PolicyUpkeep
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata import cas
from geminga.model.errors import DiskIOError, StorageError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.model.txn_id import TxnId
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import broker_entry_metadata
from support.clusters.transacting import Transacting, publishing
from support.worlds.broker_world import TOPIC, Client, Type
from support.worlds.hole_world import BOOKIE_LEDGERS, Ground, HoleBroker, run_lives
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import ask

DEDUP = {"deduplication": True}


async def publish(client: Client, name: str, sequence_ids, producer_id: int) -> int:
    """What the broker said of the producer's last sequence id when it came."""
    success = await client.create_producer(
        producer_id=producer_id, producer_name=name, user_provided_producer_name=True
    )
    for sequence_id in sequence_ids:
        client.send_message(sequence_id, b"%d" % sequence_id, producer_id, producer_name=name)
        await client.receipt()
    return success.last_sequence_id


async def fill(world: HoleBroker) -> None:
    """Four ledgers: p, q p q, q q p, p; each of three entries but the last. A subscription that has read nothing."""
    client = await world.client()
    await (await world.topic()).create_subscription("sub", EARLIEST)
    await publish(client, "p", range(3), 1)
    await client.create_producer(producer_id=2, producer_name="q", user_provided_producer_name=True)
    for name, sequence_id in [("q", 0), ("p", 3), ("q", 1), ("r", 0), ("p", 4), ("p", 5), ("p", 6)]:
        producer_id = {"p": 1, "q": 2, "r": 3}[name]
        if name == "r":
            await client.create_producer(producer_id=3, producer_name="r", user_provided_producer_name=True)
        client.send_message(sequence_id, b"%d" % sequence_id, producer_id, producer_name=name)
        await client.receipt()


async def ledger_ids(world: HoleBroker) -> list[int]:
    return [info.ledger_id for info in (await world.topic()).ledger.ledgers.infos]


def in_the_lake(ground: Ground, taken: list[int]):
    async def life(world: HoleBroker) -> None:
        await fill(world)
        offloaded = await world.offload()
        assert len(offloaded) == 3
        taken.append(offloaded[1])
        ground.take_file(offloaded[1])

    return life


async def refused(client: Client, name: str, producer_id: int = 9) -> pb.CommandError:
    client.request_producer(producer_id=producer_id, producer_name=name, user_provided_producer_name=True)
    return await client.error()


def test_a_missing_file_leaves_the_topic_loaded_and_only_its_own_producers_out() -> None:
    ground, taken = Ground(), []

    async def second(world: HoleBroker) -> None:
        client = await world.client()
        # A name that was made now was never in it.
        success = await client.create_producer(producer_id=4)
        assert success.last_sequence_id == -1
        client.send_message(0, b"new", 4, producer_name=success.producer_name)
        assert (await client.receipt()).message_id.ledgerId > taken[0]
        # Found behind the hole: known.
        assert await publish(client, "p", [7], 1) == 6
        assert await publish(client, "r", [], 3) == 0
        # Nobody knows whether what it sends next is there already.
        error = await refused(client, "q")
        assert error.error == pb.ServiceNotReady
        assert f"in ledgers {taken[0]}, can not be read" in error.message
        assert "geminga lake skip-hole" in error.message
        # Nor of a name that was seen nowhere, and -1 would be a promise.
        assert (await refused(client, "never seen")).error == pb.ServiceNotReady
        stats = (await world.topic()).dedup.stats()
        assert stats["unreadableLedgers"] == taken
        # No snapshot passes what it does not know.
        await (await world.topic()).dedup.snapshot()
        assert (await world.topic()).ledger.cursors["pulsar.dedup"].mark_delete_position.entry_id == -1

    async def third(world: HoleBroker) -> None:
        """The same after another start, and once the file is back all is known."""
        client = await world.client()
        assert (await refused(client, "q")).error == pb.ServiceNotReady
        ground.bring_files()
        await seconds(61)
        client = await world.client()
        assert await publish(client, "q", [2], 2) == 1
        assert await publish(client, "never seen", [], 3) == -1
        assert await publish(client, "p", [], 1) == 7

    run_lives(in_the_lake(ground, taken), (second, DEDUP), (third, DEDUP), ground=ground)


def test_ledgers_leave_the_bookies_only_behind_a_snapshot() -> None:
    ground = Ground()

    async def first(world: HoleBroker) -> None:
        await fill(world)
        offloaded = await world.offload()
        for ledger_id in offloaded:
            ground.take_file(ledger_id)

    async def second(world: HoleBroker) -> None:
        client = await world.client()
        assert await publish(client, "q", [2], 2) == 1
        assert await publish(client, "never seen", [0], 3) == -1
        assert not (await world.topic()).ledger.stored.gaps

    run_lives(first, second, ground=ground, **DEDUP)


def test_a_reader_gets_all_before_the_hole_is_told_and_goes_on_once_it_is_skipped() -> None:
    ground, taken = Ground(), []

    async def second(world: HoleBroker) -> None:
        client = await world.subscriber()
        got = [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(3)]
        assert {each.ledgerId for each in got} == {min(await ledger_ids(world))}
        await seconds(5)
        assert not client.received
        stats = await world.get("/stats")
        error = stats["subscriptions"]["sub"]["readError"]
        assert error == {"ledgerId": taken[0], "error": "What was stored is not there any more", "isLost": True}
        assert [each["ledgerId"] for each in stats["unreadableLedgers"]] == taken
        # What would be lost, and of whom.
        (hole,) = (await world.get("/holes"))["holes"]
        assert (hole["ledgerId"], hole["entries"], hole["isLost"], hole["readableEntries"]) == (taken[0], 3, True, 0)
        assert (hole["unreadOf"], hole["firstMessageId"], hole["lastMessageId"]) == (
            {"sub": 3},
            f"{taken[0]}:0",
            f"{taken[0]}:2",
        )
        assert "is not there" in hole["error"]
        # The neighbour can be read.
        others = [each for each in await ledger_ids(world) if each != taken[0]]
        for ledger_id, text in [(others[0], "can be read"), (others[-1], "can be read"), (99, "no such ledger")]:
            answer = await world.ask("PUT", "/holes/skip", {"ledgerId": ledger_id})
            assert answer.status in (404, 412)
            assert text in answer.reason
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})
        assert (answer.status, json.loads(answer.body)["entries"]) == (200, 3)
        assert taken[0] not in await ledger_ids(world)
        await behind(world)

    async def behind(world: HoleBroker) -> None:
        client = await world.subscriber()
        got = [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(7)]
        assert taken[0] not in {each.ledgerId for each in got}
        topic = await world.topic()
        assert topic.subscriptions["sub"].cursor.backlog_count == 7
        found = await world.get("/holes")
        assert not found["holes"]
        assert [(one["ledgerId"], one["entries"]) for one in found["skipped"]] == [(taken[0], 3)]
        manifest = json.loads(next(data for path, data in ground.lake.files.items() if "/_manifest/" in path))
        named = {each["ledgerId"]: each.get("nextLedgerId") for each in manifest["ledgers"]}
        assert taken[0] not in {*named, *named.values()}
        ids = [{"ledgerId": e.ledgerId, "entryId": e.entryId} for e in got]
        acks = [pb.MessageIdData(**each) for each in ids]
        client.send(
            pb.BaseCommand(
                type=Type.ACK,
                ack=pb.CommandAck(
                    consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=[acks[-1]], request_id=9
                ),
            )
        )
        await client.expect(Type.ACK_RESPONSE)
        assert topic.subscriptions["sub"].cursor.backlog_count == 0
        # Trimmed as if it had never been.
        await topic.truncate()
        assert topic.ledger.ledgers.entry_count == 0

    async def third(world: HoleBroker) -> None:
        """It stays skipped, also once the file is back; nobody promises q anything."""
        ground.bring_files()
        assert taken[0] not in await ledger_ids(world)
        client = await world.client()
        assert await publish(client, "q", [5], 2) == -1

    run_lives(in_the_lake(ground, taken), second, (third, DEDUP), ground=ground)


def test_what_is_only_out_of_reach_is_skipped_by_force_alone() -> None:
    ground, taken = Ground(), []

    async def first(world: HoleBroker) -> None:
        await fill(world)
        taken.extend(await world.offload())

    async def second(world: HoleBroker) -> None:
        ground.take_lake()
        client = await world.client()
        # The lake is down: the topic is loaded all the same, and tells q nothing.
        assert (await refused(client, "q")).error == pb.ServiceNotReady
        assert sorted((await world.topic()).ledger.stored.gaps) == taken
        holes = (await world.get("/holes"))["holes"]
        assert [(each["ledgerId"], each["isLost"]) for each in holes] == [(each, False) for each in taken]
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})
        assert answer.status == 412
        assert "out of reach, which may pass" in answer.reason
        # A mount that is away has no file, and no mark.
        ground.bring_lake()
        files, ground.lake.files = ground.lake.files, {}
        assert (await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})).status == 412
        assert "is it mounted?" in (await world.get("/holes"))["holes"][0]["error"]
        ground.lake.files = files
        ground.take_lake()
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0], "force": True})
        assert answer.status == 200
        assert taken[0] not in await ledger_ids(world)
        ground.bring_lake()
        await seconds(61)
        client = await world.client()
        assert await publish(client, "q", [2], 2) == 1

    run_lives(first, (second, DEDUP), ground=ground)


def test_a_ledger_of_which_some_can_be_read_is_skipped_as_a_whole_by_name() -> None:
    ground = Ground()

    async def life(world: HoleBroker) -> None:
        await fill(world)
        ids = await ledger_ids(world)
        bookie = ground.bookies["bookie-1"]
        del bookie._ledgers[ids[1]].entries[1]
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": ids[1]})
        assert answer.status == 412
        assert "Some of the ledger's entries can be read" in answer.reason
        # Its ends can be read: it is found by its name.
        assert not (await world.get("/holes"))["holes"]
        (hole,) = (await world.get(f"/holes?ledgerId={ids[1]}"))["holes"]
        assert (hole["isLost"], hole["readableEntries"]) == (True, 2)
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": ids[1], "whole": True})
        assert answer.status == 200
        assert ids[1] not in await ledger_ids(world)
        await publish(await world.client(), "p", [9], 2)
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": (await ledger_ids(world))[-1]})
        assert (answer.status, "is open" in answer.reason) == (412, True)
        bad = await world.ask("PUT", "/holes/skip", {"ledgerId": ids[0], "force": "yes"})
        assert (bad.status, bad.reason) == (400, "force must be true or false, not 'yes'")

    run_lives(life, ground=ground, ledger_config=BOOKIE_LEDGERS)


def test_a_ledger_that_bookies_have_lost_is_a_hole_like_any_other() -> None:
    ground, taken = Ground(), []

    async def first(world: HoleBroker) -> None:
        await fill(world)
        taken.append((await ledger_ids(world))[1])
        ground.lose_ledger(taken[0])

    async def second(world: HoleBroker) -> None:
        client = await world.client()
        assert await publish(client, "p", [7], 1) == 6
        assert (await refused(client, "q")).error == pb.ServiceNotReady
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})
        assert answer.status == 200, answer
        assert json.loads(answer.body)["forgetsSequenceIds"]
        client = await world.client()
        assert await publish(client, "q", [0], 2) == -1

    run_lives(first, (second, DEDUP), ground=ground, ledger_config=BOOKIE_LEDGERS)


def test_a_damaged_or_forbidden_file_is_no_missing_one() -> None:
    ground, taken = Ground(), []

    async def second(world: HoleBroker) -> None:
        ground.bring_files()
        where = ground.lake_paths()[taken[0]]
        ground.lake.files[where] = ground.lake.files[where][:-40]
        (hole,) = (await world.get("/holes"))["holes"]
        assert hole["isLost"]
        assert "damaged" in hole["error"]
        ground.lake.fail["read"] = PermissionError(errno.EACCES, "Permission denied")
        holes = (await world.get("/holes"))["holes"]
        assert not any(each["isLost"] for each in holes)

    run_lives(in_the_lake(ground, taken), second, ground=ground)


def test_age_and_time_to_live_go_by_the_ledger_of_an_entry_that_can_not_be_read() -> None:
    ground, taken = Ground(), []

    async def second(world: HoleBroker) -> None:
        topic = await world.topic()
        subscription = topic.subscriptions["sub"]
        ids = await ledger_ids(world)
        subscription.cursor.acknowledge_cumulative(Position(ids[0], 2))
        other = await topic.create_subscription("other", EARLIEST)
        assert await oldest_stored_ms(subscription) <= world.runtime.clock.wall_ms()
        await seconds(100)
        assert (await world.get("/stats"))["oldestBacklogMessageAgeSeconds"] >= 100
        await PolicyUpkeep(world.broker).expire_messages(topic)
        # The hole is not read: all that was closed before is too old; and who stands before it is no worse off.
        assert subscription.cursor.mark_delete_position >= Position(taken[0], 2)
        assert other.cursor.mark_delete_position >= Position(taken[0], 2)

    run_lives(in_the_lake(ground, taken), (second, {"message_ttl_s": 60}), ground=ground)


def test_the_index_of_messages_goes_on_where_the_newest_entry_can_not_be_read() -> None:
    ground = Ground()

    async def first(world: HoleBroker) -> None:
        await fill(world)

    async def second(world: HoleBroker) -> None:
        """All of it goes to the lake: after a start no ledger is open."""
        offloaded = await world.offload()
        assert len(offloaded) == 4
        ground.take_file(offloaded[-1])

    async def third(world: HoleBroker) -> None:
        # Given up, the ledger takes its numbers with it.
        lost = (await ledger_ids(world))[-1]
        assert (await world.ask("PUT", "/holes/skip", {"ledgerId": lost})).status == 200
        client = await world.client()
        await publish(client, "p", [7], 1)
        topic = await world.topic()
        (entry,) = await topic.ledger.reader.read([topic.ledger.extent.last_confirmed_position])
        assert broker_entry_metadata(entry.data).index == 10

    run_lives(first, second, third, ground=ground, entry_metadata_interceptors=("AppendIndexMetadataInterceptor",))


def test_a_lost_ledger_of_the_topic_of_policies_is_given_up_as_any_other() -> None:
    ground = Ground()
    events = "/admin/v2/persistent/public/default/__change_events"

    async def first(world: HoleBroker) -> None:
        await world.topic()
        for number in range(1, 8):
            assert (await world.ask("POST", "/maxProducers", number)).status == 204
        topic = await world.broker.registry.get(
            TopicName.parse("persistent://public/default/__change_events"), create=False
        )
        ids = [info.ledger_id for info in topic.ledger.ledgers.infos]
        assert len(ids) == 3
        ground.lose_ledger(ids[1])

    async def second(world: HoleBroker) -> None:
        assert (await world.ask("GET", "/maxProducers")).status == 500
        (hole,) = json.loads((await ask(world.rest, "GET", f"{events}/holes")).body)["holes"]
        body = json.dumps({"ledgerId": hole["ledgerId"]}).encode()
        assert (await ask(world.rest, "PUT", f"{events}/holes/skip", body)).status == 200
        assert await world.get("/maxProducers") == 7
        assert (await world.topic()).limits.producers == 7

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS)


async def writing(world: HoleBroker) -> Transacting:
    """A client with a producer, that a coordinator serves."""
    transacting = Transacting(await world.client())
    await transacting.connect()
    await transacting.client.create_producer()
    return transacting


def test_a_transaction_whose_end_may_be_in_a_hole_stays_open_until_that_is_known() -> None:
    """Its coordinator has forgotten it: aborted, its messages would be gone though it was committed."""
    ground, taken = Ground(), []

    async def first(world: HoleBroker) -> None:
        await (await world.topic()).create_subscription("sub", EARLIEST)
        transacting = await writing(world)
        txn_id = await transacting.begin()
        await transacting.add_partition(txn_id)
        for number in range(3):
            await transacting.publish(b"%d" % number, txn_id)
        await transacting.end(txn_id, commit=True)
        for number in range(5):
            await transacting.publish(b"later %d" % number)
        # The coordinator is done with it, and the buffer has taken no snapshot since.
        await seconds(1)
        # Messages, their end with two others, three others: the second one is lost.
        taken.append((await ledger_ids(world))[1])
        kept = {name: dict(bookie._ledgers) for name, bookie in ground.bookies.items()}
        ground.lose_ledger(taken[0])
        lost.update({name: ledgers[taken[0]] for name, ledgers in kept.items()})

    lost: dict[str, object] = {}

    async def second(world: HoleBroker) -> None:
        topic = await world.topic()
        await seconds(300)
        assert len(topic.transaction_buffer.state.open) == 1
        # Another one ends, with which everything before it is said to be over.
        other, txn_id = await publishing(world, b"another")
        await other.finish(txn_id, commit=True)
        assert len(topic.transaction_buffer.state.open) == 1
        assert topic.max_read_position.entry_id == -1
        await topic.transaction_buffer.close()
        assert topic.transaction_buffer.stats()["lastSnapshotTimestamps"] == 0
        for name, ledger in lost.items():
            ground.bookies[name]._ledgers[taken[0]] = ledger
        await seconds(61)
        topic = await world.topic()
        assert not topic.transaction_buffer.state.open
        assert not topic.transaction_buffer.state.aborted
        assert topic.max_read_position == topic.last_position
        # The same once more, and it is given up: its coordinator knows nothing of it, so it counts as aborted.
        ground.lose_ledger(taken[0])

    async def third(world: HoleBroker) -> None:
        assert (await world.topic()).transaction_buffer.state.open
        answer = await world.ask("PUT", "/holes/skip", {"ledgerId": taken[0]})
        assert (answer.status, json.loads(answer.body)["transactionsInDoubt"]) == (200, 1)
        topic = await world.topic()
        await seconds(300)
        assert not topic.transaction_buffer.state.open
        assert len(topic.transaction_buffer.state.aborted) == 1
        assert topic.max_read_position == topic.last_position

    run_lives(first, second, third, ground=ground, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)


def test_a_transaction_that_ends_while_its_messages_are_lost_has_ended_when_they_are_back() -> None:
    """Nobody knew that it had messages there: without its end they would be aborted, though the client was told OK."""
    ground = Ground()
    taken: list[int] = []
    open_one: list[TxnId] = []
    lost: dict[str, object] = {}

    async def first(world: HoleBroker) -> None:
        await (await world.topic()).create_subscription("sub", EARLIEST)
        transacting = await writing(world)
        for number in range(3):
            await transacting.publish(b"early %d" % number)
        txn_id = await transacting.begin(timeout_ms=600_000)
        open_one.append(txn_id)
        await transacting.add_partition(txn_id)
        for number in range(3):
            await transacting.publish(b"%d" % number, txn_id)
        for number in range(4):
            await transacting.publish(b"later %d" % number)
        taken.append((await ledger_ids(world))[1])
        lost.update({name: bookie._ledgers[taken[0]] for name, bookie in ground.bookies.items()})
        ground.lose_ledger(taken[0])

    async def second(world: HoleBroker) -> None:
        topic = await world.topic()
        assert not topic.transaction_buffer.state.open
        await topic.transaction_buffer.end(open_one[0], commit=True, low_watermark=-1)
        for name, ledger in lost.items():
            ground.bookies[name]._ledgers[taken[0]] = ledger
        # Until the topic is loaded anew nobody can say which of these messages count.
        with pytest.raises(StorageError):
            await topic.ledger.reader.read([Position(taken[0], 0)])
        await seconds(61)
        again = await world.topic()
        assert again is not topic
        assert not again.transaction_buffer.state.open
        assert not again.transaction_buffer.state.aborted
        assert again.max_read_position == again.last_position
        assert len(await again.ledger.reader.read([Position(taken[0], 0)])) == 1

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)


def test_a_topic_with_transactions_waits_for_a_ledger_that_is_only_out_of_reach() -> None:
    """A transaction may have begun there: readers would be given its messages before its end."""
    ground = Ground()

    async def first(world: HoleBroker) -> None:
        transacting = await writing(world)
        txn_id = await transacting.begin(timeout_ms=600_000)
        await transacting.add_partition(txn_id)
        for number in range(10):
            await transacting.publish(b"%d" % number, txn_id)

    async def second(world: HoleBroker) -> None:
        topic = await world.topic()
        await topic.services.unload(topic.name)
        # What its load needs of other topics is in memory now.
        for bookie in ground.bookies.values():
            bookie.read_error = DiskIOError("Input/output error")
        with pytest.raises(StorageError):
            await world.topic()
        for bookie in ground.bookies.values():
            bookie.read_error = None
        topic = await world.topic()
        assert len(topic.transaction_buffer.state.open) == 1
        assert not topic.ledger.stored.gaps

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)


def test_a_damaged_log_of_acknowledgments_keeps_only_its_own_subscription_waiting() -> None:
    ground = Ground()
    log = ledger_path(TopicName.parse(TOPIC).pending_ack_log("sub").managed_ledger_name)
    kept: list[bytes] = []

    async def first(world: HoleBroker) -> None:
        await fill(world)
        client = await world.subscriber()
        await client.expect(Type.MESSAGE)
        transacting = Transacting(client)
        await transacting.connect()
        txn_id = await transacting.begin(timeout_ms=600_000)
        await transacting.add_subscription(txn_id)
        first_id = pb.MessageIdData(ledgerId=(await ledger_ids(world))[0], entryId=0)
        assert not (await transacting.acknowledge([first_id], txn_id)).HasField("error")
        kept.append((await world.metadata.get(log)).value)
        await cas.update(world.metadata, log, lambda _: b"\xff damaged")

    async def second(world: HoleBroker) -> None:
        client = await world.subscriber(subscription="other", consumer_id=2)
        assert (await client.expect(Type.MESSAGE)).message.message_id.entryId == 0
        request = pb.CommandSubscribe(
            topic=TOPIC, subscription="sub", subType=pb.CommandSubscribe.Shared, consumer_id=3, request_id=77
        )
        client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
        await client.check_error(
            pb.ServiceNotReady, "What transactions acknowledged on subscription sub can not be read"
        )
        # Once it is back its first message is held, and does not come again.
        await cas.update(world.metadata, log, lambda _: kept[0])
        reader = await world.subscriber()
        assert (await reader.expect(Type.MESSAGE)).message.message_id.entryId == 1

    run_lives(first, second, ground=ground, ledger_config=BOOKIE_LEDGERS, transaction_coordinator_enabled=True)


def test_what_can_not_be_sent_again_does_not_keep_up_the_rest_of_a_shared_subscription() -> None:
    ground = Ground()

    async def second(world: HoleBroker) -> None:
        ids = await ledger_ids(world)
        client = await world.subscriber(subType=pb.CommandSubscribe.Shared)
        got = [(await client.expect(Type.MESSAGE)).message.message_id.ledgerId for _ in range(10)]
        assert got.count(ids[1]) == 3
        kept = ground.bookies["bookie-1"]._ledgers[ids[1]]
        ground.lose_ledger(ids[1])
        again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1)
        client.send(pb.BaseCommand(type=Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=again))
        got = [(await client.expect(Type.MESSAGE)).message.message_id.ledgerId for _ in range(7)]
        assert ids[1] not in got
        # Nor what is published meanwhile.
        await publish(await world.client(), "p", [7], 9)
        assert (await client.expect(Type.MESSAGE)).message.message_id.ledgerId > ids[-1]
        await seconds(200)
        assert {command.type for command, _ in client.received} <= {Type.PING}
        ground.bookies["bookie-1"]._ledgers[ids[1]] = kept
        await seconds(61)
        got = [(await client.expect(Type.MESSAGE)).message.message_id.ledgerId for _ in range(3)]
        assert got == [ids[1]] * 3

    run_lives(fill, second, ground=ground, ledger_config=BOOKIE_LEDGERS)
