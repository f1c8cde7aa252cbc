"""Importing the package costs nothing that its users do not have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safeproducer import spark


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_importing_loads_neither_pyspark_nor_pyarrow() -> None:
    done = run(
        "import sys, safeproducer, safeproducer.spark, safeproducer.spark.options\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow', 'pandas', 'numpy'}))"
    )
    assert done.stdout == "[]\n", done.stderr


def test_the_package_is_imported_where_there_is_no_module_resource() -> None:
    """As on Windows."""
    code = "import sys\nsys.modules['resource'] = None\nfrom safeproducer.spark import SafeProducerSink\nprint('there')"
    assert run(code).stdout == "there\n"


FIRST_USES = """
import sys, traceback
from safeproducer import spark
for name in spark.__all__:
    try:
        getattr(spark, name)
    except ImportError:
        traceback.print_exc()
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra_the_first_use_says_what_to_install(missing: str) -> None:
    """One sentence for each name, whichever of the two is missing."""
    done = run(f"import sys\nsys.modules[{missing!r}] = None\n{FIRST_USES}")
    assert [line for line in done.stderr.splitlines() if line.startswith("ImportError")] == [
        f"ImportError: safeproducer.spark.{name} needs PySpark and pyarrow, which are not installed here: "
        "install safeproducer[spark]"
        for name in spark.__all__
    ]
    assert "During handling" not in done.stderr


@pytest.mark.parametrize(
    ("name", "version", "oldest"), [("SafeProducerSink", "3.4.4", "3.5"), ("SafeProducerDataSource", "3.5.9", "4.0")]
)
def test_an_older_pyspark_is_refused_by_its_version(name: str, version: str, oldest: str) -> None:
    """Each way in has its own oldest version; the sink is there before data sources in Python are."""
    done = run(
        f"import sys, types\nsys.modules['pyspark'] = old = types.ModuleType('')\nold.__version__ = {version!r}\n"
        f"from safeproducer.spark import {name}"
    )
    assert f"{name} needs PySpark {oldest} or newer, and this is {version}" in done.stderr.splitlines()[-1]


def test_streams_of_spark_without_an_arrow_writer_of_its_own_get_arrow() -> None:
    """Spark 4.0 asks of a writer, also of a stream's, only whether it is an Arrow writer."""
    done = run(
        "from pyspark.sql import datasource\ndel datasource.DataSourceStreamArrowWriter\n"
        "from safeproducer.spark.data_source import StreamWriter\n"
        "print(issubclass(StreamWriter, datasource.DataSourceArrowWriter),"
        " issubclass(StreamWriter, datasource.DataSourceStreamWriter))"
    )
    assert done.stdout == "True True\n", done.stderr


NO_PYARROW = "sys.modules['pyarrow'] = None"
OLD = "pyspark.__version__ = '3.5.9'"


@pytest.mark.parametrize(
    ("spoilt", "said"), [(NO_PYARROW, "pyarrow, which are not installed"), (OLD, "this is 3.5.9: install a newer one")]
)
def test_a_data_source_that_spark_found_says_the_same(spoilt: str, said: str) -> None:
    """Spark finds it by itself, so nobody has imported a public name."""
    done = run(
        f"import sys, traceback, pyspark, pyspark_safeproducer\n{spoilt}\n"
        "for method in 'writer', 'streamWriter':\n"
        "    try: getattr(pyspark_safeproducer.DefaultSource({}), method)(None, False)\n"
        "    except ImportError: traceback.print_exc()"
    )
    sentences = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert len(sentences) == 2, done.stderr
    for sentence in sentences:
        assert sentence.startswith("ImportError: safeproducer.spark.SafeProducerDataSource needs PySpark")
        assert said in sentence
        assert sentence.endswith(("install safeproducer[spark]", "pass a SafeProducerSink to foreachBatch"))


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Sink'"):
        _ = spark.Sink
