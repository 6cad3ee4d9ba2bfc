"""SIGINT and SIGTERM of a program that serves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class StopOnSignals:
    """Once `stop` is set, the first signal calls it with `False` and each further one with `True`. Before that, a signal is a
    `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.stop: Callable[[bool], None] | None = None
        self._received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopOnSignals:
        # Other threads cannot handle signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # One that was not set from Python cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, *_: object) -> None:
        if self.stop is None:
            raise KeyboardInterrupt
        self._received += 1
        self.stop(self._received > 1)
