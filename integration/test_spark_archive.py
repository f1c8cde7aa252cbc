"""Both doors of the Spark sink on executors without pip: their Python has PySpark, pyarrow and pandas alone. The rest
comes by the archive that scripts/spark-archive makes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pyspark
import pytest

from integration.conftest import TopicFactory
from integration.kafka.cluster import KafkaCluster
from integration.kafka.log import read_records
from integration.spark import spark_environment
from integration.spark_cluster import spark_cluster

ROOT = Path(__file__).parents[1]
SITE = Path(pyspark.__file__).parents[1]
BARE = ("pyspark", "py4j", "pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "six.py", "pytz", "tzdata")
"""What PySpark's own Arrow functions need."""
JOB = """
import json, sys
from pyspark.sql import SparkSession
from safeproducer.spark import SafeProducerDataSource, SafeProducerSink

def paths(batches):
    import confluent_kafka, pyarrow, safeproducer
    for batch in batches:
        files = [module.__file__ for module in (confluent_kafka, safeproducer)]
        yield pyarrow.RecordBatch.from_pydict({"path": files})

spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "topic": sys.argv[2]}
rows = spark.range(0, 100, 1, 2).selectExpr("string(id) value")
report = SafeProducerSink(options).write(rows)
rows.write.format("safeproducer").options(**options).mode("append").save()
found = [row.path for row in rows.mapInArrow(paths, "path string").collect()]
print(json.dumps({"delivered": report.delivered, "paths": found}))
"""

pytestmark = pytest.mark.timeout(400)


def test_both_doors_write_from_an_archive(kafka: KafkaCluster, topic: TopicFactory, tmp_path: Path) -> None:
    """The driver has it unpacked, executors get it by spark.archives; each row is there twice, once by each door."""
    made = subprocess.run(
        [ROOT / "scripts/spark-archive", tmp_path, f"{sys.version_info[0]}.{sys.version_info[1]}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode and "error sending request" in made.stdout + made.stderr:
        pytest.skip("no registry can be reached")
    assert made.returncode == 0, made.stdout + made.stderr
    with tarfile.open(tmp_path / "deps.tar.gz") as archive:
        archive.extractall(tmp_path / "of-driver", filter="data")
    venv.create(tmp_path / "bare", symlinks=True)
    (site,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for name in BARE:
        if (SITE / name).exists():
            (site / name).symlink_to(SITE / name)
    bare = str(tmp_path / "bare/bin/python")
    missing = subprocess.run([bare, "-c", "import confluent_kafka"], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in missing.stderr
    (tmp_path / "job.py").write_text(JOB)
    name = topic(2)
    with spark_cluster(tmp_path) as master:
        environment = spark_environment(
            tmp_path,
            master=master,
            conf={
                "spark.archives": f"{tmp_path}/deps.tar.gz#deps",
                "spark.executorEnv.PYTHONPATH": "./deps",
                "spark.executor.memory": "512m",
            },
            environment={
                "PYSPARK_PYTHON": bare,
                "PYSPARK_DRIVER_PYTHON": bare,
                "PYTHONPATH": str(tmp_path / "of-driver"),
            },
        )
        done = subprocess.run(
            [bare, str(tmp_path / "job.py"), kafka.bootstrap, name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["delivered"] == 100
    assert all("/deps/" in path or path.startswith("./deps") for path in found["paths"]), found
    assert len(found["paths"]) == 4
    values = [record.value or b"" for partition in read_records(kafka.direct_bootstrap, name) for record in partition]
    assert sorted(values) == sorted(str(number).encode() for number in [*range(100)] * 2)
