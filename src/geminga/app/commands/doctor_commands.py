"""``geminga doctor`` and ``geminga backlog``: why nothing moves, and who holds what, over a broker's admin REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl, AsJson, Topic
from geminga.app.commands.client_security import said_security

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from geminga.admin import AdminClient

    R = TypeVar("R")


def run_admin(admin_url: str, work: Callable[[AdminClient], Awaitable[R]]) -> R:
    """Carry out ``work`` with a client of the admin REST; what a broker refuses is one paragraph."""
    import asyncio

    import geminga.admin
    from geminga.app.commands.cli import fail

    headers, context = said_security().http(admin_url)

    async def connected() -> R:
        async with geminga.admin.connect(admin_url, headers=lambda: headers, tls=context) as admin:
            return await work(admin)

    try:
        return asyncio.run(connected())
    except (geminga.admin.AdminError, ValueError) as error:
        fail(str(error))


def doctor(
    topic: Topic,
    subscription: Annotated[str, typer.Argument(help="Only this subscription, and the topic itself.")] = "",
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    is_json: AsJson = False,
) -> None:
    """Say in sentences why nothing moves in a topic, and what would mend it. Ends with 1 where something is found."""
    import json
    import time

    from geminga.app.handles.doctor import examine

    found = run_admin(admin_url, lambda admin: examine(admin, topic, subscription, now_ms=time.time_ns() // 1_000_000))
    if is_json:
        print(json.dumps({name: [each._asdict() for each in findings] for name, findings in found.items()}, indent=2))
    else:
        for name, findings in found.items():
            print(f"{name}: {'nothing stands in the way' if not findings else ''}".rstrip())
            for each in findings:
                print(f"  {each.cause} ({each.severity}): {each.sentence}\n    {each.mends}")
    if any(found.values()):
        raise typer.Exit(1)
