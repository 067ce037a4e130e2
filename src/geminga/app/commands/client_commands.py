"""``geminga client produce | consume | read``: messages by hand and from scripts, options as in the field's tools.

The client is imported when a command runs, so that the other commands do not load it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from geminga.app.commands.client_security import add_security
from geminga.app.commands.client_session import DEFAULT_URL, Json, Token, Url, run_client
from geminga.app.commands.server_options import with_options
from geminga.app.lifecycle.terminal_text import shown_on
from geminga.model.errors import ConfigurationError, GemingaError

if TYPE_CHECKING:
    from geminga.client import Client, Message, MessageId

C = TypeVar("C", bound=Enum)

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Send and receive messages by hand.")
add_security(commands)

Topic = Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")]
Count = Annotated[int, typer.Option("-n", "--num-messages", min=0, help="End after so many; 0: go on.")]
Hex = Annotated[bool, typer.Option("--hex", help="Show contents as hexadecimal numbers.")]
Quiet = Annotated[bool, typer.Option("--hide-content", help="Do not print messages, only count them.")]


class Reception(NamedTuple):
    """How messages are received, and shown."""

    printer: Printer
    url: str
    token: str

    def run(self, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
        """Let ``work`` print what it receives."""
        run_client(self.url, self.token, work)
        self.printer.finish()


def _reception(
    hex_: Hex = False,
    hide_content: Quiet = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    json_line: Json = False,
) -> Reception:
    return Reception(Printer(json_line, hex_, hide_content), url, token)


@commands.command()
def produce(
    topic: Topic,
    messages: Annotated[
        list[str] | None, typer.Option("-m", "--messages", metavar="TEXT", help="A message; may be repeated.")
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("-f", "--files", metavar="FILE", help="A file is a message; may be repeated.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Each line of standard input is a message.")] = False,
    num_produce: Annotated[int, typer.Option("-n", "--num-produce", min=1, help="Send everything so often.")] = 1,
    key: Annotated[str | None, typer.Option("-k", "--key", help="The messages' key.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("-p", "--properties", metavar="KEY=VALUE", help="A property; may be repeated.")
    ] = None,
    compression: Annotated[str, typer.Option("-z", "--compression", help="NONE, LZ4, ZLIB, ZSTD or SNAPPY.")] = "NONE",
    disable_batching: Annotated[bool, typer.Option("--disable-batching", help="One entry per message.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    json_line: Json = False,
) -> None:
    """Send messages: given with -m, from files, or the lines of standard input."""
    if not messages and not files and not stdin:
        raise ConfigurationError("nothing to send: give --messages, --files or --stdin")
    from geminga.app.commands.cli import fail

    pairs = key_values(properties or ())
    sent = 0

    async def work(client: Client) -> bool:
        from geminga.app.handles.standard_input import standard_lines
        from geminga.client import CompressionType, MemoryBufferIsFull, ProducerQueueIsFull

        producer = await client.create_producer(
            topic,
            compression_type=choice(CompressionType, "--compression", compression),
            batching_enabled=not disable_batching,
        )

        async def send(content: bytes) -> None:
            nonlocal sent
            while True:
                try:
                    producer.send_nowait(content, partition_key=key, properties=pairs or None)
                    break
                except (ProducerQueueIsFull, MemoryBufferIsFull):
                    await producer.drain()
            sent += 1
            if sent % 1000 == 0:
                await producer.drain()

        for content in contents(messages or (), files or (), num_produce):
            await send(content)
        if stdin:
            async with aclosing(standard_lines()) as lines:
                async for line in lines:
                    await send(line)
        await producer.flush()
        return True

    try:
        is_done = run_client(url, token, work)
    except GemingaError as error:
        if sent < 2:
            raise
        # The error is that of one: who sends again has to know that others are stored.
        fail(f"{str(error) or type(error).__name__}; {sent} messages were given, some of them may be stored")
    text = f"{sent} message{'' if sent == 1 else 's'} sent"
    if not is_done:
        fail(f"interrupted: {text}, the last of them may not be stored")
    print(json.dumps({"sent": sent}) if json_line else text, flush=True)


@commands.command()
@with_options(_reception)
def consume(
    reception: Reception,
    topic: Topic,
    subscription: Annotated[str, typer.Option("-s", "--subscription-name", help="The subscription.")],
    count: Count = 1,
    kind: Annotated[
        str, typer.Option("-t", "--subscription-type", help="Exclusive, Shared, Failover or KeyShared.")
    ] = "Exclusive",
    position: Annotated[
        str, typer.Option("-p", "--subscription-position", help="Where a new subscription begins: Latest or Earliest.")
    ] = "Latest",
    regex: Annotated[bool, typer.Option("-r", "--regex", help="TOPIC is a pattern for topics of a namespace.")] = False,
    non_durable: Annotated[bool, typer.Option("--non-durable", help="The subscription ends with the command.")] = False,
) -> None:
    """Receive messages of a subscription, print and acknowledge them; until Ctrl-C with -n 0."""
    printer = reception.printer

    async def work(client: Client) -> None:
        import re

        from geminga.client import ConsumerType, InitialPosition

        consumer = await client.subscribe(
            re.compile(topic) if regex else topic,
            subscription,
            consumer_type=choice(ConsumerType, "--subscription-type", kind),
            initial_position=choice(InitialPosition, "--subscription-position", position),
            is_durable=not non_durable,
        )
        async with consumer:
            async for message in consumer:
                printer.show(message)
                await consumer.acknowledge(message)
                if printer.shown == count:
                    break

    reception.run(work)


@commands.command()
@with_options(_reception)
def read(
    reception: Reception,
    topic: Topic,
    count: Count = 1,
    start: Annotated[
        str, typer.Option("-m", "--start-message-id", help="earliest, latest or LEDGER:ENTRY (that one included).")
    ] = "latest",
    until_end: Annotated[bool, typer.Option("--until-end", help="End behind the last message there is.")] = False,
) -> None:
    """Read a topic from a place on, without leaving a subscription behind."""
    printer = reception.printer

    async def work(client: Client) -> None:
        # As of Pulsar's command, latest is the end: what is published from now on.
        is_message = ":" in start
        properties = {"geminga-command": "client read"}  # for the audit log of Geminga's broker
        reader = await client.create_reader(
            topic, message_id(start), start_message_id_inclusive=is_message, properties=properties
        )
        async with reader:
            while not (count and printer.shown == count):
                if until_end and not await reader.has_message_available():
                    break
                printer.show(await reader.read_next())

    reception.run(work)


class Printer:
    """Prints messages, one line each (contents may have more), and their number in the end."""

    def __init__(self, is_json: bool, is_hex: bool, is_hidden: bool) -> None:
        self._is_json = is_json
        self._is_hex = is_hex
        self._is_hidden = is_hidden
        self.shown = 0

    def show(self, message: Message[Any]) -> None:
        """Print one."""
        self.shown += 1
        if not self._is_hidden:
            text = self.json_of(message) if self._is_json else self.line_of(message)
            print(shown_on(sys.stdout, text), flush=True)

    def line_of(self, message: Message[Any]) -> str:
        """For people."""
        parts = [str(message.message_id())]
        if message.has_key():
            parts.append(f"key={message.partition_key()}")
        parts += [f"{name}={value}" for name, value in sorted(message.properties().items())]
        data = message.data()
        return f"[{' '.join(parts)}] {data.hex(' ') if self._is_hex else data.decode('utf-8', 'backslashreplace')}"

    def json_of(self, message: Message[Any]) -> str:
        """For programs: text contents as ``content``, others as ``contentBase64`` (``contentHex`` with ``--hex``)."""
        data = message.data()
        found: dict[str, object] = {
            "topic": message.topic_name(),
            "messageId": str(message.message_id()),
            "key": message.partition_key() if message.has_key() else None,
            "properties": message.properties(),
            "publishTime": message.publish_timestamp(),
            "eventTime": message.event_timestamp() or None,
            "producerName": message.producer_name(),
            "redeliveryCount": message.redelivery_count(),
        }
        if self._is_hex:
            found["contentHex"] = data.hex()
        else:
            try:
                found["content"] = data.decode()
            except UnicodeDecodeError:
                found["contentBase64"] = base64.b64encode(data).decode()
        return json.dumps(found, ensure_ascii=False)

    def finish(self) -> None:
        """How many there were; on standard error, so that what was printed can be piped."""
        print(f"{self.shown} messages", file=sys.stderr, flush=True)


def contents(messages: Iterable[str], files: Iterable[str], times: int) -> Iterator[bytes]:
    """Everything to send that is known before, in order."""
    # An argument is bytes to the system, whether they are text or not.
    fixed = [os.fsencode(text) for text in messages]
    for path in files:
        try:
            with open(path, "rb") as file:
                fixed.append(file.read())
        except OSError as error:
            raise ConfigurationError(f"--files {path}: {error.strerror or error}") from error
    for _ in range(times):
        yield from fixed


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` each; raises ConfigurationError."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--properties {pair}: expected KEY=VALUE")
        # The client looks at the texts of properties when it has taken the message, and says less then.
        pair.encode()
        found[name] = value
    return found


def choice(kinds: type[C], option: str, text: str) -> C:
    """A member of an enumeration by its name, in any case; raises ConfigurationError."""
    for name, member in kinds.__members__.items():
        if name.lower() == text.replace("_", "").lower():
            return member
    raise ConfigurationError(f"{option} {text}: expected one of {', '.join(kinds.__members__)}")


def message_id(text: str) -> MessageId:
    """``earliest``, ``latest`` or ``LEDGER:ENTRY``; raises ConfigurationError."""
    from geminga.client import MessageId

    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    ledger, colon, entry = text.partition(":")
    if not (colon and ledger.isdecimal() and entry.isdecimal()):
        raise ConfigurationError(f"--start-message-id {text}: expected earliest, latest or LEDGER:ENTRY")
    return MessageId(-1, int(ledger), int(entry), -1)
