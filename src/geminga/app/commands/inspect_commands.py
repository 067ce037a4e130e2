"""``geminga inspect cursor | ledger | journal``: what a stopped data directory holds. Nothing in it is changed."""

from __future__ import annotations

from typing import Annotated

import typer

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look into the data directory of a stopped standalone."
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="The data directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command()
def cursor(
    directory: Directory,
    topic: Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")],
    subscription: Annotated[str | None, typer.Argument(help="One of its subscriptions; all if left out.")] = None,
    is_json: AsJson = False,
) -> None:
    """Show a topic's cursors as a broker that starts would find them: mark-delete, holes, segments, last marker."""
    from geminga.app.commands.documents import render
    from geminga.app.storage import inspection
    from geminga.app.storage.stopped_directory import StoppedDirectory

    with StoppedDirectory(directory) as stopped:
        print(render(inspection.cursors(stopped, topic, subscription), is_json=is_json))


@commands.command()
def ledger(
    directory: Directory,
    ledger_id: Annotated[int, typer.Argument(help="The ledger's id.")],
    is_json: AsJson = False,
) -> None:
    """Show a ledger's metadata, which of its entries are stored and where, and whether their digests are right."""
    from geminga.app.commands.documents import render
    from geminga.app.storage import inspection
    from geminga.app.storage.stopped_directory import StoppedDirectory

    with StoppedDirectory(directory) as stopped:
        print(render(inspection.ledger(stopped, ledger_id), is_json=is_json))


@commands.command()
def journal(
    directory: Directory,
    records: Annotated[bool, typer.Option("--records", help="One line for each record, oldest first.")] = False,
    is_json: AsJson = False,
) -> None:
    """Show the journal's files: groups, records, where each ends, torn tails and damage."""
    from geminga.app.commands.documents import render
    from geminga.app.storage import inspection
    from geminga.app.storage.stopped_directory import StoppedDirectory

    with StoppedDirectory(directory) as stopped:
        found = inspection.journal_records(stopped) if records else inspection.journal(stopped)
        print(render(found, is_json=is_json))
