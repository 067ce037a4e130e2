"""Where configuration comes from: Pulsar's properties files, TOML, the environment and ``--set``.

Each reader gives ``ConfigEntry`` values: key, text, and where it stood, for messages. Nothing is interpreted here.

====================  =============================================================================
``*.toml``            TOML; tables only group, ``[broker] maxMessageSize = 1`` is ``maxMessageSize``
any other file        Java properties as Pulsar's ``conf/*.conf``: ``key=value``, ``key: value``,
                      ``#`` and ``!`` comments, a trailing backslash continues the line
``GEMINGA_<key>``     environment variables, such as ``GEMINGA_brokerServicePort=7650``
``--set key=value``   the command line; also ``config={...}`` of ``geminga.Standalone``
====================  =============================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError

#: Prefix of environment variables that set a key.
ENVIRONMENT_PREFIX: Final = "GEMINGA_"
#: Of variables that the Spark connector reads, such as ``GEMINGA_SPARK_JAVA_HOME``: no keys of a server.
CONNECTOR_PREFIX: Final = "GEMINGA_SPARK_"
#: Variables of the command line, which the shell that starts a server may have as well.
COMMAND_VARIABLES: Final = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        "ADMIN_URL",
        "AUTH_PARAMS",
        "AUTH_PLUGIN",
        "CONFIG_DIR",
        "CONTEXT",
        "SERVICE_URL",
        "TLS_TRUST_CERT_PATH",
        "TOKEN",
    )
)
#: A larger file is no configuration file.
FILE_BYTES_MAX: Final = 4 * 1024 * 1024

#: As Java ends lines and sees blanks; Python's own have more, which are part of a value here.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_FOUR_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class ConfigEntry(NamedTuple):
    """One assignment: its key, its text (None: set to nothing), and where it stands."""

    key: str
    text: str
    source: str
    #: From a properties file, which may be an operator's whole ``broker.conf``: not each line was meant for Geminga.
    is_inherited: bool = False


def read_file(path: str) -> list[ConfigEntry]:
    """Read one configuration file; raises :class:`ConfigurationError` with path and line."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"configuration file {path}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigurationError(f"configuration file {path} is larger than {FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"configuration file {path} is not UTF-8 text: {error}") from error
    return list(_toml(text, path) if path.endswith(".toml") else _properties(text, path))


def from_environment(environment: Mapping[str, str]) -> list[ConfigEntry]:
    """Entries of all variables named ``GEMINGA_<key>``, sorted by name, but those of commands and of Spark."""
    return [
        ConfigEntry(name[len(ENVIRONMENT_PREFIX) :], text, f"environment variable {name}")
        for name, text in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIX)
        and len(name) > len(ENVIRONMENT_PREFIX)
        and name not in COMMAND_VARIABLES
        and not name.startswith(CONNECTOR_PREFIX)
    ]


def from_mapping(values: Mapping[str, object], source: str) -> list[ConfigEntry]:
    """Entries of Python values, as from ``Standalone(config={...})``."""
    return [ConfigEntry(key, _text(key, value, source), source) for key, value in values.items()]


def from_assignment(assignment: str) -> ConfigEntry:
    """One ``key=value`` of the command line; raises :class:`ConfigurationError`."""
    key, separator, text = assignment.partition("=")
    if not separator or not key.strip():
        raise ConfigurationError(f"--set {assignment}: expected key=value")
    return ConfigEntry(key.strip(), text.strip(), "--set")


def collect_entries(
    files: Sequence[str] = (), env: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> list[ConfigEntry]:
    """Of ``files``, the environment ``env`` and ``key=value`` texts; later ones win. Raises ConfigurationError."""
    entries = [entry for path in files for entry in read_file(path)]
    entries += from_environment(env or {})
    entries += [from_assignment(text) for text in overrides]
    return entries


def _properties(text: str, path: str) -> Iterator[ConfigEntry]:
    logical, first_line = "", 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if not logical:
            first_line = number
            if not line or line[0] in "#!":
                continue
        # An odd number of backslashes at the end continues the line (java.util.Properties).
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            logical += line[:-1]
            continue
        yield _assignment(logical + line, path, first_line)
        logical = ""
    if logical:
        yield _assignment(logical, path, first_line)


def _assignment(line: str, path: str, number: int) -> ConfigEntry:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    source = f"{path}, line {number}"
    return ConfigEntry(_unescaped(line[:end], source), _unescaped(rest.rstrip(), source), source, is_inherited=True)


def _unescaped(text: str, source: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character != "\\" or at + 1 == len(text):
            parts.append(character)
            at += 1
        elif text[at + 1] == "u":
            digits = text[at + 2 : at + 6]
            if not _FOUR_HEX.fullmatch(digits):
                raise ConfigurationError(f"{source}: \\u needs four hex digits")
            parts.append(chr(int(digits, 16)))
            at += 6
        else:
            parts.append(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    try:
        # Java's characters are of 16 bits: two escapes may be one character.
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: \\u of half a character") from error


def _toml(text: str, path: str) -> Iterator[ConfigEntry]:
    import tomllib  # only where a TOML file is used

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"configuration file {path} is not TOML: {error}") from error
    yield from _flattened(document, path)


def _flattened(table: Mapping[str, object], path: str) -> Iterator[ConfigEntry]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, path)
        else:
            yield ConfigEntry(key, _text(key, value, path), path)


def _text(key: str, value: object, source: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
        return ",".join(str(item) for item in value)
    raise ConfigurationError(f"{key} ({source}): expected text, a number, a path, true or false, or a list of them")
