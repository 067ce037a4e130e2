"""Files of users and hashes of their passwords, as Apache's ``htpasswd`` writes them: ``user:hash``, one a line.

=======================  ====================================================
``$apr1$salt$hash``      MD5, 1000 times (``htpasswd -m``); Pulsar's
13 characters            DES of old Unix (``htpasswd -d``); Pulsar's
``{SHA}base64``          SHA-1 (``htpasswd -s``)
``$5$...`` ``$6$...``    SHA-crypt (``htpasswd -2``, ``-5``)
``$2y$05$...``           bcrypt (``htpasswd -B``), with the package ``bcrypt``
=======================  ====================================================

A plain password is no hash, and is refused. Empty lines and comments (``#``) are passed over.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from geminga.model.extras import check_installed
from geminga.security.base64_text import decode
from geminga.security.des_crypt import ALPHABET, LENGTH, des_crypt
from geminga.security.digest_crypt import PASSWORD_BYTES_MAX, apr1_crypt, check_sha_crypt, sha_crypt

#: Bytes of a file.
FILE_BYTES_MAX: Final = 4 << 20
#: Characters of a user's name and password together, as a stranger sends them.
CREDENTIALS_LENGTH_MAX: Final = 2048
#: Characters of a user's name that a complaint repeats.
_NAME_TOLD_MAX: Final = 64
#: Doublings of bcrypt's work; 14 is a second.
_BCRYPT_COST_MAX: Final = 14
#: What is told of a user that is not there as of a wrong password: Pulsar's words.
REFUSAL: Final = "Unknown user or invalid password"


class HashKind(Enum):
    """How a password is hashed."""

    APR1 = "apr1"
    DES = "DES crypt"
    SHA1 = "SHA-1"
    SHA_CRYPT = "SHA-crypt"
    BCRYPT = "bcrypt"


@dataclass(frozen=True, slots=True)
class PasswordFile:
    """Users and the hashes of their passwords."""

    hashes: Mapping[str, str] = field(repr=False)

    def check(self, user: str, password: bytes) -> bool:
        """Whether it is this user's password. A user that is not there takes as long as one that is."""
        stored = self.hashes.get(user)
        is_right = _is_right(stored if stored is not None else next(iter(self.hashes.values())), password)
        return is_right and stored is not None


def parse_password_file(data: bytes) -> PasswordFile:
    """The file. Raises ValueError with the line, and MissingExtraError for bcrypt without its package."""
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes; at most {FILE_BYTES_MAX} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, stored = line.partition(":")
        if not colon or not user or ":" in stored:
            raise ValueError(f"line {number}: expected user:hash")
        if user in found:
            raise ValueError(f"line {number}: {_short(user)} is there twice")
        try:
            kind_of(stored)
        except ValueError as error:
            raise ValueError(f"line {number}, user {_short(user)}: {error}") from None
        found[user] = stored
    if not found:
        raise ValueError("no user is in it; expected lines of user:hash")
    return PasswordFile(found)


def _short(user: str) -> str:
    return repr(user if len(user) <= _NAME_TOLD_MAX else user[:_NAME_TOLD_MAX] + "...")


def kind_of(stored: str) -> HashKind:
    """How ``stored`` was made. Raises ValueError where it is no hash, MissingExtraError without a package for it."""
    if stored.startswith("$apr1$"):
        parts = stored.split("$")
        if len(parts) == 4 and 0 < len(parts[2]) <= 8 and len(parts[3]) == 22 and stored.isascii():
            return HashKind.APR1
        raise ValueError("expected $apr1$salt$hash with a salt of up to 8 characters")
    if stored.startswith(("$5$", "$6$")):
        check_sha_crypt(stored)
        return HashKind.SHA_CRYPT
    if stored.startswith("{SHA}"):
        if len(decode(stored.removeprefix("{SHA}"))) != 20:
            raise ValueError("expected {SHA} and 20 bytes in base64")
        return HashKind.SHA1
    if stored.startswith(("$2a$", "$2b$", "$2y$")):
        cost = stored[4:6]
        if len(stored) != 60 or not stored.isascii() or not cost.isdecimal() or stored[6] != "$":
            raise ValueError("expected $2y$cost$ and 53 characters")
        if not 4 <= int(cost) <= _BCRYPT_COST_MAX:
            raise ValueError(f"bcrypt of the cost {int(cost)}; expected 4 to {_BCRYPT_COST_MAX}")
        check_installed("bcrypt", "a password file with bcrypt")
        return HashKind.BCRYPT
    if len(stored) == LENGTH and all(one in ALPHABET for one in stored):
        return HashKind.DES
    raise ValueError("not a hash of a kind that is known (apr1, DES crypt, {SHA}, SHA-crypt, bcrypt)")


def parse_credentials(text: str) -> tuple[str, bytes]:
    """User and password of ``user:password``; a colon may be in the password. Raises ValueError."""
    user, colon, password = text.partition(":")
    if len(text) > CREDENTIALS_LENGTH_MAX:
        raise ValueError(f"more than {CREDENTIALS_LENGTH_MAX} characters of user and password")
    if not colon or not user or not password:
        raise ValueError("expected user:password")
    return user, password.encode("utf-8", "surrogatepass")


def _is_right(stored: str, password: bytes) -> bool:
    if len(password) > PASSWORD_BYTES_MAX:
        return False
    kind = kind_of(stored)
    if kind is HashKind.BCRYPT:
        import bcrypt

        # It takes 72 bytes and no zero byte.
        return b"\0" not in password and len(password) <= 72 and bcrypt.checkpw(password, stored.encode("ascii"))
    if kind is HashKind.APR1:
        made = apr1_crypt(password, stored.split("$")[2])
    elif kind is HashKind.SHA_CRYPT:
        made = sha_crypt(password, stored)
    elif kind is HashKind.DES:
        made = des_crypt(password, stored[:2])
    else:
        return hmac.compare_digest(hashlib.sha1(password).digest(), decode(stored.removeprefix("{SHA}")))
    return hmac.compare_digest(made, stored)
