"""What is wrong with a definition, told all at once: where, which key, what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final

from geminga.model.errors import ConfigurationError

#: Names that a sentence lists where none is near.
LISTED_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing; ``path`` is the key's (``sources[0].topic``), ``line`` 0 where there is no file."""

    path: str
    text: str
    line: int = 0

    def sentence(self, file: str) -> str:
        """``FILE:LINE: path: text``."""
        where = f"{file}:{self.line}: " if self.line else f"{file}: " if file else ""
        return f"{where}{self.path}: {self.text}" if self.path else f"{where}{self.text}"


class PipelineError(ConfigurationError):
    """A definition that can not be run; ``problems`` has each reason, the text the first ones."""

    def __init__(self, problems: Sequence[Problem], file: str = "") -> None:
        self.problems = tuple(problems)
        self.file = file
        sentences = [problem.sentence(file) for problem in self.problems[:3]]
        if len(self.problems) > len(sentences):
            sentences.append(f"and {len(self.problems) - len(sentences)} more, which `geminga pipeline validate` lists")
        super().__init__("; ".join(sentences))

    def __reduce__(self) -> tuple[type[PipelineError], tuple[Sequence[Problem], str]]:
        # Or no other process could read it.
        return type(self), (self.problems, self.file)


def located(problems: Iterable[Problem], lines: Mapping[str, int], line: int = 0) -> list[Problem]:
    """Problems with the lines of their keys, or of what is around those; ``line``: that of all others."""
    return [
        replace(one, line=next((lines[path] for path in _outwards(one.path) if path in lines), line))
        for one in problems
    ]


def _outwards(path: str) -> list[str]:
    """A path and those around it: ``a[0].b``, ``a[0]``, ``a``."""
    found = [path]
    while path:
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
        found.append(path)
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean x?`` or, without a near one, what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not names:
        return "there are none"
    more = f" and {len(names) - LISTED_MAX:,} more" if len(names) > LISTED_MAX else ""
    return f"expected one of {', '.join(names[:LISTED_MAX])}{more}"
