"""``geminga perf produce | consume``: how fast, and how late; options as in the field's tools.

Latency of ``produce``: from handing a message over to its receipt. Of ``consume``: from the publish time in the message
to its arrival here, so the clocks of both machines count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from geminga.app.commands.client_commands import Topic, choice
from geminga.app.commands.client_security import add_security
from geminga.app.commands.client_session import DEFAULT_URL, Json, Token, Url, run_client
from geminga.app.commands.perf_report import PerfProgress
from geminga.app.commands.server_options import with_options
from geminga.model.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

    from geminga.client import Client, MessageId, Producer, PulsarException

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure rates and latencies.")
add_security(commands)

#: Messages handed over without looking at the clock and the loop, at full speed.
TURN_MESSAGES: Final = 100
#: At a fixed rate: seconds between two looks at what is due.
PACE_S: Final = 0.002

Seconds = Annotated[float, typer.Option("-time", "--test-duration", min=0, help="End after so many seconds; 0: go on.")]
Messages = Annotated[int, typer.Option("-m", "--num-messages", min=0, help="End after so many messages; 0: go on.")]
Interval = Annotated[
    float, typer.Option("-i", "--stats-interval-seconds", min=0.1, max=86_400, help="A line of figures so often.")
]


class Measuring(NamedTuple):
    """Where it is measured, and how often figures are told."""

    interval_s: float
    url: str
    token: str
    is_json: bool

    def run(self, work: Callable[[Client], Coroutine[Any, Any, None]], progress: PerfProgress) -> None:
        """Let ``work`` add to ``progress``; the sums are told in the end, whatever came of it."""
        try:
            run_client(self.url, self.token, work)
        finally:
            progress.finish()


def _measuring(
    interval: Interval = 1.0, url: Url = DEFAULT_URL, token: Token = "", json_line: Json = False
) -> Measuring:
    return Measuring(interval, url, token, json_line)


@commands.command()
@with_options(_measuring)
def produce(
    measuring: Measuring,
    topic: Topic,
    rate: Annotated[
        float, typer.Option("-r", "--rate", min=0, max=1e9, help="Messages a second; 0: as fast as it goes.")
    ] = 100.0,
    size: Annotated[int, typer.Option("-s", "--size", min=0, help="Bytes of a message.")] = 1024,
    messages: Messages = 0,
    seconds: Seconds = 0.0,
    batch_messages: Annotated[int, typer.Option("-bm", "--batch-max-messages", min=1, help="Of a batch.")] = 1000,
    batch_ms: Annotated[int, typer.Option("-b", "--batch-time-window", min=1, help="Milliseconds a batch waits.")] = 1,
    disable_batching: Annotated[bool, typer.Option("-db", "--disable-batching", help="One entry per message.")] = False,
    outstanding: Annotated[
        int, typer.Option("-o", "--max-outstanding", min=1, help="Messages without receipt at a time.")
    ] = 10_000,
    compression: Annotated[str, typer.Option("-z", "--compression", help="NONE, LZ4, ZLIB, ZSTD or SNAPPY.")] = "NONE",
) -> None:
    """Send messages of random bytes, at a rate or as fast as it goes, until Ctrl-C or a limit."""
    progress = PerfProgress("sent", is_json=measuring.is_json, interval_s=measuring.interval_s)

    async def work(client: Client) -> None:
        from geminga.client import CompressionType

        producer = await client.create_producer(
            topic,
            batching_enabled=not disable_batching,
            batching_max_messages=batch_messages,
            batching_max_publish_delay_ms=batch_ms,
            max_pending_messages=outstanding,
            compression_type=choice(CompressionType, "--compression", compression),
        )
        with Every(progress.interval_s, progress.tick):
            await send_all(producer, os.urandom(size), progress, rate, messages, seconds)

    measuring.run(work, progress)
    if progress.failed:
        raise ConfigurationError(f"{progress.failed} messages were not stored")


async def send_all(
    producer: Producer[bytes], payload: bytes, progress: PerfProgress, rate: float, messages: int, seconds: float
) -> None:
    """Send until a limit is reached, and wait for the receipts."""
    from asyncio import sleep

    from geminga.client import MemoryBufferIsFull, ProducerQueueIsFull

    clock = time.perf_counter
    size = len(payload)
    started, sent = clock(), 0

    def receipt(handed_over: float) -> Callable[[PulsarException | None, MessageId | None], None]:
        def heard(error: PulsarException | None, _: MessageId | None) -> None:
            if error is None:
                progress.add(size, (clock() - handed_over) * 1000)
            else:
                progress.failed += 1

        return heard

    while (not messages or sent < messages) and (not seconds or clock() - started < seconds):
        now = clock()
        due = sent + TURN_MESSAGES if not rate else int((now - started) * rate) + 1
        if messages:
            due = min(due, messages)
        try:
            while sent < due:
                # At a rate, latency counts from when the message was due: a stall is not left out.
                producer.send_nowait(payload, receipt(now if not rate else started + sent / rate))
                sent += 1
        except (ProducerQueueIsFull, MemoryBufferIsFull):
            pass
        await producer.drain()
        if rate and sent >= due:
            await sleep(max(0.0, min(started + sent / rate - clock(), PACE_S)))
    await producer.flush()


@commands.command()
@with_options(_measuring)
def consume(
    measuring: Measuring,
    topic: Topic,
    subscription: Annotated[str, typer.Option("-ss", "--subscription", help="The subscription.")] = "perf",
    kind: Annotated[
        str, typer.Option("-st", "--subscription-type", help="Exclusive, Shared, Failover or KeyShared.")
    ] = "Exclusive",
    position: Annotated[
        str, typer.Option("-sp", "--subscription-position", help="Where a new subscription begins: Latest or Earliest.")
    ] = "Latest",
    prefetch: Annotated[int, typer.Option("-q", "--receiver-queue-size", min=1, help="Messages prefetched.")] = 10_000,
    messages: Messages = 0,
    seconds: Seconds = 0.0,
) -> None:
    """Receive and acknowledge messages, until Ctrl-C or a limit."""
    progress = PerfProgress("received", is_json=measuring.is_json, interval_s=measuring.interval_s)

    async def work(client: Client) -> None:
        from geminga.client import BatchReceivePolicy, ConsumerType, InitialPosition

        consumer = await client.subscribe(
            topic,
            subscription,
            consumer_type=choice(ConsumerType, "--subscription-type", kind),
            initial_position=choice(InitialPosition, "--subscription-position", position),
            receiver_queue_size=prefetch,
            batch_receive_policy=BatchReceivePolicy(min(prefetch, 1000), 0, 10),
        )
        started = time.perf_counter()
        with Every(progress.interval_s, progress.tick):
            async with consumer:
                while not seconds or time.perf_counter() - started < seconds:
                    received = await consumer.batch_receive()
                    now_ms = time.time() * 1000
                    for message in received:
                        progress.add(len(message.data()), max(0.0, now_ms - message.publish_timestamp()))
                    await consumer.acknowledge(received)
                    if messages and progress.messages >= messages:
                        break

    measuring.run(work, progress)


class Every:
    """``with Every(seconds, function)``: call it again and again on the running loop.

    An OSError of the function ends the block, which raises it: who reads what is printed has gone.
    """

    def __init__(self, interval_s: float, function: Callable[[], None]) -> None:
        self._interval_s = interval_s
        self._function = function
        from asyncio import current_task, get_running_loop

        self._loop = get_running_loop()
        self._task = current_task()
        self._error: OSError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._again)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._error is not None:
            if self._task is not None:
                self._task.uncancel()
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # see runtime's value_of

    def _again(self) -> None:
        try:
            self._function()
        except OSError as error:
            self._error = error
            if self._task is not None:
                self._task.cancel()
            return
        self._timer = self._loop.call_later(self._interval_s, self._again)
