"""The alerts tell people of what they lose within two minutes, and of nothing else. integration/test_alerts.py has the
figures of producers in trouble."""

import random
from itertools import accumulate

import pytest

from tests.telemetry.rules import SCRAPE, Series, fired

OF = 'job="j",instance="i"'
TOPIC = f'{OF},messaging_destination_name="t"'
ACCEPTED = f"safeproducer_records_accepted_total{{{TOPIC}}}"
AWAY = f"safeproducer_records_disconnected{{{OF}}}"
LOGINS = f"safeproducer_logins_refused_total{{{OF}}}"
USED = f"safeproducer_deadline_used{{{TOPIC}}}"
HOUR = 3600 // SCRAPE


def ended(outcome: str) -> str:
    return f'safeproducer_records_ended_total{{{TOPIC},safeproducer_outcome="{outcome}"}}'


def held(reason: str) -> str:
    return f'safeproducer_records_held{{{TOPIC},safeproducer_hold_reason="{reason}"}}'


def steady(each: float, scrapes: int = 41) -> list[float]:
    """A counter that grows by so much each scrape."""
    return [each * number for number in range(scrapes)]


HEALTHY: Series = {
    ACCEPTED: steady(100),
    ended("delivered"): steady(100),
    ended("not_written"): steady(0),
    ended("unknown"): steady(0),
    LOGINS: steady(0),
    AWAY: steady(0),
}


def after(calm: float, trouble: float) -> list[float]:
    """A gauge, or the growth of a counter, in whose tenth scrape trouble begins."""
    return [calm] * 10 + [trouble] * 31


def counter(calm: float, trouble: float) -> list[float]:
    return list(accumulate(after(calm, trouble)))


TROUBLES: dict[str, Series] = {
    "SafeproducerRecordsFail": {ended("not_written"): counter(0, 2), ended("delivered"): counter(100, 98)},
    "SafeproducerUnknownOutcomes": {ended("unknown"): counter(0, 1)},
    "SafeproducerNothingDelivered": {ended("delivered"): counter(100, 0)},
    "SafeproducerDeadlineNear": {USED: after(0.01, 0.6)},
    "SafeproducerNoBrokerAnswers": {AWAY: after(0, 100)},
    "SafeproducerLoginRefused": {LOGINS: counter(0, 0.5)},
    "SafeproducerRecordsHeld": {held("leader_silent"): after(0, 100)},
}


@pytest.mark.parametrize("alert", TROUBLES)
def test_each_trouble_raises_its_alert_alone_and_in_time(alert: str) -> None:
    """Within two minutes and two scrapes; not before, and no other one."""
    series = {**HEALTHY, **TROUBLES[alert]}
    began = 10 * SCRAPE
    assert fired(series, 0, began - SCRAPE) == set()
    assert fired(series, began, began + 120 + 2 * SCRAPE) == {alert}


def test_records_that_wait_for_a_broker_that_is_away_raise_one_alert() -> None:
    """What they are held for meanwhile, a topic that no broker describes, would mislead."""
    series = {**HEALTHY, AWAY: after(0, 100), held("unknown_topic"): after(0, 100)}
    assert fired(series, 0, 600) == {"SafeproducerNoBrokerAnswers"}


def odd(seed: int) -> Series:
    """An hour of bursts, rests, single records, callbacks that block for a minute, and leaders that move."""
    dice = random.Random(seed)
    accepted, delivered, away, used, silent = [0.0], [0.0], [0.0], [0.0], [0.0]
    load, stops = 0.0, 0
    while len(accepted) < HOUR:
        if dice.random() < 0.1:
            load = dice.choice([0, 0, 0.05, 1, 50, 10_000])
        if dice.random() < 0.03:
            stops = dice.randint(1, 4)  # scrapes for which nothing is delivered: a callback, a moved leader
        came = int(load) + (dice.random() < load % 1)
        accepted.append(accepted[-1] + came)
        # What is under way at the scrape is delivered by the next one.
        under_way = 0.0 if stops == 0 and dice.random() < 0.5 else came
        delivered.append(delivered[-1] if stops else max(delivered[-1], accepted[-1] - under_way))
        waits = accepted[-1] > delivered[-1]
        used.append(dice.random() * 0.3 * waits)
        away.append(float(waits and stops == 1))
        silent.append(float(waits and stops > 0))
        stops = max(0, stops - 1)
    nothing = [0.0] * HOUR
    series: Series = {ACCEPTED: accepted, ended("delivered"): delivered, ended("not_written"): nothing}
    waiting = {AWAY: away, USED: used, held("leader_silent"): silent, held("linger"): accepted}
    return {**series, **waiting, ended("unknown"): nothing, LOGINS: nothing}


@pytest.mark.parametrize("seed", range(10))
def test_an_odd_hour_without_trouble_raises_none(seed: int) -> None:
    assert fired(odd(seed), 0, 3600 - SCRAPE) == set()
