"""The time of a cluster: real time, moved forward at will."""

import math
import time

__all__ = ["ClusterClock"]


class ClusterClock:
    """Real time plus an offset. Expiry and rates go by it; waits do not."""

    def __init__(self) -> None:
        # Whoever sets the machine's clock meanwhile shall not make time go back here.
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.monotonic() + self._offset

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, as the protocol counts."""
        return int(self.now() * 1000)

    def advance(self, seconds: float) -> float:
        """Move on by this much; returns the new time. Raises ValueError: time never goes back."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"seconds: {seconds} is no step forward in time; give 0 or more")
        self._offset += seconds
        return self.now()
