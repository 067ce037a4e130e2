"""Tokens against an oracle that is written down once more, and everything that could be sent instead of one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from hypothesis import given
from hypothesis import strategies as st

from geminga.security.base64_text import decode_url, encode_url
from geminga.security.certificate_role import distinguished_name, role_of_subject, subject_of
from geminga.security.htpasswd import parse_credentials, parse_password_file
from geminga.security.json_object import parse_object
from geminga.security.key_text import place_of
from geminga.security.keys import secret_key
from geminga.security.openid import keys_url_of, parse_keys
from geminga.security.token_rules import Proved, TokenRules, create_token
from geminga.security.web_token import parse_token

SECRET = secret_key(bytes(range(32)))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=3,
)
times = st.none() | st.integers(0, 2000) | st.floats(0, 2000)


def oracle(text: str, secret: bytes, now_s: float, skew_s: float) -> Proved | None:
    """What a token of HS256 proves, as short as it can be said; None: nothing."""
    parts = text.split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "===")) for part in parts[:2])
    signature = base64.urlsafe_b64decode(parts[2] + "===")
    right = hmac.new(secret, ".".join(parts[:2]).encode(), hashlib.sha256).digest()
    expires_s, begins_s = claims.get("exp"), claims.get("nbf")
    is_good = (
        header["alg"] == "HS256"
        and signature == right
        and (expires_s is None or now_s <= expires_s + skew_s)
        and (begins_s is None or begins_s <= now_s + skew_s)
        and isinstance(claims.get("sub"), str)
        and claims["sub"] != ""
    )
    return Proved(claims["sub"], None if expires_s is None else float(expires_s)) if is_good else None


@given(st.text(max_size=5), times, times, st.integers(0, 2000), st.sampled_from([0, 60]), st.booleans())
def test_token_proves_what_the_oracle_says(
    role: str, expires_s: float | None, begins_s: float | None, now_s: int, skew_s: int, is_ours: bool
) -> None:
    claims = {"sub": role, "exp": expires_s, "nbf": begins_s, "x": [1]}
    signer = SECRET if is_ours else secret_key(bytes(32))
    token = create_token(signer, "HS256", claims, {})
    expected = oracle(token, bytes(range(32)), now_s, skew_s)
    try:
        found = TokenRules(keys=[SECRET], skew_s=skew_s).prove(token, now_s)
    except ValueError:
        found = None
    assert found == expected


@given(st.data())
def test_token_with_a_character_changed_proves_nothing(data: st.DataObject) -> None:
    token = create_token(SECRET, "HS256", {"sub": "jane", "exp": 2000}, {})
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters())
    changed = token[:place] + other + token[place + 1 :]
    if changed == token:
        return
    try:
        TokenRules(keys=[SECRET]).prove(changed, 0.0)
    except ValueError:
        return
    raise AssertionError(changed)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4))
def test_claims_are_read_as_they_were_written(claims: dict[str, object]) -> None:
    token = parse_token(create_token(SECRET, "HS256", claims, {"kid": "k"}))
    assert token.claims == claims
    assert token.header == {"kid": "k", "alg": "HS256"}


@given(st.binary(max_size=40))
def test_each_value_has_one_text(data: bytes) -> None:
    text = encode_url(data)
    assert decode_url(text) == data
    assert text.rstrip("=") == text


@given(st.text(max_size=40))
def test_a_text_that_is_read_is_the_one_of_its_value(text: str) -> None:
    try:
        data = decode_url(text)
    except ValueError:
        return
    assert encode_url(data) == text


mess = st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1"))


@given(mess | st.lists(mess.map(lambda text: encode_url(text.encode())), min_size=3, max_size=3).map(".".join))
def test_whatever_is_sent_is_refused_by_a_sentence_or_proves_nothing(text: str) -> None:
    for read in (
        lambda: TokenRules(keys=[SECRET]).prove(text, 0.0),
        lambda: parse_password_file(text.encode("utf-8", "surrogatepass")),
        lambda: parse_credentials(text),
        lambda: place_of(text),
        lambda: parse_keys(text.encode("utf-8", "surrogatepass")),
        lambda: parse_keys(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": text, "y": text}]}).encode()),
        lambda: parse_keys(json.dumps({"keys": [{"kty": "RSA", "n": text, "e": text, "use": "sig"}]}).encode()),
        lambda: keys_url_of(text.encode("utf-8", "surrogatepass"), text),
        lambda: subject_of(text.encode("utf-8", "surrogatepass")),
        lambda: parse_object(text.encode("utf-8", "surrogatepass"), "it", 100),
    ):
        try:
            found = read()
        except ValueError:
            continue
        assert not isinstance(found, Proved)


@given(st.lists(st.tuples(st.sampled_from(["2.5.4.3", "2.5.4.10", "1.2.3"]), st.text(max_size=8)), max_size=4))
def test_no_value_passes_for_another_attribute(parts: list[tuple[str, str]]) -> None:
    """The role begins a common name of the certificate, whatever the other values hold."""
    subject = [[part] for part in parts]
    names = [value for kind, value in parts if kind == "2.5.4.3"]
    try:
        role = role_of_subject(subject)
    except ValueError:
        assert not any(names)
        return
    plain = role.replace("\\00", "\0").replace("\\", "")
    assert any(name.replace("\\", "").startswith(plain) or plain.startswith(name.replace("\\", "")) for name in names)
    assert f"CN={role}" in distinguished_name(subject)
