"""Messages come back from a file as they were: payloads, keys, properties, times, schemas; after a kill too."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta

import pytest

import geminga.admin.blocking
from geminga import Standalone
from geminga.app.handles import imports, messages
from geminga.app.handles.core.filters import Filter, json_test
from geminga.app.handles.core.message_lines import Header, LineError, MessageLine, header_line, message_line
from geminga.app.handles.imports import import_messages
from geminga.app.handles.messages import export_messages, read_lines, unacknowledged_lines
from geminga.client import (
    Client,
    ConsumerType,
    CryptoKeyReader,
    MessageId,
    NotAllowedError,
    Timeout,
    TopicNotFound,
)
from geminga.client.schema import StringSchema
from geminga.model.errors import ConfigurationError
from support.house.signing import pem_files
from support.stories.client_stories import run


@pytest.fixture(scope="module")
def broker():
    # Backlogs are told in parts of two entries.
    with Standalone(config={"subscriptionBacklogScanMaxEntries": 2}) as running:
        yield running


async def _lines(client: Client, topic: str) -> list[tuple]:
    """What an import makes again, message by message."""
    return [line[1:5] + (line.event_time_ms,) async for line in read_lines(client, topic)]


async def _fill(client: Client, topic: str) -> int:
    async with await client.create_producer(topic) as producer:
        waiting = [
            producer.send(b"text"),
            producer.send(bytes(range(256)), partition_key="k", properties={"a": "b", "ü": "\n"}),
            producer.send(b"", partition_key=b"\x00\xff", event_timestamp=5),
            producer.send(None, partition_key="gone"),
            producer.send("größer\u2028".encode(), ordering_key=b"\xff"),
        ]
        await asyncio.gather(*waiting)
    async with await client.create_producer(topic, schema=StringSchema()) as producer:
        await producer.send("with schema")
    return 6


def test_a_topic_comes_back_equal(broker, tmp_path) -> None:
    path = str(tmp_path / "t")

    async def scenario(client: Client) -> None:
        count = await _fill(client, "from")
        assert await export_messages(client, "from", path) == (count, 0)
        with pytest.raises(FileExistsError):
            await export_messages(client, "from", path)
        assert await import_messages(client, "to", path) == (count, 0)
        assert await _lines(client, "to") == await _lines(client, "from")
        # The schema came along, and what had none has none.
        reader = await client.create_reader("to", MessageId.earliest, schema=StringSchema())
        values = [message async for message in _all(reader, count)]
        assert values[-1].value() == "with schema"
        assert [bool(message.schema_version()) for message in values] == [False] * 5 + [True]
        await reader.close()
        assert sorted(each.name for each in tmp_path.iterdir()) == ["t"]

    run(broker, scenario)


async def _all(reader, count: int):
    for _ in range(count):
        yield await reader.read_next()


def test_an_export_goes_on_behind_the_last_whole_line(broker, tmp_path) -> None:
    path, whole = tmp_path / "cut", tmp_path / "whole"

    async def scenario(client: Client) -> None:
        count = await _fill(client, "resumed")
        await export_messages(client, "resumed", str(whole))
        data = whole.read_bytes()
        # Wherever the kill came.
        for cut in (0, 10, len(data) // 2, len(data) - 1, len(data)):
            path.write_bytes(data[:cut])
            done = await export_messages(client, "resumed", str(path), is_resumed=True)
            assert done.messages + done.resumed == count
            assert path.read_bytes() == data
        with pytest.raises(ConfigurationError, match="has messages of resumed, and not of other"):
            await export_messages(client, "other", str(path), is_resumed=True)

    run(broker, scenario)


def test_an_export_of_what_is_not_there_leaves_no_file_and_no_topic(broker, tmp_path) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(TopicNotFound):
            await export_messages(client, "mistyped", str(tmp_path / "new"))
        assert list(tmp_path.iterdir()) == []

    run(broker, scenario)
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        assert "persistent://public/default/mistyped" not in admin.topics.list("public/default")


def test_what_is_told_as_written_or_noted_is_on_stable_storage_with_its_name(broker, tmp_path, monkeypatch) -> None:
    synced: list[str] = []
    real = os.fsync  # noqa: TID251  (looked at, not used)

    def watched(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(str(tmp_path)):  # the broker's are elsewhere
            synced.append(path)
        real(descriptor)

    async def scenario(client: Client) -> None:
        await _fill(client, "synced")
        monkeypatch.setattr(os, "fsync", watched)
        await export_messages(client, "synced", str(tmp_path / "file"))
        assert synced == [str(tmp_path / "file"), str(tmp_path)]
        synced.clear()
        await import_messages(client, "synced-copy", str(tmp_path / "file"))
        assert synced[:2] == [str(tmp_path / "file.progress.new"), str(tmp_path)]

    run(broker, scenario)


def test_an_import_goes_on_where_it_was_noted(broker, tmp_path) -> None:
    path = tmp_path / "file"

    async def scenario(client: Client) -> None:
        count = await _fill(client, "again")
        await export_messages(client, "again", str(path))
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - 3])  # a torn line ends it
        with pytest.raises(Exception, match=f"line {len(data.splitlines())} is no JSON"):
            await import_messages(client, "half", str(path))
        path.write_bytes(data)
        with pytest.raises(ConfigurationError, match="an import did not end; --resume goes on with it"):
            await import_messages(client, "half", str(path))
        with pytest.raises(ConfigurationError, match="was to half, not to elsewhere"):
            await import_messages(client, "elsewhere", str(path), is_resumed=True)
        progress = tmp_path / "file.progress"
        document = json.loads(progress.read_text())
        assert document["lines"] == 0
        for damaged in ("{", "[]", '{"topic": "half"}', json.dumps(document | {"lines": "many"})):
            progress.write_text(damaged)
            with pytest.raises(ConfigurationError, match=r"file\.progress is damaged"):
                await import_messages(client, "half", str(path), is_resumed=True)
        # As if the first three messages had been noted.
        progress.write_text(json.dumps(document | {"lines": 4, "topic": "rest"}))
        assert await import_messages(client, "rest", str(path), is_resumed=True) == (count - 3, 3)
        assert await _lines(client, "rest") == (await _lines(client, "again"))[3:]
        assert not progress.exists()

    run(broker, scenario)


def test_an_import_that_sends_nothing_leaves_nothing_to_go_on_with(broker, tmp_path) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(FileNotFoundError):
            await import_messages(client, "none", str(tmp_path / "mistyped"))
        (tmp_path / "other").write_text("{}\n")
        with pytest.raises(LineError):
            await import_messages(client, "none", str(tmp_path / "other"))
        assert [each.name for each in tmp_path.iterdir()] == ["other"]
        (tmp_path / "other").write_text("")
        with pytest.raises(LineError, match="other is empty: expected a header"):
            await import_messages(client, "none", str(tmp_path / "other"))

    run(broker, scenario)


@pytest.mark.parametrize("grows", [False, True])
def test_an_import_that_was_killed_stores_nothing_twice_in_any_partition(broker, tmp_path, monkeypatch, grows) -> None:
    """Deduplication is a partition's: what is sent again has to come to the same one, also if there are more by now."""
    path, topic = tmp_path / "file", f"public/once/spread-{grows}"
    count = 4 * imports.KEYLESS_RUN_LINES
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        if "public/once" not in admin.namespaces.list("public"):
            admin.namespaces.create("public/once")
            admin.namespace_policies.deduplication.set("public/once", True)
        admin.topics.create_partitioned(topic, 4)

    def killed(_: object) -> None:
        raise OSError("killed")

    async def partitions_of(client: Client) -> list[list[bytes | None]]:
        return [
            [line.payload async for line in read_lines(client, partition)]
            for partition in await client.get_topic_partitions(topic)
        ]

    async def scenario(client: Client) -> None:
        lines = [header_line(Header("t"))]
        for number in range(count):
            key = f"k{number}" if number % 5 == 0 else None
            # One goes in chunks, with others before it and behind it.
            payload = b" " * (6_000_000 if number == 2_000 else 0) + b"%d" % number
            line = MessageLine(f"1:{number}", payload, key, b"", {}, 1, 0, b"", -1)
            lines.append(message_line(line))
        path.write_text("\n".join(lines) + "\n")
        with monkeypatch.context() as patch:
            patch.setattr(imports._Progress, "end", killed)
            with pytest.raises(OSError, match="killed"):
                await import_messages(client, topic, str(path))
        before = await partitions_of(client)
        assert min(map(len, before)) > 100
        if grows:
            with geminga.admin.blocking.connect(broker.web_service_url) as admin:
                admin.topics.update_partitioned(topic, 7)
        await import_messages(client, topic, str(path), is_resumed=True)
        assert [each for each in await partitions_of(client) if each] == before
        assert sorted(int(payload) for each in before for payload in each) == list(range(count))

    run(broker, scenario)


@pytest.mark.parametrize(("partitions", "is_killed"), [(0, False), (2, False), (2, True)])
def test_a_message_that_was_refused_comes_with_the_next_try_though_later_ones_are_stored(
    broker, tmp_path, monkeypatch, partitions, is_killed
) -> None:
    """To deduplication one that is behind what is stored was stored before."""
    path, topic = tmp_path / "file", f"public/gaps/topic-{partitions}-{is_killed}"
    large = b" " * 200_000
    with geminga.admin.blocking.connect(broker.web_service_url) as admin:
        if "public/gaps" not in admin.namespaces.list("public"):
            admin.namespaces.create("public/gaps")
            admin.namespace_policies.deduplication.set("public/gaps", True)
        if partitions:
            admin.topics.create_partitioned(topic, partitions)
        else:
            admin.topics.create(topic)
        admin.topic_policies.max_message_size.set(topic, 150_000)

    async def tried(client: Client, *, is_refused: bool) -> None:
        """Until the policy holds in every partition, or does no more."""
        for partition in await client.get_topic_partitions(topic):
            async with await client.create_producer(partition) as producer:
                for _ in range(1000):
                    sent = await asyncio.gather(producer.send(large + b"try"), return_exceptions=True)
                    if isinstance(sent[0], NotAllowedError) is is_refused:
                        break

    async def killed(_: object) -> None:
        raise OSError("killed")

    async def stored(client: Client) -> list[bytes]:
        partitions = await client.get_topic_partitions(topic)
        payloads = [line.payload for partition in partitions async for line in read_lines(client, partition)]
        return sorted(payload.strip() for payload in payloads if payload and not payload.endswith(b"try"))

    async def scenario(client: Client) -> None:
        lines = [header_line(Header("t"))]
        for number in range(10):
            payload = (large if number in (3, 5) else b"") + b"%d" % number
            lines.append(message_line(MessageLine(f"1:{number}", payload, f"k{number % 4}")))
        path.write_text("\n".join(lines) + "\n")
        await tried(client, is_refused=True)
        with monkeypatch.context() as patch:
            if is_killed:
                patch.setattr(imports._Publisher, "settle", killed)
            for is_resumed in (False,) if is_killed else (False, True):
                with pytest.raises((NotAllowedError, OSError), match=r"Exceed maximum message size|killed"):
                    await import_messages(client, topic, str(path), is_resumed=is_resumed)
        with geminga.admin.blocking.connect(broker.web_service_url) as admin:
            admin.topic_policies.max_message_size.remove(topic)
        await tried(client, is_refused=False)
        assert await import_messages(client, topic, str(path), is_resumed=True) == (10, 0)
        assert await stored(client) == [b"%d" % number for number in range(10)]
        assert [each.name for each in tmp_path.iterdir()] == ["file"]

    run(broker, scenario)


def test_a_file_without_ends_of_lines_is_not_read_whole(broker, tmp_path, monkeypatch) -> None:
    path = tmp_path / "file"
    text = message_line(MessageLine("1:0", b"x" * 200, None))
    path.write_text(f"{header_line(Header('t'))}\n{text}\n")

    async def scenario(client: Client) -> None:
        monkeypatch.setattr(messages, "LINE_BYTES_MAX", len(text))
        with pytest.raises(
            LineError, match=f"line 2 has more than {len(text)} bytes: expected one message, or a schema"
        ):
            await import_messages(client, "long-lines", str(path))
        monkeypatch.setattr(messages, "LINE_BYTES_MAX", len(text) + 1)
        assert await import_messages(client, "long-lines", str(path)) == (1, 0)
        monkeypatch.setattr(messages, "LINE_BYTES_MAX", 200)
        with pytest.raises(LineError, match=r"message .* of .*long-lines has no room in a line of 200 bytes"):
            await export_messages(client, "long-lines", str(tmp_path / "exported"))

    run(broker, scenario)


def test_an_import_without_receipts_ends(broker, tmp_path, monkeypatch) -> None:
    """Not the messages: one that is given up while later ones are stored would be a gap."""
    monkeypatch.setattr(imports, "STALLED_S", 0.01)

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    async def scenario(client: Client) -> None:
        publisher = imports._Publisher(client, "t", imports._Progress(str(tmp_path / "file"), "t"))
        with pytest.raises(Timeout, match="no receipt of t"):
            await publisher._unless_stalled(never())
        await publisher.settle()
        assert not list(tmp_path.iterdir())

    run(broker, scenario)


def test_a_message_that_went_in_chunks_comes_back_between_others(broker, tmp_path) -> None:
    """Small ones are in batches, before it and behind it, in their order; also to a topic with partitions."""
    path, large = str(tmp_path / "large"), bytes(range(256)) * 50_000

    async def scenario(client: Client) -> None:
        async with await client.create_producer("chunked", chunking_enabled=True, batching_enabled=False) as producer:
            for number in range(3):
                await producer.send(b"before %d" % number, partition_key="k")
            await producer.send(large, partition_key="k", properties={"a": "b"})
            for number in range(3):
                await producer.send(b"behind %d" % number, partition_key="k")
        assert (await export_messages(client, "chunked", path)).messages == 7
        assert (await import_messages(client, "chunked-2", path)).messages == 7
        assert await _lines(client, "chunked-2") == await _lines(client, "chunked")

    run(broker, scenario)


def test_an_export_takes_what_is_wanted(broker, tmp_path) -> None:
    path = tmp_path / "p"

    async def scenario(client: Client) -> None:
        async with await client.create_producer("json") as producer:
            for number in range(6):
                await producer.send(b'{"a": [{"id": %d}]}' % number, properties={"n": str(number % 2)})
            await producer.send(b"no json", properties={"n": "1"})
            await producer.send(b"[" * 100_000, properties={"n": "1"})  # nested too deep
        wanted = Filter(properties={"n": "1"}, tests=[json_test("a[0].id=3")])
        assert (await export_messages(client, "json", str(path), wanted=wanted)).messages == 1
        (line,) = [json.loads(text) for text in path.read_text().splitlines()[1:]]
        assert line["payload"] == '{"a": [{"id": 3}]}'

    run(broker, scenario)


def test_the_backlog_of_a_subscription_is_exactly_what_it_has_to_get(broker) -> None:
    async def scenario(client: Client) -> None:
        options: dict[str, bool] = {"batch_index_ack_enabled": True, "ack_receipt_enabled": True}
        consumer = await client.subscribe(
            "held", "s", consumer_type=ConsumerType.Shared, receiver_queue_size=1, **options
        )
        async with await client.create_producer("held") as producer:
            await asyncio.gather(*(producer.send(b"batch %d" % number) for number in range(5)))
            await producer.send(b"whole")
            await producer.send(b"late", deliver_after=timedelta(hours=1))
            await producer.send(b"last")
        got = [await consumer.receive() for _ in range(7)]
        done = [message for message in got if message.data() in (b"batch 1", b"batch 3", b"whole")]
        await consumer.acknowledge(done)
        expected = [b"batch 0", b"batch 2", b"batch 4", b"late", b"last"]
        async with geminga.admin.connect(broker.web_service_url) as admin:
            calls = admin.subscriptions
            assert [line.payload async for line in unacknowledged_lines(client, calls, "held", "s")] == expected
            with pytest.raises(geminga.admin.NotFoundError):
                [line async for line in unacknowledged_lines(client, calls, "held", "nobody")]
            # Told part by part.
            whole = await calls.analyze_backlog("held", "s", positions=True)
            assert whole["positions"][0]["indexes"] == [0, 2, 4]
            rest = await calls.analyze_backlog("held", "s", positions=True, start=whole["positions"][1]["id"])
            assert len(whole["positions"]) == len(rest["positions"]) == 2
            assert rest["positions"][0] == whole["positions"][1]
            assert whole["nextMessageId"] == rest["positions"][1]["id"]
            assert "nextMessageId" not in rest
            with pytest.raises(geminga.admin.PreconditionFailedError, match="expected ledger:entry"):
                await calls.analyze_backlog("held", "s", start="first")

    run(broker, scenario)


def test_a_large_message_is_in_a_backlog_that_is_told_in_parts(broker) -> None:
    """Its chunks are in several parts, each of two entries."""

    async def scenario(client: Client) -> None:
        await client.subscribe("parts", "s")
        async with await client.create_producer(
            "parts", batching_enabled=False, chunking_enabled=True, chunk_max_message_size=1000
        ) as producer:
            sent = [b"before", bytes(3500), b"between", bytes(1500), b"behind", bytes(2500)]
            for payload in sent:
                await producer.send(payload)
        async with geminga.admin.connect(broker.web_service_url) as admin:
            told = unacknowledged_lines(client, admin.subscriptions, "parts", "s")
            assert [line.payload async for line in told] == sent

    run(broker, scenario)


@pytest.fixture(scope="module")
def public_key(tmp_path_factory) -> str:
    return pem_files(tmp_path_factory.mktemp("keys"))[0]


@pytest.mark.parametrize("is_batch", [False, True])
def test_encrypted_messages_end_what_reads_with_an_error(broker, tmp_path, public_key, is_batch) -> None:
    path, topic = tmp_path / "export", f"secret-{is_batch}"
    secret = {"encryption_key": "app", "crypto_key_reader": CryptoKeyReader(public_key)}

    async def scenario(client: Client) -> None:
        async with await client.create_producer(topic) as producer:
            await producer.send(b"clear")
        async with await client.create_producer(topic, batching_enabled=is_batch, **secret) as producer:
            await asyncio.gather(producer.send(b"secret"), producer.send(b"secret"))
        async with await client.create_producer(topic) as producer:
            await producer.send(b"behind")
        for is_resumed in (False, True):
            with pytest.raises(ConfigurationError, match=r"message \d+:1 of \S+secret-\w+ is encrypted"):
                await export_messages(client, topic, str(path), is_resumed=is_resumed)
        assert [json.loads(text)["payload"] for text in path.read_text().splitlines()[1:]] == ["clear"]
        read = []
        with pytest.raises(ConfigurationError, match="is encrypted"):
            async for line in read_lines(client, topic):
                read.append(line.payload)
        assert read == [b"clear"]

    run(broker, scenario)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_messages_come_back_equal(broker, tmp_path) -> None:
    path, again = tmp_path / "million", tmp_path / "again"
    count = int(os.environ.get("GEMINGA_MESSAGES", "1000000"))

    async def scenario(client: Client) -> None:
        async with await client.create_producer("million") as producer:
            for number in range(count):
                if number % 500 == 0:
                    await producer.drain()
                producer.send_nowait(
                    b"%d \xff" % number if number % 3 else b"text %d" % number,
                    partition_key=f"k{number % 100}",
                    properties={"n": str(number)},
                    event_timestamp=number + 1,
                )
                if number % 500 == 499:
                    await producer.flush()
        assert (await export_messages(client, "million", str(path))).messages == count
        assert (await import_messages(client, "million-2", str(path))).messages == count
        assert (await export_messages(client, "million-2", str(again))).messages == count

    run(broker, scenario, limit_s=1200)
    differing = 0
    with path.open() as first, again.open() as second:
        for before, after in zip(first, second, strict=True):
            one, other = json.loads(before), json.loads(after)
            for name in ("id", "publishTime", "topic"):
                one.pop(name, None)
                other.pop(name, None)
            differing += one != other
    assert differing == 0
