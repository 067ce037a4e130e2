"""What is done to subscriptions."""

from __future__ import annotations

from geminga.app.console.core.addresses import address
from geminga.app.console.core.words import plural
from geminga.app.console.tables import Act, Done, Question, Refusal, View


async def _backlog(view: View, topic: str, subscription: str) -> int:
    """Messages that it has not acknowledged; raises Refusal, AdminError."""
    stats = await view.admin.topics.stats(topic, precise_backlog=True)
    found = stats.get("subscriptions", {}).get(subscription)
    if found is None:
        raise Refusal(f"{topic} has no subscription {subscription}.", 404)
    return int(found.get("msgBacklog", 0))


async def clear_question(view: View) -> Question:
    """How many messages are skipped."""
    topic, subscription = view.wanted("topic"), view.wanted("subscription")
    backlog = await _backlog(view, topic, subscription)
    messages = plural(backlog, "message")
    return Question(
        f"Clear the backlog of {subscription} on {topic}: {messages} will never be delivered to it.",
        button=f"Clear {messages}",
        hits=backlog,
        chosen={"topic": topic, "subscription": subscription},
        back=address("/topics"),
    )


async def clear(view: View) -> Done:
    """All that is there now."""
    topic, subscription = view.wanted("topic"), view.wanted("subscription")
    await view.admin.subscriptions.skip_all(topic, subscription)
    return Done(f"The backlog of {subscription} on {topic} is cleared.", address("/topics"))


ACTS = (Act("clear-backlog", "Clear a backlog", clear_question, clear),)
