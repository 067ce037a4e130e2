"""Tenants with their namespaces; a namespace with its policies."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from geminga.admin.errors import AdminError, ForbiddenError, UnauthorizedError
from geminga.app.console.core.policies import policy_rows
from geminga.app.console.tables import SEARCH_LENGTH_MAX, Page, Rendered, View

#: Tenants on one page; each is asked for its namespaces and its roles.
TENANTS_PER_PAGE: Final = 20
#: Namespaces of one tenant that the list names.
SHOWN_MAX: Final = 200


async def namespaces(view: View) -> Rendered:
    """``q``: part of a tenant's name; ``tenant``: that one with all its namespaces."""
    wanted, only = view.given("q")[:SEARCH_LENGTH_MAX], view.given("tenant")
    refused = ""
    try:
        tenants = [only] if only else sorted(await view.admin.tenants.list())
    except (ForbiddenError, UnauthorizedError) as error:
        tenants, refused = [], error.reason
    page = view.page_of([name for name in tenants if wanted.lower() in name.lower()], per_page=TENANTS_PER_PAGE)
    rows = await asyncio.gather(*(_tenant(view, name) for name in page.rows))
    values = {"q": wanted, "tenant": only, "page": page, "rows": rows, "refused": refused, "shown_max": SHOWN_MAX}
    return Rendered("namespaces.html", values)


async def _tenant(view: View, name: str) -> dict[str, Any]:
    try:
        about, found = await asyncio.gather(_about(view, name), view.admin.namespaces.list(name))
    except AdminError as error:
        return {"name": name, "about": None, "namespaces": [], "problem": error.reason}
    return {"name": name, "about": about, "namespaces": sorted(map(str, found)), "problem": ""}


async def _about(view: View, name: str) -> Any:  # noqa: ANN401  (a document of REST)
    try:
        return await view.admin.tenants.get(name)
    except AdminError:
        return None


async def namespace(view: View) -> Rendered:
    """Its policies, and how many topics it has."""
    name = view.wanted("namespace")
    policies, topics, partitioned = await asyncio.gather(
        view.admin.namespaces.policies(name),
        view.admin.topics.list(name),
        view.admin.topics.list_partitioned(name),
    )
    values = {
        "namespace": name,
        "policies": policy_rows(policies),
        "bundles": int(policies.get("bundles", {}).get("numBundles", 0)),
        "topics": len(topics),
        "partitioned": len(partitioned),
    }
    return Rendered("namespace.html", values)


PAGES: Final = (Page("/namespaces", namespaces, section="Namespaces"), Page("/namespace", namespace))
