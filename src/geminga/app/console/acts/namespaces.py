"""Tenants and namespaces are made and deleted."""

from __future__ import annotations

import asyncio
from typing import Final

from geminga.app.console.core.addresses import address
from geminga.app.console.core.words import plural
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View


def _list() -> str:
    return address("/namespaces")


def _namespace(view: View) -> str:
    """``tenant/namespace``; raises Refusal for anything else."""
    name = view.wanted("namespace").strip()
    tenant, _, rest = name.partition("/")
    if not tenant or not rest or "/" in rest:
        raise Refusal(f"A namespace is tenant/namespace, not “{name[:100]}”.")
    return name


# ---- tenants


async def create_tenant_question(view: View) -> Question:
    """Its name, who administers it, and where it may be."""
    clusters = view.given("clusters") or ",".join(sorted(map(str, await view.admin.clusters.list())))
    return Question(
        "Create a tenant. Its namespaces may be in the clusters that it names, and its administrators may do anything "
        "in them.",
        fields=(
            Field("tenant", "Tenant", view.given("tenant")),
            Field("clusters", "Clusters", clusters, hint="With commas between."),
            Field(
                "roles", "Administrators", view.given("roles"), is_required=False, hint="Roles, with commas between."
            ),
        ),
        button="Create the tenant",
        is_harmless=True,
        back=_list(),
    )


async def create_tenant(view: View) -> Done:
    """One that is there is refused. Raises Refusal for one that may be in no cluster."""
    tenant = view.wanted("tenant").strip()
    clusters, roles = _names(view.given("clusters")), _names(view.given("roles"))
    if not clusters:
        raise Refusal("A tenant names at least one cluster.")
    await view.admin.tenants.create(tenant, admin_roles=roles, allowed_clusters=clusters)
    return Done(f"Tenant {tenant} is created.", address("/namespaces", tenant=tenant))


async def delete_tenant_question(view: View) -> Question:
    """An empty one alone."""
    tenant = view.wanted("tenant").strip()
    left = len(await view.admin.namespaces.list(tenant))
    has = plural(left, "namespace")
    return Question(
        f"Delete tenant {tenant}, which has {has}. It can not be taken back.",
        button="Delete the tenant",
        hits=left,
        chosen={"tenant": tenant},
        back=address("/namespaces", tenant=tenant),
        obstacle=f"It has {has}; delete them first, one by one." if left else "",
    )


async def delete_tenant(view: View) -> Done:
    """Raises AdminError for one that got a namespace meanwhile."""
    tenant = view.wanted("tenant").strip()
    await view.admin.tenants.delete(tenant)
    return Done(f"Tenant {tenant} is deleted.", _list())


# ---- namespaces


async def create_question(view: View) -> Question:
    """Whose, and its name."""
    tenant = view.given("tenant")
    return Question(
        "Create a namespace. What the broker is configured with holds in it until policies are set.",
        fields=(
            Field(
                "namespace", "Namespace", view.given("namespace") or f"{tenant or 'public'}/", hint="tenant/namespace"
            ),
        ),
        button="Create the namespace",
        is_harmless=True,
        back=address("/namespaces", tenant=tenant),
    )


async def create(view: View) -> Done:
    """One that is there is refused."""
    namespace = _namespace(view)
    await view.admin.namespaces.create(namespace)
    return Done(f"Namespace {namespace} is created.", address("/namespace", namespace=namespace))


async def delete_question(view: View) -> Question:
    """An empty one alone: brokers refuse any other (``forceDeleteNamespaceAllowed``), and so no message goes unseen."""
    namespace = _namespace(view)
    topics, partitioned = await asyncio.gather(
        view.admin.namespaces.topics(namespace, mode="ALL"), view.admin.topics.list_partitioned(namespace)
    )
    left = plural(len(topics), "topic or partition", "topics and partitions") if topics else ""
    left = left or (plural(len(partitioned), "partitioned topic") if partitioned else "")
    return Question(
        f"Delete namespace {namespace}, which has {left or 'no topic'}, with its policies. It can not be taken back.",
        button="Delete the namespace",
        hits=len(topics) + len(partitioned),
        chosen={"namespace": namespace},
        back=address("/namespace", namespace=namespace),
        obstacle=f"It has {left}; delete them first, each says how many messages it has." if left else "",
    )


async def delete(view: View) -> Done:
    """Raises AdminError for one that got a topic meanwhile."""
    namespace = _namespace(view)
    await view.admin.namespaces.delete(namespace)
    return Done(f"Namespace {namespace} is deleted.", address("/namespaces", tenant=namespace.partition("/")[0]))


def _names(text: str) -> list[str]:
    """Between commas."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


ACTS: Final = (
    Act("create-tenant", "Create a tenant", create_tenant_question, create_tenant),
    Act("delete-tenant", "Delete a tenant", delete_tenant_question, delete_tenant),
    Act("create-namespace", "Create a namespace", create_question, create),
    Act("delete-namespace", "Delete a namespace", delete_question, delete),
)
