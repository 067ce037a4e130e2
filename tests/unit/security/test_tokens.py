"""Tokens: what others signed is taken, and whatever could pass for it is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from geminga.security.algorithms import ALGORITHMS, algorithm_named, is_key_pair_encoding
from geminga.security.base64_text import encode_url
from geminga.security.keys import (
    SECRET_BYTES_MIN,
    PublicVerifier,
    Signer,
    Verifier,
    private_key,
    public_key,
    secret_key,
)
from geminga.security.token_rules import ROLE_LENGTH_MAX, Proved, TokenRules, create_token
from geminga.security.web_token import HEADER_BYTES_MAX, TOKEN_LENGTH_MAX, parse_token

#: RFC 7515, appendix A.1: a secret, and what it signed.
RFC_SECRET = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"
RFC_TOKEN = (
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9p"
    "c19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
)
#: RFC 8037, appendix A: a public key of Ed25519, and what it signed.
RFC_ED_KEY = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
RFC_ED_SIGNED = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
RFC_ED_SIGNATURE = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"

SECRET = bytes(range(64))
RSA_KEY = rsa.generate_private_key(65537, 2048)
PRIVATE = {
    "RSA": RSA_KEY,
    "P-256": ec.generate_private_key(ec.SECP256R1()),
    "P-384": ec.generate_private_key(ec.SECP384R1()),
    "P-521": ec.generate_private_key(ec.SECP521R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    "Ed448": ed448.Ed448PrivateKey.generate(),
}
KIND_OF = {
    **{f"{kind}{bits}": "RSA" for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
}


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def widened(signature: bytes) -> bytes:
    half = len(signature) // 2
    return signature[:half] + b"\0" + signature[half:]


def pair(name: str) -> tuple[Signer, Verifier]:
    """Keys of an algorithm, out of the files that Pulsar's tools would write."""
    if name.startswith("HS"):
        return secret_key(SECRET), secret_key(SECRET)
    key = PRIVATE[KIND_OF[name]]
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return private_key(private), public_key(public)


def test_token_of_the_standard_is_taken_with_the_secret_of_the_standard() -> None:
    rules = TokenRules(keys=[secret_key(decoded(RFC_SECRET))], role_claim="iss")
    assert rules.prove(RFC_TOKEN, 1300819380.0) == Proved("joe", 1300819380.0)
    with pytest.raises(ValueError, match="the token expired on 2011-03-22T18:43:00Z"):
        rules.prove(RFC_TOKEN, 1300819380.5)


def test_signature_of_the_standard_for_edwards_curves_is_right() -> None:
    key = ed25519.Ed25519PublicKey.from_public_bytes(decoded(RFC_ED_KEY))
    verifier = public_key(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    assert verifier.verify(algorithm_named("EdDSA"), RFC_ED_SIGNED, decoded(RFC_ED_SIGNATURE))
    assert not verifier.verify(algorithm_named("EdDSA"), RFC_ED_SIGNED + b"x", decoded(RFC_ED_SIGNATURE))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_takes_its_own_signature_and_no_other(name: str) -> None:
    signer, verifier = pair(name)
    token = create_token(signer, name, {"sub": "jane"}, {})
    assert TokenRules(keys=[verifier]).prove(token, 0.0) == Proved("jane")
    head, claims, signature = token.split(".")
    for wrong in (
        encode_url(decoded(signature)[:-8]),
        encode_url(decoded(signature) + b"\0"),
        encode_url(bytes(len(decoded(signature)))),
        encode_url(bytes([decoded(signature)[0] ^ 1]) + decoded(signature)[1:]),
        # The same numbers for a curve, written longer.
        encode_url(widened(decoded(signature))),
        "",
    ):
        with pytest.raises(ValueError, match="of another key"):
            TokenRules(keys=[verifier]).prove(f"{head}.{claims}.{wrong}", 0.0)
    other = encode_url(b'{"sub":"admin"}')
    with pytest.raises(ValueError, match="of another key"):
        TokenRules(keys=[verifier]).prove(f"{head}.{other}.{signature}", 0.0)


def test_token_that_is_not_signed_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "", None, 5, ["HS256"]):
        header = encode_url(json.dumps({"alg": algorithm}).encode())
        for signature in ("", "AAAA"):
            with pytest.raises(ValueError, match=r"not signed \(alg: none\)"):
                TokenRules(keys=[secret_key(SECRET)]).prove(f"{header}.{encode_url(b'{}')}.{signature}", 0.0)


@pytest.mark.parametrize("encoding", [Encoding.DER, Encoding.PEM])
def test_public_key_is_no_secret(encoding: Encoding) -> None:
    """Whoever knows it signs with it as with a secret, and names HS256: the oldest trick."""
    public = RSA_KEY.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    header, claims = encode_url(b'{"alg":"HS256"}'), encode_url(b'{"sub":"admin"}')
    forged = encode_url(hmac.digest(public, f"{header}.{claims}".encode(), hashlib.sha256))
    with pytest.raises(ValueError, match="signed by HS256, which no key of this server takes"):
        TokenRules(keys=[public_key(public)]).prove(f"{header}.{claims}.{forged}", 0.0)
    with pytest.raises(ValueError, match="not to be used as a secret"):
        secret_key(public)


@pytest.mark.parametrize("kind", PRIVATE)
def test_keys_of_pairs_are_known_by_their_bytes(kind: str) -> None:
    key = PRIVATE[kind]
    formats = (
        [PrivateFormat.PKCS8] if kind.startswith("Ed") else [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL]
    )
    for encoding in (Encoding.DER, Encoding.PEM):
        assert is_key_pair_encoding(key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo))
        for form in formats:
            assert is_key_pair_encoding(key.private_bytes(encoding, form, NoEncryption()))
    assert not is_key_pair_encoding(b"\x30\x1e" + bytes(30))
    assert not is_key_pair_encoding(SECRET)


def test_secret_must_be_as_long_as_the_digest() -> None:
    assert secret_key(SECRET[:32]).algorithms == {"HS256"}
    assert secret_key(SECRET[:48]).algorithms == {"HS256", "HS384"}
    assert secret_key(SECRET).preferred == "HS512"
    with pytest.raises(ValueError, match="the key has 248 bits; expected at least 256"):
        secret_key(SECRET[: SECRET_BYTES_MIN - 1])
    token = create_token(secret_key(SECRET), "HS512", {"sub": "jane"}, {})
    with pytest.raises(ValueError, match="HS512, which no key of this server takes"):
        TokenRules(keys=[secret_key(SECRET[:48])]).prove(token, 0.0)
    with pytest.raises(ValueError, match="does not take RS256"):
        create_token(secret_key(SECRET), "RS256", {}, {})


def test_either_of_two_keys_signs_while_one_is_replaced() -> None:
    old, new = secret_key(SECRET[:32]), secret_key(SECRET[32:])
    tokens = [create_token(key, "HS256", {"sub": "jane"}, {}) for key in (old, new)]
    both = TokenRules(keys=[old, new])
    assert [both.prove(token, 0.0).role for token in tokens] == ["jane", "jane"]
    with pytest.raises(ValueError, match="of another key"):
        TokenRules(keys=[new]).prove(tokens[0], 0.0)
    mixed = TokenRules(keys=[old, pair("RS256")[1]])
    assert mixed.prove(create_token(pair("RS256")[0], "RS384", {"sub": "joe"}, {}), 0.0) == Proved("joe")


def test_weak_and_strange_keys_are_refused() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    for made in (
        lambda: public_key(weak.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)),
        lambda: private_key(weak.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())),
    ):
        with pytest.raises(ValueError, match="the key has 1024 bits; expected 2048"):
            made()
    other = ec.generate_private_key(ec.SECP224R1())
    with pytest.raises(ValueError, match="of the curve secp224r1"):
        public_key(other.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    strange = dsa.generate_private_key(1024)
    with pytest.raises(ValueError, match="of the kind"):
        public_key(strange.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ValueError, match="of the kind"):
        private_key(strange.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))
    locked = PRIVATE["P-256"].private_bytes(Encoding.DER, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    with pytest.raises(ValueError, match="without a password"):
        private_key(locked)
    for data in (b"", b"\x30", b"-----BEGIN PUBLIC KEY-----\n", SECRET, b"x" * 100_000):
        with pytest.raises(ValueError, match="public key"):
            public_key(data)
        with pytest.raises(ValueError, match="private key"):
            private_key(data)


def test_key_pairs_name_the_algorithm_that_pulsars_tool_takes() -> None:
    assert {kind: private_key(der(key)).preferred for kind, key in PRIVATE.items()} == {
        "RSA": "RS256",
        "P-256": "ES256",
        "P-384": "ES384",
        "P-521": "ES512",
        "Ed25519": "EdDSA",
        "Ed448": "EdDSA",
    }


def der(key: object) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


# ---- claims


def said(claims: dict[str, object], *, now_s: float = 1000.0, **rules: object) -> Proved:
    token = create_token(secret_key(SECRET), "HS256", claims, {})
    return TokenRules(keys=[secret_key(SECRET)], **rules).prove(token, now_s)


def test_times_of_a_token_are_kept_with_the_clock_a_little_off() -> None:
    assert said({"sub": "a", "exp": 1000}) == Proved("a", 1000.0)
    with pytest.raises(ValueError, match="the token expired on 1970-01-01T00:16:39Z"):
        said({"sub": "a", "exp": 999})
    assert said({"sub": "a", "exp": 999}, skew_s=1.0) == Proved("a", 999.0)
    with pytest.raises(ValueError, match="expired"):
        said({"sub": "a", "exp": 998.5}, skew_s=1.0)
    assert said({"sub": "a", "nbf": 1000}) == Proved("a")
    with pytest.raises(ValueError, match="not yet valid: it begins on 1970-01-01T00:16:41Z"):
        said({"sub": "a", "nbf": 1001})
    assert said({"sub": "a", "nbf": 1001}, skew_s=1.0) == Proved("a")
    # When it was made proves nothing, as in Pulsar; a clock may be ahead.
    assert said({"sub": "a", "iat": 5000}) == Proved("a")
    for wrong in ("1000", True, [], {}):
        for claim in ("exp", "nbf", "iat"):
            with pytest.raises(ValueError, match="is not a number of seconds"):
                said({"sub": "a", claim: wrong})
    with pytest.raises(ValueError, match="the token expired on -"):
        said({"sub": "a", "exp": -(10**30)})


def test_audience_is_one_of_those_that_the_server_stands_for() -> None:
    rules = {"audience_claim": "aud", "audiences": frozenset({"east", "all"})}
    assert said({"sub": "a", "aud": "east"}, **rules) == Proved("a")
    assert said({"sub": "a", "aud": ["x", "all"]}, **rules) == Proved("a")
    for wrong, told in (
        (None, "names no audience"),
        ("west", "another audience"),
        ([], "another audience"),
        ([["east"], 5, {}], "another audience"),
        (5, "neither a text nor a list"),
    ):
        with pytest.raises(ValueError, match=told):
            said({"sub": "a", "aud": wrong}, **rules)
    assert said({"sub": "a", "aud": "west"}) == Proved("a")


def test_role_is_a_text_or_the_first_of_a_list() -> None:
    assert said({"roles": ["a", "b"]}, role_claim="roles") == Proved("a")
    for wrong in ([], [5], 5, "", None, {}, [["a"]], True):
        with pytest.raises(ValueError, match="names no role"):
            said({"roles": wrong}, role_claim="roles")
    with pytest.raises(ValueError, match="more than"):
        said({"sub": "x" * (ROLE_LENGTH_MAX + 1)})


def test_all_roles_of_the_claim_are_told_where_they_are_asked_for() -> None:
    def roles(claim: object) -> frozenset[str] | None:
        return said({"roles": claim}, role_claim="roles", takes_all_roles=True).roles

    assert said({"roles": ["a", "b"]}, role_claim="roles").roles is None
    assert roles("a") == {"a"}
    # As in Pulsar, what is no text is the role of nobody.
    assert roles(["a", "b", 5, "", None, ["c"], "b"]) == {"a", "b"}
    with pytest.raises(ValueError, match="names no role"):
        roles([])
    with pytest.raises(ValueError, match=r"257 roles .*at most 256"):
        roles(["a"] * 257)
    with pytest.raises(ValueError, match="one of the token's roles has more than"):
        roles(["a", "x" * (ROLE_LENGTH_MAX + 1)])


# ---- the form


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "1 parts; expected header.claims.signature"),
        ("a.b", "2 parts"),
        ("a.b.c.d", "4 parts"),
        ("a.b.c", "the token's header: not base64"),
        ("e30=.e30.", "the token's header: not base64"),
        ("e30.e3 0.", "the token's claims: not base64"),
        ("e30.e30.é", "the token's signature: not base64"),
        ("e30.e31.", "the token's claims: base64 whose last bits are not zero"),
        ("W10.e30.", "the token's header is not a JSON object"),
        ("x" * (TOKEN_LENGTH_MAX + 1), "at most 32768 are taken"),
    ],
)
def test_form_that_is_none_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_token(text)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b'{"alg":"HS256","alg":"none"}', "has a key twice"),
        (b'{"alg":"HS256","kid":"\\ud800"}', "has half of a character"),
        (b'{"alg":"HS256","crit":["exp"]}', "crit, which is not understood"),
        (b'{"alg":NaN}', "is not JSON"),
        (b'{"x":' + b"9" * 50 + b"}", "is not JSON"),
        (b'{"x":1e999}', "is not JSON"),
        (b"[" * 3000, "is not JSON"),
        (b"\xff", "is not JSON"),
        (b'{"x":"' + b"x" * HEADER_BYTES_MAX + b'"}', "at most 4096 are taken"),
    ],
)
def test_header_that_could_be_read_twice_is_refused(header: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_token(f"{encode_url(header)}.e30.")


def test_nothing_of_signature_or_key_is_shown() -> None:
    token = parse_token(create_token(secret_key(SECRET), "HS256", {"sub": "jane"}, {"kid": "one"}))
    assert token.key_id == "one"
    assert "signature" not in repr(token)
    assert repr(SECRET)[2:20] not in repr(secret_key(SECRET))
    verifier = pair("RS256")[1]
    assert isinstance(verifier, PublicVerifier)
    assert "key=" not in repr(verifier)


def test_algorithm_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="'HS1' is no algorithm of signatures; expected one of HS256"):
        algorithm_named("HS1")
    header = encode_url(b'{"alg":"HS1"}')
    with pytest.raises(ValueError, match="the token is signed by 'HS1'"):
        TokenRules(keys=[secret_key(SECRET)]).prove(f"{header}.e30.", 0.0)
