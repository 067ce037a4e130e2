"""How the commands of a client say who they are and whom they trust: options of their groups, as of Pulsar's tools.

``geminga client --auth-plugin token --auth-params file:///token produce ...``. Read where a connection is made.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    import ssl

    from geminga.client import Authentication, ClientArguments


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What the options said."""

    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    trust: str = ""
    allows_insecure: bool = False
    checks_name: bool = True

    def authentication(self, token: str = "") -> Authentication | None:
        """Who the command is; ``token``: of the shorter option. Raises ConfigurationError, InvalidConfiguration."""
        from geminga.client import AuthenticationToken, authentication_from
        from geminga.model.errors import ConfigurationError

        if token and self.auth_plugin:
            raise ConfigurationError("--token and --auth-plugin: expected one of them")
        return AuthenticationToken(token) if token else authentication_from(self.auth_plugin, self.auth_params)

    def client_arguments(self, token: str) -> ClientArguments:
        """Arguments of ``geminga.client.connect``."""
        return {
            "authentication": self.authentication(token),
            "tls_trust_certs_file_path": self.trust,
            "tls_allow_insecure_connection": self.allows_insecure,
            "tls_validate_hostname": self.checks_name,
        }

    def http(self, url: str) -> tuple[dict[str, str], ssl.SSLContext | None]:
        """Headers and the context of TLS for a request to ``url``; raises what credentials and files raise."""
        if not (self.auth_plugin or self.auth_params or url.lower().startswith("https:")):
            return {}, None
        # The client is large, and most requests need nothing of it.
        from geminga.client import ClientOptions, http_headers

        options = ClientOptions(**self.client_arguments(""))
        context = options.tls_made().context if url.lower().startswith("https:") else None
        return http_headers(options.authentication), context


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
