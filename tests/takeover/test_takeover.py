"""The package that stands before confluent_kafka under `safeproducer run`, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import safeproducer
from tests.clusters import cluster_of

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(safeproducer.__file__).parent / "takeover/path"
MAKE = (
    "from confluent_kafka import Producer\nproducer = Producer({'bootstrap.servers': '127.0.0.1:1', 'log_level': 0})\n"
)


def ran(program: str, *arguments: str, path: tuple[str | Path, ...] = (FOLDER, ROOT), **environment: str) -> Any:
    """The process that ran the program as `safeproducer run` would."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    command = [sys.executable, *arguments, "-c", dedent(program)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)


def summary(file: Path) -> dict[str, Any]:
    (line,) = file.read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


OLD = """
class Old:
    def find_spec(self, name, path=None, target=None):
        if name == 'safeproducer':  # the version is read while the package is made
            sys.modules['confluent_kafka'].__version__ = '2.12.2'
sys.meta_path.insert(0, Old())
"""


# --- the package -------------------------------------------------------------------------------------------------


def test_package_becomes_the_real_one() -> None:
    """Its attributes are those of a process without `run`, but for the two classes; so are its spec, file and path."""
    look = """
        import confluent_kafka, importlib.util, sys
        import confluent_kafka.admin, confluent_kafka.serialization
        one = confluent_kafka
        print(sorted(set(vars(one)) - {"Producer"}), one.__file__, list(one.__path__), one.__spec__.origin, one.__doc__)
        print(importlib.util.find_spec("confluent_kafka.cimpl").origin, one.__spec__._initializing, one.__cached__)
        print(one.Consumer, one.serializing_producer.SerializingProducer)
    """
    taken, plain = ran(look), ran(look, path=(ROOT,))
    assert taken.stdout == plain.stdout
    assert (taken.returncode, taken.stderr) == (0, "")


@pytest.mark.parametrize("name", ["safeproducer", "safeproducer.aio", "safeproducer.kafka.native"])
def test_application_may_import_safeproducer_first(name: str) -> None:
    """An application that has both kinds of producers."""
    done = ran(f"import {name}\n{MAKE}print(type(producer).__module__)")
    assert done.stdout == "safeproducer.takeover.producers\n", done.stderr


def test_process_without_confluent_kafka_loads_nothing() -> None:
    """No module of ours, and as many others as without `run`."""
    look = "import sys, json, logging; print(sorted(sys.modules))"
    taken, plain = ran(look), ran(look, path=(ROOT,))
    assert taken.stdout == plain.stdout
    assert "safeproducer" not in taken.stdout


def test_missing_client_is_missed_as_always() -> None:
    done = ran("import confluent_kafka", "-S", path=(FOLDER,))
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'confluent_kafka'"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.modules['safeproducer'] = None", "safeproducer"),
        ("sys.modules['tenacity'] = sys.modules['safeproducer.producer'] = None", "safeproducer.producer"),
        ("sys.modules['safeproducer.pipeline.assembly'] = None", "safeproducer.pipeline.assembly"),
        (OLD, "2.12.2"),
        ("sys._is_gil_enabled = lambda: False", "PYTHON_GIL=1"),
    ],
)
def test_application_runs_as_it_is_where_nothing_can_be_replaced(before: str, said: str) -> None:
    """One line says why: another interpreter without safeproducer, an old client, no lock, a defect."""
    done = ran(f"import sys\n{before}\n{MAKE}print(type(producer).__module__)")
    assert (done.returncode, done.stdout) == (0, "cimpl\n"), done.stderr
    assert done.stderr.startswith(f"safeproducer run: nothing is replaced in {sys.executable}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


# --- settings ----------------------------------------------------------------------------------------------------


def test_variables_are_settings_where_the_application_has_none() -> None:
    """Its own win; so does --mode over a variable."""
    look = """
        from confluent_kafka import Producer
        def show(**settings):
            one = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, **settings)
            own = one._SafeProducer__settings.delivery.own
            policy, idempotent = one._SafeProducer__settings.ids.policy, one._SafeProducer__settings.idempotent
            print(own.mode, own.max_block, own.ordering, policy, idempotent)
        show()
        show(**{"safeproducer.max.block.ms": 1000, "safeproducer.mode": "auto"})
    """
    variables = {"SAFEPRODUCER_MAX_BLOCK_MS": "2000", "SAFEPRODUCER_ORDERING": "key", "SAFEPRODUCER_MODE": "auto"}
    taken = ran(look, SAFEPRODUCER_RUN_MODE="held", **variables)
    assert taken.stdout.splitlines() == ["held 2.0 key warn True", "auto 1.0 key warn True"], taken.stderr
    observed = ran(look, **variables).stdout.splitlines()
    assert observed == ["passthrough 0.0 partition warn False", "passthrough 1.0 partition warn False"]
    of_operators = ran(look, SAFEPRODUCER_RUN_MODE="auto", SAFEPRODUCER_PRODUCER_IDS_POLICY="refuse").stdout
    assert of_operators.splitlines()[0] == "auto 0.0 partition refuse True"


def test_wrong_variable_is_named_by_the_error() -> None:
    """The application gets the ConfigurationError that SafeProducer raises."""
    done = ran(MAKE, SAFEPRODUCER_RUN_MODE="auto", SAFEPRODUCER_LANES="many")
    assert "ConfigurationError: setting 'safeproducer.lanes' = 'many'" in done.stderr
    assert "It comes from the environment variable SAFEPRODUCER_LANES" in done.stderr
    assert done.returncode == 1


def test_observed_application_may_have_what_is_refused_else() -> None:
    """As every setting that confluent_kafka takes; and what it refuses is refused in its words."""
    gapless = "Producer({'enable.idempotence': True, 'enable.gapless.guarantee': True, 'log_level': 0})"
    assert ran(f"from confluent_kafka import Producer\n{gapless}").returncode == 0
    for wrong in ("1", "'x', {}", "", "{'enable.idempotence': 'x'}"):
        done = ran(
            f"import confluent_kafka as c\ntry: c.Producer({wrong})\nexcept (TypeError, c.KafkaException): print(1)"
        )
        assert done.stdout == "1\n", (wrong, done.stderr)


# --- the account -------------------------------------------------------------------------------------------------


def test_totals_are_of_all_producers_also_of_those_that_are_gone(tmp_path: Path) -> None:
    """Closed, dropped, dropped in a cycle, held by their own callback, alive at the end; records that were not polled
    for, and those without a report."""
    program = """
        import confluent_kafka, sys, gc
        def make(**settings):
            return confluent_kafka.Producer({"bootstrap.servers": sys.argv[-1], "log_level": 0}, **settings)
        class Owner:
            def __init__(self):
                self.producer = make()
                self.producer.produce("t", b"x", on_delivery=self.told)
            def told(self, *_): pass
        closed, polled = make(), make()
        closed.produce("t", b"x"); closed.close()
        dropped = make(); dropped.produce("t", b"x"); dropped.flush(); del dropped
        owner = Owner(); owner.producer.flush(); del owner; gc.collect()
        polled.produce("t", b"x"); polled.flush()
        lost = make(**{"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1})
        lost.produce("t", b"x"); lost.flush()
        waits = make(**{"bootstrap.servers": "127.0.0.1:1"})
        waits.produce("t", b"x")
    """
    with cluster_of({"t": 1}, 3) as cluster:
        file = tmp_path / "summary"
        program = f"import sys\nsys.argv.append({cluster.bootstrap!r})\n{dedent(program)}"
        done = ran(program, SAFEPRODUCER_RUN_SUMMARY=str(file), SAFEPRODUCER_RUN_MODE="auto")
        assert done.returncode == 0, done.stderr
        found = summary(file)
        assert len(cluster.log("t")) == 4
    assert (found["producers"], found["accepted"], found["delivered"]) == (6, 6, 4)
    assert (found["unknown"], found["not_written"], found["without_report"]) == (0, 1, 1)
    assert found["producer_ids"] == 4
    assert found["command"][0] == sys.executable
    assert " ".join(found) == (
        "pid command mode producers accepted delivered unknown not_written without_report producer_ids "
        "throttled_seconds seconds"
    )


def test_forked_child_begins_at_zero(tmp_path: Path) -> None:
    """Its parent's producer does not count there, and a child that makes none tells nothing."""
    program = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from confluent_kafka import Producer
        conf = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
        pauses, refused = {"reconnect.backoff.ms": 60000, "reconnect.backoff.max.ms": 60000}, []
        producer = Producer(conf | pauses | {"error_cb": refused.append})
        producer.produce("t", b"x")
        while not refused:  # it resolves no address from now on: a child that is made meanwhile could resolve none
            producer.poll(0.1)
        for makes in (True, False):
            child = os.fork()
            if not child:
                if makes:
                    Producer(conf).produce("t", b"x")
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        producer.purge(); producer.flush()
    """
    file = tmp_path / "summary"
    assert ran(program, SAFEPRODUCER_RUN_SUMMARY=str(file)).returncode == 0
    child, parent = [json.loads(line) for line in file.read_text().splitlines()]
    assert child["pid"] != parent["pid"]
    assert [(one["producers"], one["accepted"], one["without_report"]) for one in (child, parent)] == [
        (1, 1, 1),
        (1, 1, 0),
    ]


def test_throttle_times_are_added_up(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    with cluster_of({"t": 1}, 3) as cluster:
        cluster.set_throttle(200)
        program = (
            f"from confluent_kafka import Producer\np = Producer({{'bootstrap.servers': {cluster.bootstrap!r}}})\n"
        )
        ran(program + "for _ in range(3): p.produce('t', b'x'); p.flush()", SAFEPRODUCER_RUN_SUMMARY=str(file))
    assert summary(file)["throttled_seconds"] >= 0.2


def test_line_on_stderr_is_for_people() -> None:
    """Without a file; and where the file cannot be written at the end."""
    done = ran(MAKE)
    assert "safeproducer run: process " in done.stderr
    assert ", observe: 1 producer(s), 0 accepted, 0 delivered, 0 unknown, 0 not written, 0 without a" in done.stderr
    told = ran(MAKE, SAFEPRODUCER_RUN_SUMMARY="/no/folder/file").stderr.splitlines()
    spoilt = [line for line in told if line.startswith("safeproducer run:")]
    assert spoilt[0].startswith("safeproducer run: /no/folder/file cannot be written (No such file or directory)")
    assert spoilt[1].startswith("safeproducer run: process ")
    assert ran(f"{MAKE}import os; os.close(2)").returncode == 0


def test_many_producers_one_after_another_cost_no_memory() -> None:
    """Each leaves numbers behind, and nothing else."""
    program = f"""
        import gc, resource, sys
        {MAKE.splitlines()[0]}
        def make(count):
            for _ in range(count):
                Producer({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0}})
            gc.collect()
            return len(gc.get_objects())
        make(20)
        before = make(20)
        print(make(200) - before)
    """
    assert int(ran(program).stdout) < 200


# --- asyncio -----------------------------------------------------------------------------------------------------

ASYNC = """
    import asyncio, time
    from confluent_kafka.aio import AIOProducer, AsyncSerializingProducer
    from confluent_kafka.serialization import StringSerializer
    from confluent_kafka.aio.producer import AIOProducer as same

    assert same is AIOProducer and issubclass(AsyncSerializingProducer, AIOProducer)

    async def main(seconds):
        async with AIOProducer({"bootstrap.servers": %r, "log_level": 0}) as producer:
            for _ in range(3):
                began = time.monotonic()
                message = await (await producer.produce("t", b"value"))
                seconds.append(time.monotonic() - began)
                assert message.value() == b"value"
        conf = {"bootstrap.servers": %r, "log_level": 0, "value.serializer": StringSerializer()}
        producer = await AsyncSerializingProducer(conf)
        await (await producer.produce("t", value="text"))
        await producer.close()

    asyncio.run(main(seconds := []))
    print(AIOProducer.__mro__[1].__module__, min(seconds) < 0.5)
"""


@pytest.mark.parametrize("mode", ["auto", "held", "observe"])
def test_asyncio_producer_of_confluent_kafka_is_replaced(tmp_path: Path, mode: str) -> None:
    """AsyncSerializingProducer, which derives from it, with it. `observe` leaves theirs, which takes seconds."""
    with cluster_of({"t": 1}) as cluster:
        file = tmp_path / "summary"
        done = ran(
            ASYNC % (cluster.bootstrap, cluster.bootstrap),
            SAFEPRODUCER_RUN_MODE=mode,
            SAFEPRODUCER_RUN_SUMMARY=str(file),
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert len(cluster.log("t")) == 4
    ours = mode != "observe"
    assert done.stdout == ("safeproducer.aio.aio_producer True\n" if ours else "builtins False\n")
    assert summary(file)["delivered"] == 4
