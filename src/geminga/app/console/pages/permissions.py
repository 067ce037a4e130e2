"""Who may do what in a namespace, or at one of its topics."""

from __future__ import annotations

from typing import Final

from geminga.app.console.core.rights import ACTIONS
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.reading.standing import rights_of
from geminga.app.console.tables import Page, Refusal, Rendered, View


async def permissions(view: View) -> Rendered:
    """``namespace``, or ``topic``. Raises Refusal for a name that is none."""
    topic = view.query.get("topic", "").lstrip()
    namespace = view.query.get("namespace", "").strip()
    if topic:
        parsed = topic_named(topic)
        topic, namespace = str(parsed), parsed.namespace
    elif namespace and namespace.count("/") != 1:
        raise Refusal(f"A namespace is tenant/namespace, not “{namespace[:100]}”.")
    rights = await rights_of(view.admin, namespace, topic) if namespace else None
    return Rendered("permissions.html", {"namespace": namespace, "topic": topic, "rights": rights, "actions": ACTIONS})


PAGES: Final = (Page("/permissions", permissions, section="Permissions"),)
