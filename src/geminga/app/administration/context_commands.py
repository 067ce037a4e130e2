"""``geminga context list | show | use | set | delete``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from geminga.app.administration.arguments import UsageError
from geminga.app.administration.contexts import FIELDS, SECRET, Contexts, all_of, keep, named, own

_HELP: Final = f"""\
Usage: geminga context COMMAND ...

Where commands ask, and as whom, by name.

  list                        all, those of pulsarctl's file too; * marks the current one
  show [NAME]                 one of them, or the current one; credentials are not shown
  use NAME                    ask there from now on
  set NAME --FIELD VALUE ...  make one, or change some of its fields
  delete NAME                 forget one

Fields: {", ".join(FIELDS)}.
Options and the environment go before the current context; --context and GEMINGA_CONTEXT choose another one."""


def run_context(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit code. Raises UsageError, ContextError."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0 if words else 2
    known = {"list": _list, "show": _show, "use": _use, "set": _set, "delete": _delete}
    if words[0] not in known:
        raise UsageError(f"there is no command context {words[0]}: expected {', '.join(known)}")
    for line in known[words[0]](list(words[1:]), environment):
        print(line)
    return 0


def _one(words: list[str]) -> str:
    if len(words) != 1 or words[0].startswith("-"):
        raise UsageError("expected the name of one context")
    return words[0]


def _list(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    if words:
        raise UsageError(f"there is nothing for {words[0]!r} to be")
    found = all_of(environment)
    current = own(environment).current
    width = max(map(len, found), default=0)
    for name, (whose, fields) in sorted(found.items()):
        mark = "*" if name == current else " "
        yield f"{mark} {name:<{width}}  {fields.get('admin-url', '-')}" + (f"  ({whose})" if whose != "geminga" else "")


def _show(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    name = _one(words) if words else own(environment).current
    if not name:
        raise UsageError("no context is current: `geminga context use NAME`, or give a name")
    yield f"{'name':<32}  {name}"
    for field, value in named(name, environment).items():
        yield f"{field:<32}  {'(not shown)' if field == SECRET else value}"


def _use(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    name = _one(words)
    named(name, environment)
    keep(own(environment)._replace(current=name), environment)
    yield f"{name} is current"


def _set(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    if not words or words[0].startswith("-"):
        raise UsageError("expected a name, then fields such as --admin-url http://host:8080")
    name, rest = words[0], words[1:]
    fields: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        field, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or field not in FIELDS:
            raise UsageError(f"there is no field {word}: expected --{', --'.join(FIELDS)}")
        if not equals:
            if not rest:
                raise UsageError(f"--{field} needs a value")
            value = rest.pop(0)
        if field.startswith("tls-") and field != "tls-trust-cert-path" and value not in ("true", "false"):
            raise UsageError(f"--{field} is true or false, not {value!r}")
        if field.endswith("admin-url") and not value.startswith(("http://", "https://")):
            raise UsageError(f"--{field} is http://host:port or https://host:port, not {value!r}")
        fields[field] = value
    kept = own(environment)
    changed = {**kept.by_name, name: {**kept.by_name.get(name, {}), **fields}}
    path = keep(Contexts(kept.current, changed), environment)
    yield f"{name} is kept in {path}"


def _delete(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    name = _one(words)
    kept = own(environment)
    if name not in kept.by_name:
        raise UsageError(f"there is no context {name!r} of Geminga's own")
    rest = {one: fields for one, fields in kept.by_name.items() if one != name}
    keep(Contexts("" if kept.current == name else kept.current, rest), environment)
    yield f"{name} is forgotten"
