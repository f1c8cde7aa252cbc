"""DescribeClientQuotas and AlterClientQuotas (KIP-546, KIP-599, and KIP-936's quota)."""

from safeproducer.testing.fake.handlers.request import Request
from safeproducer.testing.fake.rules.quota_limits import CLIENT_ID, USER, Entity, QuotaRefusedError
from safeproducer.testing.wire import Body

__all__ = ["alter_client_quotas", "describe_client_quotas"]

UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_KNOWN = (USER, CLIENT_ID, "ip")


def alter_client_quotas(request: Request) -> Body:
    """One answer for each entity; a refused one leaves the others alone. The last of two names of a type counts.

    An entity named twice has the first of its changes made, and is told of the error only.
    """
    answers: dict[Entity, Body] = {}
    for entry in request.body["entries"]:
        entity = frozenset({part["entity_type"]: part["entity_name"] for part in entry["entity"]}.items())
        error, text = _alter(request, entry, entity, again=entity in answers)
        names = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        answers[entity] = {"error_code": error, "error_message": text, "entity": names}
    return {"entries": [*answers.values()]}


def _alter(request: Request, entry: Body, entity: Entity, *, again: bool) -> tuple[int, str | None]:
    if request.error:
        return request.error, None
    names = [change["key"] for change in entry["ops"]]
    if again or len({*names}) != len(names):
        return INVALID_REQUEST, "an entity and a quota may each be named once only"
    changes = {change["key"]: None if change["remove"] else change["value"] for change in entry["ops"]}
    try:
        request.cluster.quotas.set(entity, changes, validate_only=request.body["validate_only"])
    except QuotaRefusedError as refusal:
        return INVALID_REQUEST, str(refusal)
    return 0, None


def describe_client_quotas(request: Request) -> Body:
    """The entities that match every component; a strict filter wants no other component in them."""
    components = request.body["components"]
    error, text = (request.error, None) if request.error else _check(components)
    if error:
        return {"error_code": error, "error_message": text, "entries": None}
    strict = len(components) if request.body["strict"] else None
    return {
        "error_code": 0,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, reverse=True)],
                "values": [{"key": name, "value": value} for name, value in limits.items()],
            }
            for entity, limits in request.cluster.quotas.entities()
            if strict in (None, len(entity)) and all(_matches(dict(entity), component) for component in components)
        ],
    }


def _check(components: list[Body]) -> tuple[int, str | None]:
    kinds = [component["entity_type"] for component in components]
    if len({*kinds}) != len(kinds) or "" in kinds:
        return INVALID_REQUEST, "an entity type has a name and may be named once only"
    for component in components:
        kind, how, name = component["entity_type"], component["match_type"], component["match"]
        if kind not in _KNOWN:
            return UNSUPPORTED_VERSION, f"there is no entity type {kind!r}"
        if how not in (_EXACT, _DEFAULT, _ANY) or (how == _EXACT) != (name is not None):
            return INVALID_REQUEST, f"{kind}: match type {how} with the name {name!r}"
    if "ip" in kinds and len(kinds) > 1:
        return INVALID_REQUEST, "ip goes with no other entity type"
    return 0, None


def _matches(entity: dict[str, str | None], component: Body) -> bool:
    kind = component["entity_type"]
    return kind in entity and (component["match_type"] == _ANY or entity[kind] == component["match"])
