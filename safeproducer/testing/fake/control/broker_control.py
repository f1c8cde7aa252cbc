"""Brokers that stop, start, pause, lose their connections, and are new or old."""

from safeproducer.testing.fake.control.runtime import Runtime
from safeproducer.testing.fake.rules import configs

__all__ = ["BrokerControl"]


class BrokerControl(Runtime):
    """Stops, starts and configures brokers."""

    def stop(self, broker: int) -> None:
        """Cut its connections, refuse new ones, and move its partitions to living replicas.

        Its memory of producers shrinks to the last batch each, which is what a restart finds in a snapshot.
        """
        self._broker(broker)

        async def work() -> None:
            await self._brokers[broker].stop()
            if self._state.brokers[broker].alive:
                self._state.set_alive(broker, False)

        self._await(work)

    def start(self, broker: int) -> None:
        """Bring a stopped broker back on its port. It leads only what has no other leader."""
        self._broker(broker)

        async def work() -> None:
            self._state.set_alive(broker, True)
            await self._brokers[broker].start()

        self._await(work)

    def pause(self, broker: int) -> None:
        """Let it accept connections and nothing else: it reads nothing, and its answers wait for :meth:`resume`.

        To clients it is as a broker whose process hangs. It goes on leading: move its partitions if they shall not
        wait. A fetch that waits for records goes on waiting, unanswered. :meth:`stop` and ``reset()`` end a pause.
        """
        self._broker(broker)
        self._call(self._brokers[broker].pause)

    def resume(self, broker: int) -> None:
        """Work on what came during the pause, in order, and send what waited. Without a pause it does nothing."""
        self._broker(broker)
        self._call(self._brokers[broker].resume)

    def cut(self, broker: int | None = None, *, client_id: str | None = None) -> int:
        """End all connections, or those of a broker, of a client, or both, now; returns how many."""
        chosen = self.brokers if self._checked(broker) is None else (broker,)

        async def work() -> int:
            return sum([await self._brokers[one].cut(client_id) for one in chosen if one is not None])

        return self._await(work)

    def set_kip_1269(self, broker: int, known: bool) -> None:
        """Upgrade or downgrade a broker at run time. An old one remembers five batches and lists neither config."""
        state = self._broker(broker)
        self._call(lambda: setattr(state, "kip_1269", known))

    def set_broker_config(self, broker: int, name: str, value: str | None) -> None:
        """A dynamic broker config; None takes it away again. Raises ValueError for what a broker would refuse."""
        state = self._broker(broker)
        if value is not None or name not in configs.BROKER:
            configs.check(configs.BROKER, name, value)
        if not configs.BROKER[name].dynamic:
            raise ValueError(f"{name}: cannot be changed while the broker runs; give it as broker_config")

        def work() -> None:
            self._state.expire_producers(state)
            state.dynamic.pop(name, None)
            if value is not None:
                state.dynamic[name] = value

        self._call(work)
