"""The words of a command line, told apart: options that hold for all commands, places, options of the command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from geminga.app.administration.command import Command, Option, option_of
from geminga.app.administration.units import WrongWordError, joined, value_of

#: For all commands; they may stand anywhere, as long as the command has no option of that name.
COMMON: Final = tuple(
    option_of(text)
    for text in (
        "=admin_url:text --admin-url",
        "=context:text --context",
        "=client_conf:text --client-conf",
        "=auth_plugin:text --auth-plugin",
        "=auth_params:text --auth-params",
        "=trust:text --tls-trust-cert-path --tlsTrustCertsFilePath",
        "=insecure:flag --tls-allow-insecure",
        "=checks_name:flag --tls-enable-hostname-verification",
        "=checks_no_name:flag --tls-disable-hostname-verification",
        "=provider:text --tls-provider",
        "=timeout:seconds --request-timeout",
        "=json:flag --json",
        "=output:json/yaml/table -o --output",
        "=dry_run:flag --dry-run",
        "=yes:flag -y --yes",
        "=help:flag -h --help",
    )
)


class UsageError(ValueError):
    """Words that make no command: what is wrong, and what was expected."""


class Given:
    """What was said."""

    __slots__ = ("common", "places", "told", "values")

    def __init__(
        self,
        places: Mapping[str, str],
        values: Mapping[str, Any],
        common: Mapping[str, Any],
        told: str = "",
    ) -> None:
        #: By place.
        self.places: Final = places
        #: By target and key, such as ``?force``; those that were not said have their defaults.
        self.values: Final = values
        #: Options for all commands, by key.
        self.common: Final = common
        #: The words behind the command as they were said, for people: without options for all commands.
        self.told: Final = told

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401  (by its kind)
        """The value of an option of the command's function, None for none."""
        return self.values.get(f"={key}")


def given(command: Command, words: Sequence[str], before: Mapping[str, Any]) -> Given:
    """What the words behind a command say, ``before`` what was said ahead of it. Raises UsageError."""
    said: list[tuple[Option, Any]] = []
    common = dict(before)
    places: list[str] = []
    rest = list(words)
    told: list[str] = []
    is_over = False
    while rest:
        at = len(words) - len(rest)
        word = rest.pop(0)
        if is_over or not _is_option(word, command):
            places.append(word)
        elif word == "--":
            is_over = True
        else:
            option, value = _said(command, word, rest)
            if option in COMMON and option not in command.options:
                common[option.key] = value
                continue
            said.append((option, value))
        told += words[at : len(words) - len(rest)]
    if common.get("help"):
        return Given({}, {}, common)
    found = _by_place(command, places)
    return Given(found, _values(command, said), common, shlex.join(told))


def leading(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Options for all commands ahead of a command, and the words from its group on. Raises UsageError."""
    common: dict[str, Any] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        option, value = _said(None, word, rest)
        common[option.key] = value
    return common, rest


def _is_option(word: str, command: Command) -> bool:
    """``-1`` is none; a word without a dash may be the name of an option."""
    if word.startswith("-") and word != "-":
        return not word[1:].replace(":", "").replace("-", "").isdecimal()
    return not word.startswith("-") and command.option(word) is not None


def _said(command: Command | None, word: str, rest: list[str]) -> tuple[Option, Any]:
    name, equals, inline = word.partition("=") if word.startswith("--") else (word, "", "")
    own = command.options if command is not None else ()
    option = next((one for one in (*own, *COMMON) if name in one.names), None)
    if option is None:
        known = [each for one in (*own, *COMMON) for each in one.names]
        near = get_close_matches(name, known, 1)
        raise UsageError(f"there is no option {name}" + (f": is it {near[0]}?" if near else ""))
    if not option.takes_value:
        if option.kind == "flag" and inline in ("true", "false"):
            return option, value_of(option.kind, inline)
        if equals:
            raise UsageError(f"{name} takes no value")
        return option, value_of(option.kind, "true" if option.kind == "flag" else "false")
    if not equals and not rest:
        raise UsageError(f"{name} needs a value")
    try:
        return option, value_of(option.kind, inline if equals else rest.pop(0))
    except WrongWordError as error:
        raise UsageError(f"{name}: {error}") from None
    except OSError as error:
        raise UsageError(f"{name}: {error.filename}: {error.strerror}") from None


def _by_place(command: Command, places: Sequence[str]) -> dict[str, str]:
    names = [name.rstrip("?") for name in command.places]
    needed = [name for name in command.places if not name.endswith("?")]
    if len(places) < len(needed):
        raise UsageError(f"{needed[len(places)].upper()} is missing")
    if len(places) > len(names):
        raise UsageError(f"there is nothing for {places[len(names)]!r} to be")
    return dict(zip(names, places, strict=False))


def _values(command: Command, said: Sequence[tuple[Option, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for option, value in said:
        key = f"{option.where}{option.key}"
        if option.need == "^" and key in found and found[key] != value:
            raise UsageError(_one_of(command, "^", "exactly one of"))
        found[key] = joined(found.get(key), value)
    given_options = [option for option, _ in said]
    missing = [one.longest for one in command.options if one.need == "!" and one not in given_options]
    if missing:
        raise UsageError(f"{', '.join(missing)} must be given")
    for need, words in (("^", "exactly one of"), ("+", "at least one of")):
        if any(one.need == need for one in command.options) and not any(one.need == need for one in given_options):
            raise UsageError(_one_of(command, need, words))
    for option in command.options:
        key = f"{option.where}{option.key}"
        if option.default is not None and key not in found:
            found[key] = {} if option.default == "{}" else value_of(option.kind, option.default)
    return found


def _one_of(command: Command, need: str, words: str) -> str:
    return f"{words} {', '.join(one.longest for one in command.options if one.need == need)} must be given"
