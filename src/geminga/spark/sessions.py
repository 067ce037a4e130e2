"""A Spark session with the settings that Geminga's data source likes, on a Java that is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from geminga.spark.process.home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What makes a Python data source faster, measured at 1.4 to 1.8 times the defaults: a Unix socket between the JVM and
#: its Python workers, smaller Arrow batches, and checkpoints written through Hadoop's plain file system.
TUNED_SETTINGS: Mapping[str, str] = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(
    name: str = "geminga", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one with :data:`TUNED_SETTINGS`; ``settings`` go over those.

    ``master`` is Spark's (``local[2]``, ``spark://host:7077``); without it, what Spark's own configuration says.
    Workers of a local session run this program's Python, unless ``PYSPARK_PYTHON`` says otherwise, and then take
    PySpark as it is installed (:mod:`geminga.spark.process.home`).
    A session that runs already keeps its Java, its master and all settings that only count at the start.
    Raises :class:`geminga.spark.SparkSetupError` where PySpark or Java are missing.
    """
    import pyspark
    from pyspark.sql import SparkSession

    if master is None or master.startswith("local"):
        # Else Spark takes the first python3 of the PATH for its workers, which need not have Geminga, nor PySpark.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**TUNED_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    with quick_home(master, settings or {}, Path(pyspark.__file__).parent):
        return builder.getOrCreate()


def register(spark: SparkSession) -> None:
    """Make ``format("pulsar")`` known to a session that does not find it by itself.

    Sessions find the module ``pyspark_geminga`` where Geminga is installed for their Python workers; one started by
    other means, or before the installation, needs this call.
    """
    from geminga.spark.datasource import PulsarDataSource

    spark.dataSource.register(PulsarDataSource)
