"""What the REST handlers know of the broker they administer. Imports nothing of the HTTP software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from geminga.broker.access.ports import Access
from geminga.broker.metrics import Metrics
from geminga.broker.rest.stats import TopicStatistics

if TYPE_CHECKING:
    from geminga.broker.service import Broker

#: Body of a request where ``httpMaxRequestSize`` sets no other bound, bytes.
BODY_BYTES_MAX_DEFAULT: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RestContext:
    """Handed to every handler."""

    broker: Broker
    metrics: Metrics
    statistics: TopicStatistics
    cluster: str
    version: str
    #: Who is let in, and to what.
    access: Access
    #: Largest body of a request, bytes; -1: :data:`BODY_BYTES_MAX_DEFAULT`.
    body_bytes_max: int = -1
    #: Path of the file whose presence ``/status.html`` tells; empty: none.
    status_file: str = ""
    force_delete_namespace: bool = False
    force_delete_tenant: bool = False
    #: Every configuration key in force, for ``brokers/configuration/runtime``.
    configuration: Mapping[str, str] = field(default_factory=dict)
