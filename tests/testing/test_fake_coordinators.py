"""Clients that want groups of KIP-848, or share groups: an error at once, and a warning for the test."""

import pytest
from confluent_kafka import Consumer

from safeproducer.testing import FakeCluster, FakeClusterWarning
from tests.testing.raw import RawClient

INVALID_REQUEST = 42
PATIENCE = 20
"""Seconds that a client has for its error; those that try again never get one."""


def consumer(cluster: FakeCluster, **settings: object) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0, **settings})


def test_a_member_of_kip_848_is_refused_at_once(cluster: FakeCluster) -> None:
    """Rather than left to wait for ever; the warning says what is missing, and which setting helps."""
    cluster.create_topic("t")
    client = consumer(cluster, **{"group.protocol": "consumer"})
    client.subscribe(["t"])
    with pytest.warns(FakeClusterWarning, match=r"KIP-848, .*: set group.protocol to classic"):
        message = client.poll(PATIENCE)
        client.close()
    assert message is not None
    error = message.error()
    assert error is not None
    assert "Invalid request" in error.str()


def test_the_test_is_warned_once(cluster: FakeCluster) -> None:
    """However often clients ask; the next test is warned again."""
    for _ in range(2):
        with pytest.warns(FakeClusterWarning) as told:
            for name in ("one", "one", "two"):
                with RawClient(cluster.bootstrap, client_id=name) as client:
                    answer = client.ask("FindCoordinator", 4, key_type=2, coordinator_keys=["g"])
                assert answer["coordinators"][0]["error_code"] == INVALID_REQUEST
        assert [str(one.message).split(" asks ")[0] for one in told] == ["the client 'one'"]
        cluster.reset()


@pytest.mark.parametrize(("kind", "error"), [(0, 0), (1, 0), (2, INVALID_REQUEST), (9, INVALID_REQUEST)])
@pytest.mark.filterwarnings("ignore::safeproducer.testing.FakeClusterWarning")
def test_coordinators_in_both_forms_of_the_answer(cluster: FakeCluster, kind: int, error: int) -> None:
    """One broker for each group, whoever is asked; from version 4 on for each key."""
    found = set()
    for broker in cluster.brokers:
        with RawClient(cluster.bootstrap, broker) as client:
            for version in (3, 4, 6):
                answer = client.ask("FindCoordinator", version, key="g", key_type=kind, coordinator_keys=["g", "g"])
                for one in [answer] if version < 4 else answer["coordinators"]:
                    assert (one["error_code"], bool(one["error_message"])) == (error, bool(error))
                    found.add(one["node_id"])
    assert len(found) == 1
    assert (found == {-1}) == bool(error)
