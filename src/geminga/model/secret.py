"""A text that must not be seen: it prints as dots, whoever prints it.

Values of configuration keys that hold passwords, keys and tokens are of this type from the moment they are parsed, so
that a log, an error, a dump of the configuration or the ``repr`` of a debugger shows none. Only :meth:`Secret.reveal`
gives the text, and is easy to search for.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Final, NoReturn
from urllib.parse import unquote

#: What is printed, however long the text is.
DOTS: Final = "......"
#: Values of keys with such a word in their name are not shown, whether this version knows the key or not.
SECRET_WORDS: Final = ("password", "secret", "token", "basicauthconf", "authenticationparameters")
#: Where a setting is changed: its key and its value follow.
_SETTINGS_PATH: Final = "/brokers/configuration/"
#: Keys with such a word in their name that hold no secret.
_OPEN: Final = frozenset(
    [
        "gemingaTokenSecondPublicKey",
        "openIDAllowedTokenIssuers",
        "openIDTokenIssuerTrustCertsFilePath",
        "tokenAllowedClockSkewSeconds",
        "tokenAudience",
        "tokenAudienceClaim",
        "tokenAuthClaim",
        "tokenPublicAlg",
        "tokenPublicKey",
        "tokenSettingPrefix",
    ]
)


class Secret:
    """See the module. Two are equal if their texts are; the time that takes tells nothing of where they differ."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for whoever uses it."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(
            self._text.encode("utf-8", "surrogatepass"), other._text.encode("utf-8", "surrogatepass")
        )

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({DOTS if self._text else ''!r})"

    def __str__(self) -> str:
        return DOTS if self._text else ""

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: it would lie open in what is written")


def names_secret(key: str) -> bool:
    """Whether the value of a configuration key must not be shown."""
    lowered = key.lower()
    return key not in _OPEN and any(word in lowered for word in SECRET_WORDS)


def shown_path(path: str) -> str:
    """The path of a request for a log: the value of a setting that is a secret stands in the path that sets it."""
    head, found, rest = path.partition(_SETTINGS_PATH)
    key, slash, value = rest.partition("/")
    return f"{head}{found}{key}{slash}{DOTS}" if value and names_secret(unquote(key)) else path


def shown(values: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Keys and values as they may be shown."""
    return {key: DOTS if value and names_secret(key) else value for key, value in values}
