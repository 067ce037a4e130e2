"""``geminga bookie``: a bookie as a process of its own; and what looks into one that is stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from geminga.app.commands.server_options import (
    BookKeeperFiles,
    MetadataUri,
    ReadyAsJson,
    Settings,
    kept_imports,
    settings_of,
    with_log_options,
)
from geminga.app.configuration.core.log_options import JSON, LogOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from geminga.app.configuration.bookie_config import BookieProcessConfig
    from geminga.app.storage.stopped_bookie import StoppedBookie

#: Where a bookie keeps everything unless told.
DATA_DIRECTORY: Final = "geminga-bookie"
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help=f"Directory of journal/ and ledgers/ (./{DATA_DIRECTORY}).")
]

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@commands.callback()
@with_log_options
def bookie(
    log: LogOptions,
    context: typer.Context,
    data: Data = None,
    port: Annotated[int | None, typer.Option("--port", help="bookiePort (3181); 0: a free one.")] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="HOST", help="bindAddress (127.0.0.1); 0.0.0.0: everywhere.")
    ] = None,
    metadata: MetadataUri = None,
    config: BookKeeperFiles = None,
    assignments: Settings = None,
    json_line: ReadyAsJson = False,
) -> None:
    """Run a bookie in this process, until SIGTERM or SIGINT; or look into one that is stopped."""
    if context.invoked_subcommand is not None:
        return
    with kept_imports():
        from geminga.app.configuration.bookie_config import load_bookie_config
        from geminga.app.lifecycle.log_lines import begin_log
        from geminga.app.servers.bookie_process import run_bookie
    begin_log(log)
    given = {"bookiePort": port, "bindAddress": address, "metadataServiceUri": metadata}
    loaded = load_bookie_config(config or (), os.environ, settings_of(assignments, given))
    run_bookie(loaded, os.path.abspath(data or DATA_DIRECTORY), json_line=json_line or log.form == JSON)


Files = Annotated[
    list[str] | None, typer.Option("--config", metavar="FILE", help="Where its directories are configured.")
]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.command("format")
def format_directories(
    data: Data = None,
    config: Files = None,
    assignments: Assignments = None,
    force: Annotated[bool, typer.Option("--force", help="Remove what is stored.")] = False,
    delete_cookie: Annotated[
        bool, typer.Option("--delete-cookie", help="Remove the cookie in the metadata store, too.")
    ] = False,
    even_if_named: Annotated[
        bool, typer.Option("--even-if-named", help="Remove the cookie though ledgers name the bookie.")
    ] = False,
    is_json: AsJson = False,
) -> None:
    """Remove everything that a stopped bookie stored. What has no other copy is lost."""
    from geminga.app.commands.documents import render
    from geminga.model.errors import DataDirectoryError

    with _stopped(data, config, assignments) as stopped:
        files = stopped.own_files()
        if files and not force:
            raise DataDirectoryError(
                f"{stopped.places}: {len(files)} files of a bookie are there; "
                "what has no copy elsewhere would be lost. Add --force to remove them"
            )
        done: dict[str, object] = {}
        if delete_cookie:
            from geminga.app.configuration.bookie_config import load_bookie_config
            from geminga.app.storage.bookie_cookie_removal import remove_cookie

            # Before the files, which tell whose it is.
            loaded = load_bookie_config(config or (), os.environ, assignments or ())
            done["removedCookie"] = remove_cookie(loaded, stopped.cookie(), even_if_named=even_if_named)
        done["removedFiles"] = stopped.format()
        print(render(done, is_json=is_json))


@commands.command("initnewcluster")
def init_new_cluster(
    metadata: MetadataUri = None, config: Files = None, assignments: Assignments = None, is_json: AsJson = False
) -> None:
    """Write what a cluster's bookies look for in a ZooKeeper that has nothing of it. The first bookie does it, too."""
    from geminga.app.commands.documents import render
    from geminga.app.storage.bookie_cluster import init_cluster

    print(render(init_cluster(_of_cluster(metadata, config, assignments)), is_json=is_json))


@commands.command("metaformat")
def format_metadata(
    metadata: MetadataUri = None,
    config: Files = None,
    assignments: Assignments = None,
    force: Annotated[bool, typer.Option("--force", help="Remove what is there.")] = False,
    is_json: AsJson = False,
) -> None:
    """Remove all ledgers and cookies of a cluster whose bookies are stopped. What the ledgers hold is lost."""
    from geminga.app.commands.documents import render
    from geminga.app.storage.bookie_cluster import format_metadata as format_now

    print(render(format_now(_of_cluster(metadata, config, assignments), force=force), is_json=is_json))


@commands.command()
def sanity(data: Data = None, config: Files = None, assignments: Assignments = None, is_json: AsJson = False) -> None:
    """Check every file of a stopped bookie from end to end; exit code 1 if something is wrong."""
    from geminga.app.commands.documents import render

    with _stopped(data, config, assignments) as stopped:
        found = stopped.sanity()
    print(render(found, is_json=is_json))
    if not found["isSane"]:
        raise typer.Exit(1)


@commands.command("list-ledgers")
def list_ledgers(
    data: Data = None, config: Files = None, assignments: Assignments = None, is_json: AsJson = False
) -> None:
    """List the ledgers of which a stopped bookie stores something."""
    from geminga.app.commands.documents import render

    with _stopped(data, config, assignments) as stopped:
        found = [
            {
                "ledgerId": ledger_id,
                "entries": len(ledger.entry_ids),
                "firstEntryId": min(ledger.entry_ids, default=-1),
                "lastEntryId": max(ledger.entry_ids, default=-1),
                "bytes": ledger.size_bytes,
                "isFenced": ledger.is_fenced,
            }
            for ledger_id, ledger in stopped.ledgers().items()
        ]
    print(render(found, is_json=is_json))


@commands.command("read-ledger")
def read_ledger(
    ledger_id: Annotated[int, typer.Argument(help="The ledger's id.")],
    data: Data = None,
    config: Files = None,
    assignments: Assignments = None,
    first: Annotated[int, typer.Option("--first", help="First entry id.")] = 0,
    last: Annotated[int, typer.Option("--last", help="Last entry id; -1: to the end.")] = -1,
    with_data: Annotated[bool, typer.Option("--bytes", help="Print each entry's bytes, in hex.")] = False,
    is_json: AsJson = False,
) -> None:
    """Show the entries of a ledger that a stopped bookie stores: ids, last add confirmed, sizes, files."""
    from geminga.app.commands.documents import rows
    from geminga.model.errors import DataDirectoryError

    with _stopped(data, config, assignments) as stopped:
        entries = stopped.entries(ledger_id)
        if not entries:
            raise DataDirectoryError(f"no entry of ledger {ledger_id} is in {stopped.places}")
        shown = {each: entry for each, entry in entries.items() if each >= first and (last < 0 or each <= last)}
        contents = stopped.contents(ledger_id, shown) if with_data else None

        def documents() -> Iterator[dict[str, object]]:
            for entry_id, entry in shown.items():
                one: dict[str, object] = {
                    "entryId": entry_id,
                    "lastAddConfirmed": entry.last_add_confirmed,
                    "bytes": entry.size_bytes,
                    "file": entry.file,
                }
                if contents is not None:
                    one["data"] = next(contents).hex()
                yield one

        for text in rows(documents(), is_json=is_json):
            print(text)


def _of_cluster(metadata: str | None, files: list[str] | None, given: list[str] | None) -> BookieProcessConfig:
    from geminga.app.configuration.bookie_config import load_bookie_config

    return load_bookie_config(files or (), os.environ, settings_of(given, {"metadataServiceUri": metadata}))


def _stopped(data: str | None, files: list[str] | None, assignments: list[str] | None) -> StoppedBookie:
    from geminga.app.configuration.bookie_config import load_bookie_config
    from geminga.app.storage.stopped_bookie import StoppedBookie

    loaded = load_bookie_config(files or (), os.environ, assignments or ())
    return StoppedBookie(loaded.directories(os.path.abspath(data or DATA_DIRECTORY)))
