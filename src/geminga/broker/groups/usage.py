"""What brokers tell each other of a resource group: one document for each, in the metadata.

``/geminga/resource-group-usage/{group}``, JSON::

    {"brokers": {"3f21": {"look": 17, "uses": {"publishRateInMsgs": [800, 640, false]}}}}

By the broker's name, which is of one life of it: the number of its last look, and of each limit its share, what it used
per second, and whether it was held (:class:`~geminga.broker.core.group_shares.Use`). Pulsar's brokers tell each other
the same through a topic. A document that is changed by compare-and-set lets no two brokers take the same, and no topic
has to be loaded before a limit holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json
from geminga.broker.core.group_shares import Use

#: A broker that did not look while another looked so often is gone, and its share free.
LOOKS_MAX: Final = 3


class GroupReport(NamedTuple):
    """What one broker says."""

    look: int
    uses: Mapping[str, Use]


def decode_reports(document: Document | None) -> dict[str, GroupReport]:
    """By broker; what makes no sense is left out."""
    brokers = document.get("brokers") if document is not None else None
    if not isinstance(brokers, dict):
        return {}
    found = {}
    for name, value in brokers.items():
        report = _report(value)
        if report is not None:
            found[name] = report
    return found


def encode_reports(reports: Mapping[str, GroupReport]) -> Document:
    """The inverse."""
    return {
        "brokers": {
            name: {
                "look": report.look,
                "uses": {limit: [use.share, use.used, use.is_held] for limit, use in report.uses.items()},
            }
            for name, report in sorted(reports.items())
        }
    }


def _report(value: Json) -> GroupReport | None:
    if not isinstance(value, dict):
        return None
    look, uses = value.get("look"), value.get("uses")
    if not isinstance(look, int) or not isinstance(uses, dict):
        return None
    found = {}
    for limit, use in uses.items():
        if not isinstance(use, list) or len(use) != 3:
            return None
        share, used, is_held = use
        if not isinstance(share, int) or not isinstance(used, int) or min(share, used) < 0:
            return None
        found[limit] = Use(share, used, bool(is_held))
    return GroupReport(look, found)


class Watched:
    """The other brokers of one group, as one broker sees them look: who stopped is gone."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        #: Broker -> its last look, and how often it was the same.
        self._seen: dict[str, tuple[int, int]] = {}

    def looked(self, reports: Mapping[str, GroupReport]) -> None:
        """These are the reports at another look of this broker's."""
        before, self._seen = self._seen, {}
        for name, report in reports.items():
            look, times = before.get(name, (-1, 0))
            self._seen[name] = (report.look, times + 1 if report.look == look else 0)

    def present(self, reports: Mapping[str, GroupReport]) -> dict[str, GroupReport]:
        """Those that are not gone."""
        return {name: report for name, report in reports.items() if self._seen.get(name, (0, 0))[1] < LOOKS_MAX}
