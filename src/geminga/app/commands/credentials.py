"""Who a command is, and whom it trusts: said by options, by a context, or in the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from geminga.model.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

    from geminga.client import Authentication, ClientArguments


_TOKEN_PLUGINS: Final = ("token", "org.apache.pulsar.client.impl.auth.AuthenticationToken")
_TOKEN_CHARACTERS_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What was said."""

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
        token = _plain_token(self.auth_plugin, self.auth_params)
        if token is not None and not url.lower().startswith("https:"):
            from geminga.model.http_credentials import credential_headers

            try:
                return credential_headers("token", token.encode()), None
            except ValueError as error:
                raise ConfigurationError(f"--auth-params: {error}") from None
        # The client is large, and most requests need nothing of it.
        from geminga.client import ClientOptions, http_headers

        options = ClientOptions(**self.client_arguments(""))
        context = options.tls_made().context if url.lower().startswith("https:") else None
        return http_headers(options.authentication), context


def _plain_token(plugin: str, parameters: str) -> str | None:
    """A token that is said as it is, or lies in a file; None: the client has to look. Raises OSError."""
    kind, _, rest = parameters.strip().partition(":")
    if plugin.strip() not in _TOKEN_PLUGINS or not rest or kind not in ("token", "file"):
        return None
    if kind == "token":
        return rest
    from geminga.runtime.local_file import path_of_url

    with open(path_of_url(parameters.strip()), encoding="utf-8") as file:
        return file.read(_TOKEN_CHARACTERS_MAX).strip()
