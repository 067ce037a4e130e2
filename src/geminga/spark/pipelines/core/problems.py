"""What is wrong with a definition, told all at once: where, which key, what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from geminga.model.errors import ConfigurationError


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


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean x?`` or, without a near one, what there is."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"expected one of {', '.join(names)}" if names else "there are none"
