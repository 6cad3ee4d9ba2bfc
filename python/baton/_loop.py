"""The event loop on which routers run, with a watch that reports a router that blocks it."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from . import _baton

LIMIT = 1.0
"""Seconds without a turn of the loop from which on it is held for blocked."""


class RouterLoop:
    """One asyncio loop on a thread of its own, for all routers of this process."""

    def __init__(self) -> None:
        self.asyncio = asyncio.new_event_loop()
        self.native = _baton.EventLoop(self.asyncio)
        self._thread = threading.Thread(target=self._run, name="baton-router", daemon=True)
        self._closed = False
        self._turn = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()
        threading.Thread(target=self._watch, name="baton-router-watch", daemon=True).start()

    def begin(
        self, name: str, route: Callable[[_baton.Attempt], Coroutine[Any, Any, None]]
    ) -> Callable[[_baton.Attempt], None]:
        """What takes an attempt on the loop's thread and routes it in a task of its own, with the router's name."""

        def begin(attempt: _baton.Attempt) -> None:
            task = self.asyncio.create_task(route(attempt), name=name)
            attempt.runs_in(task)
            # The loop itself keeps no reference to a task that waits.
            self._tasks.add(task)
            task.add_done_callback(lambda task: done(attempt, task))

        def done(attempt: _baton.Attempt, task: asyncio.Task[None]) -> None:
            attempt.runs_in(None)
            self._tasks.discard(task)

        return begin

    def close(self) -> None:
        """Nothing more is routed."""
        self._closed = True
        self.native.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.asyncio)
        while not self._closed:
            try:
                self.asyncio.run_forever()
            except BaseException:
                # sys.exit() in a task of a router: the requests of all others go on.
                _baton.warn(f"a router's task tried to end the program\n{traceback.format_exc()}")

    def _watch(self) -> None:
        reported = False
        while True:
            try:
                self.asyncio.call_soon_threadsafe(self._took_a_turn)
            except RuntimeError:
                return
            time.sleep(LIMIT / 2)
            silent = time.monotonic() - self._turn
            if silent < LIMIT:
                reported = False
            elif not reported:
                reported = True
                task = asyncio.current_task(self.asyncio)
                router = f"the router {task.get_name()}" if task else "a router"
                blocked = f"{router} has blocked the event loop for {silent:.1f} s: no other request is routed meanwhile"
                _baton.warn(f"{blocked}\n{self._stack()}")

    def _took_a_turn(self) -> None:
        self._turn = time.monotonic()

    def _stack(self) -> str:
        """From the router's own code on."""
        frames = traceback.extract_stack(sys._current_frames().get(self._thread.ident or 0))
        below = (os.path.dirname(asyncio.__file__), os.path.dirname(__file__), threading.__file__)
        own = itertools.dropwhile(lambda frame: frame.filename.startswith(below), frames)
        return "".join(traceback.format_list(list(own)))


_lock = threading.Lock()
_shared: RouterLoop | None = None


def router_loop() -> RouterLoop:
    global _shared
    with _lock:
        if _shared is None:
            _shared = RouterLoop()
        return _shared


def close() -> None:
    """At the end of the interpreter, to which no thread may attach any more."""
    if _shared is not None:
        _shared.close()
