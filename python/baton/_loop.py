"""The event loop on which routers run, with a watch that reports a router that blocks it."""

from __future__ import annotations

import asyncio
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
        self._turn = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread.start()
        threading.Thread(target=self._watch, name="baton-router-watch", daemon=True).start()

    def begin(self, route: Callable[[_baton.Attempt], Coroutine[Any, Any, None]]) -> Callable[[_baton.Attempt], None]:
        """What takes an attempt on the loop's thread and routes it in a task of its own."""

        def begin(attempt: _baton.Attempt) -> None:
            task = self.asyncio.create_task(route(attempt))
            attempt.runs_in(task)
            # The loop itself keeps no reference to a task that waits.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return begin

    def _run(self) -> None:
        asyncio.set_event_loop(self.asyncio)
        self.asyncio.run_forever()

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
                blocked = f"a router has blocked the event loop for {silent:.1f} s: no other request is routed meanwhile"
                _baton.warn(f"{blocked}\n{self._stack()}")

    def _took_a_turn(self) -> None:
        self._turn = time.monotonic()

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)[-3:]) if frame else ""


_lock = threading.Lock()
_shared: RouterLoop | None = None


def router_loop() -> RouterLoop:
    global _shared
    with _lock:
        if _shared is None:
            _shared = RouterLoop()
        return _shared
