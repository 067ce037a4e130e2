"""How the commands of a client say who they are and whom they trust: options of their groups, as of Pulsar's tools.

``geminga client --auth-plugin token --auth-params file:///token produce ...``. Read where a connection is made.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Annotated, Final

import typer

from geminga.app.commands.credentials import ClientSecurity

#: Of the command that runs.
_SAID: Final[ContextVar[ClientSecurity]] = ContextVar("client security", default=ClientSecurity())  # noqa: B039


def add_security(commands: typer.Typer) -> None:
    """Give a group of commands the options."""

    @commands.callback()
    def security(
        auth_plugin: Annotated[
            str,
            typer.Option(
                "--auth-plugin",
                envvar="GEMINGA_AUTH_PLUGIN",
                metavar="CLASS",
                help="token, tls, basic, oauth2; or Pulsar's class.",
            ),
        ] = "",
        auth_params: Annotated[
            str, typer.Option("--auth-params", envvar="GEMINGA_AUTH_PARAMS", metavar="TEXT", help="Its parameters.")
        ] = "",
        trust: Annotated[
            str,
            typer.Option(
                "--tls-trust-cert-path",
                "--tlsTrustCertsFilePath",
                envvar="GEMINGA_TLS_TRUST_CERT_PATH",
                metavar="FILE",
                help="PEM: whose certificates of brokers to trust.",
            ),
        ] = "",
        allows_insecure: Annotated[
            bool, typer.Option("--tls-allow-insecure", help="Take any certificate of a broker.")
        ] = False,
        checks_name: Annotated[
            bool,
            typer.Option(
                "--tls-enable-hostname-verification/--tls-disable-hostname-verification",
                help="Whether a broker's certificate must name its host.",
            ),
        ] = True,
    ) -> None:
        _SAID.set(ClientSecurity(auth_plugin, auth_params, trust, allows_insecure, checks_name))


def said_security() -> ClientSecurity:
    """What the options of the command that runs said."""
    return _SAID.get()
