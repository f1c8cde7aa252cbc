"""FindCoordinator. There are no consumer groups and no transactions here: no coordinator is ever available.

It is served because librdkafka packs with lz4 only if a broker offers this API.
"""

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.wire import Body

__all__ = ["find_coordinator"]

COORDINATOR_NOT_AVAILABLE = 15
_NONE = {"error_message": "FakeCluster has no coordinators", "node_id": -1, "host": "", "port": -1}


def find_coordinator(request: Request) -> Body:
    """An error a client may retry, for each key it asks for."""
    answer = {"error_code": request.error or COORDINATOR_NOT_AVAILABLE, **_NONE}
    return {**answer, "coordinators": [{"key": key, **answer} for key in request.body.get("coordinator_keys", ())]}
