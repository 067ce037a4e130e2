"""Our table view: the newest value of each key, kept up to date."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.client.schema import BytesSchema
from support.stories.client_stories import run

pytestmark = pytest.mark.integration


def test_table_view_has_what_was_there_and_follows(broker, topic) -> None:
    async def main(client):
        producer = await client.create_producer(topic)
        for number in range(10):
            await producer.send(b"v%d" % number, partition_key=f"k{number % 3}")
        await producer.send(b"no key")
        view = await client.create_table_view(topic)
        assert dict(view.items()) == {"k0": b"v9", "k1": b"v7", "k2": b"v8"}
        changes = []
        await view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        await producer.send(b"new", partition_key="k3")
        await producer.send(None, partition_key="k0")
        await view.refresh()
        assert view.get("k3") == b"new"
        assert view.get("k0") is None
        assert "k0" not in view
        assert changes[3:] == [("k3", b"new"), ("k0", None)]
        every = []
        await view.for_each(lambda key, value: every.append(key))
        assert sorted(every) == ["k1", "k2", "k3"]
        await view.close()
        with pytest.raises(gc.AlreadyClosed):
            view.get("k1")

    run(broker, main)


def test_table_view_goes_on_behind_a_listener_that_fails(broker, topic, caplog) -> None:
    async def main(client):
        producer = await client.create_producer(topic)
        seen = []

        def fail(key, value):
            raise ValueError(key)

        async with await client.create_table_view(topic) as view:
            await view.for_each_and_listen(fail)
            await view.for_each_and_listen(lambda key, value: seen.append(key))
            for key in ("a", "b"):
                await producer.send(b"1", partition_key=key)
            await view.refresh()
            assert seen == ["a", "b"]
            assert view["b"] == b"1"
            with pytest.raises(ValueError, match="a"):
                await view.for_each(fail)

    run(broker, main)
    assert caplog.text.count("listener of the table view") == 2


def test_table_view_says_why_a_value_can_not_be_read(broker, topic) -> None:
    class Picky(BytesSchema):
        def decode(self, data, *, writer=None, key=None):
            raise ZeroDivisionError(data)

    async def main(client):
        producer = await client.create_producer(topic)
        async with await client.create_table_view(topic, schema=Picky()) as view:
            await producer.send(b"1", partition_key="a")
            with pytest.raises(ZeroDivisionError):
                await view.refresh()

    run(broker, main)
