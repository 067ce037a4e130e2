"""Registers the data source ``pulsar`` with PySpark, which looks for modules of this form of name by itself."""

from __future__ import annotations

from geminga.spark.process.versions import require_pyspark

# PySpark 4.0 and 4.1 look for such modules, too, and lack what the source stands on.
require_pyspark()

from geminga.spark.datasource import PulsarDataSource  # noqa: E402


class DefaultSource(PulsarDataSource):
    """The class that PySpark looks for."""
