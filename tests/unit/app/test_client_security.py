"""Options of command groups that say who a client is and whom it trusts."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from geminga.app.commands.client_security import ClientSecurity, add_security, said_security
from geminga.client import AuthenticationTLS, AuthenticationToken, InvalidConfiguration
from geminga.model.errors import ConfigurationError
from support.processes.certificates import Authority


def said(*arguments: str, env: dict[str, str] | None = None) -> ClientSecurity:
    """What a command hears of such a line."""
    group = typer.Typer()
    add_security(group)
    heard: list[ClientSecurity] = []
    group.command("one")(lambda: heard.append(said_security()))
    group.command("other")(lambda: None)
    result = CliRunner().invoke(group, [*arguments, "one"], env=env)
    assert result.exit_code == 0, result.output
    return heard[0]


def test_nothing_is_said_unless_it_is() -> None:
    assert said() == ClientSecurity()
    assert said().client_arguments("") == {
        "authentication": None,
        "tls_trust_certs_file_path": "",
        "tls_allow_insecure_connection": False,
        "tls_validate_hostname": True,
    }


def test_options_and_variables_say_the_same() -> None:
    options = ["--auth-plugin", "token", "--auth-params", "token:hidden1", "--tls-trust-cert-path", "/ca"]
    variables = dict(
        zip(("GEMINGA_AUTH_PLUGIN", "GEMINGA_AUTH_PARAMS", "GEMINGA_TLS_TRUST_CERT_PATH"), options[1::2], strict=True)
    )
    found = said(*options)
    assert found == said(env=variables)
    assert "hidden1" not in repr(found)
    authentication = found.authentication()
    assert isinstance(authentication, AuthenticationToken)
    assert authentication.data() == b"hidden1"
    assert said("--tls-allow-insecure", "--tls-disable-hostname-verification").client_arguments("") == {
        "authentication": None,
        "tls_trust_certs_file_path": "",
        "tls_allow_insecure_connection": True,
        "tls_validate_hostname": False,
    }


def test_token_and_plugin_are_not_both_taken() -> None:
    assert isinstance(said().authentication("abc"), AuthenticationToken)
    with pytest.raises(ConfigurationError, match="--token and --auth-plugin: expected one of them"):
        said("--auth-plugin", "tls").authentication("abc")
    with pytest.raises(InvalidConfiguration, match="'kerberos' is not built"):
        said("--auth-plugin", "kerberos").authentication()


def test_requests_of_http_have_headers_and_tls_where_the_url_says_so(tmp_path) -> None:
    authority = Authority(tmp_path, "authority")
    own = str(authority.store("client"))
    token = said("--auth-plugin", "token", "--auth-params", "abc", "--tls-trust-cert-path", str(authority.certificate))
    headers, context = token.http("HTTPS://host:8443/admin/v2/clusters")
    assert headers == {"Authorization": "Bearer abc"}
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert token.http("http://host:8080/admin/v2/clusters") == (headers, None)
    certificate = said("--auth-plugin", "tls", "--auth-params", f"tlsCertFile:{own},tlsKeyFile:{own}")
    assert isinstance(certificate.authentication(), AuthenticationTLS)
    assert certificate.http("https://host")[0] == {}
