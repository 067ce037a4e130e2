"""The leader's rule for bundles that nobody owns: by load, as brokers report it in their registrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from geminga.broker.core.coercion import Json
from geminga.broker.load_rules.reports import BrokerReport, report_of, report_path
from geminga.model.errors import CorruptionError


class Registered(Protocol):
    """A broker that is there."""

    @property
    def broker_id(self) -> str:
        """``host:port``."""

    @property
    def document(self) -> Mapping[str, Json]:
        """All that it says of itself."""


class LoadChooser:
    """An ``ownership.core.choosing.Chooser``."""

    def __init__(self, assign: Callable[[str, Mapping[str, BrokerReport]], str | None]) -> None:
        self._assign = assign
        #: Of the document that was read last, by broker.
        self._read: dict[str, tuple[Mapping[str, Json], BrokerReport]] = {}

    def choose(self, bundle: object, brokers: Sequence[Registered]) -> str | None:
        """See there; ``bundle`` reads as its name."""
        read: dict[str, tuple[Mapping[str, Json], BrokerReport]] = {}
        for broker in brokers:
            known = self._read.get(broker.broker_id)
            if known is None or known[0] is not broker.document:
                try:
                    known = (broker.document, report_of(report_path(broker.broker_id), broker.document))
                except CorruptionError:
                    # The round of the leader tells of it.
                    continue
            read[broker.broker_id] = known
        self._read = read
        return self._assign(str(bundle), {name: report for name, (_, report) in read.items()})
