"""The error that ends a command with one sentence instead of a traceback."""

NOTHING_SENT = 2
NOT_ALL_DELIVERED = 1


class Failure(Exception):  # noqa: N818 - it is an outcome shown to a person, not a bug
    """A command cannot go on; ``str()`` is the sentence to show.

    ``exit_code`` is 2 when nothing was sent and 1 afterwards. ``code`` is a short stable name for ``--json``.
    """

    def __init__(self, sentence: str, *, code: str = "usage", exit_code: int = NOTHING_SENT) -> None:
        super().__init__(sentence)
        self.code = code
        self.exit_code = exit_code
