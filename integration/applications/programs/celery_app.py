"""A Celery application whose tasks wait in a folder of the test: no other service is needed."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery  # type: ignore[import-untyped]

_folder = Path(os.environ["APPLICATION_FOLDER"])
_folders = {name: str(_folder / where) for name, where in (("data_folder_in", "queue"), ("data_folder_out", "queue"))}
for _path in ("queue", "control"):
    (_folder / _path).mkdir(exist_ok=True)

app = Celery("orders", broker="filesystem://", broker_connection_retry_on_startup=True)
app.conf.broker_transport_options = {
    **_folders,
    "control_folder": str(_folder / "control"),
    "polling_interval": 0.05,  # seconds between looks into the folder; 1 by default
}
app.conf.worker_prefetch_multiplier = 1
