"""Authentication by a class name and a parameter string, as operators write them for Pulsar's clients.

===========  ===================================================  ==========================================
Plugin       Its names                                            Parameters
===========  ===================================================  ==========================================
token        ``token``, ``...auth.AuthenticationToken``           ``token:TEXT``, ``file:///path``, ``TEXT``,
                                                                  ``{"token": "..."}``
certificate  ``tls``, ``...auth.AuthenticationTls``               ``tlsCertFile:PATH,tlsKeyFile:PATH``, or
                                                                  JSON of the two
basic        ``basic``, ``...auth.AuthenticationBasic``           ``{"userId": "...", "password": "..."}``,
                                                                  ``USER:PASSWORD``
OAuth 2.0    ``oauth2``, ``...auth.oauth2.AuthenticationOAuth2``  JSON: see :mod:`.oauth2`
===========  ===================================================  ==========================================

Errors repeat the plugin's name and never its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from geminga.client._api.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTLS,
    AuthenticationToken,
)
from geminga.client._api.errors import InvalidConfiguration
from geminga.client._api.options import check_argument
from geminga.client.rules.option_kinds import TEXT, problem_of_type

#: Packages of Pulsar's Java classes; another class of the same last name is another plugin.
_PACKAGES: Final = ("org.apache.pulsar.client.impl.auth", "org.apache.pulsar.client.impl.auth.oauth2", "")


def authentication_from(plugin: str, parameters: str) -> Authentication | None:
    """What a plugin and its parameters say; None for no plugin. Raises InvalidConfiguration."""
    check_argument("plugin", plugin, TEXT)
    # It may be a secret.
    wrong = problem_of_type("parameters", parameters, TEXT)
    if wrong is not None:
        raise InvalidConfiguration(wrong)
    name = plugin.strip()
    if not name:
        if parameters.strip():
            raise InvalidConfiguration("parameters of authentication without a plugin: expected its class name, too")
        return None
    package, _, last = name.rpartition(".")
    word = last.lower().removeprefix("authentication")
    if word == "disabled" and package in _PACKAGES:
        return None
    make = _MAKERS.get(word)
    if make is None or package not in _PACKAGES:
        raise InvalidConfiguration(
            f"the authentication plugin {name!r} is not built; expected AuthenticationToken, AuthenticationTls, "
            "AuthenticationBasic or AuthenticationOAuth2 of org.apache.pulsar.client.impl.auth, or token, tls, basic, "
            "oauth2"
        )
    return make(parameters.strip())


def _token(text: str) -> Authentication:
    if text.startswith("{"):
        text = _fields(text).get("token", "")
    if not text.removeprefix("token:"):
        raise InvalidConfiguration("token authentication: expected token:TEXT or file:///path as parameters")
    return AuthenticationToken(text)


def _tls(text: str) -> Authentication:
    fields = _fields(text)
    certificate, key = fields.get("tlsCertFile", ""), fields.get("tlsKeyFile", "")
    if not certificate or not key:
        raise InvalidConfiguration(
            "certificate authentication: expected tlsCertFile:PATH,tlsKeyFile:PATH as parameters"
        )
    return AuthenticationTLS(certificate, key)


def _basic(text: str) -> Authentication:
    if text.startswith("{"):
        fields = _fields(text)
        user, password = fields.get("userId", "") or fields.get("username", ""), fields.get("password")
        method = fields.get("method", "basic")
    else:
        user, separator, rest = text.partition(":")
        if "," in user or text.startswith(("userId:", "username:")):
            fields = _fields(text)
            user, password = fields.get("userId", "") or fields.get("username", ""), fields.get("password")
        else:
            password = rest if separator else None
        method = "basic"
    if not user or password is None:
        raise InvalidConfiguration('basic authentication: expected {"userId": ..., "password": ...} as parameters')
    return AuthenticationBasic(user, password, method)


def _oauth2(text: str) -> Authentication:
    # Loads an HTTP client.
    from geminga.client._api.oauth2 import AuthenticationOauth2

    return AuthenticationOauth2(text)


def _fields(text: str) -> Mapping[str, str]:
    """JSON, or ``key:value,key:value``; raises InvalidConfiguration."""
    if not text.startswith("{"):
        return {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in text.split(","))}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidConfiguration("parameters of authentication begin with { and are no JSON") from None
    return {key: value for key, value in found.items() if isinstance(value, str)}


_MAKERS: Final[Mapping[str, Callable[[str], Authentication]]] = {
    "token": _token,
    "tls": _tls,
    "basic": _basic,
    "oauth2": _oauth2,
}
