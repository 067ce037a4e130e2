"""Options of servers' commands: configuration keys, the ready line, and how they log (docs/formats/log.md)."""

from __future__ import annotations

from typing import Annotated

import typer

from geminga.app.configuration.core.log_options import FILE_BYTES, FILES

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a configuration key; may be repeated, wins over files."),
]
ReadyAsJson = Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option("--log-format", help="text or json: one object a line, of everything.")]
LogFile = Annotated[str, typer.Option("--log-file", metavar="FILE", help="Log there, not to standard error.")]
LogFileBytes = Annotated[
    int, typer.Option("--log-file-bytes", help=f"Then the next file is begun ({FILE_BYTES}).", show_default=False)
]
LogFiles = Annotated[int, typer.Option("--log-files", help=f"Kept beside it ({FILES}).", show_default=False)]
