"""An archive of the classes that Spark loads in tests: a JVM that maps it starts with half the CPU.

    python -m tools.spark_classes

writes ``build/spark-home/classes.jsa`` with a short session that does what most tests do. It belongs
to one Java and one set of jars; a JVM that has others does not take it, and starts as it would without. So does one
where none could be made. Users' sessions are not touched.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: The archive names the jars by their paths: each run has to see them at the same place.
HOME: Final = ROOT / "build" / "spark-home"
ARCHIVE: Final = HOME / "classes.jsa"
#: Read by ``spark-submit``, which starts the JVM of a session.
VARIABLE: Final = "SPARK_SUBMIT_OPTS"
#: A JVM that can not take the archive would say so where programs print their results.
QUIET: Final = "-Xshare:auto -Xlog:disable"
#: Settings of a small session on this machine: quiet, and nothing left listening.
SMALL: Final = {
    "spark.driver.memory": "1g",
    # It is over before the second compiler has earned what it costs.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
#: Some 40 s of processor time, on a machine that others use.
_LIMIT_S: Final = 900

_SESSION: Final = """
import sys
from pyspark.sql import functions as f
from geminga.spark import session
directory = sys.argv[1]
spark = session("classes", master="local[2]", settings={
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2", "spark.local.dir": directory + "/local",
    "spark.sql.warehouse.dir": directory + "/warehouse",
})
spark.sparkContext.setLogLevel("ERROR")
rows = spark.range(100).select(f.col("id"), f.col("id").cast("string").alias("value"), f.struct("id").alias("one"))
rows.write.parquet(directory + "/rows")
read = spark.read.parquet(directory + "/rows")
read.groupBy(f.col("id") % 3).agg(f.count("*"), f.collect_list("value")).join(rows, f.col("id") == 1, "left").collect()
read.mapInArrow(lambda batches: batches, read.schema).count()
spark.createDataFrame([(1, "a"), (2, None)], "id long, value string").selectExpr("to_json(struct(*))").collect()
read.write.json(directory + "/json")
stream = spark.readStream.schema(read.schema).parquet(directory + "/rows").withColumn("at", f.current_timestamp())
for number, query in enumerate((
    stream.writeStream.foreachBatch(lambda frame, batch: frame.count()),
    stream.writeStream.format("parquet").option("path", directory + "/out"),
    stream.withWatermark("at", "1 hour").groupBy(f.window("at", "1 minute"), "id").count().writeStream
    .outputMode("complete").format("memory").queryName("counted"),
)):
    query.option("checkpointLocation", f"{directory}/c{number}").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def environment() -> dict[str, str]:
    """What a process gets for the JVMs that it starts; nothing of the archive where there is none."""
    found = {"SPARK_HOME": str(HOME)}
    if ARCHIVE.is_file():
        found[VARIABLE] = f"-XX:SharedArchiveFile={ARCHIVE} {QUIET}"
    return found


def make() -> bool:
    """Make the archive; whether it is there now."""
    import pyspark

    from geminga.spark.process.home import make_home

    make_home(HOME, Path(pyspark.__file__).parent)
    unfinished = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    options = f"-XX:ArchiveClassesAtExit={unfinished} {QUIET}"
    with tempfile.TemporaryDirectory() as directory:
        program = [sys.executable, "-c", _SESSION, directory]
        environment_of_session = {**os.environ, "SPARK_HOME": str(HOME), VARIABLE: options}
        with subprocess.Popen(
            program,
            env=environment_of_session,
            # Open in the JVM, too, which writes the archive after its program has ended.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as session:
            try:
                session.communicate(timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                # With its JVM, which would go on, and write what nobody takes.
                os.killpg(session.pid, signal.SIGKILL)
                unfinished.unlink(missing_ok=True)
                return False
    if not unfinished.is_file():
        return False
    unfinished.replace(ARCHIVE)
    return True


if __name__ == "__main__":
    if not make():
        print("no archive of Spark's classes was made: tests that use Spark take longer", file=sys.stderr)
