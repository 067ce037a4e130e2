"""Password files: hashes that other programs made, and everything that is none."""

from __future__ import annotations

import pytest

from geminga.security.des_crypt import des_crypt
from geminga.security.digest_crypt import PASSWORD_BYTES_MAX, apr1_crypt, sha_crypt
from geminga.security.htpasswd import (
    CREDENTIALS_LENGTH_MAX,
    FILE_BYTES_MAX,
    HashKind,
    PasswordFile,
    kind_of,
    parse_credentials,
    parse_password_file,
)

PASSWORD = "hello:wörld".encode()
#: Of that password; made by OpenSSL (apr1), crypt(3) of GNU's C library (DES and SHA-crypt) and the package bcrypt.
STORED = {
    "$apr1$r31.....$yUiqu3UQ5QvvGIpCWfh5y1": HashKind.APR1,
    "ab7Wl3zw4JrNg": HashKind.DES,
    "{SHA}kTY89wPLfXCNWnIyzRMCTvbXcSA=": HashKind.SHA1,
    "$5$rounds=1000$salty$49rjKDZmUhjv0kb72UmlarmjafhYS5YpTw.EzX7t/ZD": HashKind.SHA_CRYPT,
    "$6$pepper$"
    "U.r8sTCFc.j9OZWKvhY2yhgiOS0O9IhYdshagUzqh67dgol8X.OXJ2Uy48XdPF0eHooAtZrZ9ok0Eq229RwA3.": HashKind.SHA_CRYPT,
    "$2b$04$abcdefghijklmnopqrstuu/mBc8.TtTyelA9s6NDuoAkPomuW43si": HashKind.BCRYPT,
}


@pytest.mark.parametrize(("stored", "kind"), STORED.items())
def test_password_is_known_by_the_hash_of_another_program(stored: str, kind: HashKind) -> None:
    assert kind_of(stored) is kind
    users = parse_password_file(f"jane:{stored}\n".encode())
    assert users.check("jane", PASSWORD)
    assert not users.check("jane", b"H" + PASSWORD[1:])
    assert not users.check("joe", PASSWORD)
    assert not users.check("", PASSWORD)


def test_hash_that_was_changed_by_a_character_knows_nobody() -> None:
    for stored in STORED:
        if not stored.startswith("$2b"):
            changed = stored[:-2] + ("0" if stored[-2] != "0" else "1") + stored[-1]
            assert not PasswordFile({"jane": changed}).check("jane", PASSWORD)


def test_of_des_eight_bytes_count_and_of_others_all() -> None:
    assert des_crypt(b"password", "zZ") == des_crypt(b"password1", "zZ")
    assert des_crypt(b"passwore", "zZ") != des_crypt(b"password", "zZ")
    assert apr1_crypt(b"x" * 40, "s") != apr1_crypt(b"x" * 41, "s")
    assert sha_crypt(b"x" * 70, "$6$s$") != sha_crypt(b"x" * 71, "$6$s$")


def test_password_longer_than_the_bound_is_not_computed() -> None:
    long = b"x" * (PASSWORD_BYTES_MAX + 1)
    assert not PasswordFile({"jane": apr1_crypt(long, "s")}).check("jane", long)


def test_comments_and_empty_lines_are_passed_over() -> None:
    users = parse_password_file(b"# made by hand\r\n\r\njane:ab7Wl3zw4JrNg\r\n")
    assert [*users.hashes] == ["jane"]
    assert "ab7Wl3zw4JrNg" not in repr(users)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no user is in it"),
        (b"# nobody", "no user is in it"),
        (b"jane", "line 1: expected user:hash"),
        (b"jane:ab7Wl3zw4JrNg\njoe:a:b", "line 2: expected user:hash"),
        (b":ab7Wl3zw4JrNg", "line 1: expected user:hash"),
        (b"jane:ab7Wl3zw4JrNg\njane:ab7Wl3zw4JrNg", "line 2: 'jane' is there twice"),
        (b"jane:secret", "line 1, user 'jane': not a hash of a kind that is known"),
        (b"j" * 100 + b":x", f"^line 1, user '{'j' * 64}...': not a hash of a kind"),
        (b"jane:ab7Wl3zw4JrN!", "not a hash of a kind that is known"),
        (b"jane:$apr1$toolongasalt$yUiqu3UQ5QvvGIpCWfh5y1", "a salt of up to 8 characters"),
        (b"jane:{SHA}kTY8", "20 bytes"),
        (b"jane:{SHA}!!", "not base64"),
        (b"jane:$6$rounds=99999999$s$x", "99999999 rounds; expected 1000 to 1000000"),
        (b"jane:$6$rounds=$s$x", "rounds= without a number"),
        (b"jane:$6$", "expected \\$5\\$salt\\$hash"),
        (b"jane:$2y$31$abcdefghijklmnopqrstuu/mBc8.TtTyelA9s6NDuoAkPomuW43si", "bcrypt of the cost 31"),
        (b"jane:$2y$05$short", "53 characters"),
        (b"\xff\xfe", "not UTF-8"),
        (b"j" * (FILE_BYTES_MAX + 1), "at most 4194304 are read"),
    ],
)
def test_file_that_can_not_be_used_is_refused_with_the_line(data: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        parse_password_file(data)
    assert "secret" not in str(raised.value)


def test_credentials_are_a_user_and_a_password_that_may_have_colons() -> None:
    assert parse_credentials("jane:a:b") == ("jane", b"a:b")
    for text in ("", "jane", "jane:", ":a", ":"):
        with pytest.raises(ValueError, match="expected user:password"):
            parse_credentials(text)
    with pytest.raises(ValueError, match="more than"):
        parse_credentials("jane:" + "x" * CREDENTIALS_LENGTH_MAX)
