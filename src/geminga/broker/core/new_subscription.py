"""A durable subscription that is to be made as another one is, here or by another broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class NewSubscription(NamedTuple):
    """What it is made with, beside where it begins."""

    name: str
    properties: Mapping[str, str]
    is_replicated: bool
