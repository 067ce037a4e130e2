"""Where commands ask, and as whom: contexts by name, in a file of the operator's; those of pulsarctl are read, too.

The file is ``contexts.json`` in ``$GEMINGA_CONFIG_DIR``, else ``$XDG_CONFIG_HOME/geminga``, else ``~/.config/geminga``,
and may be read by its owner alone: it may have credentials.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from geminga.admin.defaults import DEFAULT_URL

#: What a context may have, with what it is called in Pulsar's ``client.conf``.
FIELDS: Final = {
    "admin-url": "webServiceUrl",
    "service-url": "brokerServiceUrl",
    "auth-plugin": "authPlugin",
    "auth-params": "authParams",
    "tls-trust-cert-path": "tlsTrustCertsFilePath",
    "tls-allow-insecure": "tlsAllowInsecureConnection",
    "tls-enable-hostname-verification": "tlsEnableHostnameVerification",
}
#: By field: the variable of the environment that has it.
VARIABLES: Final = {
    "admin-url": "GEMINGA_ADMIN_URL",
    "auth-plugin": "GEMINGA_AUTH_PLUGIN",
    "auth-params": "GEMINGA_AUTH_PARAMS",
    "tls-trust-cert-path": "GEMINGA_TLS_TRUST_CERT_PATH",
}
SECRET: Final = "auth-params"
_FLAGS: Final = frozenset({"tls-allow-insecure", "tls-enable-hostname-verification"})


class ContextError(ValueError):
    """A file or a name that is no context: what is wrong, and what was expected."""


class Contexts(NamedTuple):
    """All of a file."""

    #: Empty: none.
    current: str
    #: Fields by name.
    by_name: Mapping[str, Mapping[str, str]]


def own_path(environment: Mapping[str, str]) -> Path:
    """Where contexts are kept."""
    directory = environment.get("GEMINGA_CONFIG_DIR")
    if directory:
        return Path(directory) / "contexts.json"
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
    return Path(home) / "geminga" / "contexts.json"


def own(environment: Mapping[str, str]) -> Contexts:
    """Those that are kept; raises ContextError."""
    path = own_path(environment)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        by_name = {str(name): _checked(fields, f"{path}: {name}") for name, fields in kept["contexts"].items()}
        return Contexts(str(kept.get("current", "")), by_name)
    except FileNotFoundError:
        return Contexts("", {})
    except OSError as error:
        raise ContextError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ContextError):
            raise
        raise ContextError(f"{path} has no contexts: expected what `geminga context set` writes ({error})") from None


def keep(contexts: Contexts, environment: Mapping[str, str]) -> Path:
    """Write them, whole or not at all; for the owner alone. Raises ContextError."""
    path = own_path(environment)
    text = json.dumps({"current": contexts.current, "contexts": contexts.by_name}, indent=2) + "\n"
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ContextError(f"{path}: {error.strerror}") from None
    return path


def _checked(fields: Mapping[str, Any], where: str) -> dict[str, str]:
    for name, value in fields.items():
        if name not in FIELDS or not isinstance(value, str):
            raise ContextError(f"{where}: {name!r} is none of {', '.join(FIELDS)}")
        if name in _FLAGS and value not in ("true", "false"):
            raise ContextError(f"{where}: {name} is true or false, not {value!r}")
    return dict(fields)


def of_pulsarctl(environment: Mapping[str, str]) -> Contexts:
    """Those of pulsarctl's file (``$PULSARCTL_CONFIG``, else ``~/.config/pulsar/config``). Raises ContextError."""
    said = environment.get("PULSARCTL_CONFIG")
    path = Path(said) if said else Path(environment.get("HOME", "~")).expanduser() / ".config" / "pulsar" / "config"
    try:
        tree = nested(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts("", {})
    except (OSError, ValueError) as error:
        raise ContextError(f"{path} is no file of contexts of pulsarctl: {error}") from None
    accounts = tree.get("auth-info")
    places = tree.get("contexts")
    found: dict[str, dict[str, str]] = {}
    for name, place in places.items() if isinstance(places, dict) else ():
        account = accounts.get(name) if isinstance(accounts, dict) else None
        if not isinstance(place, dict) or not isinstance(account, dict | None):
            raise ContextError(f"{path} is no file of contexts of pulsarctl: {name} has no fields")
        found[name] = dict(_fields_of_pulsarctl(place, account or {}))
    current = tree.get("current-context")
    return Contexts(current if isinstance(current, str) else "", found)


def _fields_of_pulsarctl(place: Mapping[str, Any], account: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if place.get("admin-service-url"):
        yield "admin-url", place["admin-service-url"]
    if account.get("token"):
        yield from (("auth-plugin", "token"), (SECRET, f"token:{account['token']}"))
    elif account.get("tokenFile"):
        yield from (("auth-plugin", "token"), (SECRET, f"file://{account['tokenFile']}"))
    elif account.get("auth_plugin"):
        yield from (("auth-plugin", account["auth_plugin"]), (SECRET, account.get("auth_params", "")))
    if account.get("tls_trust_certs_file_path"):
        yield "tls-trust-cert-path", account["tls_trust_certs_file_path"]
    if account.get("tls_allow_insecure_connection") == "true":
        yield "tls-allow-insecure", "true"


def nested(text: str) -> dict[str, Any]:
    """YAML of mappings and plain values, each a text: what pulsarctl writes. Raises ValueError for anything else."""
    root: dict[str, Any] = {}
    open_ones: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#") or bare == "---":
            continue
        key, colon, value = bare.partition(":")
        if not colon or bare.startswith(("-", "{", "[")) or (value and not value.startswith(" ")):
            raise ValueError(f"line {number}: expected NAME: VALUE, not {bare!r}")
        depth = len(line) - len(line.lstrip(" "))
        while depth <= open_ones[-1][0]:
            open_ones.pop()
        here, value = open_ones[-1][1], value.strip()
        if value in ("", "{}"):
            inner: dict[str, Any] = {}
            here[_bare(key)] = inner
            open_ones.append((depth, inner))
        else:
            here[_bare(key)] = _bare(value)
    return root


def _bare(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def of_client_conf(path: str) -> dict[str, str]:
    """What Pulsar's ``client.conf`` says; raises ContextError."""
    keys = {key: field for field, key in FIELDS.items()}
    found: dict[str, str] = {}
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ContextError(f"{path}: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # as Java reads it
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#") and key.strip() in keys and value.strip():
            found[keys[key.strip()]] = value.strip()
    return _checked(found, path)


def all_of(environment: Mapping[str, str]) -> dict[str, tuple[str, Mapping[str, str]]]:
    """Every context by name: whose it is, and its fields; ours go before pulsarctl's. Raises ContextError."""
    found = {name: ("pulsarctl", fields) for name, fields in of_pulsarctl(environment).by_name.items()}
    return found | {name: ("geminga", fields) for name, fields in own(environment).by_name.items()}


def named(name: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The fields of a context; raises ContextError."""
    kept = own(environment).by_name
    if name in kept:  # whatever there is of pulsarctl's
        return kept[name]
    known = all_of(environment)
    if name not in known:
        raise ContextError(f"there is no context {name!r}: expected one of {', '.join(sorted(known)) or 'none'}")
    return known[name][1]


def chosen(said: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """The fields that hold: of options, then a named context, the environment, the current context, ``client.conf``.

    Raises ContextError.
    """
    found: dict[str, str] = {"admin-url": DEFAULT_URL}
    conf = said.get("client_conf") or environment.get("PULSAR_CLIENT_CONF")
    if conf:
        found |= of_client_conf(conf)
    name = said.get("context") or environment.get("GEMINGA_CONTEXT")
    if not name and (current := own(environment).current):
        found |= named(current, environment)
    found |= {field: environment[key] for field, key in VARIABLES.items() if environment.get(key)}
    if name:
        found = {"admin-url": DEFAULT_URL, **named(name, environment)}
    options = {
        "admin-url": said.get("admin_url"),
        "auth-plugin": said.get("auth_plugin"),
        "auth-params": said.get("auth_params"),
        "tls-trust-cert-path": said.get("trust"),
        "tls-allow-insecure": "true" if said.get("insecure") else None,
        "tls-enable-hostname-verification": "false" if said.get("checks_no_name") else None,
    }
    return found | {field: value for field, value in options.items() if value}
