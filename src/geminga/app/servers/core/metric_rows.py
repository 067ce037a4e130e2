"""Metrics of another process as JSON: what sources say, with their labels. Pure; ``docs/formats/metrics-socket.md``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

from geminga.model.exposition import Labels, Source
from geminga.model.histogram import Quantiles

#: What one source said, with its labels.
MetricRow: TypeAlias = tuple[Labels, Mapping[str, float | Quantiles]]


def encode_rows(sources: Iterable[tuple[Labels, Source]]) -> bytes:
    """What they say now."""
    return json.dumps(
        [[labels, {name: _as_json(value) for name, value in source().items()}] for labels, source in sources]
    ).encode()


def decode_rows(data: bytes) -> list[MetricRow]:
    """What :func:`encode_rows` made; raises ValueError."""
    try:
        return [
            (
                tuple((str(name), str(value)) for name, value in labels),
                {str(name): _value(value) for name, value in values.items()},
            )
            for labels, values in json.loads(data)
        ]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"rows of metrics were expected: {error}") from None


def _as_json(value: float | Quantiles) -> object:
    if isinstance(value, Quantiles):
        return {"quantiles": value.values, "count": value.seen, "sum": value.total}
    return value


def _value(document: object) -> float | Quantiles:
    if isinstance(document, int | float):
        return document
    fields = cast("Mapping[str, list[tuple[float, float]]]", document)
    values = tuple((float(quantile), float(value)) for quantile, value in fields["quantiles"])
    return Quantiles(values, int(cast("int", fields["count"])), float(cast("float", fields["sum"])))
