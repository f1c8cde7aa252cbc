"""A web service that answers when its record is in the log: FastAPI, and one producer for all requests.

    python examples/fastapi_app.py                                      # on a cluster inside the process, port 8000
    KAFKA=localhost:9092 uvicorn --app-dir examples fastapi_app:app     # as a service; --workers 4 has a producer each
    curl -X POST --data "an order" localhost:8000/orders

201: the order is in the log. 503: it is not and never will be; try again. 504: it may be; look before you try again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from safeproducer import ProducerClosedError
from safeproducer.aio import AsyncSafeProducer, NotWritten, OutcomeUnknown

try:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed: pip install fastapi uvicorn")

TOPIC = os.environ.get("TOPIC", "orders")
CLUSTER = {"bootstrap.servers": os.environ["KAFKA"]} if "KAFKA" in os.environ else {"test.mock.num.brokers": 3}
# A client waits for its answer no longer than this.
CONFIG = {**CLUSTER, "client.id": "orders-service", "message.timeout.ms": os.environ.get("MESSAGE_TIMEOUT_MS", "5000")}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Made once, closed when the last request was answered: less than what the supervisor grants on SIGTERM.
    async with AsyncSafeProducer(CONFIG, close_timeout=10) as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def order(request: Request) -> JSONResponse:
    body = await request.body()
    try:
        record = await request.app.state.producer.send_and_wait(TOPIC, body)
    except (NotWritten, ProducerClosedError):
        return JSONResponse({"outcome": "not_written"}, 503, {"Retry-After": "1"})
    except OutcomeUnknown:
        return JSONResponse({"outcome": "unknown"}, 504)
    return JSONResponse({"partition": record.partition, "offset": record.offset}, 201)


@app.get("/health")
async def health(request: Request) -> JSONResponse:
    found = request.app.state.producer.health()
    return JSONResponse(found.as_dict(), 200 if found.ok else 503)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
