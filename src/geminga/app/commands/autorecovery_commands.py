"""``geminga autorecovery``: auditor and replication worker as a process, and what an operator asks of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from geminga.app.commands.server_options import BookKeeperFiles, MetadataUri, Settings, settings_of, with_log_options
from geminga.app.configuration.core.log_options import JSON, LogOptions

if TYPE_CHECKING:
    from geminga.app.servers.autorecovery_process import AutoRecoveryProcessConfig

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@commands.callback()
@with_log_options
def autorecovery(
    log: LogOptions,
    context: typer.Context,
    metadata: MetadataUri = None,
    config: BookKeeperFiles = None,
    assignments: Settings = None,
    is_json: AsJson = False,
) -> None:
    """Run auto-recovery for the bookies of a cluster, until SIGTERM or SIGINT."""
    if context.invoked_subcommand is not None:
        return
    from geminga.app.lifecycle.log_lines import begin_log
    from geminga.app.servers.autorecovery_process import run_autorecovery

    loaded = _loaded(metadata, config, assignments)
    begin_log(log)
    run_autorecovery(loaded, json_line=is_json or log.form == JSON)


@commands.command()
def decommission(
    bookie_id: Annotated[str, typer.Argument(help="Id of the bookie, which must be stopped.")],
    metadata: MetadataUri = None,
    config: BookKeeperFiles = None,
    assignments: Settings = None,
    is_json: AsJson = False,
) -> None:
    """Have everything of a stopped bookie copied to others; ends when no ledger names it any more."""
    from geminga.app.commands.documents import render
    from geminga.app.servers.autorecovery_process import decommission_in_cluster

    moved = decommission_in_cluster(_loaded(metadata, config, assignments), bookie_id)
    print(render({"bookieId": bookie_id, "ledgersMoved": moved}, is_json=is_json))


def _loaded(metadata: str | None, config: list[str] | None, assignments: list[str] | None) -> AutoRecoveryProcessConfig:
    from geminga.app.servers.autorecovery_process import load_autorecovery_config

    settings = settings_of(assignments, {"metadataServiceUri": metadata})
    return load_autorecovery_config(config or (), os.environ, settings)
