"""Which version of Geminga this is; below everything, so that all may tell it."""

from __future__ import annotations

import os

__all__ = ["__version__", "is_compiled", "version_line"]

__version__ = "0.1.0"


def is_compiled() -> bool:
    """Whether the modules that every message runs through are compiled here (``make wheels``); the code is the same."""
    place = os.path.join(os.path.dirname(__file__), os.pardir, "wire", "pulsar")
    return any(name.startswith("varint.") and name.endswith(".so") for name in os.listdir(place))


def version_line() -> str:
    """What ``geminga --version`` says."""
    return f"geminga {__version__} ({'compiled' if is_compiled() else 'pure Python'})"
