"""Brokers and bookies of a cluster as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class BrokerRow(NamedTuple):
    """One that lives."""

    #: ``host:port`` of its HTTP service.
    name: str
    is_leader: bool
    #: That which was asked.
    is_here: bool
    #: None: it did not answer, ``problem``.
    bundles: int | None
    problem: str = ""


class LoadView(NamedTuple):
    """What the broker that was asked says of its load."""

    version: str
    service_url: str
    topics: int
    bundles: int
    producers: int
    consumers: int
    #: Percent by what is used: ``cpu``, ``memory``, ``directMemory``, ``bandwidthIn``, ``bandwidthOut``.
    usage: Mapping[str, float]
    rate_in: float
    rate_out: float


class BookieRow(NamedTuple):
    """One that is, or was, registered."""

    bookie_id: str
    rack: str
    group: str
    hostname: str


def broker_rows(
    names: Sequence[str], leader: Mapping[str, Any], here: Mapping[str, Any], bundles: Mapping[str, int | str]
) -> list[BrokerRow]:
    """``here``: the load report of who was asked; ``bundles``: how many by broker, or why that is not told."""
    leading = {str(leader.get("brokerId") or ""), _authority(str(leader.get("serviceUrl") or ""))}
    own = _authority(str(here.get("webServiceUrl") or ""))
    rows = []
    for name in sorted(names):
        found = bundles.get(name, "not asked")
        count, problem = (found, "") if isinstance(found, int) else (None, found)
        rows.append(BrokerRow(name, name in leading, name == own, count, problem))
    return rows


def load_view(report: Mapping[str, Any]) -> LoadView:
    """Of a load report."""
    usage = {}
    for kind in ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"):
        each = report.get(kind)
        if isinstance(each, Mapping) and float(each.get("limit") or 0) > 0:
            usage[kind] = 100 * float(each.get("usage") or 0) / float(each["limit"])
    return LoadView(
        str(report.get("brokerVersionString") or ""),
        str(report.get("pulsarServiceUrl") or ""),
        int(report.get("numTopics") or 0),
        int(report.get("numBundles") or len(report.get("bundles") or ())),
        int(report.get("numProducers") or 0),
        int(report.get("numConsumers") or 0),
        usage,
        float(report.get("msgRateIn") or 0),
        float(report.get("msgRateOut") or 0),
    )


def bookie_rows(answer: Mapping[str, Any], racks: Mapping[str, Any]) -> list[BookieRow]:
    """``racks``: by group and bookie."""
    placed = {name: (group, place) for group, bookies in racks.items() for name, place in (bookies or {}).items()}
    known = {str(each["bookieId"]) for each in answer.get("bookies") or ()}
    rows = []
    for name in sorted({*known, *placed}):
        group, place = placed.get(name, ("", {}))
        rows.append(BookieRow(name, str(place.get("rack") or ""), group, str(place.get("hostname") or "")))
    return rows


def _authority(url: str) -> str:
    return url.partition("://")[2].rstrip("/") or url
