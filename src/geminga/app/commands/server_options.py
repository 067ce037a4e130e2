"""Options that several commands have: of servers configuration keys, the ready line, and how they log
(docs/formats/log.md).
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from geminga.app.configuration.core.log_options import FILE_BYTES, FILES, LogOptions

P = ParamSpec("P")
T = TypeVar("T")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated, wins over files."),
]
ReadyAsJson = Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")]
BrokerPort = Annotated[
    int | None, typer.Option("--broker-port", help="Port of the binary protocol (6650); 0: a free one.")
]
WebPort = Annotated[
    int | None, typer.Option("--web-port", help="Port of the admin REST and metrics (8080); 0: a free one.")
]


def files_option(whose: str) -> Any:  # noqa: ANN401  (an option, as typer has it)
    """``--config``; ``whose``: the files that are meant."""
    return typer.Option("--config", metavar="FILE", help=f"{whose} or a .toml file; may be repeated.")


BookKeeperFiles = Annotated[list[str] | None, files_option("BookKeeper's .conf")]
MetadataUri = Annotated[
    str | None, typer.Option("--metadata", metavar="URI", help="metadataServiceUri, such as zk:host:2181/chroot.")
]


def with_options(
    options: Callable[..., T],
) -> Callable[[Callable[Concatenate[T, P], None]], Callable[P, None]]:
    """Of a command: it has those ``options`` behind its own, and is called with what is made of them, first of all."""
    behind = inspect.signature(options, eval_str=True).parameters

    def decorated(command: Callable[Concatenate[T, P], None]) -> Callable[P, None]:
        own = inspect.signature(command, eval_str=True)
        _, *before = own.parameters.values()

        @wraps(command)
        def with_more(*arguments: P.args, **given: P.kwargs) -> None:
            said: dict[str, Any] = {name: given.pop(name) for name in behind}
            command(options(**said), *arguments, **given)

        # What typer reads.
        with_more.__dict__["__signature__"] = own.replace(parameters=[*before, *behind.values()])
        return with_more

    return decorated


@contextmanager
def kept_imports() -> Iterator[None]:
    """What is imported inside stays as long as the process does: no collection need look at it, now or later."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def settings_of(assignments: Iterable[str] | None, options: Mapping[str, object]) -> list[str]:
    """``KEY=VALUE`` of ``--set``, and behind them, as they win, of ``options`` that are given: by their keys."""
    return [*(assignments or ()), *(f"{key}={value}" for key, value in options.items() if value is not None)]


def _log_options(
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    log_format: Annotated[
        str, typer.Option("--log-format", help="text or json: one object a line, of everything.")
    ] = "text",
    log_file: Annotated[str, typer.Option("--log-file", metavar="FILE", help="Log there, not to standard error.")] = "",
    log_file_bytes: Annotated[
        int, typer.Option("--log-file-bytes", help=f"Then the next file is begun ({FILE_BYTES}).", show_default=False)
    ] = FILE_BYTES,
    log_files: Annotated[
        int, typer.Option("--log-files", help=f"Kept beside it ({FILES}).", show_default=False)
    ] = FILES,
) -> LogOptions:
    return LogOptions(log_level, log_format, log_file, log_file_bytes, log_files)


#: A server's command is given how its process logs.
with_log_options = with_options(_log_options)
