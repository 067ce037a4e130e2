"""The tables, by the module that holds each."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story
from tools.interop.rest.tables import brokers, clusters, common, namespace_policies, namespaces, tenants

#: In this order.
TABLES: Final[dict[str, list[Story]]] = {
    module.__name__.rpartition(".")[2]: module.STORIES
    for module in (brokers, clusters, tenants, namespaces, namespace_policies, common)
}
