"""Engines, router and gateway, started and ended by a program."""

from __future__ import annotations

import asyncio
import atexit
from dataclasses import dataclass
from typing import Any, Literal

from . import _baton, _loop
from . import strategy as strategies
from ._loop import router_loop
from ._signals import StopOnSignals


@dataclass(frozen=True)
class EngineStatus:
    """`address` is `None` where the engine was started on a free port of this machine."""

    id: int
    name: str
    role: str
    address: str | None
    ready: bool


class Deployment:
    """What `baton serve MODEL` with the same options makes: `prefill=2` stands for `--prefill 2`.

    `strategy` is the name of one in the box, as for `--router-mode`, or an object with a method `route` (see `Strategy`).

    >>> with Deployment("storyteller-11m", prefill=1, decode=2, port=0) as deployment:   # doctest: +SKIP
    ...     print(deployment.url)
    >>> async with Deployment("storyteller-11m", strategy=MyStrategy()) as deployment:   # doctest: +SKIP
    ...     ...
    """

    def __init__(self, model: str | None = None, *, strategy: str | strategies.Strategy | None = None, **options: Any):
        if isinstance(strategy, str):
            options["router_mode"] = strategy
        elif strategy is not None:
            _check(strategy)
        self._arguments = _arguments(model, options)
        self._strategy = None if isinstance(strategy, str) else strategy
        self._native: _baton.Deployment | None = None
        self._address: tuple[str, int] | None = None

    def launch(self) -> Deployment:
        """Starts all engines, and returns when each has generated a token. Clients are not served yet."""
        if self._native is None:
            native = _baton.Deployment(self._arguments)
            _started.add(self)
            self._native = native
            if not native.launch():
                raise RuntimeError("the deployment was stopped while it started")
            if self._strategy is not None:
                self.use(self._strategy)
        return self

    def start(self) -> Deployment:
        """Starts all engines and serves clients."""
        try:
            self.launch()
            return self.listen()
        except BaseException:
            self.stop(at_once=True)
            raise

    def serve(self) -> None:
        """Starts all engines and serves clients until SIGINT or SIGTERM; a second one does not wait for open requests."""
        with StopOnSignals() as signals:
            try:
                self.start()
                signals.stop = self.native.stop
                print(f"Serving at {self.url}", flush=True)
                self.wait()
            finally:
                self.stop(at_once=True)

    def listen(self, host: str | None = None, port: int | None = None) -> Deployment:
        """Serves clients, at another address than the options say if one is given."""
        self._address = self.native.listen(host, port)
        self.native.run()
        return self

    def use(self, strategy: str | strategies.Strategy | None, **parameters: float) -> None:
        """Routes requests that begin from now on by `strategy`; by the one that the options name if it is `None`.

        >>> deployment.use("prefix-aware", load_slack=4)   # doctest: +SKIP
        """
        if strategy is None:
            self.native.route_as_prepared()
        elif isinstance(strategy, str):
            self.native.route_by(strategy, parameters)
        else:
            strategies.use(self.native, _check(strategy), router_loop())

    def set_role(self, engine: str, role: Literal["prefill", "decode", "mixed"]) -> None:
        """Changes what the engine gets from now on. What it has it finishes."""
        self.native.set_role(engine, role)

    def add(self, address: str, role: Literal["prefill", "decode", "mixed"] = "mixed") -> str:
        """Has the engine that runs at `address` join, and returns its name when it can be sent requests."""
        return self.native.add(address, role)

    def remove(self, engine: str) -> None:
        """Sends the engine no more requests; it leaves when those it has have ended."""
        self.native.remove(engine)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the deployment has ended, no longer than `timeout` seconds; `False` when it has not."""
        step = 0.2
        while not self.native.wait(step if timeout is None else max(0.0, min(step, timeout))):
            if timeout is not None:
                timeout -= step
                if timeout <= 0:
                    return False
        return True

    def stop(self, at_once: bool = False) -> None:
        """Ends it, when open requests have been served or `at_once`, and returns when nothing is left running."""
        if self._native is not None:
            self._native.stop(at_once)
            self.wait()
            _started.discard(self)
            # A strategy may hold what holds this deployment.
            self._native.route_as_prepared()

    @property
    def url(self) -> str:
        """Where clients are served: `OpenAI(base_url=deployment.url + "/v1")`."""
        if self._address is None:
            raise RuntimeError("the deployment does not serve clients yet")
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def engines(self) -> list[EngineStatus]:
        return [EngineStatus(*row) for row in self.native.engines]

    @property
    def strategy(self) -> str:
        """The name of the strategy in use."""
        return self.native.strategy

    @property
    def tokenizer(self) -> _baton.Tokenizer:
        return self.native.tokenizer

    @property
    def requests_in_flight(self) -> int:
        return self.native.requests_in_flight

    @property
    def native(self) -> _baton.Deployment:
        if self._native is None:
            raise RuntimeError("the deployment has not been started")
        return self._native

    def __enter__(self) -> Deployment:
        return self.start()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.stop(at_once=error is not None)

    async def __aenter__(self) -> Deployment:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if self._native is not None:
                self._native.stop(True)
            await asyncio.gather(starting, return_exceptions=True)
            await asyncio.to_thread(self.stop, True)
            raise

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        await asyncio.to_thread(self.stop, error is not None)


_started: set[Deployment] = set()
"""Those that `stop` has to end."""


def start(model: str | None = None, *, strategy: str | strategies.Strategy | None = None, **options: Any) -> Deployment:
    """Starts a deployment and serves clients until it is stopped.

    >>> deployment = start("storyteller-11m", prefill=1, decode=1)   # doctest: +SKIP
    >>> deployment.stop()   # doctest: +SKIP
    """
    return Deployment(model, strategy=strategy, **options).start()


def stop(at_once: bool = False) -> None:
    """Stops all deployments of this process."""
    errors = []
    for deployment in list(_started):
        try:
            deployment.stop(at_once)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _at_exit() -> None:
    try:
        stop(at_once=True)
    finally:
        _loop.close()


atexit.register(_at_exit)


def _check(strategy: Any) -> Any:
    if isinstance(strategy, type):
        raise TypeError(f"strategy is an object: write {strategy.__name__}()")
    if not callable(getattr(strategy, "route", None)):
        raise TypeError(f"{strategy!r} is not a strategy: it has no method route(request, fleet)")
    return strategy


def _arguments(model: str | None, options: dict[str, Any]) -> list[str]:
    """`prefix_cache=True` becomes `--prefix-cache`, `ports=[1, 2]` becomes `--ports=1,2`; `None` stands for the default."""
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if value is True:
            arguments.append(flag)
        elif value is False:
            arguments.append(f"{flag}=false")
        elif isinstance(value, (list, tuple)):
            arguments.append(f"{flag}={','.join(str(item) for item in value)}")
        else:
            arguments.append(f"{flag}={value}")
    return arguments if model is None else [*arguments, "--", str(model)]
