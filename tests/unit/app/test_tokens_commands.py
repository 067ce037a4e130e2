"""``geminga tokens`` as an operator of Pulsar types it."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from geminga.app.commands.cli import app_for
from geminga.model.errors import ConfigurationError
from geminga.security.keys import private_key, public_key
from support.house.signing import SECRET, in_text, token_of


def run(*arguments: str, stdin: str | None = None, token: str | None = None) -> Result:
    words = ["tokens", *arguments]
    return CliRunner().invoke(app_for(words), words, input=stdin, env={"TOKEN": token})


def told(*arguments: str, **more: str) -> str:
    result = run(*arguments, **more)
    assert isinstance(result.exception, ConfigurationError), result.output
    return str(result.exception)


def test_secret_is_raw_bytes_as_long_as_its_digest_and_nobody_elses(tmp_path: Path) -> None:
    for name, size in (("HS256", 32), ("HS384", 48), ("HS512", 64)):
        path = tmp_path / name
        assert run("create-secret-key", "-a", name, "--output", str(path)).exit_code == 0
        assert len(path.read_bytes()) == size
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = "is there: tokens of a key in it would be worth nothing"
    assert again in told("create-secret-key", "-o", str(tmp_path / "HS256"))
    assert len(run("create-secret-key").stdout_bytes) == 32
    assert len(base64.b64decode(run("create-secret-key", "-b").stdout_bytes, validate=True)) == 32
    assert "expected HS256" in told("create-secret-key", "-a", "RS256")
    assert "'x' is no algorithm" in told("create-secret-key", "-a", "x")
    assert "No such file" in told("create-secret-key", "-o", str(tmp_path / "none" / "key"))


@pytest.mark.parametrize("name", ["RS256", "ES256", "ES384", "ES512", "EdDSA"])
def test_key_pair_is_der_and_signs_what_it_verifies(name: str, tmp_path: Path) -> None:
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    pair = ["create-key-pair", "-a", name, "--output-private-key", str(private), "--output-public-key", str(public)]
    assert run(*pair).exit_code == 0
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert name in public_key(public.read_bytes()).algorithms
    assert private_key(private.read_bytes()).preferred == name
    token = run("create", "-pk", f"file://{private}", "-s", "jane").output.strip()
    assert run("validate", "-pk", str(public), token).output == '{"sub":"jane"}\n'
    assert json.loads(run("show", token).output.partition("---")[0]) == {"alg": name}
    assert "is there" in told(*pair)


def test_key_pair_of_a_secret_is_none() -> None:
    assert "HS256 has a secret and no pair" in told("create-key-pair", "-a", "HS256", "-os", "a", "-op", "b")


def test_token_has_subject_expiry_and_headers(tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    key.write_bytes(SECRET)
    token = run("create", "-sk", str(key), "--subject", "jane", "-e", "10y", "-hs", "kid=one").output.strip()
    header, claims = run("show", token).output.split("---")
    assert json.loads(header) == {"alg": "HS256", "kid": "one"}
    assert json.loads(claims)["sub"] == "jane"
    assert '"exp":' in run("validate", token, "-sk", str(key)).output
    assert run("validate", token, "-a", "HS256", "-sk", str(key)).exit_code == 0
    for wrong in ("", "x", "-1h", "1.5h"):
        assert "expected a number and s, m" in told("create", "-sk", str(key), "-s", "a", f"-e={wrong}")
    assert "expected KEY=VALUE" in told("create", "-sk", str(key), "-s", "a", "-hs", "alg=none")
    assert "does not take RS256" in told("create", "-sk", str(key), "-s", "a", "-a", "RS256")
    for neither in ([], ["-sk", str(key), "-pk", str(key)]):
        assert "expected --secret-key or --private-key" in told("create", "-s", "a", *neither)


@pytest.mark.parametrize("source", ["argument", "stdin", "file", "environment"])
def test_token_comes_from_where_pulsars_tool_takes_it(source: str, tmp_path: Path) -> None:
    token = token_of("jane").decode()
    (tmp_path / "token").write_text(token + "\n")
    found = {
        "argument": lambda: run("show", token),
        "stdin": lambda: run("show", "-i", stdin=token + "\n"),
        "file": lambda: run("show", "--token-file", str(tmp_path / "token")),
        "environment": lambda: run("show", token=token),
    }[source]()
    assert found.output == '{"alg":"HS256"}\n---\n{"sub":"jane"}\n'


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show"], "expected a token as an argument"),
        (["show", "x"], "the token has 1 parts"),
        (["show", "-f", "/none"], "--token-file: /none: No such file"),
        (["validate", "x", "-sk", in_text(SECRET)], "the token has 1 parts"),
        (["validate", "x"], "expected --secret-key or --public-key"),
        (["validate", token_of("a").decode(), "-sk", in_text(bytes(32))], "of another key"),
        (["validate", token_of("a", exp=1).decode(), "-sk", in_text(SECRET)], "expired on 1970-01-01T00:00:01Z"),
        (["validate", token_of("a").decode(), "-sk", in_text(SECRET), "-a", "RS256"], "the key is of a secret"),
        (["validate", token_of("a").decode(), "-sk", "/none"], "--secret-key: /none: No such file"),
        (["validate", token_of("a").decode(), "-sk", "data:;base64,AAAA"], "--secret-key: the key has 24 bits"),
        (["validate", token_of("a").decode(), "-pk", in_text(SECRET)], "--public-key: not a public key"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], reason: str) -> None:
    assert reason in told(*arguments)


def test_secret_that_was_given_instead_of_its_file_is_not_repeated() -> None:
    sentence = told("create", "-s", "a", "-sk", "s3cr3t!")
    assert sentence.startswith("--secret-key: its value: ")
    assert "s3cr3t" not in sentence


def test_strangers_token_does_not_write_to_the_terminal() -> None:
    shown = run("show", token_of("\x1b]0;x\x07\x9b").decode()).output
    assert shown.isascii()
    assert shown.replace("\n", "").isprintable()


def test_command_ends_with_one_for_a_token_that_is_not_good() -> None:
    words = [sys.executable, "-m", "geminga", "tokens", "validate", "-sk", in_text(SECRET), "x.y.z"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("geminga: the token's header:")
