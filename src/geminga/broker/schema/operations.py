"""How often schemas were asked for, added, deleted and compared, by namespace, and how long it took.

Names of the metrics are Pulsar's (``pulsar_schema_*``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from geminga.model.histogram import Latencies, Quantiles

#: Namespaces that are told of; of more the one that was used longest ago is forgotten.
NAMESPACES_MAX: Final = 1000
GET: Final = "get"
PUT: Final = "put"
DELETE: Final = "del"
KINDS: Final = (GET, PUT, DELETE)
QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 1.0)


class _OfNamespace:
    __slots__ = ("compatible", "failed", "incompatible", "latencies")

    def __init__(self) -> None:
        self.failed = dict.fromkeys(KINDS, 0)
        #: Milliseconds, of those that came to an end.
        self.latencies: dict[str, Latencies] = {}
        self.compatible = self.incompatible = 0


class SchemaOperations:
    """Of one broker."""

    __slots__ = ("_monotonic", "_namespaces")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: In the order of their last use.
        self._namespaces: dict[str, _OfNamespace] = {}

    @contextmanager
    def timed(self, kind: str, schema_id: str) -> Iterator[None]:
        """One operation on the schemas of a topic; it failed if it raises."""
        found = self._of(schema_id)
        began_s = self._monotonic()
        try:
            yield
        except BaseException:
            found.failed[kind] += 1
            raise
        if kind not in found.latencies:
            found.latencies[kind] = Latencies()
        found.latencies[kind].add((self._monotonic() - began_s) * 1000)

    def compared(self, schema_id: str, *, is_compatible: bool) -> None:
        """A schema was compared with those there are."""
        found = self._of(schema_id)
        if is_compatible:
            found.compatible += 1
        else:
            found.incompatible += 1

    def metrics(self) -> Iterator[tuple[str, Mapping[str, float | Quantiles]]]:
        """Namespace, and what its series say."""
        now_s = self._monotonic()
        for namespace, found in self._namespaces.items():
            values: dict[str, float | Quantiles] = {
                f"pulsar_schema_{kind}_ops_failed_total": count for kind, count in found.failed.items()
            }
            values["pulsar_schema_compatible_total"] = found.compatible
            values["pulsar_schema_incompatible_total"] = found.incompatible
            for kind, latencies in found.latencies.items():
                values[f"pulsar_schema_{kind}_ops_latency"] = latencies.quantiles(now_s, QUANTILES)
            yield namespace, values

    def _of(self, schema_id: str) -> _OfNamespace:
        namespace = schema_id.rpartition("/")[0]
        found = self._namespaces.pop(namespace, None) or _OfNamespace()
        self._namespaces[namespace] = found
        if len(self._namespaces) > NAMESPACES_MAX:
            del self._namespaces[next(iter(self._namespaces))]
        return found
