"""``geminga bookie``: a bookie as a process of its own."""

from __future__ import annotations

import gc
import os
from typing import Annotated, Final

import typer

#: Where a bookie keeps everything unless told.
DATA_DIRECTORY: Final = "geminga-bookie"

commands = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


@commands.callback()
def bookie(
    context: typer.Context,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DIR", help=f"Directory of journal/ and ledgers/ (./{DATA_DIRECTORY})."),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="bookiePort (3181); 0: a free one.")] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="HOST", help="bindAddress (127.0.0.1); 0.0.0.0: everywhere.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="BookKeeper's .conf or a .toml file; may be repeated."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated, wins over files."),
    ] = None,
    json_line: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a bookie in this process, until SIGTERM or SIGINT; or look into one that is stopped."""
    if context.invoked_subcommand is not None:
        return
    # What is imported stays as long as the process does: no collection need look at it, now or later.
    gc.disable()
    from geminga.app.bookie_config import load_bookie_config
    from geminga.app.bookie_process import run_bookie
    from geminga.app.process_life import configure_logging

    gc.freeze()
    gc.enable()
    configure_logging(log_level)
    overrides = list(assignments or ())
    if port is not None:
        overrides.append(f"bookiePort={port}")
    if address is not None:
        overrides.append(f"bindAddress={address}")
    loaded = load_bookie_config(config or (), os.environ, overrides)
    run_bookie(loaded, os.path.abspath(data or DATA_DIRECTORY), json_line=json_line)
