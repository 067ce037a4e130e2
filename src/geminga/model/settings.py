"""How a package declares its configuration: one frozen dataclass per package, each field with Pulsar's key.

::

    @dataclass(frozen=True, slots=True)
    class BookieConfig:
        journal_max_group_wait_ms: int = setting("journalMaxGroupWaitMSec", 2, "milliseconds >= 0", minimum=0)

``app.config`` collects the settings of all packages, reads files and environment, and checks types and bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of a key: Pulsar's name, what a good value is (for errors), bounds, allowed words."""

    key: str
    expectation: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


def setting(
    key: str,
    default: T,
    expectation: str = "",
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
) -> T:
    """A dataclass field for configuration ``key``; the type of the field decides how text is parsed.

    ``int``, ``float``, ``bool``, ``str``, ``int | None``, ``tuple[str, ...]`` (comma separated) are understood, and
    ``Secret``, which is shown nowhere.
    """
    made: Any = field(
        default=default,
        metadata=MappingProxyType({"setting": Setting(key, expectation, minimum, maximum, tuple(choices))}),
    )
    result: T = made
    return result


def settings_of(config_class: type) -> Mapping[str, tuple[Setting, str]]:
    """Key -> (setting, field name) of a config dataclass."""
    fields = getattr(config_class, "__dataclass_fields__", {})
    return {
        f.metadata["setting"].key: (f.metadata["setting"], name)
        for name, f in fields.items()
        if "setting" in f.metadata
    }
