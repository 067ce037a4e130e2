"""Logging: standard library loggers under the package's names; ``app`` decides where records go.

Only shells log; cores return events and commands for the shell to log.
"""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """The logger ``name`` (pass ``__name__``)."""
    return logging.getLogger(name)
