"""The cost of a request to its user, and how long the connection stays unread for it (KIP-13, 124, 219, 936).

The answer goes out at once and tells the delay; the connection is muted for that long. If several quotas are broken
the longest delay counts. A throttled fetch is answered without records, and its bytes are not charged. A produce
request without an answer (acks=0) is charged for its bytes only.
"""

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.rules.quota_limits import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from safeproducer.testing.wire import Body, encode_response

__all__ = ["charge", "limit_fetch"]

_NO_RECORDS: Body = {"error_code": 0, "session_id": 0, "responses": []}


def limit_fetch(request: Request) -> None:
    """No fetch gets more than the quota lets pass after a pause: it would be throttled for ever."""
    if request.header.api != "Fetch" or not request.cluster.quotas.enabled(CONSUMER_BYTE_RATE):
        return
    most = request.broker.quotas.most_at_once(CONSUMER_BYTE_RATE, request.session.user, request.header.client_id)
    if most is not None:
        body = request.body
        body["max_bytes"] = min(body["max_bytes"], int(most))
        body["min_bytes"] = min(body["min_bytes"], body["max_bytes"])


def charge(request: Request, answer: Body | None, busy_seconds: float) -> tuple[Body | None, int]:
    """The answer to send, and how many ms the connection is muted."""
    if not request.session.open:
        return answer, 0
    api, enabled, delay = request.header.api, request.cluster.quotas.enabled, request.throttle_ms
    if enabled(REQUEST_PERCENTAGE) and answer is not None:
        delay = max(delay, _charge(request, REQUEST_PERCENTAGE, busy_seconds * 100))
    if api == "Produce" and enabled(PRODUCER_BYTE_RATE):
        delay = max(delay, _charge(request, PRODUCER_BYTE_RATE, request.size))
    elif api == "Fetch" and answer is not None and enabled(CONSUMER_BYTE_RATE):
        size = len(encode_response(api, request.header.version, 0, answer))
        delay = max(delay, _charge(request, CONSUMER_BYTE_RATE, size))
        if delay:
            _charge(request, CONSUMER_BYTE_RATE, -size)
            answer = dict(_NO_RECORDS)
    return answer, delay


def _charge(request: Request, quota: str, value: float) -> int:
    now = request.cluster.clock.now_ms()
    return request.broker.quotas.charge(quota, request.session.user, request.header.client_id, value, now)
