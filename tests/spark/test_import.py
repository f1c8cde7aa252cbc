"""Importing the package costs nothing that its users do not have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safeproducer import spark


def run(code: str) -> subprocess.CompletedProcess[str]:
    """In a Python of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


def test_importing_loads_neither_pyspark_nor_pyarrow() -> None:
    """Nor do the options, which are pure."""
    done = run(
        "import sys, safeproducer, safeproducer.spark, safeproducer.spark.options\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow', 'pandas', 'numpy'}))"
    )
    assert done.stdout == "[]\n", done.stderr


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


def test_an_older_pyspark_is_refused_by_its_version() -> None:
    """Spark 4.2 is the first that the sink is tested with."""
    done = run(
        "import sys, types\nsys.modules['pyspark'] = old = types.ModuleType('pyspark')\nold.__version__ = '4.1.3'\n"
        "from safeproducer.spark import SafeProducerSink"
    )
    assert "needs PySpark 4.2 or newer, and this is 4.1.3" in done.stderr.splitlines()[-1]


NO_PYARROW = "sys.modules['pyarrow'] = None"
OLD = "pyspark.__version__ = '4.1.3'"


@pytest.mark.parametrize(("spoilt", "said"), [(NO_PYARROW, "pyarrow, which are not installed"), (OLD, "this is 4.1.3")])
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
        assert sentence.endswith("install safeproducer[spark]")


def test_an_unknown_name_is_no_attribute() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'Sink'"):
        _ = spark.Sink
