"""What the counts of a row say: pure, from two sets of figures to a line of the table and a paragraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: By its name: figures a message of one tree.
Figures = Mapping[str, float]
NO_FIGURES: Final[Figures] = {}

#: The share by which a row may be dearer than base.
DEARER_MAX: Final = 0.03
#: What every row is judged by; and rows of several brokers and bookies, whose counts are of a simulation.
JUDGED: Final = ("instructions",)
JUDGED_CLUSTER: Final = ("instructions", "calls", "allocations")
#: As a dearer figure is called that is judged against this tree uncompiled.
COMPILED_DEARER: Final = "instructions compiled"


class Verdict(NamedTuple):
    """Of one row."""

    row: str
    base: Figures
    tree: Figures
    #: Names of judged figures that are dearer than allowed.
    dearer: tuple[str, ...]
    #: Why there are no two sets of figures; empty if there are.
    unmeasured: str = ""
    #: Of this tree with its hot modules compiled, if that was asked for.
    compiled: Figures = NO_FIGURES

    @property
    def is_red(self) -> bool:
        """A row that nobody could measure is no green one."""
        return bool(self.dearer or self.unmeasured)

    def ratio(self, name: str = "instructions", *, of_compiled: bool = False) -> float | None:
        """This tree (compiled) to base; None if one of them has no such figure."""
        base, tree = self.base.get(name), (self.compiled if of_compiled else self.tree).get(name)
        return tree / base if base and tree is not None else None

    @property
    def word(self) -> str:
        """For the table."""
        if self.unmeasured:
            return "NOT MEASURED"
        return "RED" if self.dearer else "green"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "base": dict(self.base),
            "tree": dict(self.tree),
            "compiled": dict(self.compiled),
            "ratio": self.ratio(),
            "ratio_compiled": self.ratio(of_compiled=True),
            "dearer": list(self.dearer),
            "unmeasured": self.unmeasured,
            "verdict": self.word,
        }


def judge(
    row: str,
    base: Figures,
    tree: Figures,
    judged: Sequence[str],
    dearer_max: float = DEARER_MAX,
    *,
    compiled: Figures | None = None,
) -> Verdict:
    """A judged figure that one of the trees lacks, or that is 0 for base, leaves the row unmeasured.

    What is compiled may not have more instructions than what is not: it would be compiled for nothing.
    """
    lacking = [name for name in judged if not base.get(name) or tree.get(name) is None]
    if compiled is not None and not compiled.get("instructions"):
        lacking.append(COMPILED_DEARER)
    if lacking:
        return Verdict(row, base, tree, (), f"no {', '.join(lacking)}", compiled or NO_FIGURES)
    dearer = [name for name in judged if tree[name] > base[name] * (1 + dearer_max)]
    if compiled is not None and compiled["instructions"] > tree["instructions"] * (1 + dearer_max):
        dearer.append(COMPILED_DEARER)
    return Verdict(row, base, tree, tuple(dearer), compiled=compiled or NO_FIGURES)


def paragraph(verdicts: Sequence[Verdict], base: str, dearer_max: float = DEARER_MAX) -> str:
    """What came out, to be read by itself."""
    dearer = [verdict for verdict in verdicts if verdict.dearer]
    unmeasured = [verdict for verdict in verdicts if verdict.unmeasured]
    sentences = []
    if dearer:
        told = "; ".join(
            f"{one.row}: {', '.join(f'{_percent(one, name)} {name}' for name in one.dearer)}" for one in dearer
        )
        sentences.append(
            f"{len(dearer)} of {len(verdicts)} rows cost over {dearer_max:.0%} more a message than at {base}: {told}."
        )
    if unmeasured:
        told = "; ".join(f"{one.row}: {one.unmeasured}" for one in unmeasured)
        sentences.append(f"Not measured, and so not green: {told}.")
    if not sentences:
        worst = max(verdicts, key=lambda one: one.ratio() or 0)
        sentences.append(
            f"None of {len(verdicts)} rows costs more than {dearer_max:.0%} more a message than at {base}; "
            f"the dearest is {worst.row} with {_percent(worst, 'instructions')} instructions."
        )
    return " ".join(sentences)


def _percent(verdict: Verdict, name: str) -> str:
    ratio = verdict.ratio(name)
    if name == COMPILED_DEARER:
        ratio = verdict.compiled["instructions"] / verdict.tree["instructions"]
    return f"{((ratio or 1) - 1) * 100:+.2f} %"
