"""A Flask application with one producer for all of its threads, flushed when the interpreter exits."""

from __future__ import annotations

import atexit

from flask import Flask

from integration.applications.programs.given import TOPIC, accepted, make, reported

app = Flask(__name__)
producer = make()
atexit.register(producer.flush)


@app.post("/orders/<number>")
def order(number: str) -> tuple[str, int]:
    producer.produce(TOPIC, number, on_delivery=reported)
    accepted(number)
    producer.poll(0)
    return number, 202


if __name__ == "__main__":
    app.run(host="127.0.0.1", port=0)
