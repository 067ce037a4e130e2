"""What the client commands share: where the cluster is, a loop to run on, and a clean end at an interruption."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from geminga.app.commands.client_security import said_security

if TYPE_CHECKING:
    from geminga.client import Client

R = TypeVar("R")

DEFAULT_URL: Final = "pulsar://localhost:6650"
#: Somebody waits at the keyboard: a cluster that does not answer is told sooner than a program would be.
OPERATION_TIMEOUT_MS: Final = 10_000

Url = Annotated[
    str, typer.Option("--url", envvar="GEMINGA_SERVICE_URL", metavar="URL", help="pulsar://host:port[,host:port...].")
]
Token = Annotated[
    str, typer.Option("--token", envvar="GEMINGA_TOKEN", metavar="TOKEN", help="Authenticate with this JSON Web Token.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]


def run_client(url: str, token: str, work: Callable[[Client], Coroutine[object, object, R]]) -> R | None:
    """Connect, carry out ``work``, close. None if it was interrupted (Ctrl-C), which is a clean end."""
    # Not at the top: the server's command and --version register these commands without using them.
    import asyncio

    from geminga.app.lifecycle.event_loop import loop_factory

    arguments = said_security().client_arguments(token)
    arguments["operation_timeout_ms"] = OPERATION_TIMEOUT_MS
    arguments["description"] = "geminga command line"

    async def connected() -> R:
        from geminga.client import connect

        async with connect(
            url,
            **arguments,
        ) as client:
            return await work(client)

    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory("auto")) as runner:
        return runner.run(connected())
    return None
