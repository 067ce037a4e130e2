"""``geminga.spark``: topics as tables and streams of Apache Spark, through PySpark (extra ``spark``).

::

    from geminga.spark import session

    spark = session("my job")
    spark.readStream.format("pulsar").option("service.url", "pulsar://localhost:6650").option("topic", "a1").load()

Importing this package costs nothing and changes nothing. The first use of one of its names looks for PySpark 4.2 or
newer, and in a Spark driver chooses the Java that Spark will run on (:func:`configure_java`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geminga.spark.datasource import PulsarDataSource
    from geminga.spark.process.errors import JavaMissingError, PySparkMissingError, SparkSetupError
    from geminga.spark.process.java import JavaRuntime, configure_java
    from geminga.spark.process.threads import inheriting
    from geminga.spark.rules.option_values import OptionError
    from geminga.spark.sessions import TUNED_SETTINGS, register, session
    from geminga.spark.starting import starting_offsets
    from geminga.spark.tables import read_topic

__all__ = [
    "TUNED_SETTINGS",
    "JavaMissingError",
    "JavaRuntime",
    "OptionError",
    "PulsarDataSource",
    "PySparkMissingError",
    "SparkSetupError",
    "configure_java",
    "inheriting",
    "read_topic",
    "register",
    "session",
    "starting_offsets",
]

#: Name -> module. Those of the first group need neither PySpark nor Java.
_PLAIN = {
    "JavaMissingError": "process.errors",
    "OptionError": "rules.option_values",
    "PySparkMissingError": "process.errors",
    "SparkSetupError": "process.errors",
    "starting_offsets": "starting",
}
_NEEDING_SPARK = {
    "JavaRuntime": "process.java",
    "PulsarDataSource": "datasource",
    "TUNED_SETTINGS": "sessions",
    "configure_java": "process.java",
    "inheriting": "process.threads",
    "read_topic": "tables",
    "register": "sessions",
    "session": "sessions",
}


def __getattr__(name: str) -> object:
    if name in _PLAIN:
        return getattr(import_module(f"geminga.spark.{_PLAIN[name]}"), name)
    if name not in _NEEDING_SPARK:
        raise AttributeError(f"module 'geminga.spark' has no attribute {name!r}")
    from geminga.spark.process.java import configure_java
    from geminga.spark.process.versions import require_pyspark

    require_pyspark()
    configure_java()
    return getattr(import_module(f"geminga.spark.{_NEEDING_SPARK[name]}"), name)
