"""Documents of issuers, and what their tokens must say."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from geminga.security.keys import private_key
from geminga.security.openid import (
    DOCUMENT_BYTES_MAX,
    KEYS_MAX,
    OpenIdRules,
    discovery_url,
    fitting,
    keys_url_of,
    parse_keys,
)
from geminga.security.token_rules import Proved, check_signature, create_token
from geminga.security.web_token import parse_token
from support.house.signing import web_key

ISSUER = "https://issuer.example/realm"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP384R1())


def signer(key):
    return private_key(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


def listed(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_document_says_where_the_keys_are() -> None:
    assert discovery_url(ISSUER) == discovery_url(ISSUER + "/") == ISSUER + "/.well-known/openid-configuration"
    document = {"issuer": ISSUER, "jwks_uri": "https://issuer.example/keys", "other": [1]}
    assert keys_url_of(json.dumps(document).encode(), ISSUER) == "https://issuer.example/keys"
    for wrong, told in (
        ({**document, "issuer": "https://other.example"}, "is of another issuer"),
        ({"jwks_uri": "https://x"}, "is of another issuer"),
        ({"issuer": ISSUER}, "has no jwks_uri"),
        ({"issuer": ISSUER, "jwks_uri": 5}, "has no jwks_uri"),
        ([], "is not a JSON object"),
    ):
        with pytest.raises(ValueError, match=told):
            keys_url_of(json.dumps(wrong).encode(), ISSUER)
    with pytest.raises(ValueError, match="at most"):
        keys_url_of(bytes(DOCUMENT_BYTES_MAX + 1), ISSUER)


@pytest.mark.parametrize(("key", "algorithm"), [(RSA_KEY, "RS256"), (RSA_KEY, "RS512"), (EC_KEY, "ES384")])
def test_key_that_is_listed_verifies_what_it_signed(key, algorithm: str) -> None:
    token = parse_token(create_token(signer(key), algorithm, {"sub": "a"}, {"kid": "one"}))
    # Issuers leave out alg, and some use.
    for shape in ({}, {"alg": algorithm}, {"use": "sig"}):
        keys = parse_keys(listed(web_key(key.public_key(), "other"), {**web_key(key.public_key(), "one"), **shape}))
        (verifier,) = fitting(keys, token)
        check_signature(token, [verifier])
    unnamed = parse_token(create_token(signer(key), algorithm, {"sub": "a"}, {}))
    assert len(fitting(keys, unnamed)) == 2
    assert not fitting(parse_keys(listed({**web_key(key.public_key(), "one"), "alg": "RS384"})), token)
    assert not fitting(parse_keys(listed(web_key(key.public_key(), "two"))), token)


def test_keys_of_other_kinds_are_passed_over() -> None:
    good = web_key(EC_KEY.public_key(), "good")
    strange = [
        {**good, "use": "enc"},
        {"kty": "oct", "k": "AAAA", "kid": "good"},
        {**good, "crv": "P-999"},
        {**good, "x": "!"},
        {**good, "x": 5},
        {**good, "x": "A" * 5000},
        {**good, "y": good["x"]},
        web_key(rsa.generate_private_key(65537, 1024).public_key(), "weak"),
        "text",
        None,
    ]
    (key,) = parse_keys(listed(*strange, good))
    assert key.key_id == "good"
    assert parse_keys(listed()) == ()
    for wrong in (b"{}", b'{"keys":5}', b"x", listed(*[{}] * (KEYS_MAX + 1))):
        with pytest.raises(ValueError, match="keys"):
            parse_keys(wrong)


def test_token_says_when_it_was_made_when_it_ends_and_for_whom() -> None:
    rules = OpenIdRules(audiences=frozenset({"pulsar"}), role_claim="role", skew_s=5.0)
    good = {"aud": ["x", "pulsar"], "iat": 900, "exp": 1000, "sub": "a", "role": "jane"}

    def said(now_s: float = 950.0, **changed: object) -> Proved:
        claims = {name: value for name, value in {**good, **changed}.items() if value is not None}
        return rules.claims_of(parse_token(create_token(signer(EC_KEY), "ES384", claims, {})), now_s)

    assert said() == Proved("jane", 1000.0)
    assert said(1005.0) == Proved("jane", 1000.0)
    for now_s, changed, told in (
        (1006.0, {}, "expired"),
        (950.0, {"exp": None}, "no claim 'exp'"),
        (950.0, {"iat": None}, "no claim 'iat'"),
        (950.0, {"iat": 956}, "made in the future"),
        (950.0, {"iat": "900"}, "not a number of seconds"),
        (950.0, {"sub": None}, "no claim 'sub'"),
        (950.0, {"nbf": 960}, "not yet valid"),
        (950.0, {"aud": "other"}, "another audience"),
        (950.0, {"aud": None}, "no audience"),
        (950.0, {"role": None}, "no role"),
    ):
        with pytest.raises(ValueError, match=told):
            said(now_s, **changed)
