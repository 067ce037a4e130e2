"""As whom a ZooKeeper is spoken to: SASL as ZooKeeper's own clients are told of it, and the scheme ``digest``. Pure.

Java's programs read a JAAS file, which ``java.security.auth.login.config`` names, and of it the section that
``zookeeper.sasl.clientconfig`` names (``Client``)::

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="jane"
        password="...";
    };

The mechanism is DIGEST-MD5; Kerberos is refused by name. ``digest`` (``addauth digest user:password``), for which
Java's programs have no property, has properties of Geminga's own.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret

#: The JAAS file; who reads the properties puts its text in its place.
JAAS_FILE: Final = "java.security.auth.login.config"
SASL_SECTION: Final = "zookeeper.sasl.clientconfig"
SASL_IS_USED: Final = "zookeeper.sasl.client"
SECTION_DEFAULT: Final = "Client"
#: Of a server's Kerberos name: without meaning here.
SASL_PASSED_OVER: Final = "zookeeper.sasl.client.username"
#: Geminga's own: ``user:password``, and a file of it, which who reads the properties puts in its place.
DIGEST: Final = "geminga.zookeeper.digest"
DIGEST_PATH: Final = "geminga.zookeeper.digestPath"

_DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_KERBEROS: Final = "Krb5LoginModule"
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r'"(?P<quoted>(?:[^"\\\n]|\\.)*)"|(?P<mark>[{};=])|(?P<word>[^\s"{};=]+)|(?P<space>\s+)|(?P<wrong>.)', re.DOTALL
)
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*', re.DOTALL | re.MULTILINE)
_EXPECTED: Final = f'expected {SECTION_DEFAULT} {{ {_DIGEST_MODULE} required username="..." password="..."; }};'


class Scheme(Enum):
    """How it is said."""

    #: In a request, after the session began: any name is taken, and nodes may be for it alone.
    DIGEST = "digest"
    #: Before anything else, by a challenge: DIGEST-MD5.
    SASL = "sasl"


class ZooKeeperCredentials(NamedTuple):
    """Who this client is."""

    scheme: Scheme
    user: str
    password: Secret


def parse_digest(text: str, source: str) -> ZooKeeperCredentials:
    """Of ``user:password``. Raises ConfigurationError, which repeats nothing of it."""
    user, colon, password = text.strip().partition(":")
    if not user or not colon or not password:
        raise ConfigurationError(f"{source}: {DIGEST} is not user:password")
    return ZooKeeperCredentials(Scheme.DIGEST, user, Secret(password))


def parse_jaas(text: str, section: str, place: str) -> ZooKeeperCredentials:
    """Of one ``section`` of a JAAS file, which ``place`` names. Raises ConfigurationError without any password."""
    words = _words(text, place)
    found: dict[str, list[list[str]]] = {}
    while words:
        name = words.pop(0)
        if not words or words.pop(0) != "{":
            raise ConfigurationError(f"{place}: what follows the name of a section is not {{; {_EXPECTED}")
        found[name] = _modules(words, place)
    if section not in found:
        there = ", ".join(sorted(found)) or "none"
        raise ConfigurationError(f"{place}: there is no section {section} ({SASL_SECTION}); there are: {there}")
    if len(found[section]) != 1:
        raise ConfigurationError(f"{place}: section {section} has {len(found[section])} login modules; expected one")
    module, *rest = found[section][0]
    if module.endswith(_KERBEROS):
        raise ConfigurationError(
            f"{place}: section {section}: {module}: Kerberos is not built, and the connection would go on without it; "
            f"expected {_DIGEST_MODULE}"
        )
    if module != _DIGEST_MODULE:
        raise ConfigurationError(f"{place}: section {section}: {module} is not known; expected {_DIGEST_MODULE}")
    options = _options(rest, section, place)
    if not options.get("username") or not options.get("password"):
        raise ConfigurationError(f"{place}: section {section}: username and password are needed; {_EXPECTED}")
    return ZooKeeperCredentials(Scheme.SASL, options["username"], Secret(options["password"]))


def _modules(words: list[str], place: str) -> list[list[str]]:
    """Up to the end of the section, which is taken from ``words``: class, flag, options of each."""
    modules: list[list[str]] = []
    module: list[str] = []
    while words:
        word = words.pop(0)
        if word == ";" and module:
            modules.append(module)
            module = []
        elif word == "}" and not module and words and words.pop(0) == ";":
            return modules
        elif word in ("}", "{", ";"):
            break
        else:
            module.append(word.removeprefix('"'))
    raise ConfigurationError(f"{place}: a section does not end with ;}}; (each module with ; too); {_EXPECTED}")


def _options(words: list[str], section: str, place: str) -> dict[str, str]:
    """Key -> value of what follows a module's class."""
    if not words or words[0].lower() not in _FLAGS:
        raise ConfigurationError(f"{place}: section {section}: the module has no flag such as required; {_EXPECTED}")
    options: dict[str, str] = {}
    rest = words[1:]
    while rest:
        key, rest = rest[0], rest[1:]
        if len(rest) < 2 or rest[0] != "=":
            raise ConfigurationError(f"{place}: section {section}: an option is not key=value; {_EXPECTED}")
        options[key], rest = rest[1], rest[2:]
    return options


def _words(text: str, place: str) -> list[str]:
    """Words, marks and quoted texts, which begin with a quote here, without comments."""
    bare = _COMMENT.sub(lambda found: found.group() if found.group().startswith('"') else " ", text)
    words = []
    for found in _TOKEN.finditer(bare):
        if found["wrong"] is not None:
            raise ConfigurationError(f"{place}: a quote that does not end; {_EXPECTED}")
        if found["quoted"] is not None:
            words.append('"' + re.sub(r"\\(.)", r"\1", found["quoted"]))
        elif found["space"] is None:
            words.append(found.group())
    return words
