"""Contexts: kept for the owner alone, chosen by options, environment and names; those of Pulsar's tools are read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from geminga.app.administration.arguments import UsageError
from geminga.app.administration.context_commands import run_context
from geminga.app.administration.contexts import ContextError, all_of, chosen, nested, own_path

_PULSARCTL = """\
auth-info:
  prod:
    locationoforigin: /home/x/.config/pulsar/config
    tls_trust_certs_file_path: /ca.pem
    tls_allow_insecure_connection: true
    token: "secret-one"
    tokenFile: ""
contexts:
  prod:
    admin-service-url: https://prod:8443
    bookie-service-url: ""
current-context: prod
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path)}


def run(environment: dict[str, str], *words: str) -> int:
    return run_context(words, environment)


def test_a_context_is_made_used_shown_and_forgotten(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    secret = ("--auth-plugin", "token", "--auth-params", "token:secret-two")
    run(environment, "set", "dev", "--admin-url", "http://dev:8080", *secret)
    run(environment, "set", "dev", "--tls-allow-insecure=true")
    run(environment, "use", "dev")
    path = own_path(environment)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["contexts.json"]
    assert chosen({}, environment)["admin-url"] == "http://dev:8080"
    capsys.readouterr()
    run(environment, "show")
    run(environment, "list")
    shown = capsys.readouterr().out
    assert "secret-two" not in shown
    assert "(not shown)" in shown
    assert "* dev  http://dev:8080" in shown
    run(environment, "delete", "dev")
    assert chosen({}, environment) == {"admin-url": "http://localhost:8080"}


def test_a_file_that_others_may_read_is_written_for_the_owner_alone(environment: dict[str, str]) -> None:
    path = own_path(environment)
    path.parent.mkdir(parents=True)
    path.write_text('{"contexts": {}}', encoding="utf-8")
    path.chmod(0o644)
    run(environment, "set", "dev", "--auth-params", "token:x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_nearer_goes_first(environment: dict[str, str], tmp_path: Path) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("# a line\nwebServiceUrl=http://conf:1\nauthPlugin=\ntlsTrustCertsFilePath=/conf.pem\nother=x\n")
    found = chosen({"client_conf": str(conf)}, environment)
    assert found == {"admin-url": "http://conf:1", "tls-trust-cert-path": "/conf.pem"}
    run(environment, "set", "dev", "--admin-url", "http://dev:1")
    run(environment, "use", "dev")
    assert chosen({"client_conf": str(conf)}, environment)["admin-url"] == "http://dev:1"
    environment["GEMINGA_ADMIN_URL"] = "http://environment:1"
    assert chosen({}, environment)["admin-url"] == "http://environment:1"
    assert chosen({"context": "dev"}, environment) == {"admin-url": "http://dev:1"}
    assert chosen({"context": "dev", "admin_url": "http://option:1"}, environment)["admin-url"] == "http://option:1"


def test_contexts_of_pulsarctl_are_read_and_not_used_unasked(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / ".config" / "pulsar" / "config"
    path.parent.mkdir(parents=True)
    path.write_text(_PULSARCTL, encoding="utf-8")
    assert chosen({}, environment) == {"admin-url": "http://localhost:8080"}
    whose, fields = all_of(environment)["prod"]
    assert (whose, fields) == (
        "pulsarctl",
        {
            "admin-url": "https://prod:8443",
            "auth-plugin": "token",
            "auth-params": "token:secret-one",
            "tls-trust-cert-path": "/ca.pem",
            "tls-allow-insecure": "true",
        },
    )
    run(environment, "use", "prod")
    assert chosen({}, environment)["admin-url"] == "https://prod:8443"


def test_a_file_of_pulsarctl_that_can_not_be_read_is_in_the_way_of_nothing_else(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["PULSARCTL_CONFIG"] = str(tmp_path / "config")
    (tmp_path / "config").write_text("- a\n", encoding="utf-8")
    run(environment, "set", "dev", "--admin-url", "http://dev:1")
    run(environment, "use", "dev")
    assert chosen({}, environment)["admin-url"] == "http://dev:1"
    with pytest.raises(ContextError, match="is no file of contexts of pulsarctl: line 1"):
        run(environment, "list")


def test_yaml_beyond_mappings_is_refused() -> None:
    assert nested("a:\n  b: 'c d'\n  e: {}\nf: g\n") == {"a": {"b": "c d", "e": {}}, "f": "g"}
    with pytest.raises(ValueError, match="line 2: expected NAME: VALUE"):
        nested("a:\n- b\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["use", "none"], "there is no context 'none'"),
        (["delete", "none"], "there is no context 'none' of Geminga's own"),
        (["set", "dev", "--colour", "red"], "there is no field --colour"),
        (["set", "dev", "--admin-url"], "--admin-url needs a value"),
        (["set", "dev", "--admin-url", "dev:8080"], "--admin-url is http://host:port"),
        (["set", "dev", "--tls-allow-insecure", "yes"], "is true or false, not 'yes'"),
        (["set"], "expected a name"),
        (["show"], "no context is current"),
        (["paint"], "there is no command context paint"),
    ],
)
def test_wrong_words_are_told(environment: dict[str, str], words: list[str], said: str) -> None:
    with pytest.raises((UsageError, ContextError), match=said):
        run(environment, *words)


def test_a_file_that_has_no_contexts_is_told(environment: dict[str, str]) -> None:
    path = own_path(environment)
    path.parent.mkdir(parents=True)
    for text in ("[]", "{", '{"contexts": {"a": {"colour": "red"}}}', '{"contexts": 3}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ContextError, match=r"contexts\.json"):
            chosen({}, environment)


def test_a_client_conf_may_have_letters_of_latin_1(environment: dict[str, str], tmp_path: Path) -> None:
    """Java's properties are in it, and a comment with an umlaut is no error."""
    conf = tmp_path / "client.conf"
    conf.write_bytes("# Schlüssel\nwebServiceUrl=http://dev:1\n".encode("latin-1"))
    assert chosen({"client_conf": str(conf)}, environment)["admin-url"] == "http://dev:1"
    conf.write_text("# Schlüssel\ntlsTrustCertsFilePath=/Schlüssel.pem\n", encoding="utf-8")
    assert chosen({"client_conf": str(conf)}, environment)["tls-trust-cert-path"] == "/Schlüssel.pem"


@pytest.mark.parametrize(
    "text", ["contexts:\n  a: b\n", "auth-info:\n  a: b\ncontexts:\n  a:\n    admin-service-url: u\n"]
)
def test_a_word_where_pulsarctl_has_fields_is_told(text: str, environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContextError, match="is no file of contexts of pulsarctl: a has no fields"):
        all_of({**environment, "PULSARCTL_CONFIG": str(path)})
