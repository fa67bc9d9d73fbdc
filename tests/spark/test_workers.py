"""What the Python processes that Spark starts do once."""

import json
import subprocess
import sys

SCRIPT = """
import gc, json, sys, time
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.sql.datasource import CaseInsensitiveDict
from moldau.spark.datasource import MoldauDataSource

def objects_looked_at():
    gc.collect()
    return len(gc.get_objects())

options = CaseInsensitiveDict({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
schema = StructType([StructField("value", StringType())])
sink = MoldauDataSource(options).streamWriter(schema, overwrite=False)
before = objects_looked_at()
gc.unfreeze()
print(json.dumps([before, objects_looked_at()]))
"""


def test_spark_s_collection_after_every_task_does_not_look_at_what_was_imported() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    looked_at, all_objects = json.loads(run.stdout)
    assert all_objects > 20_000
    assert looked_at < all_objects / 20
