"""SaslHandshake and SaslAuthenticate (KIP-43, KIP-152). No log-in expires: KIP-368 is off, as by default."""

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.state.sasl import MECHANISMS, SaslError
from safeproducer.testing.wire import Body

__all__ = ["sasl_authenticate", "sasl_handshake"]

UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
SASL_AUTHENTICATION_FAILED = 58


def sasl_handshake(request: Request) -> Body:
    """Which mechanisms there are. Where nobody needs to log in, or somebody has already, it is out of place."""
    session = request.session
    if session.open:
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "mechanisms": []}
    if session.chosen or request.error:
        session.fail()
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "mechanisms": []}
    known = session.choose(request.body["mechanism"], request.header.version)
    return {"error_code": 0 if known else UNSUPPORTED_SASL_MECHANISM, "mechanisms": MECHANISMS}


def sasl_authenticate(request: Request) -> Body:
    """One message of the log-in. A failure is told in words that do not say what was wrong, and ends the connection."""
    session = request.session
    if session.open:
        text = "there is no log-in in progress"
        return {"error_code": request.error or ILLEGAL_SASL_STATE, "error_message": text, "auth_bytes": b""}
    if request.error:
        session.fail()
        return {"error_code": request.error, "error_message": None, "auth_bytes": b""}
    try:
        answer = session.step(bytes(request.body["auth_bytes"]))
    except SaslError as problem:
        return {"error_code": SASL_AUTHENTICATION_FAILED, "error_message": str(problem), "auth_bytes": b""}
    return {"error_code": 0, "auth_bytes": answer}
