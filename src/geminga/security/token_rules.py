"""Whether a token is good, and for whom: signature, times, audience, role. Rules and defaults are Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from geminga.security.algorithms import ALGORITHMS
from geminga.security.keys import Signer, Verifier
from geminga.security.web_token import WebToken, parse_token, signed_token, unsigned

#: Characters of a role, and roles of one token.
ROLE_LENGTH_MAX: Final = 1024
ROLES_MAX: Final = 256


class ExpiredError(ValueError):
    """It was good, and is over."""


class AudienceError(ValueError):
    """It is good, for somebody else."""


class Proved(NamedTuple):
    """What a good token says."""

    role: str
    #: ``exp``, seconds since 1970; None: it never ends.
    expires_s: float | None = None
    #: All that the claim names, where they are asked for; None: they are not.
    roles: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What is asked of a token."""

    #: Any one of them; more than one while a key is replaced.
    keys: Sequence[Verifier] = ()
    #: ``tokenAuthClaim``: where the role is.
    role_claim: str = "sub"
    #: ``tokenAudienceClaim``; empty: the audience is not looked at, as in Pulsar.
    audience_claim: str = ""
    #: Any one of them.
    audiences: frozenset[str] = frozenset()
    #: ``tokenAllowedClockSkewSeconds``: of the clock that made the token.
    skew_s: float = 0.0
    #: Whether all roles of the claim are told.
    takes_all_roles: bool = False

    def prove(self, text: str, now_s: float) -> Proved:
        """What the token says, if it is good at ``now_s`` (seconds since 1970). Raises ValueError with a sentence."""
        return self.claims_of(self.verified(text), now_s)

    def verified(self, text: str) -> WebToken:
        """The token, if one of the keys signed it; nothing is said of its claims. Raises ValueError with a sentence."""
        token = parse_token(text)
        check_signature(token, self.keys)
        return token

    def claims_of(self, token: WebToken, now_s: float) -> Proved:
        """The same for a token whose signature was verified already."""
        expires_s = check_times(token.claims, now_s, self.skew_s)
        if self.audience_claim:
            check_audience(token.claims, self.audience_claim, self.audiences)
        return proved_by(token.claims, self.role_claim, expires_s, takes_all=self.takes_all_roles)


def check_signature(token: WebToken, keys: Sequence[Verifier]) -> None:
    """Return if one of ``keys`` signed it. Raises ValueError."""
    name = token.algorithm
    if not name or name.lower() == "none":
        raise ValueError("the token is not signed (alg: none)")
    algorithm = ALGORITHMS.get(name)
    if algorithm is None:
        raise ValueError(f"the token is signed by {name[:32]!r}; expected one of {', '.join(ALGORITHMS)}")
    fitting = [key for key in keys if name in key.algorithms]
    if not fitting:
        raise ValueError(f"the token is signed by {name}, which no key of this server takes")
    if not any(key.verify(algorithm, token.signed, token.signature) for key in fitting):
        raise ValueError("the token's signature is of another key, or the token was changed")


def check_audience(claims: Mapping[str, object], claim: str, expected: frozenset[str]) -> None:
    """Return if the token is meant for one of ``expected``. Raises AudienceError."""
    said = claims.get(claim)
    if said is None:
        raise AudienceError(f"the token names no audience (claim {claim!r})")
    if isinstance(said, str):
        audiences: list[object] = [said]
    elif isinstance(said, list):
        audiences = said
    else:
        raise AudienceError(f"the token's claim {claim!r} is neither a text nor a list of texts")
    if not any(isinstance(one, str) and one in expected for one in audiences):
        raise AudienceError(f"the token is meant for another audience (claim {claim!r})")


def role_of(claims: Mapping[str, object], claim: str) -> str:
    """The role that ``claim`` names: a text, or the first of a list, as in Pulsar. Raises ValueError."""
    said = claims.get(claim)
    if isinstance(said, list) and said:
        said = said[0]
    if not isinstance(said, str) or not said:
        raise ValueError(f"the token names no role (claim {claim!r})")
    if len(said) > ROLE_LENGTH_MAX:
        raise ValueError(f"the token's role has more than {ROLE_LENGTH_MAX} characters")
    return said


def proved_by(claims: Mapping[str, object], claim: str, expires_s: float | None, *, takes_all: bool) -> Proved:
    """The role that ``claim`` names, and where ``takes_all`` every one. Raises ValueError."""
    role = role_of(claims, claim)
    return Proved(role, expires_s, roles_of(claims, claim) if takes_all else None)


def roles_of(claims: Mapping[str, object], claim: str) -> frozenset[str]:
    """All roles that ``claim`` names: a text, or those of a list; what is no text there is none. Raises ValueError."""
    said = claims.get(claim)
    listed: Sequence[object] = said if isinstance(said, list) else [said]
    if len(listed) > ROLES_MAX:
        raise ValueError(f"the token names {len(listed)} roles (claim {claim!r}); at most {ROLES_MAX} are taken")
    roles = frozenset(role for role in listed if isinstance(role, str) and role)
    if any(len(role) > ROLE_LENGTH_MAX for role in roles):
        raise ValueError(f"one of the token's roles has more than {ROLE_LENGTH_MAX} characters")
    return roles


def create_token(key: Signer, algorithm: str, claims: Mapping[str, object], header: Mapping[str, object]) -> str:
    """A token with ``claims``, signed. Raises ValueError where the key does not take the algorithm."""
    if algorithm not in key.algorithms:
        raise ValueError(f"the key does not take {algorithm}; it takes {', '.join(sorted(key.algorithms))}")
    signed = unsigned({**header, "alg": algorithm}, claims)
    return signed_token(signed, key.sign(ALGORITHMS[algorithm], signed))


def check_times(claims: Mapping[str, object], now_s: float, skew_s: float) -> float | None:
    """``exp``; raises ValueError if it is over, or ``nbf`` is not reached. A clock may be ``skew_s`` off."""
    expires_s, begins_s = _time(claims, "exp"), _time(claims, "nbf")
    _time(claims, "iat")
    if expires_s is not None and now_s > expires_s + skew_s:
        raise ExpiredError(f"the token expired on {_date(expires_s)}")
    if begins_s is not None and now_s + skew_s < begins_s:
        raise ValueError(f"the token is not yet valid: it begins on {_date(begins_s)}")
    return expires_s


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the token's claim {name!r} is not a number of seconds")
    return float(value)


def _date(time_s: float) -> str:
    try:
        return datetime.fromtimestamp(int(time_s), UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_s:.0f} s after 1970"
