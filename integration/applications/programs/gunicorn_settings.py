"""gunicorn's settings: what it needs to run beside another one, and a hook that tells when a worker can be ended.

A gevent worker that is told to end while it starts goes on for its whole graceful timeout.
"""

from __future__ import annotations

from typing import Any

bind = "127.0.0.1:0"
preload_app = True
workers = 2
control_socket_disable = True  # it would be a file in the user's home


def post_worker_init(worker: Any) -> None:
    from integration.applications.programs.given import say  # noqa: PLC0415 - gevent patches before

    say("worker")
