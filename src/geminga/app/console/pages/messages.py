"""Messages of a topic, and one of them: its value by its schema, and why it is not delivered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from geminga.app.console.core.addresses import address
from geminga.app.console.core.delivery import MessageDelivery
from geminga.app.console.core.moments import milliseconds_of
from geminga.app.console.core.positions import start_of
from geminga.app.console.core.sought import sought_of
from geminga.app.console.reading.browsing import SHOWN, SHOWN_MAX, Browsing, browse, one_message
from geminga.app.console.reading.choosing import chosen_topic, topic_named
from geminga.app.console.reading.deliveries import deliveries_of, standings_of
from geminga.app.console.tables import Attached, Page, Refusal, Rendered, View

#: Fields of the form that stay from one page to the next; ``start`` and ``at`` begin another one.
_KEPT: Final = ("order", "key", "property", "text", "since", "until", "shown", "subscription")
_FIELDS: Final = (*_KEPT, "start", "at")


async def messages(view: View) -> Rendered:
    """``topic``, and the fields of the form: where to begin, in which order, what is looked for.

    Raises Refusal for a topic that keeps none.
    """
    form = {name: view.query.get(name, "").strip() for name in _FIELDS}
    values: dict[str, Any] = {
        "form": form,
        "topic": "",
        "whole": "",
        "chosen": None,
        "page": None,
        "standings": {},
        "further": "",
    }
    name = view.query.get("topic", "").lstrip()
    if not name:
        return Rendered("messages.html", values)
    if not topic_named(name).is_persistent:
        raise Refusal("A non-persistent topic keeps no messages: there is nothing to browse.", 404)
    chosen = await chosen_topic(view.admin, name)
    request = Browsing(
        chosen.shown,
        form["start"],
        milliseconds_of(form["at"]) if form["at"] else 0,
        form["order"] != "oldest",
        sought_of(form),
        view.number("shown", SHOWN, least=1, most=SHOWN_MAX),
    )
    page = await browse(view.admin, request)
    standings: Mapping[str, MessageDelivery] = {}
    if form["subscription"]:
        found = [each.message for each in page.messages]
        standings = await standings_of(view.admin, chosen.shown, form["subscription"], found, now_ms=view.now_ms)
    further = address("/messages", topic=chosen.shown, start=page.further, **{name: form[name] for name in _KEPT})
    return Rendered(
        "messages.html",
        {
            **values,
            "topic": chosen.shown,
            "whole": chosen.whole,
            "chosen": chosen,
            "page": page,
            "standings": standings,
            "is_all": request.sought.is_all,
            "further": further if page.further else "",
        },
    )


async def message(view: View) -> Rendered:
    """``topic`` and ``id``; ``subscription``: why that one has not got it."""
    topic, message_id = str(topic_named(view.wanted("topic"))), view.wanted("id")
    found, value = await one_message(view.admin, topic, message_id)
    deliveries = await deliveries_of(
        view.admin,
        topic,
        found,
        start_of(message_id),
        subscription=view.query.get("subscription", ""),
        now_ms=view.now_ms,
    )
    return Rendered("message.html", {"topic": topic, "message": found, "value": value, "deliveries": deliveries})


async def download(view: View) -> Attached:
    """The bytes of a value, all of them."""
    topic, message_id = str(topic_named(view.wanted("topic"))), view.wanted("id")
    found, _ = await one_message(view.admin, topic, message_id)
    return Attached(f"{found.id.replace(':', '-')}.bin", found.payload or b"")


PAGES: Final = (
    Page("/messages", messages, section="Messages"),
    Page("/message", message),
    Page("/message/download", download),
)
