"""A client used on another loop, after its loop was closed, or from another thread says so at once."""

from __future__ import annotations

import asyncio
import gc as garbage
import threading  # noqa: TID251 - one without a loop

import pytest

import geminga
import geminga.client as gc
from geminga.client._api.place import Place


@pytest.fixture(scope="module")
def url():
    with geminga.Standalone() as broker:
        yield broker.service_url


class Parts:
    """A client with one of everything; a batch of the producer is open."""

    async def open(self, url: str, topic: str) -> Parts:
        self.client = gc.connect(url)
        self.producer = await self.client.create_producer(topic)
        self.consumer = await self.client.subscribe(topic, "s")
        self.reader = await self.client.create_reader(topic, gc.MessageId.earliest)
        await self.producer.send(b"a", partition_key="k")
        self.view = await self.client.create_table_view(topic)
        self.message = await self.consumer.receive(5000)
        return self

    def coroutines(self) -> list:
        consumer, reader, view = self.consumer, self.reader, self.view
        return [
            lambda: self.client.create_producer("other"),
            lambda: self.client.subscribe("other", "s"),
            lambda: self.client.create_reader("other", gc.MessageId.latest),
            lambda: self.client.create_table_view("other"),
            lambda: self.client.get_topic_partitions("other"),
            lambda: self.client.get_schema("other"),
            self.client.close,
            lambda: self.producer.send(b"x"),
            self.producer.flush,
            self.producer.drain,
            self.producer.close,
            consumer.receive,
            consumer.batch_receive,
            consumer.__aiter__().__anext__,
            lambda: consumer.acknowledge(self.message),
            lambda: consumer.acknowledge([self.message]),
            lambda: consumer.acknowledge_cumulative(self.message),
            lambda: consumer.negative_acknowledge(self.message),
            lambda: consumer.reconsume_later(self.message),
            consumer.redeliver_unacknowledged_messages,
            consumer.flush_acknowledgements,
            lambda: consumer.seek(gc.MessageId.earliest),
            consumer.get_last_message_id,
            consumer.get_last_message_ids,
            consumer.has_message_available,
            consumer.unsubscribe,
            consumer.close,
            reader.read_next,
            reader.__anext__,
            reader.has_message_available,
            lambda: reader.seek(0),
            reader.get_last_message_id,
            reader.close,
            view.refresh,
            lambda: view.for_each(print),
            lambda: view.for_each_and_listen(print),
            view.close,
        ]

    def plain(self) -> list:
        return [
            lambda: self.producer.send_nowait(b"x"),
            self.consumer.receive_nowait,
            self.consumer.pause,
            self.consumer.resume,
            lambda: self.view.get("k"),
            lambda: self.view["k"],
        ]

    async def all_refused(self, match: str) -> None:
        for call in self.coroutines():
            with pytest.raises(gc.WrongLoop, match=match):
                async with asyncio.timeout(5):
                    await call()
        for call in self.plain():
            with pytest.raises(gc.WrongLoop, match=match):
                call()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_its_loop_was_closed(url) -> None:
    parts = asyncio.run(Parts().open(url, "closed-loop"))
    asyncio.run(parts.all_refused("loop this client was used on is closed.*make another client"))
    del parts
    garbage.collect()  # its sockets were never closed, and warn now


def test_on_another_loop_while_its_own_runs(url) -> None:
    async def main() -> None:
        async with Parts() and (await Parts().open(url, "other-loop")).client as client:
            parts = Parts()
            await parts.open(url, "other-loop-2")
            await asyncio.to_thread(asyncio.run, parts.all_refused("belongs to another loop"))
            # It goes on where it belongs.
            await parts.producer.send(b"b")
            assert (await parts.consumer.receive(5000)).data() == b"b"
            await parts.client.close()
            assert not client.is_closed

    asyncio.run(main())


def test_from_a_thread_without_a_loop(url) -> None:
    async def main() -> None:
        parts = await Parts().open(url, "thread")
        failures: list[BaseException] = []

        def use() -> None:
            try:
                for call in parts.plain():
                    with pytest.raises(gc.WrongLoop, match=r"another thread.*run_coroutine_threadsafe"):
                        call()
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert not failures
        done = asyncio.run_coroutine_threadsafe(parts.producer.send(b"c"), asyncio.get_running_loop())
        assert isinstance(await asyncio.wrap_future(done), gc.MessageId)
        await parts.client.close()

    asyncio.run(main())


def test_the_first_loop_is_the_place() -> None:
    place = Place()
    place.check()
    assert place.loop is None

    async def use() -> None:
        place.check()
        assert place.loop is asyncio.get_running_loop()
        place.check()

    asyncio.run(use())
    with pytest.raises(gc.WrongLoop, match="closed"):
        asyncio.run(use())
    with pytest.raises(gc.WrongLoop, match="closed"):
        place.check()


def test_made_outside_of_a_loop_it_belongs_to_the_first_that_uses_it(url) -> None:
    client = gc.connect(url)
    loop = asyncio.new_event_loop()
    try:
        producer = loop.run_until_complete(client.create_producer("outside"))
        producer.send_nowait(b"between two runs of its loop")
        loop.run_until_complete(producer.flush())
        loop.run_until_complete(client.close())
    finally:
        loop.close()
