"""``geminga messages browse | export | import``: what is in a topic, looked at, kept in a file, published again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl
from geminga.app.commands.client_security import add_security, said_security
from geminga.app.commands.client_session import DEFAULT_URL, Json, Token, Url, run_client
from geminga.app.lifecycle.terminal_text import shown_on
from geminga.model.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from geminga.app.handles.core.filters import Filter
    from geminga.app.handles.core.message_lines import MessageLine
    from geminga.app.handles.messages import Transfer
    from geminga.client import Client

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at messages, keep and publish them.")
add_security(commands)

Topic = Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")]
File = Annotated[str, typer.Argument(help="The file, lines of JSON.")]
Key = Annotated[str | None, typer.Option("-k", "--key", help="Only messages with this key.")]
Properties = Annotated[
    list[str] | None, typer.Option("-p", "--property", metavar="NAME=VALUE", help="Only with it; may be repeated.")
]
Tests = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="PATH=VALUE", help="Only JSON with it: order.lines[0].id=5; may be repeated."),
]
Since = Annotated[str, typer.Option("--since", metavar="TIME", help="Published then or later: ISO 8601, UTC.")]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Published before.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the last run stopped.")]


@commands.command()
def browse(
    topic: Topic,
    start: Annotated[
        str, typer.Option("--from", metavar="ID", help="Behind this message: earliest, latest, LEDGER:ENTRY[:INDEX].")
    ] = "earliest",
    count: Annotated[int, typer.Option("-n", "--num-messages", min=0, help="End after so many; 0: all.")] = 0,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for more, until Ctrl-C.")] = False,
    key: Key = None,
    properties: Properties = None,
    tests: Tests = None,
    since: Since = "",
    until: Until = "",
    unacknowledged: Annotated[
        str, typer.Option("--not-acknowledged-by", metavar="SUB", help="Only the backlog of this subscription.")
    ] = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    json_line: Json = False,
) -> None:
    """Show messages; no subscription is left behind, and nothing is acknowledged."""
    wanted = filter_of(key, properties, tests, since, until)

    async def work(client: Client) -> None:
        from geminga.app.handles.core.message_lines import message_line
        from geminga.app.handles.messages import id_of, read_lines

        if unacknowledged and (follow or start != "earliest"):
            raise ConfigurationError("--not-acknowledged-by: expected without --follow and --from")
        partitions = await client.get_topic_partitions(topic)
        if len(partitions) > 1 and (follow or start != "earliest"):
            raise ConfigurationError(f"{topic} has {len(partitions)} partitions: name one for --follow and --from")
        shown = 0
        for partition in partitions:
            lines = (
                _backlog(client, admin_url, partition, unacknowledged)
                if unacknowledged
                else read_lines(client, partition, id_of(start), follow=follow)
            )
            async for line in lines:
                if wanted.wants(line):
                    text = message_line(line) if json_line else _text(line)
                    print(shown_on(sys.stdout, text), flush=follow)
                    shown += 1
                    if shown == count:
                        return

    run_client(url, token, work)


async def _backlog(client: Client, admin_url: str, topic: str, subscription: str) -> AsyncIterator[MessageLine]:
    """Of one subscription. Raises UnavailableError with what the admin REST says."""
    import geminga.admin
    from geminga.app.handles.messages import unacknowledged_lines
    from geminga.model.errors import UnavailableError

    headers, context = said_security().http(admin_url)
    try:
        async with geminga.admin.connect(admin_url, headers=lambda: headers, tls=context) as admin:
            async for line in unacknowledged_lines(client, admin.subscriptions, topic, subscription):
                yield line
    except geminga.admin.AdminError as error:
        raise UnavailableError(str(error)) from error


@commands.command("export")
def export_(
    topic: Topic,
    file: File,
    resume: Resume = False,
    key: Key = None,
    properties: Properties = None,
    tests: Tests = None,
    since: Since = "",
    until: Until = "",
    url: Url = DEFAULT_URL,
    token: Token = "",
    json_line: Json = False,
) -> None:
    """Write what is in a topic now to a new file."""
    wanted = filter_of(key, properties, tests, since, until)

    async def work(client: Client) -> Transfer:
        from geminga.app.handles.messages import export_messages

        return await export_messages(client, topic, file, wanted=wanted, is_resumed=resume)

    _tell(run_client(url, token, work), f"exported to {file}", json_line)


@commands.command("import")
def import_(
    topic: Topic,
    file: File,
    resume: Resume = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    json_line: Json = False,
) -> None:
    """Publish what a file has."""

    async def work(client: Client) -> Transfer:
        from geminga.app.handles.imports import import_messages

        return await import_messages(client, topic, file, is_resumed=resume)

    _tell(run_client(url, token, work), f"imported from {file}", json_line)


def filter_of(key: str | None, properties: list[str] | None, tests: list[str] | None, since: str, until: str) -> Filter:
    """What the options say. Raises ConfigurationError."""
    from geminga.app.commands.client_commands import key_values
    from geminga.app.handles.core.filters import Filter, json_test

    return Filter(
        key,
        key_values(properties or ()),
        [json_test(text) for text in tests or ()],
        _time_ms("--since", since),
        _time_ms("--until", until),
    )


def _time_ms(option: str, text: str) -> int:
    from datetime import UTC

    from geminga.model.iso_time import parse_moment

    if not text:
        return 0
    try:
        moment = parse_moment(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text}: expected a time such as 2026-11-28T03:00:00") from error
    return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _text(line: MessageLine) -> str:
    parts = [line.id]
    if line.key is not None:
        parts.append(f"key={line.key if isinstance(line.key, str) else line.key.hex()}")
    parts += [f"{name}={value}" for name, value in sorted(line.properties.items())]
    data = "(null)" if line.payload is None else line.payload.decode("utf-8", "backslashreplace")
    return f"[{' '.join(parts)}] {data}"


def _tell(done: Transfer | None, what: str, is_json: bool) -> None:
    import json

    if done is None:
        from geminga.app.commands.cli import fail

        fail("interrupted; --resume goes on")
    if is_json:
        print(json.dumps({"messages": done.messages, "resumed": done.resumed}))
    else:
        print(f"{done.messages} message{'' if done.messages == 1 else 's'} {what}")
