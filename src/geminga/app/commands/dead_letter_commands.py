"""``geminga dead-letters list | redrive``: what consumers gave up, and sending it back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from geminga.app.commands.client_security import add_security
from geminga.app.commands.client_session import DEFAULT_URL, Json, Token, Url, run_client
from geminga.app.lifecycle.terminal_text import shown_on

if TYPE_CHECKING:
    from geminga.app.handles.redrive import Redriven
    from geminga.client import Client

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Dead letters: look, and send them back.")
add_security(commands)

Letters = Annotated[str, typer.Argument(help="The dead-letter topic: orders-billing-DLQ.")]


@commands.command("list")
def list_(letters: Letters, url: Url = DEFAULT_URL, token: Token = "", json_line: Json = False) -> None:
    """Show what is in a dead-letter topic, and where each came from."""

    async def work(client: Client) -> None:
        from geminga.app.handles.core.message_lines import message_line
        from geminga.app.handles.messages import read_lines
        from geminga.client.consumer_rules import dead_letter_names as names

        for partition in await client.get_topic_partitions(letters):
            async for line in read_lines(client, partition, command="dead-letters list"):
                if json_line:
                    print(shown_on(sys.stdout, message_line(line)))
                    continue
                told = line.properties
                data = "(null)" if line.payload is None else line.payload.decode("utf-8", "backslashreplace")
                whose = f"{told.get(names.REAL_TOPIC, '-')} {told.get(names.REAL_SUBSCRIPTION, '-')}"
                text = f"[{line.id} of {whose} {told.get(names.ORIGIN_MESSAGE_ID, '-')}] {data}"
                print(shown_on(sys.stdout, text))

    run_client(url, token, work)


@commands.command()
def redrive(
    letters: Letters,
    allow: Annotated[
        str, typer.Option("--allow", metavar="PREFIX", help="Topics they may go to; else those of the namespace.")
    ] = "",
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="Without transactions: some may be sent back twice.")
    ] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0.1, max=86_400, help="Seconds without a letter until it ends.")
    ] = 12.0,
    url: Url = DEFAULT_URL,
    token: Token = "",
    json_line: Json = False,
) -> None:
    """Send letters back to the topics that they came from: each once, in transactions."""
    import json

    is_agreed = True

    async def work(client: Client) -> Redriven | None:
        nonlocal is_agreed
        from geminga.app.handles.redrive import has_transactions
        from geminga.app.handles.redrive import redrive as send_back

        is_exact = not at_least_once and await has_transactions(client)
        if not is_exact and not at_least_once and not (sys.stdin.isatty() and typer.confirm(_ASKED)):
            is_agreed = False
            return None
        return await send_back(client, letters, allowed=allow, is_exact=is_exact, quiet_ms=int(wait * 1000))

    done = run_client(url, token, work)
    if done is None and is_agreed:
        from geminga.app.commands.cli import fail

        fail("interrupted: some letters may have been sent back; the same command goes on with the others")
    if done is None:
        print("nothing was sent back: without transactions say --at-least-once", file=sys.stderr)
        raise typer.Exit(2)
    if json_line:
        print(json.dumps(done._asdict()))
    else:
        from geminga.app.handles.core.letters import encrypted_told, held_told

        refused = f", {done.refused} to {letters}-refused" if done.refused else ""
        print(f"{done.sent} sent back{refused}{encrypted_told(done.encrypted)}{held_told(done.held, done.why)}")
    if done.held:
        raise typer.Exit(1)


_ASKED = "The cluster has no transactions: if this is interrupted, some may be sent back twice. Go on?"
