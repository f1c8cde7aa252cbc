"""Processes that share the tests of a folder: together they run each file once, and whole."""

import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace

from conftest import unclaimed

CONFTEST = Path(__file__).parents[2] / "conftest.py"
TESTS = "def test_one(): ...\ndef test_two(): assert {passes}\n"


def test_each_file_is_run_by_one_process(tmp_path: Path) -> None:
    """Two take turns at the same tests; those of a file need not stand together."""
    names = ["a.py::1", "b.py::1", "c/a.py::1", "a.py::2", "c/a.py::2", "b.py::2", "d.py::1"]
    items = [SimpleNamespace(nodeid=name) for name in names]
    one, other = zip(*zip_longest(unclaimed(items, tmp_path), unclaimed(items, tmp_path)), strict=True)
    ran = [[item.nodeid for item in process if item] for process in (one, other)]
    assert sorted(ran[0] + ran[1]) == sorted(names)
    assert not {name.split("::")[0] for name in ran[0]} & {name.split("::")[0] for name in ran[1]}
    assert all(ran)


def test_a_process_leaves_out_what_others_have_begun(tmp_path: Path) -> None:
    """It runs first what it is told to run first; a failure is one."""
    (tmp_path / "conftest.py").write_text(re.sub("pytest_plugins = .*", "", CONFTEST.read_text()))
    for folder in "abcd":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"test_{folder}.py").write_text(TESTS.format(passes=folder != "d"))
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "b+test_b.py").touch()
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir=.", "-c", "/dev/null"]
    command += ["--shared", "begun", "--first", "c", "--first", "a/test_a.py", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^(\w)/test_\w\.py::test_(\w+) (\w+)", done.stdout, re.MULTILINE)
    assert verdicts == [
        *(("c", "one", "PASSED"), ("c", "two", "PASSED")),
        *(("a", "one", "PASSED"), ("a", "two", "PASSED")),
        *(("d", "one", "PASSED"), ("d", "two", "FAILED")),
    ], done.stdout + done.stderr
    assert done.returncode == 1
    assert sorted(path.name for path in begun.iterdir()) == [f"{folder}+test_{folder}.py" for folder in "abcd"]
