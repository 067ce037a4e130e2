"""Prometheus' text format, read strictly: what its parser refuses, and what its linter complains of, is an error."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from geminga.model.metric_help import HELP

_NAME: Final = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE: Final = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (NaN|[+-]Inf|[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_TYPES: Final = frozenset(("counter", "gauge", "histogram", "summary", "untyped"))
#: Endings that belong to the family without them, by type.
_ENDINGS: Final = {"summary": ("_sum", "_count"), "histogram": ("_sum", "_count", "_bucket")}


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> list[Sample]:
    """All samples; AssertionError where the format is broken.

    Each family has one TYPE line before its samples, which stand together; no series is there twice; labels are well
    formed and sorted out by name; summaries have quantiles, a sum and a count.
    """
    assert text.endswith("\n"), "the last line has no end"
    types: dict[str, str] = {}
    series: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    found: list[Sample] = []
    current = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert re.fullmatch(_NAME, current), line
            assert current not in types, f"a second {line}"
            assert kind in _TYPES, line
            types[current] = kind
            continue
        if line.startswith("# HELP "):
            _, _, helped, said = line.split(" ", 3)
            assert helped not in types and said, f"help that is empty, or behind its type: {line}"
            continue
        assert not line.startswith("#"), f"neither a sample nor a type: {line}"
        sample = _sample(line)
        endings = _ENDINGS.get(types.get(current, ""), ())
        family = [current, *(current + ending for ending in endings)]
        assert sample.name in family, f"{line!r} stands among the samples of {current}"
        key = sample.name, frozenset(sample.labels.items())
        assert key not in series, f"twice: {line}"
        series.add(key)
        found.append(sample)
    named = {sample.name for sample in found}
    unhelped = {name for name in types if name.startswith(("geminga_", "process_"))} - HELP.keys()
    assert not unhelped, f"our own metrics say what they are (geminga/model/metric_help.py): {sorted(unhelped)}"
    for family_name, kind in types.items():
        # A summary may have no quantiles, as some of Pulsar's: then sum and count are all of it.
        assert family_name in named or kind == "summary", f"{family_name} has a type and no sample"
        for ending in _ENDINGS.get(kind, ()):
            assert family_name + ending in named, f"the {kind} {family_name} has no {ending}"
    return found


def label_names(found: list[Sample]) -> dict[str, set[frozenset[str]]]:
    """Metric -> the sets of label names of its series."""
    result: dict[str, set[frozenset[str]]] = {}
    for sample in found:
        result.setdefault(sample.name, set()).add(frozenset(sample.labels))
    return result


def _sample(line: str) -> Sample:
    matched = _SAMPLE.fullmatch(line)
    assert matched is not None, f"no sample: {line!r}"
    name, text, value = matched.groups()
    labels: dict[str, str] = {}
    rest = text or ""
    while rest:
        label = _LABEL.match(rest)
        assert label is not None, f"no label at {rest!r} of {line!r}"
        assert label[1] not in labels, f"label {label[1]} twice: {line!r}"
        labels[label[1]] = label[2]
        rest = rest[label.end() :]
        assert not rest or rest.startswith(","), f"no comma at {rest!r} of {line!r}"
        rest = rest[1:]
    return Sample(name, labels, float(value))
