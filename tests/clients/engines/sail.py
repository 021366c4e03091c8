"""Sail: Spark SQL without a JVM, with a Delta implementation of its own. The object store is in the environment."""

import warnings

warnings.filterwarnings("ignore")

from pysail.spark import SparkConnectServer  # noqa: E402

from worker import serve  # noqa: E402

server = SparkConnectServer()
server.start(background=True)

from pyspark.sql import SparkSession  # noqa: E402

spark = SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate()


def sql(statements):
    """The rows of the last statement."""
    answer = None
    for statement in statements:
        answer = spark.sql(statement)
    return [list(row) for row in answer.collect()]


def read(uri):
    return {"ids": sorted(row["id"] for row in spark.read.format("delta").load(uri).collect())}


serve({"sql": sql, "read": read})
