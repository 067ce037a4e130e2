"""Options of a command line, told apart by a table: what each means to ``geminga``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError


class Option(NamedTuple):
    """What one option means."""

    #: Under which name what it says is found.
    name: str
    takes_value: bool = True


#: Of an option without effect here.
IDLE: Final = ""


class GivenOptions(NamedTuple):
    """What a command line said."""

    #: Values by the option's name, in the order given; of an option without value: "true".
    values: Mapping[str, tuple[str, ...]]
    #: What is no option, in order.
    rest: tuple[str, ...]
    #: Options without effect here, as they were written.
    idle: tuple[str, ...]

    def last(self, name: str, default: str = "") -> str:
        """The value that counts where an option is given once or several times."""
        return self.values.get(name, (default,))[-1]

    def has(self, name: str) -> bool:
        """Whether it was given at all."""
        return name in self.values


def read_options(
    program: str, words: Sequence[str], table: Mapping[str, Option], *, ends_at_word: bool = False
) -> GivenOptions:
    """Take ``words`` apart; ``ends_at_word``: what follows the first word is another table's.

    Raises ConfigurationError for an option that is in no table, and for one without its value.
    """
    values: dict[str, list[str]] = {}
    rest: list[str] = []
    idle: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-") or word == "-":
            rest.append(word)
            if ends_at_word:
                rest += left
                break
            continue
        name, equals, text = word.partition("=")
        if name not in table:
            raise ConfigurationError(f"{program}: unknown option {name}; expected one of {', '.join(sorted(table))}")
        option = table[name]
        if option.takes_value and not equals:
            if not left:
                raise ConfigurationError(f"{program}: {name} without its value")
            text = left.pop(0)
        if option.name == IDLE:
            idle.append(name)
        else:
            values.setdefault(option.name, []).append(text if option.takes_value else text or "true")
    return GivenOptions({name: tuple(given) for name, given in values.items()}, tuple(rest), tuple(idle))


def options(text: str, *, takes_value: bool = True) -> dict[str, Option]:
    """A table from lines ``name: -a --long``; a line without a name is of options without effect."""
    found = {}
    for line in text.strip().splitlines():
        name, _, spellings = line.partition(":")
        for spelling in spellings.split():
            found[spelling] = Option(name.strip(), takes_value)
    return found
