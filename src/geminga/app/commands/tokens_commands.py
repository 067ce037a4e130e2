"""``geminga tokens``: keys and tokens, with the options of ``pulsar tokens`` and files that Apache's programs read.

A secret is its raw bytes, a private key PKCS#8 and a public one X.509, both DER. A file that is there is not written
over: tokens that its key signed would be worth nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from geminga.model.errors import ConfigurationError

if TYPE_CHECKING:
    from geminga.security.keys import SecretKey, Signer, Verifier
    from geminga.security.web_token import WebToken

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Keys, and tokens that say who somebody is (JSON Web Tokens)."
)

T = TypeVar("T")

#: Seconds of each letter of ``--expiry-time``; a year has 365 days, as in Pulsar.
UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_KEY_HELP: Final = "The key: a file's path, file:///path, data:;base64,... or base64."

TokenText = Annotated[str | None, typer.Argument(metavar="TOKEN", help="The token.")]
FromStdin = Annotated[bool, typer.Option("-i", "--stdin", help="Read the token from standard input.")]
TokenFile = Annotated[
    str | None, typer.Option("-f", "--token-file", metavar="FILE", help="Read the token from a file.")
]
SecretKeyPlace = Annotated[str | None, typer.Option("-sk", "--secret-key", metavar="KEY", help=_KEY_HELP)]
ExpiryTime = Annotated[
    str | None,
    typer.Option("-e", "--expiry-time", metavar="TIME", help="How long it is good: 30m, 1h, 3d, 10y; else for ever."),
]


@commands.command("create-secret-key")
def create_secret_key(
    algorithm: Annotated[
        str, typer.Option("-a", "--signature-algorithm", metavar="NAME", help="HS256, HS384 or HS512: how long it is.")
    ] = "HS256",
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there; otherwise to standard output.")
    ] = None,
    is_base64: Annotated[bool, typer.Option("-b", "--base64", help="Write it as base64.")] = False,
) -> None:
    """Draw a secret that signs and verifies tokens."""
    import base64

    from geminga.security.algorithms import Family, algorithm_named

    found = _good("--signature-algorithm", lambda: algorithm_named(algorithm))
    if found.family is not Family.SECRET:
        raise ConfigurationError(f"--signature-algorithm {algorithm}: it has key pairs; expected HS256, HS384 or HS512")
    data = os.urandom(found.bits // 8)
    written = base64.b64encode(data) if is_base64 else data
    if output is None:
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
    else:
        _write_new(output, written, 0o600)


@commands.command("create-key-pair")
def create_key_pair(
    private_file: Annotated[
        str,
        typer.Option("-os", "--output-private-key", metavar="FILE", help="Where the private key is written (PKCS#8)."),
    ],
    public_file: Annotated[
        str, typer.Option("-op", "--output-public-key", metavar="FILE", help="Where the public key is written (X.509).")
    ],
    algorithm: Annotated[
        str, typer.Option("-a", "--signature-algorithm", metavar="NAME", help="RS256 to PS512, ES256 to ES512, EdDSA.")
    ] = "RS256",
) -> None:
    """Draw a private key that signs tokens, and the public key that verifies them."""
    from geminga.security.key_pairs import new_key_pair

    private, public = _good("--signature-algorithm", lambda: new_key_pair(algorithm))
    _write_new(private_file, private, 0o600)
    _write_new(public_file, public, 0o644)


@commands.command()
def create(
    subject: Annotated[str, typer.Option("-s", "--subject", metavar="ROLE", help="Whose token it is (claim sub).")],
    algorithm: Annotated[
        str | None,
        typer.Option("-a", "--signature-algorithm", metavar="NAME", help="How it is signed; otherwise as the key is."),
    ] = None,
    expiry: ExpiryTime = None,
    secret_key: SecretKeyPlace = None,
    private_key: Annotated[str | None, typer.Option("-pk", "--private-key", metavar="KEY", help=_KEY_HELP)] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("-hs", "--headers", metavar="KEY=VALUE", help="Also in its header; may be repeated."),
    ] = None,
) -> None:
    """Sign a token and print it."""
    from geminga.security.token_rules import create_token

    signer = _signer(secret_key, private_key)
    claims: dict[str, object] = {"sub": subject}
    if expiry is not None:
        claims["exp"] = int(time.time()) + _seconds(expiry)
    header = _header(headers or ())
    named = algorithm or signer.preferred
    print(_good("--signature-algorithm", lambda: create_token(signer, named, claims, header)))


@commands.command()
def show(token: TokenText = None, from_stdin: FromStdin = False, token_file: TokenFile = None) -> None:
    """Print the header and the claims of a token. Nothing is verified."""
    parsed = _token(_text(token, from_stdin, token_file))
    print(_json(parsed.header), "---", _json(parsed.claims), sep="\n")


@commands.command()
def validate(
    token: TokenText = None,
    from_stdin: FromStdin = False,
    token_file: TokenFile = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "-a", "--signature-algorithm", metavar="NAME", help="How it must be signed; otherwise as the key is."
        ),
    ] = None,
    secret_key: SecretKeyPlace = None,
    public_key: Annotated[str | None, typer.Option("-pk", "--public-key", metavar="KEY", help=_KEY_HELP)] = None,
) -> None:
    """Print the claims of a token that a key signed and that is not over; else say what is wrong, with exit code 1."""
    from geminga.security.algorithms import algorithm_named
    from geminga.security.token_rules import check_signature, check_times

    verifier = _verifier(secret_key, public_key)
    parsed = _token(_text(token, from_stdin, token_file))
    if algorithm is not None:
        wanted = _good("--signature-algorithm", lambda: algorithm_named(algorithm))
        if verifier.family is not wanted.family:
            raise ConfigurationError(f"--signature-algorithm {algorithm}: the key is of {verifier.family.value}")
    try:
        check_signature(parsed, [verifier])
        check_times(parsed.claims, time.time(), 0.0)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    print(_json(parsed.claims))


# ---- what the options say


def _signer(secret: str | None, private: str | None) -> Signer:
    from geminga.security import keys

    if private is not None and secret is None:
        data = _bytes("--private-key", private)
        return _good("--private-key", lambda: keys.private_key(data))
    return _secret(secret, private, "--private-key")


def _verifier(secret: str | None, public: str | None) -> Verifier:
    from geminga.security import keys

    if public is not None and secret is None:
        data = _bytes("--public-key", public)
        return _good("--public-key", lambda: keys.public_key(data))
    return _secret(secret, public, "--public-key")


def _secret(secret: str | None, other: str | None, other_name: str) -> SecretKey:
    from geminga.security import keys

    if secret is None or other is not None:
        raise ConfigurationError(f"expected --secret-key or {other_name}, and one of them")
    data = _bytes("--secret-key", secret)
    return _good("--secret-key", lambda: keys.secret_key(data))


def _bytes(option: str, text: str) -> bytes:
    from geminga.security.key_text import place_of, shown
    from geminga.security.keys import KEY_BYTES_MAX

    place = _good(option, lambda: place_of(text))
    if place.path:
        try:
            with open(place.path, "rb") as file:
                return file.read(KEY_BYTES_MAX + 1)
        except (OSError, ValueError) as error:
            if place.data is None:
                reason = error.strerror if isinstance(error, OSError) else "not the path of a file"
                raise ConfigurationError(f"{option}: {shown(text)}: {reason}") from None
    assert place.data is not None
    return place.data


def _text(token: str | None, from_stdin: bool, file: str | None) -> str:
    from geminga.security.web_token import TOKEN_LENGTH_MAX

    if token is not None:
        return token.strip()
    if from_stdin:
        return sys.stdin.read(TOKEN_LENGTH_MAX + 2).strip()
    if file is not None:
        try:
            with open(file, encoding="utf-8", errors="replace") as opened:
                return opened.read(TOKEN_LENGTH_MAX + 2).strip()
        except OSError as error:
            raise ConfigurationError(f"--token-file: {file}: {error.strerror}") from None
    if (text := os.environ.get("TOKEN")) is not None:
        return text.strip()
    raise ConfigurationError("expected a token as an argument, by --stdin, --token-file or the variable TOKEN")


def _token(text: str) -> WebToken:
    from geminga.security.web_token import parse_token

    try:
        return parse_token(text)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([a-zA-Z]?)", text.strip())
    unit = found[2].lower() if found is not None else ""
    if found is None or (unit and unit not in UNITS_S):
        raise ConfigurationError(
            f"--expiry-time {text}: expected a number and s, m (minutes), h, d, w or y, such as 30d"
        )
    return int(found[1]) * UNITS_S.get(unit, 1)


def _header(pairs: Sequence[str]) -> Mapping[str, object]:
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or key in ("alg", "crit"):
            raise ConfigurationError(f"--headers {pair}: expected KEY=VALUE, with a key other than alg and crit")
        found[key] = value
    return found


def _good(option: str, make: Callable[[], T]) -> T:
    """What ``make`` makes; its ValueError is one of the option."""
    try:
        return make()
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def _write_new(path: str, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise ConfigurationError(
            f"{path} is there: tokens of a key in it would be worth nothing. Remove it, or name another file"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _json(value: Mapping[str, object]) -> str:
    # Beyond ASCII nothing is printed as it is: a stranger's token must not write to a terminal.
    return json.dumps(value, separators=(",", ":"))
