"""Roles get rights in a namespace or at a topic, and lose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from geminga.app.console.core.addresses import address
from geminga.app.console.core.rights import ACTIONS, actions_of, rights_rows, role_of
from geminga.app.console.core.words import plural
from geminga.app.console.reading.choosing import topic_named
from geminga.app.console.reading.standing import own_rights
from geminga.app.console.tables import Act, Done, Field, Question, Refusal, View


class _Place(NamedTuple):
    """A namespace, or a topic in one."""

    namespace: str
    #: Empty: it is the namespace.
    topic: str

    @property
    def name(self) -> str:
        return self.topic or self.namespace

    @property
    def chosen(self) -> dict[str, str]:
        return {"topic": self.topic} if self.topic else {"namespace": self.namespace}

    @property
    def page(self) -> str:
        return address("/permissions", **self.chosen)


def _place(view: View) -> _Place:
    if view.given("topic"):
        name = topic_named(view.given("topic"))
        return _Place(name.namespace, str(name))
    namespace = view.wanted("namespace")
    if namespace.count("/") != 1:
        raise Refusal(f"A namespace is tenant/namespace, not “{namespace[:100]}”.")
    return _Place(namespace, "")


async def _held(view: View, place: _Place, role: str) -> tuple[str, ...]:
    """Actions that a role has from this place itself. Raises AdminError."""
    of_namespace: Mapping[str, Sequence[str]] = await view.admin.permissions.get(place.namespace)
    of_topic = await view.admin.topics.permissions(place.topic) if place.topic else None
    own = await own_rights(view.admin, place.namespace, place.topic, []) if place.topic else None
    for row in rights_rows(of_namespace, of_topic, own):
        if row.role == role:
            return row.actions_from("topic" if place.topic else "namespace")
    return ()


async def _granted(view: View, place: _Place) -> str:
    """The role that gets something. Blanks around it were typed, unless it has rights by that name: a row's link."""
    text = view.given("role")
    return text if text != text.strip() and await _held(view, place, text) else role_of(text)


async def grant_question(view: View) -> Question:
    """To which role, and what it has now."""
    place = _place(view)
    if not view.given("role").strip():
        return Question(
            f"Which role gets permissions at {place.name}?",
            fields=(Field("role", "Role", hint="As its token or certificate names it."),),
            button="Next",
            chosen=place.chosen,
            is_unfinished=True,
            is_harmless=True,
            back=place.page,
        )
    role = await _granted(view, place)
    held = await _held(view, place, role)
    now = f"It has now: {', '.join(held)}. What is not ticked is taken away." if held else "It has nothing there now."
    return Question(
        f"Grant permissions at {place.name} to {role}. {now}",
        fields=[
            Field(action, action, "yes" if action in held else "", "checkbox", is_required=False) for action in ACTIONS
        ],
        button="Grant",
        chosen={**place.chosen, "role": role},
        is_harmless=True,
        back=place.page,
    )


async def grant(view: View) -> Done:
    """They replace what the role had there."""
    place = _place(view)
    role = await _granted(view, place)
    actions = actions_of(action for action in ACTIONS if view.form.get(action))
    if place.topic:
        await view.admin.topics.grant_permission(place.topic, role, actions)
    else:
        await view.admin.permissions.grant(place.namespace, role, actions)
    return Done(f"{role} has at {place.name}: {', '.join(actions)}.", place.page)


async def revoke_question(view: View) -> Question:
    """What is taken."""
    place, role = _place(view), view.wanted("role")
    held = await _held(view, place, role)
    stays = " What the namespace gives stays." if place.topic else " What single topics give stays."
    return Question(
        f"Take {', '.join(held) or 'nothing'} at {place.name} from {role}.{stays} Its producers and consumers are "
        "refused from then on.",
        button=f"Revoke {plural(len(held), 'permission')}",
        hits=len(held),
        chosen={**place.chosen, "role": role},
        back=place.page,
        obstacle="" if held else f"{role} has nothing at {place.name} itself.",
    )


async def revoke(view: View) -> Done:
    """All that the role has there."""
    place, role = _place(view), view.wanted("role")
    if place.topic:
        await view.admin.topics.revoke_permission(place.topic, role)
    else:
        await view.admin.permissions.revoke(place.namespace, role)
    return Done(f"{role} has nothing more at {place.name}.", place.page)


ACTS: Final = (
    Act("grant", "Grant a permission", grant_question, grant),
    Act("revoke", "Revoke permissions", revoke_question, revoke),
)
