"""Password hashes that repeat a digest: ``$apr1$`` (MD5, of Apache's htpasswd), ``$5$`` and ``$6$`` (SHA-crypt).

::

    $apr1$salt$hash                a salt of up to 8 characters, 1000 rounds
    $5$rounds=5000$salt$hash       SHA-256; $6$: SHA-512; a salt of up to 16, at least 1000 rounds

Sources: Apache's ``apr_md5.c`` and Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from geminga.security.des_crypt import ALPHABET

#: More than that are not computed: a second or so.
ROUNDS_MAX: Final = 1_000_000
_ROUNDS_DEFAULT: Final = 5000
_ROUNDS_MIN: Final = 1000
#: Bytes of a password; the work grows with it.
PASSWORD_BYTES_MAX: Final = 512


_NewHash: TypeAlias = "Callable[[bytes], hashlib._Hash]"


def apr1_crypt(password: bytes, salt: str) -> str:
    """``$apr1$salt$hash``."""
    salted = salt[:8].encode("ascii")
    length = len(password)
    other = hashlib.md5(password + salted + password).digest()
    start = password + b"$apr1$" + salted + _repeated(other, length)
    bits = length
    while bits:
        start += b"\0" if bits & 1 else password[:1]
        bits >>= 1
    digest = _stretched(hashlib.md5, start, password, salted, 1000)
    groups = [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)]
    text = "".join(_characters(_joined(digest, group), 4) for group in groups) + _characters(digest[11], 2)
    return f"$apr1${salt[:8]}${text}"


def _stretched(new: _NewHash, start: bytes, password: bytes, salt: bytes, rounds: int) -> bytes:
    """The hash of ``start``, hashed again with password and salt so many times."""
    digest = new(start).digest()
    for number in range(rounds):
        parts = [password if number & 1 else digest]
        if number % 3:
            parts.append(salt)
        if number % 7:
            parts.append(password)
        parts.append(digest if number & 1 else password)
        digest = new(b"".join(parts)).digest()
    return digest


def sha_crypt(password: bytes, stored: str) -> str:
    """The hash with kind, rounds and salt of ``stored``. Raises ValueError where they are none."""
    kind, rounds, salt, is_explicit = _parameters(stored)
    new: _NewHash = hashlib.sha256 if kind == "5" else hashlib.sha512
    size = 32 if kind == "5" else 64
    salted = salt.encode("ascii")
    length = len(password)
    other = new(password + salted + password).digest()
    start = password + salted + _repeated(other, length)
    bits = length
    while bits:
        start += other if bits & 1 else password
        bits >>= 1
    p = _repeated(new(password * length).digest(), length)
    s = _repeated(new(salted * (16 + new(start).digest()[0])).digest(), len(salted))
    digest = _stretched(new, start, p, s, rounds)
    text = "".join(_characters(_joined(digest, group), count) for group, count in _groups(size))
    explicit = f"rounds={rounds}$" if is_explicit else ""
    return f"${kind}${explicit}{salt}${text}"


def check_sha_crypt(stored: str) -> None:
    """Return if :func:`sha_crypt` takes kind, rounds and salt of ``stored``; raises ValueError."""
    _parameters(stored)


def _parameters(stored: str) -> tuple[str, int, str, bool]:
    """Kind, rounds, salt, and whether the rounds are written."""
    parts = stored.split("$")
    if len(parts) < 4 or parts[0] or parts[1] not in ("5", "6") or not stored.isascii():
        raise ValueError("expected $5$salt$hash or $6$salt$hash")
    rounds, is_explicit = _ROUNDS_DEFAULT, parts[2].startswith("rounds=")
    if is_explicit:
        digits = parts[2].removeprefix("rounds=")
        if not digits.isdecimal() or len(digits) > 9:
            raise ValueError("rounds= without a number")
        rounds = int(digits)
        if not _ROUNDS_MIN <= rounds <= ROUNDS_MAX:
            raise ValueError(f"{rounds} rounds; expected {_ROUNDS_MIN} to {ROUNDS_MAX}")
        parts = [*parts[:2], *parts[3:]]
    return parts[1], rounds, parts[2][:16], is_explicit


def _groups(size: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Which bytes of a digest make which characters: three of a group give four."""
    if size == 32:
        first = (0, 10, 20)
        for _ in range(10):
            yield first, 4
            first = ((first[2] + 1) % 30, (first[0] + 1) % 30, (first[1] + 1) % 30)
        yield (31, 30), 3
        return
    first = (0, 21, 42)
    for _ in range(21):
        yield first, 4
        first = ((first[1] + 1) % 63, (first[2] + 1) % 63, (first[0] + 1) % 63)
    yield (63,), 2


def _repeated(block: bytes, length: int) -> bytes:
    return (block * (length // len(block) + 1))[:length]


def _joined(digest: bytes, group: tuple[int, ...]) -> int:
    return int.from_bytes(bytes(digest[place] for place in group), "big")


def _characters(value: int, count: int) -> str:
    return "".join(ALPHABET[value >> 6 * place & 63] for place in range(count))
