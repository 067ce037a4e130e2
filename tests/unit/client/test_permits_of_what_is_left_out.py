"""What a consumer does not hand out gives back as many permits as its broker counted: no fewer, or it starves; no more,
or what waits has no bound."""

from __future__ import annotations

import pytest

import geminga.client as gc
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.scripted_broker import run_against
from support.worlds.scripted_consumer import ConsumerScript, Type, entry_bytes, message_frame, singles, take

#: Of ten messages, the last four.
LEFT = [0b1111000000]
TEN = entry_bytes([b"%d" % number for number in range(10)], batched=True)


def damaged(entry: bytes) -> bytes:
    return entry[:-1] + bytes((entry[-1] ^ 1,))


class CountingScript(ConsumerScript):
    """One entry with each SUBSCRIBE, and how many permits came since the last one of them."""

    def __init__(self, entry: bytes, ack_set: list[int] | None = None, epoch: int | None = None) -> None:
        super().__init__()
        self._entry, self._head = entry, {"ack_set": ack_set, "consumer_epoch": epoch}
        self.permits = 0

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        if command.type == Type.SUBSCRIBE:
            self.permits = 0
        if command.type == Type.SEEK:
            # What was on its way when the consumer was moved.
            late = message_frame(command.seek.consumer_id, 0, self._entry, **self._head)
            return [late + commands.success(command.seek.request_id)]
        if command.type == Type.FLOW:
            self.permits += command.flow.messagePermits
        return super().__call__(command)

    def _first(self, consumer_id: int) -> list[bytes]:
        if consumer_id in self._sent_for:
            return []
        self._sent_for.add(consumer_id)
        return [message_frame(consumer_id, 0, self._entry, **self._head)]


@pytest.mark.parametrize(
    ("entry", "ack_set", "taken"),
    [
        pytest.param(damaged(TEN), None, 10, id="damaged"),
        pytest.param(damaged(TEN), LEFT, 4, id="damaged, of which four were left"),
        pytest.param(entry_bytes([b"no batch"], num_messages_in_batch=10), None, 10, id="no batch"),
        pytest.param(entry_bytes([b"no batch"], num_messages_in_batch=10), LEFT, 4, id="no batch, four were left"),
        pytest.param(
            entry_bytes([b"no lz4"], compression=pb.LZ4, uncompressed_size=99, num_messages_in_batch=10),
            LEFT,
            4,
            id="can not be inflated, four were left",
        ),
    ],
)
def test_what_is_refused_gives_back_what_it_took(entry: bytes, ack_set: list[int] | None, taken: int) -> None:
    script = CountingScript(entry, ack_set)

    async def scenario(client: gc.Client) -> None:
        await client.subscribe("t", "s", receiver_queue_size=4)
        await wait_ms(5000)
        assert script.acked() == [0]
        assert script.permits == 4 + taken

    run_against(script, scenario)


def test_what_is_of_before_a_redelivery_gives_back_what_it_took() -> None:
    script = CountingScript(TEN, LEFT, epoch=0)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await consumer.redeliver_unacknowledged_messages()
        await wait_ms(1000)
        assert script.permits == 4 + 4

    run_against(script, scenario)


def test_what_comes_while_a_consumer_is_moved_gives_back_what_it_took() -> None:
    script = CountingScript(TEN, LEFT)

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4)
        await wait_ms(1000)
        await consumer.seek(gc.MessageId.earliest)
        await wait_ms(1000)
        assert script.permits == 4 + 4 + 4

    run_against(script, scenario)


@pytest.mark.parametrize("kind", [gc.ConsumerType.Shared, gc.ConsumerType.Exclusive])
def test_what_comes_again_is_asked_for_before_the_permits_of_what_was_prefetched_go_back(kind: gc.ConsumerType) -> None:
    """What is sent for them would be asked for again, too, and come twice where no epoch tells which is which."""
    script = ConsumerScript(singles(4))

    async def scenario(client: gc.Client) -> None:
        consumer = await client.subscribe("t", "s", receiver_queue_size=4, consumer_type=kind)
        await take(consumer, 1)
        await wait_ms(1000)
        began = len(script.heard)
        await consumer.redeliver_unacknowledged_messages()
        await wait_ms(1000)
        said = [command for _, command in script.heard[began:]]
        assert [command.type for command in said] == [Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, Type.FLOW, Type.FLOW]
        assert sum(command.flow.messagePermits for command in said[1:]) == 4

    run_against(script, scenario)
