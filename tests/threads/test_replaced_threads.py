"""A library that puts greenlets in place of threads, as gevent and eventlet do, whichever it is and whenever it comes.

Threads of this library stay threads: a greenlet that waits inside librdkafka would stop all greenlets.
"""

import pytest

from safeproducer import SafeProducer
from tests.clusters import cluster_of
from tests.contract.support import run_script

REPLACED = """
import _thread, confluent_kafka.admin, concurrent.futures.thread

def replace():
    def refuse(*_, **__):
        raise AssertionError("this would be a greenlet")

    _thread.start_new_thread = refuse
    for name in ("_start_new_thread", "_start_joinable_thread"):
        if hasattr(threading, name):
            setattr(threading, name, refuse)

if WHEN == "first":
    for module in [name for name in sys.modules if name.startswith("safeproducer")]:
        del sys.modules[module]
    replace()
    from safeproducer import SafeProducer as Producer
config = {"bootstrap.servers": bootstrap, "safeproducer.mode": MODE}
producer = Producer(config, logger=logging.getLogger("unread"))
if WHEN == "late":
    replace()
for number in range(20):
    producer.produce("t", b"%d" % number)
print(producer.flush(20), producer.close(20).delivered)
"""


@pytest.mark.parametrize("mode", ["auto", "held"])
@pytest.mark.parametrize("when", ["first", "late"])
def test_threads_of_this_library_are_none_of_another_one(when: str, mode: str) -> None:
    """The one that asks for metadata, and the one that sends."""
    with cluster_of({"t": 2}) as cluster:
        body = f"import logging\nWHEN, MODE = {when!r}, {mode!r}\n{REPLACED}"
        result = run_script(SafeProducer, cluster.bootstrap, body)
        assert (result.returncode, result.stdout) == (0, "0 20\n"), result.stderr
        assert "greenlet" not in result.stderr
