"""What is fuzzed: each takes any bytes, and says whether they were taken; what must never happen is an assertion.

A refusal is a ValueError. Any other error, and a broken assertion, is a find.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from geminga.security.certificate_role import distinguished_name, role_of_subject, subject_of
from geminga.security.htpasswd import parse_credentials, parse_password_file
from geminga.security.keys import secret_key
from geminga.security.openid import OpenIdRules, discovery_url, fitting, keys_url_of, parse_keys
from geminga.security.token_rules import Proved, TokenRules, create_token
from geminga.security.web_token import parse_token, signed_token, unsigned

SECRET: Final = bytes(range(32))
ISSUER: Final = "https://issuer.example"
NOW_S: Final = 1_800_000_000.0
_KINDS: Final = ("2.5.4.3", "2.5.4.10", "2.5.4.11", "1.2.3")
#: Longest input that is tried, bytes; larger ones only meet limits that have tests of their own.
LENGTH_MAX: Final = 2048


def token(data: bytes) -> bool:
    """The parser of tokens: what it takes is written back as it was."""
    text = data.decode("latin-1")
    found = parse_token(text)
    assert signed_token(found.signed, found.signature) == text
    assert isinstance(found.algorithm, str)
    assert isinstance(found.key_id, str)
    return True


def claims(data: bytes) -> bool:
    """Claims behind a good signature, by the rules of tokens and by those of OpenID Connect."""
    signed = unsigned({"alg": "HS256"}, {}).split(b".")[0] + b"."
    signed += parse_base(data)
    from geminga.security.algorithms import ALGORITHMS

    key = secret_key(SECRET)
    text = signed_token(signed, key.sign(ALGORITHMS["HS256"], signed))
    rules = TokenRules(keys=(key,), audience_claim="aud", audiences=frozenset({"me"}), skew_s=1.0)
    refused = 0
    found: list[Proved] = []
    for prove in (
        lambda: TokenRules(keys=(key,)).prove(text, NOW_S),
        lambda: rules.prove(text, NOW_S),
        lambda: OpenIdRules(audiences=frozenset({"me"}), skew_s=1.0).claims_of(parse_token(text), NOW_S),
    ):
        try:
            found.append(prove())
        except ValueError as error:
            _check_sentence(error)
            refused += 1
    for proved in found:
        _check_role(proved.role)
        assert proved.expires_s is None or proved.expires_s >= NOW_S - 1.0
    if not found:
        raise ValueError(f"refused by {refused} kinds of rules")
    return True


def parse_base(data: bytes) -> bytes:
    """Bytes as the part of a token."""
    from geminga.security.base64_text import encode_url

    return encode_url(data).encode("ascii")


def certificate(data: bytes) -> bool:
    """A certificate in DER."""
    _check_role(role_of_subject(subject_of(data)))
    return True


def subject(data: bytes) -> bool:
    """A subject: parts end with a line feed, values in them with a tab; a value's first letter says its kind."""
    text = data.decode("utf-8")
    parts = [
        [(_KINDS[ord(value[0]) % len(_KINDS)], value[1:]) for value in part.split("\t") if value]
        for part in text.split("\n")
        if part
    ]
    name = distinguished_name(parts)
    role = role_of_subject(parts)
    assert f"CN={role}" in name
    assert "," not in role
    # Nothing but a common name gives a role.
    assert any(kind == _KINDS[0] for part in parts for kind, _ in part)
    return True


def htpasswd(data: bytes) -> bool:
    """A file of users; that a hash is of a kind that is known is all that is looked at here."""
    found = parse_password_file(data)
    assert found.hashes
    assert all(user and "\n" not in user and ":" not in user + stored for user, stored in found.hashes.items())
    # Those that are cheap are computed: a stored text that was taken must not fail later, when somebody logs in.
    cheap = {user: stored for user, stored in found.hashes.items() if not stored.startswith(("$2", "$5", "$6"))}
    for user, stored in list(cheap.items())[:2]:
        assert type(parse_password_file(f"{user}:{stored}".encode()).check(user, b"secret")) is bool
    return True


def credentials(data: bytes) -> bool:
    """User and password, as they are sent."""
    user, password = parse_credentials(data.decode("utf-8", "surrogateescape"))
    assert user
    assert ":" not in user
    assert password
    return True


def discovery(data: bytes) -> bool:
    """The document of an issuer."""
    url = keys_url_of(data, ISSUER)
    assert url
    assert is_text(url), ascii(url)
    assert discovery_url(ISSUER).startswith(ISSUER)
    return True


def keys(data: bytes) -> bool:
    """An issuer's list of keys, and which of them may have signed a token."""
    found = parse_keys(data)
    one = parse_token(_token_text())
    assert len(fitting(found, one)) <= len(found)
    if not found:
        raise ValueError("no key that signs")
    for key in found:
        assert key.verifier.algorithms
    return True


@functools.cache
def _token_text() -> str:
    return create_token(secret_key(SECRET), "HS256", {"sub": "jane"}, {"kid": "k1"})


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: without halves of characters."""
    return not any("\ud800" <= one <= "\udfff" for one in value)


def _check_role(role: str) -> None:
    assert role
    # It goes into logs, paths and answers, all of them UTF-8.
    assert is_text(role), ascii(role)


def _check_sentence(error: ValueError) -> None:
    """What is told of a refusal is a sentence of bounded length that can be written."""
    sentence = str(error)
    assert 0 < len(sentence) < 400, ascii(sentence[:400])
    assert is_text(sentence), ascii(sentence)


TARGETS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    each.__name__: each for each in (token, claims, certificate, subject, htpasswd, credentials, discovery, keys)
}


def is_taken(name: str, data: bytes) -> bool:
    """Whether the target takes ``data``; whatever it raises but ValueError is a find."""
    try:
        return TARGETS[name](data)
    except ValueError as error:
        # Of ours all say something; what is not UTF-8 is the harness's own reading.
        if not isinstance(error, UnicodeError):
            _check_sentence(error)
        return False


def first_seeds(name: str) -> Iterator[bytes]:
    """What the corpus of a target began with: something good, which fuzzing changes."""
    if name == "token":
        yield _token_text().encode()
    elif name == "claims":
        for claim in (
            {"sub": "jane", "exp": NOW_S + 9, "iat": 1, "aud": ["me"]},
            {"sub": ["a", "b"], "nbf": 3},
            {"sub": "j", "exp": "1", "iat": True, "aud": "me"},
            {"sub": {}, "exp": 1e300, "nbf": -1},
            {"sub": "x", "exp": 1, "iat": 10**39},
        ):
            yield json.dumps(claim).encode()
        yield b'{"sub":"\\ud800"}'
    elif name == "certificate":
        yield _certificate()
    elif name == "subject":
        yield b"ajane\nbAcme\tcSales"
        yield b"ajane, #x\nd\\z"
    elif name == "htpasswd":
        yield b"# users\njane:$apr1$salt$qLmpRcoyVCcfX8OmuFHFN/\n"
        yield b"a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nb:abJnggxhB/yWI\n"
        yield b"c:$5$rounds=1000$s$x\nd:$2y$05$" + b"a" * 53 + b"\n"
    elif name == "credentials":
        yield b"jane:secret:more"
    elif name == "discovery":
        yield json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
    else:
        yield json.dumps({"keys": [_web_key()]}).encode()
        yield json.dumps(
            {"keys": [{"kty": "RSA", "use": "sig", "kid": "r", "e": "AQAB", "n": "_" + "w" * 341}]}
        ).encode()


def _web_key() -> dict[str, Any]:
    # The generator of P-256, which is a point of the curve.
    x = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY"
    y = "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"
    return {"kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "x": x, "y": y}


def _certificate() -> bytes:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    key = ec.derive_private_key(7, ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"), x509.NameAttribute(NameOID.COMMON_NAME, "jane")]
    )
    begin = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
