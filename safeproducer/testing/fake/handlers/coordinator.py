"""FindCoordinator: each broker says that it coordinates all groups, and no transactions.

librdkafka lets also a consumer with assigned partitions ask for the coordinator of its group, and it finds nothing
wrong. :mod:`groups` refuses what it asks of the group itself. librdkafka packs with lz4 only if a broker offers this
API.
"""

from safeproducer.testing.fake.handlers.request import LOOPBACK, Request
from safeproducer.testing.wire import Body

__all__ = ["find_coordinator"]

INVALID_REQUEST = 42
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_GROUP = 0
_MISSING = {
    1: (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions", "leave transactional.id away, or use a real broker"),
    2: (INVALID_REQUEST, "share groups", "use a real broker"),
}
"""By the kind of coordinator: the error, what is missing, and the way out."""


def find_coordinator(request: Request) -> Body:
    """This broker, or an error that no client retries; of a transaction librdkafka takes only one about rights so."""
    kind = request.body.get("key_type", _GROUP)
    answer = {"error_code": request.error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    if not request.error and kind == _GROUP:
        answer.update(node_id=request.broker.id, host=LOOPBACK, port=request.broker.port)
    elif not request.error:
        error, what, way_out = _MISSING.get(kind, (INVALID_REQUEST, f"coordinators of kind {kind}", "there are none"))
        answer.update(error_code=error, error_message=f"FakeCluster has no {what}: {way_out}")
        request.warn(what, way_out)
    return {**answer, "coordinators": [{"key": key, **answer} for key in request.body.get("coordinator_keys", ())]}
