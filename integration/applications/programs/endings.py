"""The ways a program that produces comes to its end: `endings NAME`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from integration.applications.programs.given import TOPIC, accepted, account, make, reported, say, wait_for

RECORDS = 50
ENDINGS: dict[str, Callable[[], None]] = {}

numbers = iter(range(1_000_000))


def ending(function: Callable[[], None]) -> Callable[[], None]:
    ENDINGS[function.__name__] = function
    return function


def send(count: int = RECORDS, on_delivery: Callable[[Any, Any], None] = reported) -> None:
    for _ in range(count):
        value = str(next(numbers))
        producer.produce(TOPIC, value, on_delivery=on_delivery)
        accepted(value)


def poll_for_ever() -> NoReturn:
    while True:
        producer.poll(0.1)


def poll_behind() -> None:
    threading.Thread(target=poll_for_ever, daemon=True).start()


def flush_and_leave(*_: Any) -> NoReturn:
    say("handling")
    say("left", count=producer.flush(20))
    sys.exit(0)


@ending
def flush() -> None:
    send()
    say("left", count=producer.flush())


@ending
def flush_at_exit() -> None:
    atexit.register(producer.flush)
    send()


@ending
def flush_at_exit_beside_a_polling_thread() -> None:
    atexit.register(lambda: say("left", count=producer.flush(20)))
    poll_behind()
    send()


@ending
def nothing() -> None:
    send()


@ending
def a_polling_thread_and_nothing() -> None:
    poll_behind()
    send()


@ending
def a_polling_thread_that_is_waited_for() -> None:
    poll_behind()
    send()
    while len(producer):
        threading.Event().wait(0.01)


@ending
def an_exception() -> None:
    send()
    raise RuntimeError("of the application")


@ending
def an_exception_behind_a_context_manager() -> None:
    with producer:
        send()
        raise RuntimeError("of the application")


@ending
def a_context_manager() -> None:
    with producer:
        send()


@ending
def flush_and_exit_in_a_thread() -> None:
    def work() -> None:
        producer.flush()
        sys.exit(3)

    send()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@ending
def a_pool_of_threads_at_exit() -> None:
    def work() -> None:
        send(1)
        producer.poll(0)

    pool = ThreadPoolExecutor(1)
    for _ in range(RECORDS):
        pool.submit(work)
    pool.submit(lambda: say("left", count=producer.flush(20)))


@ending
def del_behind_a_flush() -> None:
    global producer  # noqa: PLW0603 - as a script does it
    send()
    producer.flush()
    account(producer)
    del producer


@ending
def killed_by_a_signal() -> None:
    send()
    producer.flush()
    account(producer)
    say("ready")
    poll_for_ever()


@ending
def sigterm_while_it_polls() -> None:
    signal.signal(signal.SIGTERM, flush_and_leave)
    while True:
        send(1)
        producer.poll(0.01)
        say("ready")


def send_behind_the_first() -> None:
    """The test stops the leader before the others, so their reports come when it wants."""
    send(1)
    producer.flush()
    say("warm")
    wait_for("the leader waits")
    send()
    say("ready")


@ending
def sigterm_in_a_long_poll() -> None:
    signal.signal(signal.SIGTERM, flush_and_leave)
    send_behind_the_first()
    while True:
        producer.poll(10)


@ending
def sigterm_inside_a_callback() -> None:
    def report(error: Any, message: Any) -> None:
        reported(error, message)
        if message.value() == b"20":
            say("warm")
            wait_for("the leader waits")
            send()
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, flush_and_leave)
    send(on_delivery=report)
    while True:
        producer.poll(10)


@ending
def sigterm_in_a_long_flush() -> None:
    signal.signal(signal.SIGTERM, flush_and_leave)
    send_behind_the_first()
    producer.flush()


@ending
def sigterm_handler_that_leaves_at_once() -> None:
    def leave(*_: Any) -> NoReturn:
        say("handling")
        say("left", count=producer.flush(20))
        account(producer)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    send_behind_the_first()
    while True:
        producer.poll(10)


@ending
def sigterm_while_it_flushes() -> None:
    signal.signal(signal.SIGTERM, flush_and_leave)
    while True:
        send(10)
        say("ready")
        producer.flush()


@ending
def sigterm_handler_that_sets_a_flag() -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    while not stopping:
        send(1)
        producer.poll(0.05)
        say("ready")
    say("left", count=producer.flush(20))


@ending
def ctrl_c_while_it_polls() -> None:
    try:
        while True:
            send(1)
            producer.poll(1)
            say("ready")
    except KeyboardInterrupt:
        say("left", count=producer.flush(20))


@ending
def ctrl_c_in_a_long_poll() -> None:
    send()
    producer.flush()
    say("ready")
    try:
        while True:
            producer.poll(60)
    except KeyboardInterrupt:
        say("left", count=producer.flush(20))


@ending
def flush_with_a_limit() -> None:
    send()
    say("left", count=producer.flush(0.5))


if __name__ == "__main__":
    producer = make()
    ENDINGS[sys.argv[1]]()
