"""Whether an application's records, reports and producers agree with the log."""

from __future__ import annotations

from integration.applications.application import SAFE, Application
from safeproducer.testing import FakeCluster


def settle(
    application: Application, cluster: FakeCluster, *, unsaid: int = 0, reports: bool = True, lossy: bool = False
) -> int:
    """Every accepted record is in the log once, or was reported as failed; how many records were accepted.

    `unsaid`: of how many records a signal may have kept the program from telling that they were accepted. `reports`:
    whether each record was reported, once. `lossy`: the program releases records, so they need not be anywhere.
    """
    log = application.log(cluster)
    accepted = application.values("accepted")
    reported = application.values("reported")
    failed = {line["value"] for line in application.lines("reported") if line["error"] is not None}
    assert [value for value, times in log.items() if times > 1] == [], "twice in the log"
    assert [value for value, times in accepted.items() if times > 1] == [], "the program counts wrong"
    if not lossy:
        assert [value for value in accepted if value not in log and value not in failed] == [], "lost without a word"
    assert len(log.keys() - accepted.keys()) <= unsaid, "in the log, though nobody has accepted it"
    assert [value for value, times in reported.items() if times > 1] == [], "reported twice"
    if reports:
        assert [value for value in accepted if value not in reported] == [], "without a report"
    if application.producer == SAFE:
        _adds_up(application, unsaid, reports)
    return len(accepted)


def _adds_up(application: Application, unsaid: int, reports: bool) -> None:
    # What each producer has said last.
    accounts = {(one["pid"], one["producer"]): one for one in application.lines("account")}.values()
    assert accounts, "no producer has told its account"
    for one in accounts:
        assert one["accepted"] == one["delivered"] + one["failed"] + one["unresolved"] + one["interrupted"], one
        assert one["unresolved"] >= 0, one
    said = len(application.lines("accepted"))
    assert said <= sum(one["accepted"] for one in accounts) <= said + unsaid
    if reports:
        told = [line["error"] is None for line in application.lines("reported")]
        assert told.count(True) == sum(one["delivered"] for one in accounts)
        assert told.count(False) == sum(one["failed"] for one in accounts)
