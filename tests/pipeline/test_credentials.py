"""Credentials that another thread changes while a lane is made."""

from typing import Any

from safeproducer.pipeline.lanes.lane_pool import LaneMaker, LanePool
from safeproducer.pipeline.record import ReportNumbers
from safeproducer.pipeline.reports.report_queue import Reports
from safeproducer.policy.permits import Kind
from safeproducer.producer_ids.lane_permits import LanePermits
from safeproducer.producer_ids.permit import Claim
from safeproducer.records import CallSite
from safeproducer.settings import delivery
from safeproducer.settings.own_settings import OwnSettings
from tests.pipeline.interleaving import between, codes_of


class Client:
    """Keeps the last password."""

    password = "of the configuration"

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.password = password


def test_credentials_reach_a_lane_wherever_its_making_is() -> None:
    """It would go on with a password that was replaced, and lock the account."""
    step, steps = 0, 1
    while step < steps:
        clients: list[Client] = []

        def make(_: Any, clients: list[Client] = clients) -> Any:
            clients.append(Client())
            return clients[-1]

        settings = delivery.read({}, OwnSettings(mode="held"), idempotent=True, wants_statistics=False)
        permits = LanePermits(None, Claim(Kind.LANE, 1, False, CallSite("", 0, "")))
        pool = LanePool(make, settings, Reports(), ReportNumbers(), lambda permits=permits: permits, lambda *_: None)
        pool.set_sasl_credentials("u", "first")
        making = codes_of(LanePool.prepare, LanePool._add, LaneMaker.try_one, LaneMaker.lane_of)
        with between(making, step, lambda pool=pool: pool.set_sasl_credentials("u", "second")) as tps:  # type: ignore[misc]
            pool.prepare()
        steps = tps[0]
        assert [client.password for client in clients] == ["second"], f"step {step} of {steps}"
        step += 1
    assert steps > 5
