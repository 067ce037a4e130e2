"""Who may do what at a namespace or a topic, and where each right comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

ACTIONS: Final = ("produce", "consume", "functions", "sources", "sinks", "packages")


class RightsRow(NamedTuple):
    """A role, and for each of :data:`ACTIONS` where it has it from, ``namespace``, ``topic``, or both with ``and``
    between; empty: it has it not."""

    role: str
    origins: tuple[str, ...]
    #: What it is beside its actions: superuser, administrator of the tenant.
    standing: str

    @property
    def actions(self) -> tuple[str, ...]:
        """Those that it has."""
        return tuple(action for action, origin in zip(ACTIONS, self.origins, strict=True) if origin)

    def actions_from(self, origin: str) -> tuple[str, ...]:
        """Those that it has from there: ``namespace`` or ``topic``."""
        return tuple(
            action for action, each in zip(ACTIONS, self.origins, strict=True) if origin in each.split(" and ")
        )


class RightsError(ValueError):
    """A form that is not understood; the text says what was expected."""


def rights_rows(
    of_namespace: Mapping[str, Sequence[str]],
    of_topic: Mapping[str, Sequence[str]] | None = None,
    own: Mapping[str, Sequence[str]] | None = None,
    *,
    tenant_admins: Iterable[str] = (),
    superusers: Iterable[str] = (),
) -> list[RightsRow]:
    """Rows by role: those with all rights first.

    ``of_topic``: as the administration answers, what the namespace gives included; None: it is about the namespace.
    ``own``: what the topic itself gives, whatever the namespace does; None: not known, then what the namespace gives is
    not looked for there.
    """
    standings = dict.fromkeys(tenant_admins, "administrator of the tenant")
    standings |= dict.fromkeys(superusers, "superuser")
    rows = []
    for role in sorted({*of_namespace, *(of_topic or {}), *(own or {}), *standings}):
        above = of_namespace.get(role, ())
        here = [action for action in (of_topic or {}).get(role, ()) if action not in above]
        if own is not None:
            here = list(own.get(role, ()))
        places = (("namespace", above), ("topic", here))
        origins = tuple(" and ".join(name for name, there in places if action in there) for action in ACTIONS)
        rows.append(RightsRow(role, origins, standings.get(role, "")))
    return sorted(rows, key=lambda row: (not row.standing, row.role))


def actions_of(given: Iterable[str]) -> list[str]:
    """Of a form, in their order. Raises RightsError."""
    chosen = set(given)
    if unknown := sorted(chosen - set(ACTIONS)):
        raise RightsError(f"{unknown[0][:40]!r} is no action: expected {', '.join(ACTIONS)}")
    if not chosen:
        raise RightsError("No action was chosen: choose what the role may do, or revoke its rights.")
    return [action for action in ACTIONS if action in chosen]


def role_of(text: str) -> str:
    """Of a form. Raises RightsError."""
    role = text.strip()
    if not role:
        raise RightsError("The role is missing: expected the name that the token or certificate says.")
    if len(role) > 256:
        raise RightsError(f"The role has {len(role)} characters; at most 256 are taken.")
    return role


def subscription_rows(answer: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Subscriptions that only some roles may use, with these."""
    return [(name, sorted(str(role) for role in roles or ())) for name, roles in sorted(answer.items())]
