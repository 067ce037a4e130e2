"""``geminga doctor`` and ``geminga backlog``: why nothing moves, and who holds what, over a broker's admin REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from geminga.app.commands.admin_commands import DEFAULT_ADMIN_URL, AdminUrl, AsJson
from geminga.app.commands.credentials import ClientSecurity
from geminga.app.lifecycle.terminal_text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from geminga.admin import AdminClient

    R = TypeVar("R")


AuthPlugin = Annotated[
    str,
    typer.Option("--auth-plugin", envvar="GEMINGA_AUTH_PLUGIN", metavar="CLASS", help="token, tls, basic, oauth2."),
]
AuthParams = Annotated[
    str, typer.Option("--auth-params", envvar="GEMINGA_AUTH_PARAMS", metavar="TEXT", help="Its parameters.")
]
Trust = Annotated[
    str,
    typer.Option(
        "--tls-trust-cert-path",
        envvar="GEMINGA_TLS_TRUST_CERT_PATH",
        metavar="FILE",
        help="PEM: whose certificates of brokers to trust.",
    ),
]


def run_admin(admin_url: str, security: ClientSecurity, work: Callable[[AdminClient], Awaitable[R]]) -> R:
    """Carry out ``work`` with a client of the admin REST; what a broker refuses is one paragraph."""
    import asyncio

    import geminga.admin
    from geminga.app.commands.cli import fail
    from geminga.model.errors import GemingaError

    try:
        headers, context = security.http(admin_url)
    except (OSError, ValueError, GemingaError) as error:
        fail(str(error))

    async def connected() -> R:
        async with geminga.admin.connect(admin_url, headers=lambda: headers, tls=context) as admin:
            return await work(admin)

    try:
        return asyncio.run(connected())
    except UnicodeEncodeError:
        raise
    except (geminga.admin.AdminError, ValueError) as error:
        fail(str(error))


def doctor(
    topic: Annotated[str, typer.Argument(help="The topic: orders, or persistent://tenant/namespace/orders.")] = "",
    subscription: Annotated[str, typer.Argument(help="Only this subscription, and the topic itself.")] = "",
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    auth_plugin: AuthPlugin = "",
    auth_params: AuthParams = "",
    trust: Trust = "",
    is_json: AsJson = False,
    configuration: Annotated[
        bool, typer.Option("--configuration", help="Of configuration that a topic keeps alike with other clusters'.")
    ] = False,
) -> None:
    """Say in sentences why nothing moves in a topic, and what would mend it. Ends with 1 where something is found."""
    import json
    import time

    from geminga.app.commands.cli import fail
    from geminga.app.handles.doctor import examine

    if configuration == bool(topic):
        fail("geminga doctor: expected a topic, or --configuration")
    security = ClientSecurity(auth_plugin, auth_params, trust)
    now_ms = time.time_ns() // 1_000_000
    if configuration:
        _show_alike(admin_url, security, now_ms, is_json)
        return
    found = run_admin(admin_url, security, lambda admin: examine(admin, topic, subscription, now_ms=now_ms))
    if is_json:
        print(json.dumps({name: [each._asdict() for each in findings] for name, findings in found.items()}, indent=2))
    else:
        for name, findings in found.items():
            print(visible(f"{name}: {'nothing stands in the way' if not findings else ''}".rstrip(), is_name=True))
            for each in findings:
                print(visible(f"  {each.cause} ({each.severity}): {each.sentence}\n    {each.mends}"))
    if any(found.values()):
        raise typer.Exit(1)


def _show_alike(admin_url: str, security: ClientSecurity, now_ms: int, is_json: bool) -> None:
    import json

    from geminga.app.handles.core.alike_causes import alike_findings, alike_lines
    from geminga.app.handles.doctor import alike_facts

    facts = run_admin(admin_url, security, lambda admin: alike_facts(admin, now_ms=now_ms))
    findings, lines = alike_findings(facts), alike_lines(facts)
    if is_json:
        told = {"state": facts.state, "lines": lines, "findings": [each._asdict() for each in findings]}
        print(json.dumps(told, indent=2))
    else:
        end = "nothing stands in the way" if not findings else ""
        print(visible(f"configuration by {facts.state['topic']}: {end}".rstrip(), is_name=True))
        for line in lines:
            print(visible(f"  {line}"))
        for each in findings:
            print(visible(f"  {each.cause} ({each.severity}): {each.sentence}\n    {each.mends}"))
    if findings:
        raise typer.Exit(1)


def backlog(
    namespace: Annotated[str, typer.Argument(help="tenant/namespace; without it all that you may see.")] = "",
    count: Annotated[int, typer.Option("-n", min=1, help="The largest so many.")] = 20,
    watch: Annotated[float, typer.Option("--watch", metavar="SECONDS", min=0, help="Look again and again.")] = 0,
    admin_url: AdminUrl = DEFAULT_ADMIN_URL,
    auth_plugin: AuthPlugin = "",
    auth_params: AuthParams = "",
    trust: Trust = "",
    is_json: AsJson = False,
) -> None:
    """Show who holds what: entries not acknowledged by subscription, their age, and with --watch their growth."""
    from contextlib import suppress

    with suppress(KeyboardInterrupt):
        security = ClientSecurity(auth_plugin, auth_params, trust)
        run_admin(admin_url, security, lambda admin: _show_backlogs(admin, namespace, count, watch, is_json))


async def _show_backlogs(admin: AdminClient, namespace: str, count: int, watch: float, is_json: bool) -> None:
    import asyncio
    import json
    import sys
    import time

    from geminga.app.handles.backlogs import backlogs
    from geminga.app.handles.core.backlog_rows import grown, table

    before, looked = None, time.monotonic()
    while True:
        rows, untold, refused = await backlogs(admin, namespace)
        now = time.monotonic()
        found = grown(before, rows, now - looked)
        before, looked = rows, now
        if is_json:
            told = [each.row._asdict() | {"entries_per_s": each.entries_per_s} for each in found[:count]]
            print(json.dumps({"backlogs": told, "untold": untold, "refused": refused}), flush=True)
        else:
            print(visible(table(found[:count], time.time_ns() // 1_000_000)), flush=True)
            if len(found) > count:
                print(f"and {len(found) - count} more", flush=True)
            if untold:
                print(visible(f"nobody tells of {len(untold)} topics now: {', '.join(untold[:5])}"), file=sys.stderr)
            if refused:
                some = "".join(f"\n  {whose}: {why}" for whose, why in list(refused.items())[:5])
                print(visible(f"{len(refused)} could not be looked at, such as{some}"), file=sys.stderr)
        if not watch:
            return
        await asyncio.sleep(watch)
