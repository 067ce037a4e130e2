"""The ``geminga`` command. Imports are lazy: what a subcommand does not use it does not load.

Exit codes: 0 after a clean stop, 1 for an error (one readable paragraph on standard error, no traceback),
2 for bad arguments. A fatal error (failed fsync, corrupt state) ends the process at once with 1, so that nothing
is acknowledged after it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Annotated, Any, Final, NoReturn

import typer

from geminga.app.commands.server_options import (
    BrokerPort,
    ReadyAsJson,
    Settings,
    WebPort,
    files_option,
    kept_imports,
    settings_of,
    with_log_options,
)
from geminga.app.configuration.core.log_options import JSON, LogOptions
from geminga.app.lifecycle.paragraphs import give_up_output, no_text, print_paragraph
from geminga.version import version_line

#: Where a standalone keeps everything unless told.
DATA_DIRECTORY: Final = "geminga-data"
#: Groups of commands by the module that has them, each as ``commands``; one that is not asked for is not loaded.
_GROUPS: Final = {
    "autorecovery": "autorecovery_commands",
    "backup": "backup_commands",
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
#: Commands of :mod:`geminga.app.administration`, which has its own words: ``geminga`` asks it without this module.
_ADMINISTRATION: Final = {
    "admin": "Ask a running broker: the commands of pulsar-admin.",
    "pulsar-admin": "The same, printed as pulsar-admin does.",
    "context": "Where commands ask, and as whom.",
    "completion": "Completion for bash, zsh and fish.",
}
#: Commands that are no group, by the module that has each under its own name.
_SINGLE: Final = {"backlog": "commands.doctor_commands", "doctor": "commands.doctor_commands", "proxy": "proxy.command"}
_INITIALIZE: Final = "initialize-cluster-metadata"

_app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def known_words() -> list[str]:
    """What may follow ``geminga``."""
    return [*_GROUPS, *_OWN, *_ADMINISTRATION]


def app_for(words: Sequence[str]) -> typer.Typer:
    """The command line with what ``words`` ask for: one group or command, or all where they name none."""
    first = next((word for word in words if not word.startswith("-")), "")
    has_one = first in _GROUPS or first in _OWN or first in _ADMINISTRATION
    app = copy(_app)
    app.registered_groups, app.registered_commands = [], list(_app.registered_commands)

    def is_asked_for(name: str) -> bool:
        return name == first or not has_one

    for name, module in _GROUPS.items():
        if is_asked_for(name):
            app.add_typer(import_module(f"geminga.app.commands.{module}").commands, name=name)
    for name, text in _ADMINISTRATION.items():
        if is_asked_for(name):
            options = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(name, help=text, context_settings=options, add_help_option=False)(_administer)
    for name, module in _SINGLE.items():
        if is_asked_for(name):
            app.command(name)(getattr(import_module(f"geminga.app.{module}"), name))
    if is_asked_for(_INITIALIZE):
        from geminga.app.commands.cluster_commands import initialize_cluster_metadata

        app.command(_INITIALIZE)(initialize_cluster_metadata)
    return app


def help_of(app: typer.Typer, words: Sequence[str]) -> str:
    """What ``--help`` behind words that name a group or command prints; empty: it is something else that is asked.

    Typer says the same, but loads pydantic first, to see which value the option has: more than half of the time.
    """
    *names, last = words or ("",)
    if last != "--help" or (names and names[0] in _ADMINISTRATION):
        return ""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="geminga", **command.context_settings)
    for name in names:
        command = getattr(command, "commands", {}).get(name)
        if command is None:
            return ""
        context = command.context_class(command, info_name=name, parent=context, **command.context_settings)
    return str(command.get_help(context))


def _administer(context: typer.Context) -> None:
    import_module("geminga.app.administration.main").main([context.info_name, *context.args])


def main() -> NoReturn:
    """The command; raises ImportError where a package is missing, which :mod:`geminga.__main__` tells."""
    from geminga.model.errors import GemingaError

    words = sys.argv[1:]
    try:
        app = app_for(words)
        text = help_of(app, words)
        try:
            if text:
                print(text)
            else:
                app(prog_name="geminga")
        finally:
            # Here it can be told what becomes of it; at the end of the process it is a traceback.
            sys.stdout.flush()
    except UnicodeEncodeError as error:
        fail(no_text(error))
    except GemingaError as error:
        fail(str(error))
    except OSError as error:
        if error.filename is not None:
            fail(f"{error.filename}: {error.strerror}")
        give_up_output()
        if isinstance(error, BrokenPipeError):
            # Who reads has seen enough.
            raise SystemExit(1) from None
        fail(str(error))
    raise SystemExit(0)


def fail(sentence: str) -> NoReturn:
    """Print one paragraph on standard error and exit with 1."""
    print_paragraph(sentence)
    raise SystemExit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_line())
        raise typer.Exit


@_app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Geminga: an Apache-Pulsar-compatible messaging system in Python."""


@_app.command()
@with_log_options
def standalone(
    log: LogOptions,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help=f"Directory that keeps everything (./{DATA_DIRECTORY}); made if new."
        ),
    ] = None,
    broker_port: BrokerPort = None,
    web_port: WebPort = None,
    bookies: Annotated[
        int | None,
        typer.Option("--bookies", help="Bookies in this process (1), each with its own directory below --data."),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", metavar="N", help="Broker processes beside this one, which keeps the storage."),
    ] = None,
    config: Annotated[list[str] | None, files_option("Pulsar's .conf")] = None,
    assignments: Settings = None,
    json_line: ReadyAsJson = False,
    announce: Annotated[
        str, typer.Option("--announce", metavar="TEXT", help="A line to print when it is ready, for what waits for it.")
    ] = "",
) -> None:
    """Run a broker with its storage and metadata in this process, until SIGTERM or SIGINT."""
    with kept_imports():
        from geminga.app.configuration.config import config_from
        from geminga.app.configuration.config_sources import collect_entries
        from geminga.app.lifecycle.log_lines import begin_log
        from geminga.app.servers.process import run_standalone
    begin_log(log)
    given = {
        "brokerServicePort": broker_port,
        "webServicePort": web_port,
        "gemingaBookies": bookies,
        "gemingaBrokers": brokers,
    }
    entries = collect_entries(config or (), os.environ, settings_of(assignments, given))
    loaded = config_from(entries)
    directory = os.path.abspath(DATA_DIRECTORY if data is None else data)
    if data is None:
        print_paragraph(f"no --data: everything is kept in {directory}")
    if loaded.server.brokers:
        from geminga.app.servers.shared_storage import run_shared

        run_shared(loaded, entries, directory, json_line=json_line or log.form == JSON, log=log, announce=announce)
    else:
        run_standalone(loaded, directory, json_line=json_line or log.form == JSON, announce=announce)


@_app.command()
@with_log_options
def broker(
    log: LogOptions,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="zk:HOST:PORT", help="metadataStoreUrl: the cluster's ZooKeeper."),
    ] = None,
    broker_port: BrokerPort = None,
    web_port: WebPort = None,
    config: Annotated[list[str] | None, files_option("Pulsar's broker.conf")] = None,
    assignments: Settings = None,
    json_line: ReadyAsJson = False,
) -> None:
    """Run a broker on the bookies and the ZooKeeper of a cluster, until SIGTERM or SIGINT."""
    with kept_imports():
        from geminga.app.configuration.cluster_config import load_broker_config
        from geminga.app.lifecycle.log_lines import begin_log
        from geminga.app.servers.cluster_broker import run_broker
    begin_log(log)
    given = {"metadataStoreUrl": metadata, "brokerServicePort": broker_port, "webServicePort": web_port}
    loaded = load_broker_config(config or (), os.environ, settings_of(assignments, given))
    run_broker(loaded, json_line=json_line or log.form == JSON)


#: Commands that are here, and the one that is no group.
_OWN: Final = frozenset(["broker", "standalone", _INITIALIZE, *_SINGLE])


if __name__ == "__main__":
    main()
