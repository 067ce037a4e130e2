"""What the counts of a row say: pure, from two sets of figures to a line of the table and a paragraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

#: By its name: figures a message of one tree.
Figures = Mapping[str, float]

#: The share by which a row may be dearer than base.
DEARER_MAX: Final = 0.03
#: What every row is judged by; and rows of several brokers and bookies, whose counts are of a simulation.
JUDGED: Final = ("instructions",)
JUDGED_CLUSTER: Final = ("instructions", "calls", "allocations")


class Verdict(NamedTuple):
    """Of one row."""

    row: str
    base: Figures
    tree: Figures
    #: Names of judged figures that are dearer than allowed.
    dearer: tuple[str, ...]
    #: Why there are no two sets of figures; empty if there are.
    unmeasured: str = ""

    @property
    def is_red(self) -> bool:
        """A row that nobody could measure is no green one."""
        return bool(self.dearer or self.unmeasured)

    def ratio(self, name: str = "instructions") -> float | None:
        """This tree to base; None if one of them has no such figure."""
        base, tree = self.base.get(name), self.tree.get(name)
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
            "ratio": self.ratio(),
            "dearer": list(self.dearer),
            "unmeasured": self.unmeasured,
            "verdict": self.word,
        }


def judge(row: str, base: Figures, tree: Figures, judged: Sequence[str], dearer_max: float = DEARER_MAX) -> Verdict:
    """A judged figure that one of the trees lacks, or that is 0 for base, leaves the row unmeasured."""
    lacking = [name for name in judged if not base.get(name) or tree.get(name) is None]
    if lacking:
        return Verdict(row, base, tree, (), f"no {', '.join(lacking)}")
    return Verdict(row, base, tree, tuple(name for name in judged if tree[name] > base[name] * (1 + dearer_max)))


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
    return f"{((verdict.ratio(name) or 1) - 1) * 100:+.2f} %"
