"""Which version of Geminga this is; below everything, so that all may tell it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
