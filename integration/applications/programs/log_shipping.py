"""A logging handler that produces each line and polls, on the root logger: the producer's own lines go there, too."""

from __future__ import annotations

import itertools
import logging
import threading

from integration.applications.programs.given import TOPIC, accepted, account, make, reported

THREADS = 3
LINES = 100


class KafkaHandler(logging.Handler):
    """`logging` holds this handler's lock in emit(), and closes it when the interpreter exits."""

    def __init__(self) -> None:
        super().__init__()
        self.producer = make()
        self._numbers = itertools.count()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            value = f"{next(self._numbers)} {self.format(record)}"
            self.producer.produce(TOPIC, value, on_delivery=reported)
            accepted(value)
            self.producer.poll(0)
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self.producer.flush(20)
        account(self.producer)
        super().close()


def work(number: int) -> None:
    pause = threading.Event()
    for index in range(LINES):
        logging.getLogger("application").info("%d-%d", number, index)
        pause.wait(0.01)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, handlers=[KafkaHandler()])
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
