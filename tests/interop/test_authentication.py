"""Credentials beside Apache's own providers: the same tokens, passwords and certificates, and who they are said to be.

The cases with their keys, and what Apache's classes say of them, are kept in ``tests/samples``, so that nobody needs
Java to compare; ``make interop`` asks them again, and with ``INTEROP_RECORD=1`` makes new ones and writes them down.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from geminga import sim
from geminga.app.configuration.config import load_config
from geminga.broker.access.core.handshake import Credentials, Known, Rejected
from geminga.broker.authentication.opening import OpenedAuthentication
from geminga.model.errors import ConfigurationError
from geminga.runtime import Runtime
from geminga.security.base64_text import encode_url
from geminga.security.key_pairs import new_key_pair
from geminga.security.keys import private_key, secret_key
from geminga.security.token_rules import create_token
from support.house.signing import OTHER_SECRET, SECRET, in_text
from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration

PROGRAM: Final = Path(__file__).parent / "java" / "Authenticators.java"
RECORDED: Final = ROOT / "tests" / "samples" / "authentication-4.2.4.json"
CLASSES: Final = {
    name: f"org.apache.pulsar.broker.authentication.AuthenticationProvider{name.capitalize()}"
    for name in ("token", "basic", "tls")
}
#: In the year 2100, and in 1970.
LATE, EARLY = 4102444800, 1000
#: Forms of which Geminga says something else, and why.
FORMS_BEYOND = {
    "padded signature": "base64url has no padding in a token",
    "last bits set": "one text for each signature",
    "end as text": "a time is a number",
}
#: Of the password ``hello``, by OpenSSL and crypt(3).
USERS = {
    "apr1": "$apr1$abcdefgh$cy3DSYyOwfhsyu7QOMQzd.",
    "des": "abl0JrMf6tlhw",
}


def case(name: str, provider: str, settings: dict[str, str], data: str, beyond: str = "") -> dict[str, str | dict]:
    """``beyond``: why Geminga says something else; empty: it says the same."""
    return {"name": name, "provider": provider, "settings": settings, "data": data, "beyond": beyond}


def with_secret(**settings: str) -> dict[str, str]:
    return {"tokenSecretKey": in_text(SECRET), **settings}


def signed(claims: dict[str, object], secret: bytes = SECRET, algorithm: str = "HS256", **header: object) -> str:
    return create_token(secret_key(secret), algorithm, claims, header)


def of_secrets() -> Iterator[dict]:
    good = {"sub": "jane", "exp": LATE}
    yield case("good", "token", with_secret(), signed(good))
    yield case("without an end", "token", with_secret(), signed({"sub": "jane"}))
    yield case("expired", "token", with_secret(), signed({"sub": "jane", "exp": EARLY}))
    yield case("not yet valid", "token", with_secret(), signed({**good, "nbf": LATE}))
    yield case("made in the future", "token", with_secret(), signed({**good, "iat": LATE}))
    yield case("of another secret", "token", with_secret(), signed(good, OTHER_SECRET))
    yield case("without a role", "token", with_secret(), signed({"exp": LATE}))
    yield case("role of another claim", "token", with_secret(tokenAuthClaim="role"), signed({**good, "role": "joe"}))
    yield case("first of several", "token", with_secret(tokenAuthClaim="role"), signed({**good, "role": ["joe", "x"]}))
    yield case("of no role", "token", with_secret(tokenAuthClaim="role"), signed({**good, "role": []}))
    numbered = signed({**good, "role": [5]})
    yield case("of a number", "token", with_secret(tokenAuthClaim="role"), numbered, "a number is no role")
    aimed = with_secret(tokenAudienceClaim="aud", tokenAudience="east")
    for name, audience in (
        ("its", "east"),
        ("one of its", ["x", "east"]),
        ("another", "west"),
        ("others", ["x"]),
        ("no", None),
    ):
        yield case(f"{name} audience", "token", aimed, signed({**good, "aud": audience} if audience else good))
    for size in (32, 48, 64):
        for bits in (256, 384, 512):
            secret = bytes(range(size))
            token = signed(good, bytes(range(64))[: max(size, bits // 8)], f"HS{bits}")
            yield case(f"HS{bits} with {8 * size} bits", "token", {"tokenSecretKey": in_text(secret)}, token)
    header, claims, signature = signed(good).split(".")
    unsigned = encode_url(b'{"alg":"none"}')
    yield case("alg none", "token", with_secret(), f"{unsigned}.{claims}.")
    yield case("alg none with a signature", "token", with_secret(), f"{unsigned}.{claims}.{signature}")
    yield case("two parts", "token", with_secret(), f"{header}.{claims}")
    yield case("no signature", "token", with_secret(), f"{header}.{claims}.")
    yield case("nothing", "token", with_secret(), "")
    yield case("critical header", "token", with_secret(), signed(good, crit=["x"], x=1))


def of_forms() -> Iterator[dict]:
    """Texts that are almost a token, or one in another form."""
    good = {"sub": "jane", "exp": LATE}
    token = signed(good)
    head, claims, signature = token.split(".")

    def raw(header: bytes, body: bytes) -> str:
        text = f"{encode_url(header)}.{encode_url(body)}"
        return f"{text}.{encode_url(hmac.digest(SECRET, text.encode(), hashlib.sha256))}"

    forms = {
        "padded signature": f"{token}=",
        "padded claims": f"{head}.{claims}==.{signature}",
        "a space behind": f"{token} ",
        "a line behind": f"{token}\n",
        "Bearer before": f"Bearer {token}",
        "four parts": f"{token}.x",
        "last bits set": token[:-1] + chr(ord(token[-1]) + 1),
        "algorithm in small letters": raw(b'{"alg":"hs256"}', b'{"sub":"jane"}'),
        "algorithm that is none of them": raw(b'{"alg":"HS1"}', b'{"sub":"jane"}'),
        "no algorithm": raw(b"{}", b'{"sub":"jane"}'),
        "type of another kind": raw(b'{"alg":"HS256","typ":"x"}', b'{"sub":"jane"}'),
        "key id": raw(b'{"alg":"HS256","kid":"one"}', b'{"sub":"jane"}'),
        "spaces in the JSON": raw(b'{ "alg" : "HS256" }', b' {"sub":\n"jane"} '),
        "role twice": raw(b'{"alg":"HS256"}', b'{"sub":"jane","sub":"joe"}'),
        "claims that are a list": raw(b'{"alg":"HS256"}', b'["jane"]'),
        "claims that are no JSON": raw(b'{"alg":"HS256"}', b"jane"),
        "end as text": raw(b'{"alg":"HS256"}', b'{"sub":"jane","exp":"4102444800"}'),
        "end as a fraction": raw(b'{"alg":"HS256"}', b'{"sub":"jane","exp":4102444800.5}'),
        "end that is negative": raw(b'{"alg":"HS256"}', b'{"sub":"jane","exp":-1}'),
        "end that is null": raw(b'{"alg":"HS256"}', b'{"sub":"jane","exp":null}'),
        "end beyond all dates": raw(b'{"alg":"HS256"}', b'{"sub":"jane","exp":99999999999999999}'),
        "role that is empty": raw(b'{"alg":"HS256"}', b'{"sub":""}'),
        "role that is a number": raw(b'{"alg":"HS256"}', b'{"sub":5}'),
        "role with a space": raw(b'{"alg":"HS256"}', b'{"sub":" jane "}'),
        "role of letters": raw(b'{"alg":"HS256"}', '{"sub":"jäne€"}'.encode()),
    }
    for name, text in forms.items():
        yield case(name, "token", with_secret(), text, FORMS_BEYOND.get(name, ""))


def of_pairs() -> Iterator[dict]:
    for algorithm in ("RS256", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"):
        private, public = new_key_pair(algorithm)
        settings = {"tokenPublicKey": in_text(public), "tokenPublicAlg": algorithm}
        beyond = "EdDSA is beyond Pulsar" if algorithm == "EdDSA" else ""
        token = create_token(private_key(private), algorithm, {"sub": "jane"}, {})
        yield case(f"pair {algorithm}", "token", settings, token, beyond)
        other = create_token(private_key(new_key_pair(algorithm)[0]), algorithm, {"sub": "jane"}, {})
        yield case(f"another pair {algorithm}", "token", settings, other)
        if algorithm != "EdDSA":
            # The public key taken for a secret.
            head = ".".join(encode_url(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": "admin"}))
            forged = f"{head}.{encode_url(hmac.digest(public, head.encode(), hashlib.sha256))}"
            yield case(f"public key as a secret {algorithm}", "token", settings, forged)
    private, public = new_key_pair("RS256")
    token = create_token(private_key(private), "RS384", {"sub": "jane"}, {})
    yield case("RS384 by a key for RS256", "token", {"tokenPublicKey": in_text(public)}, token)
    yield case("both keys", "token", {**with_secret(), "tokenPublicKey": in_text(public)}, token)


def of_passwords() -> Iterator[dict]:
    for name, stored in USERS.items():
        settings = {"basicAuthConf": in_text(f"jane:{stored}".encode())}
        for data in ("jane:hello", "jane:wrong", "joe:hello", "jane", "jane:", ":hello", "jane:hello:", ""):
            beyond = "a colon is part of the password" if data == "jane:hello:" else ""
            yield case(f"{name} {data!r}", "basic", settings, data, beyond)
    users = in_text(b"jane:{SHA}qvTGHdzF6KLavt4PO0gs2a6pQ00=")
    yield case("SHA-1", "basic", {"basicAuthConf": users}, "jane:hello", "SHA-1 is beyond Pulsar")
    yield case("plain", "basic", {"basicAuthConf": in_text(b"jane:hello")}, "jane:hello")


def of_certificates() -> Iterator[dict]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    cn, o, ou, mail = (
        NameOID.COMMON_NAME,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.EMAIL_ADDRESS,
    )
    key = ec.generate_private_key(ec.SECP256R1())
    begin = datetime.datetime(2026, 1, 1)
    for name, parts in (
        ("plain", [[(o, "Acme")], [(cn, "jane")]]),
        ("two names", [[(cn, "first")], [(cn, "last")]]),
        ("a comma", [[(cn, "a,b")]]),
        ("a name in a unit", [[(cn, "jane")], [(ou, "x,CN=admin")]]),
        ("a name in a mail", [[(cn, "jane")], [(mail, "a@b,CN=admin")]]),
        ("signs", [[(cn, 'a=b#c"d<e>f;g\\h+i')]]),
        ("spaces", [[(cn, "  jane ")]]),
        ("two in a part", [[(cn, "jane"), (ou, "sales")]]),
        ("letters", [[(cn, "jäne€")]]),
        ("no name", [[(ou, "sales")]]),
        ("nobody", []),
    ):
        subject = x509.Name(
            [x509.RelativeDistinguishedName([x509.NameAttribute(*item) for item in part]) for part in parts]
        )
        issuer = x509.Name([x509.NameAttribute(cn, "issuer")])
        builder = x509.CertificateBuilder(issuer, subject, key.public_key(), 1, begin, begin + datetime.timedelta(1))
        made = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
        yield case(name, "tls", {}, base64.b64encode(made).decode())


def ours(cases: list[dict[str, Any]]) -> list[str | None]:
    """The roles by Geminga's providers; None: refused, or not even started."""

    async def main(world: sim.SimWorld) -> list[str | None]:
        async def on_node(node: sim.SimNode) -> list[str | None]:
            return [await _role(node.runtime, one) for one in cases]

        return await world.node("broker").run(on_node)

    return sim.run(main)


async def _inline(work: Callable[[], bool]) -> bool:
    return work()


async def _role(runtime: Runtime, one: dict[str, Any]) -> str | None:
    settings = [f"{key}={value}" for key, value in one["settings"].items()]
    provider = f"authenticationProviders={CLASSES[one['provider']]}"
    loaded = load_config(overrides=["authenticationEnabled=true", provider, *settings])
    assert loaded.authentication is not None
    opened = OpenedAuthentication(runtime, loaded.authentication, compute=_inline)
    try:
        await opened.open()
    except ConfigurationError:
        return None
    is_tls = one["provider"] == "tls"
    certificate = base64.b64decode(one["data"]) if is_tls else None
    shown = Credentials(one["provider"], b"" if is_tls else one["data"].encode(), certificate)
    answer = opened.authentication.begin().answer(shown)
    verdict = answer if isinstance(answer, Known | Rejected) else await answer
    return verdict.role if isinstance(verdict, Known) else None


def theirs(cases: list[dict[str, Any]], directory: Path) -> list[str | None]:
    from tools.interop.java_program import run_java

    (directory / "cases.json").write_text(json.dumps(cases))
    lines = run_java(PROGRAM, str(directory / "cases.json"))
    return [line[1:] if line.startswith("+") else None for line in lines]


def test_apaches_providers_say_what_is_recorded(judge_is_apache: bool, tmp_path: Path) -> None:
    if not judge_is_apache:
        pytest.skip("Apache's providers")
    if os.environ.get("INTEROP_RECORD"):
        cases = [*of_secrets(), *of_forms(), *of_pairs(), *of_passwords(), *of_certificates()]
        said = theirs(cases, tmp_path)
        rows = [{**one, "said": role} for one, role in zip(cases, said, strict=True)]
        RECORDED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    recorded = json.loads(RECORDED.read_text())
    assert theirs(recorded, tmp_path) == [row["said"] for row in recorded]


def test_geminga_says_the_same_of_everybody() -> None:
    recorded = json.loads(RECORDED.read_text())
    different = []
    for row, role in zip(recorded, ours(recorded), strict=True):
        if (role == row["said"]) == bool(row["beyond"]):
            different.append(f"{row['provider']} {row['name']}: {row['said']!r} by Apache's, {role!r} here")
    assert not different, "\n".join(different)
    assert {row["provider"] for row in recorded} == set(CLASSES)
    # Both outcomes are in it, of each provider.
    assert {(row["provider"], row["said"] is None) for row in recorded} == {
        (name, is_refused) for name in CLASSES for is_refused in (False, True)
    }


def test_commands_of_both_makes_take_each_others_files(judge_is_apache: bool, tmp_path: Path) -> None:
    """``pulsar tokens`` validates what ``geminga tokens`` made, and the other way round."""
    if not judge_is_apache:
        pytest.skip("Apache's command")
    from tools.interop.artifacts import class_path, java, pinned_version

    apache = [java(), "-cp", class_path(pinned_version()), "org.apache.pulsar.utils.auth.tokens.TokensCliUtils"]
    geminga = [sys.executable, "-m", "geminga", "tokens"]

    def run(command: list[str], *words: str) -> str:
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=True)
        return done.stdout.strip().rpartition("\n")[2]

    for number, (maker, taker) in enumerate(((apache, geminga), (geminga, apache))):
        secret, private, public = (str(tmp_path / f"{name}-{number}.key") for name in ("secret", "private", "public"))
        run(maker, "create-secret-key", "-o", secret)
        run(maker, "create-key-pair", "--output-private-key", private, "--output-public-key", public)
        for create, validate in ((("-sk", secret), ("-sk", secret)), (("-pk", private), ("-pk", public))):
            token = run(maker, "create", "-s", "jane", "-e", "1h", *create)
            assert "jane" in run(taker, "validate", *validate, token)
