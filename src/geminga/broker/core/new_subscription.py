"""A durable subscription that is to be made as another one is, here or by another broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

#: What users say of a subscription, by name.
Properties: TypeAlias = Mapping[str, str]


class NewSubscription(NamedTuple):
    """What it is made with, beside where it begins."""

    name: str
    properties: Properties
    is_replicated: bool
