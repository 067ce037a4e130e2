"""The shared session runs Python workers, on the Java that was chosen."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql.functions import udf

from geminga.spark.process.java import CHOSEN_VARIABLE, read_runtime
from geminga.spark.sessions import TUNED_SETTINGS


def test_session_runs_on_the_chosen_java_with_the_tuned_settings(spark_session):
    running = spark_session.sparkContext._jvm.System.getProperty("java.version")
    chosen = read_runtime(Path(os.environ[CHOSEN_VARIABLE]), "test")
    assert chosen.version == running
    assert chosen.major >= 17
    for name, value in TUNED_SETTINGS.items():
        assert spark_session.conf.get(name) == value


def test_workers_of_a_local_session_run_this_python(spark_session):
    @udf("string", useArrow=False)
    def executable(_):
        import sys

        return sys.executable

    assert [row[0] for row in spark_session.range(1).select(executable("id")).collect()] == [sys.executable]


def test_python_worker_neither_chooses_java_nor_starts_a_jvm(spark_session):
    @udf("string", useArrow=False)
    def probe(_):
        from geminga.spark import configure_java

        return str(configure_java())

    assert [row[0] for row in spark_session.range(1).select(probe("id")).collect()] == ["None"]
