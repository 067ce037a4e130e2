"""A home of Spark whose Python workers start quickly.

Spark gives its workers PySpark as a zip of sources, from which each new process compiles all modules again: most of the
time of a small batch. PySpark as it is installed has them compiled, and is the same version; it is taken where the zip
is missing.
"""

from __future__ import annotations

from pathlib import Path

import pyspark

#: What the scripts of Spark ask for.
PARTS = ("bin", "jars", "sbin")


def make_spark_home(directory: Path) -> Path:
    """Fill an empty directory with links to the Spark that came with PySpark; for the variable ``SPARK_HOME``."""
    installed = Path(pyspark.__file__).parent
    for part in PARTS:
        (directory / part).symlink_to(installed / part)
    return directory
