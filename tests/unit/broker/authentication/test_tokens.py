"""Tokens that are known again: cheaper, and never for longer than their key and their time hold."""

from __future__ import annotations

import pytest

from geminga.broker.access.core.handshake import Credentials
from geminga.broker.authentication.ports import RefusedError
from geminga.broker.authentication.tokens import REMEMBERED_LENGTH_MAX, REMEMBERED_MAX, TokenProvider
from geminga.security.algorithms import Algorithm
from geminga.security.keys import secret_key
from geminga.security.token_rules import TokenRules
from support.house.signing import OTHER_SECRET, SECRET, token_of
from unit.broker.authentication.test_authentication import HandClock


class CountedKey:
    """A key that counts how often it verifies."""

    def __init__(self, secret: bytes) -> None:
        self._key = secret_key(secret)
        self.algorithms = self._key.algorithms
        self.verified = 0

    def verify(self, algorithm: Algorithm, signed: bytes, signature: bytes) -> bool:
        self.verified += 1
        return self._key.verify(algorithm, signed, signature)


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.key = CountedKey(SECRET)
        self.provider = TokenProvider(TokenRules(keys=[self.key]), self.clock)

    def role(self, token: bytes) -> str:
        return self.provider.prove(Credentials("token", token), "10.0.0.1", in_http=False).role


def test_token_that_comes_again_is_not_verified_again() -> None:
    world = World()
    jane, joe = token_of("jane"), token_of("joe")
    assert [world.role(token) for token in (jane, joe, jane, joe, jane)] == ["jane", "joe", "jane", "joe", "jane"]
    assert world.key.verified == 2
    over_http = Credentials("token", b"Bearer " + jane)
    assert world.provider.prove(over_http, "10.0.0.1", in_http=True).role == "jane"
    assert world.key.verified == 2


def test_token_that_is_known_again_expires_and_begins_as_any() -> None:
    world = World()
    now_s = world.clock.wall_ms() / 1000
    token = token_of("jane", exp=now_s + 10)
    assert world.role(token) == "jane"
    world.clock.now_s += 11
    with pytest.raises(RefusedError, match="expired"):
        world.role(token)
    assert world.provider.expired_count == 1
    early = token_of("jane", nbf=now_s + 1000)
    for _ in range(2):
        with pytest.raises(RefusedError, match="not yet valid"):
            world.role(early)


def test_exchanged_key_forgets_whom_the_old_one_knew() -> None:
    world = World()
    token = token_of("jane")
    assert world.role(token) == "jane"
    world.provider.rules = TokenRules(keys=[secret_key(OTHER_SECRET)])
    with pytest.raises(RefusedError, match="signature is of another key"):
        world.role(token)


def test_forged_token_is_never_known() -> None:
    """Another signature under the words of a good one, and the good one's signature under other words."""
    world = World()
    good, other = token_of("jane"), token_of("joe", secret=OTHER_SECRET)
    assert world.role(good) == "jane"
    words, _, signature = good.rpartition(b".")
    for forged in (words + b"." + other.rpartition(b".")[2], other.rpartition(b".")[0] + b"." + signature, other):
        for _ in range(2):
            with pytest.raises(RefusedError):
                world.role(forged)


def test_what_is_remembered_has_a_bound() -> None:
    world = World()
    tokens = [token_of(f"role-{number}") for number in range(REMEMBERED_MAX + 1)]
    for token in tokens:
        world.role(token)
    world.role(tokens[-1])
    world.role(tokens[1])
    assert world.key.verified == len(tokens)
    world.role(tokens[0])
    assert world.key.verified == len(tokens) + 1
    long = token_of("jane", more="x" * REMEMBERED_LENGTH_MAX)
    assert [world.role(long), world.role(long)] == ["jane", "jane"]
    assert world.key.verified == len(tokens) + 3
