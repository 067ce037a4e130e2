"""The ``geminga`` command. Imports are lazy: what a subcommand does not use it does not load.

Exit codes: 0 after a clean stop, 1 for an error (one readable paragraph on standard error, no traceback),
2 for bad arguments. A fatal error (failed fsync, corrupt state) ends the process at once with 1, so that nothing
is acknowledged after it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final, NoReturn

import typer

from geminga.app.lifecycle.paragraphs import print_paragraph
from geminga.version import __version__

#: Where a standalone keeps everything unless told.
DATA_DIRECTORY: Final = "geminga-data"
#: Groups of commands by the module that has them, each as ``commands``; one that is not asked for is not loaded.
_GROUPS: Final = {
    "admin": "admin_commands",
    "autorecovery": "autorecovery_commands",
    "bookie": "bookie_commands",
    "client": "client_commands",
    "cluster": "local_cluster_commands",
    "dead-letters": "dead_letter_commands",
    "inspect": "inspect_commands",
    "lake": "lake_commands",
    "loadbalance": "load_commands",
    "messages": "message_commands",
    "metadata": "metadata_commands",
    "perf": "perf_commands",
    "pipeline": "pipeline_commands",
    "tokens": "tokens_commands",
}
#: Commands that are no group, by the module that has each under its own name.
_SINGLE: Final = {"backlog": "doctor_commands", "doctor": "doctor_commands"}
_INITIALIZE: Final = "initialize-cluster-metadata"

_app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def app_for(words: Sequence[str]) -> typer.Typer:
    """The command line with what ``words`` ask for: one group or command, or all where they name none."""
    first = next((word for word in words if not word.startswith("-")), "")
    has_one = first in _GROUPS or first in _OWN
    known = {group.name for group in _app.registered_groups}
    for name, module in _GROUPS.items():
        if name not in known and (name == first or not has_one):
            commands = import_module(f"geminga.app.commands.{module}").commands
            if name == "admin":  # a family of its own, which uses what the others have
                commands.add_typer(
                    import_module("geminga.app.commands.transaction_commands").commands, name="transactions"
                )
            _app.add_typer(commands, name=name)
    for name, module in _SINGLE.items():
        if (first == name or not has_one) and not any(one.name == name for one in _app.registered_commands):
            _app.command(name)(getattr(import_module(f"geminga.app.commands.{module}"), name))
    if (first == _INITIALIZE or not has_one) and not any(one.name == _INITIALIZE for one in _app.registered_commands):
        from geminga.app.commands.cluster_commands import initialize_cluster_metadata

        _app.command(_INITIALIZE)(initialize_cluster_metadata)
    return _app


def main() -> NoReturn:
    """The command; raises ImportError where a package is missing, which :mod:`geminga.__main__` tells."""
    from geminga.model.errors import GemingaError

    try:
        app_for(sys.argv[1:])(prog_name="geminga")
    except (GemingaError, OSError) as error:
        fail(str(error))
    raise SystemExit(0)


def fail(sentence: str) -> NoReturn:
    """Print one paragraph on standard error and exit with 1."""
    print_paragraph(sentence)
    raise SystemExit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"geminga {__version__}")
        raise typer.Exit


@_app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Geminga: an Apache-Pulsar-compatible messaging system in Python."""


@_app.command()
def standalone(
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help=f"Directory that keeps everything (./{DATA_DIRECTORY}); made if new."
        ),
    ] = None,
    broker_port: Annotated[
        int | None, typer.Option("--broker-port", help="Port of the binary protocol (6650); 0: a free one.")
    ] = None,
    web_port: Annotated[
        int | None, typer.Option("--web-port", help="Port of the admin REST and metrics (8080); 0: a free one.")
    ] = None,
    bookies: Annotated[
        int | None,
        typer.Option("--bookies", help="Bookies in this process (1), each with its own directory below --data."),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", help="Broker processes beside this one, which keeps the storage."),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Pulsar's .conf or a .toml file; may be repeated."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated, wins over files."),
    ] = None,
    json_line: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a broker with its storage and metadata in this process, until SIGTERM or SIGINT."""
    # What is imported stays as long as the process does: no collection need look at it, now or later.
    gc.disable()
    from geminga.app.configuration.config import collect_entries, config_from
    from geminga.app.lifecycle.process_life import configure_logging
    from geminga.app.servers.process import run_standalone

    gc.freeze()
    gc.enable()
    configure_logging(log_level)
    overrides = list(assignments or ())
    if broker_port is not None:
        overrides.append(f"brokerServicePort={broker_port}")
    if web_port is not None:
        overrides.append(f"webServicePort={web_port}")
    if bookies is not None:
        overrides.append(f"gemingaBookies={bookies}")
    if brokers is not None:
        overrides.append(f"gemingaBrokers={brokers}")
    entries = collect_entries(config or (), os.environ, overrides)
    loaded = config_from(entries)
    directory = os.path.abspath(DATA_DIRECTORY if data is None else data)
    if data is None:
        print_paragraph(f"no --data: everything is kept in {directory}")
    if loaded.server.brokers:
        from geminga.app.servers.shared_storage import run_shared

        run_shared(loaded, entries, directory, json_line=json_line, log_level=log_level)
    else:
        run_standalone(loaded, directory, json_line=json_line)


@_app.command()
def broker(
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="zk:HOST:PORT", help="metadataStoreUrl: the cluster's ZooKeeper."),
    ] = None,
    broker_port: Annotated[
        int | None, typer.Option("--broker-port", help="Port of the binary protocol (6650); 0: a free one.")
    ] = None,
    web_port: Annotated[
        int | None, typer.Option("--web-port", help="Port of the admin REST and metrics (8080); 0: a free one.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="Pulsar's broker.conf or a .toml file; may be repeated."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated, wins over files."),
    ] = None,
    json_line: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a broker on the bookies and the ZooKeeper of a cluster, until SIGTERM or SIGINT."""
    gc.disable()
    from geminga.app.configuration.cluster_config import load_broker_config
    from geminga.app.lifecycle.process_life import configure_logging
    from geminga.app.servers.cluster_broker import run_broker

    gc.freeze()
    gc.enable()
    configure_logging(log_level)
    given = {"metadataStoreUrl": metadata, "brokerServicePort": broker_port, "webServicePort": web_port}
    overrides = [*(assignments or ()), *(f"{key}={value}" for key, value in given.items() if value is not None)]
    run_broker(load_broker_config(config or (), os.environ, overrides), json_line=json_line)


#: Commands that are here, and the one that is no group.
_OWN: Final = frozenset(["broker", "standalone", _INITIALIZE, *_SINGLE])


if __name__ == "__main__":
    main()
