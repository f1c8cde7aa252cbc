"""The fixture `kafka_cluster`, used by test modules that pytest runs inside pytest."""

import os
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

USER = """
    import pytest
    from confluent_kafka import Producer

    def write(cluster):
        cluster.create_topic("orders")  # refused if an earlier test's topic were still there
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        assert [record.value for record in cluster.log("orders")] == [b"one"]

    @pytest.mark.parametrize("number", range(NUMBER))
    def test_write(kafka_cluster, number):
        assert len(kafka_cluster.brokers) == 3
        assert kafka_cluster.journal() == []
        assert kafka_cluster.faults_left == 0
        write(kafka_cluster)
        kafka_cluster.lose_acks(9)
        kafka_cluster.stop(2)
        kafka_cluster.pause(1)
"""


class Runner:
    """Runs a text as a test module that knows nothing of this project's settings."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        pytester.makeini("[pytest]\nfilterwarnings = error\n")

    def inside(self, text: str) -> pytest.RunResult:
        self._pytester.makepyfile(text)
        return self._pytester.runpytest_inprocess("-p", "no:cacheprovider", "--strict-markers")

    def outside(self, text: str, *arguments: str) -> pytest.RunResult:
        """In a process of its own, where the plug-in is found by its entry point alone."""
        self._pytester.makepyfile(text)
        return self._pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=60)


@pytest.fixture
def runner(pytester: pytest.Pytester) -> Runner:
    return Runner(pytester)


def test_each_test_finds_a_cluster_as_new(runner: Runner) -> None:
    """Topics, faults, journal, and stopped and paused brokers of one test do not reach the next."""
    runner.inside(USER.replace("NUMBER", "4")).assert_outcomes(passed=4)


def test_workers_side_by_side_have_clusters_of_their_own(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pytest-xdist every worker's tests find their own topics only."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others only cost time
    plugins = ("-p", "xdist", "-p", "safeproducer")
    runner.outside(USER.replace("NUMBER", "4"), *plugins, "-n", "2").assert_outcomes(passed=4)


def test_a_marked_test_has_a_cluster_made_to_measure(runner: Runner) -> None:
    """The marker's arguments are FakeCluster's, and the next test has the usual one."""
    runner.inside("""
        import pytest

        @pytest.mark.kafka_cluster(brokers=1, kip_1269=False)
        def test_own(kafka_cluster):
            assert kafka_cluster.brokers == (1,)
            kafka_cluster.create_topic("t")

        def test_shared(kafka_cluster):
            assert kafka_cluster.brokers == (1, 2, 3)
            kafka_cluster.create_topic("t")
    """).assert_outcomes(passed=2)


def test_a_failure_inside_the_cluster_is_the_tests_own(runner: Runner) -> None:
    """It is an error of the test that used the cluster, not of the next or of the last one."""
    result = runner.inside("""
        def test_first(kafka_cluster):
            kafka_cluster._state.failures.append(RuntimeError("planted"))

        def test_second(kafka_cluster):
            pass
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_first*", "*RuntimeError: planted*"])


def test_a_warning_fails_the_test_where_warnings_are_errors(runner: Runner) -> None:
    """The test that asked for what is not there, and no other; who expects it, or does not mind, passes."""
    result = runner.inside("""
        import pytest
        from confluent_kafka import Consumer

        def join(cluster):
            cluster.create_topic("t")
            settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0}
            consumer = Consumer({**settings, "group.protocol": "consumer"})
            consumer.subscribe(["t"])
            assert consumer.poll(20).error() is not None
            consumer.close()

        def test_first(kafka_cluster):
            join(kafka_cluster)

        @pytest.mark.filterwarnings("ignore::safeproducer.testing.FakeClusterWarning")
        def test_second(kafka_cluster):
            join(kafka_cluster)

        def test_third(kafka_cluster):
            with pytest.warns(UserWarning, match="FakeCluster does not have"):
                join(kafka_cluster)
    """)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_first*", "*FakeClusterWarning: the client*KIP-848*"])


def test_unused_it_loads_nothing(runner: Runner) -> None:
    """A run without the fixture imports neither safeproducer nor a Kafka library."""
    runner.outside("""
        import sys

        def test_nothing(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("safeproducer")
            assert not {"safeproducer", "confluent_kafka", "kafka"} & set(sys.modules)
    """).assert_outcomes(passed=1)


LEDGER = """
    import os
    import safeproducer
    from safeproducer.producer_ids import ledger_places
    from safeproducer.producer_ids.guard import AUTO, Claim, Kind, guard_of
    from safeproducer.records import CallSite

    def test_ask():
        before = set(os.listdir("/dev/shm"))
        (directory,) = ledger_places.directories(AUTO)
        request = Claim(Kind.FIRST, 20, True, CallSite("a", 1, "f"))
        assert guard_of(("a-test-of-the-plug-in", ""), AUTO).ask(request).permit
        assert len(os.listdir(directory)) == 1
        assert set(os.listdir("/dev/shm")) <= before
        print("DIRECTORY", directory)
"""


def test_a_test_run_has_a_ledger_of_its_own(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is gone afterwards: this host's ledger counts no producers of tests (KIP-936)."""
    monkeypatch.delenv("SAFEPRODUCER_PRODUCER_IDS_AUTO", raising=False)
    result = runner.outside(LEDGER, "-s")
    result.assert_outcomes(passed=1)
    directory = next(line.split()[-1] for line in result.outlines if "DIRECTORY" in line)
    assert not os.path.exists(directory)


def test_without_its_extra_a_cluster_says_so_at_once() -> None:
    """Else each connection would fail inside it, and the test after a time-out."""
    missing = "google_crc32c"
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError("No module", name=name)
sys.meta_path.insert(0, Missing())
from safeproducer.testing import FakeCluster
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    told = f"FakeCluster needs the package {missing}: pip install 'safeproducer[testing]'"
    assert told in done.stderr.splitlines()[-1]
