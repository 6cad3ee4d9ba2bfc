"""Baton serves large language models with prefill and decode on different engines.

>>> import baton
>>> with baton.Deployment("storyteller-11m", prefill=1, decode=1) as deployment:   # doctest: +SKIP
...     print(deployment.url)

`serve` is the entry point that MLC's microserving has; `Router` its programmable router; `Strategy` a shorter way to say the same.
The command `baton` is `python -m baton`.
"""

import os as _os
import sys as _sys

from . import _baton
from ._baton import Engine, Engines, Fleet, Leg, Request, Reservation, Sending, Tokenizer
from .deployment import Deployment, start, stop
from .errors import BusyError, CallerError, ConflictError, EngineError, ServeError
from .interface.router import serve
from .protocol import (
    CompletionRequest,
    CompletionResponse,
    CompletionResponseChoice,
    CompletionUsage,
    PrepRecvRequest,
    RemoteSendRequest,
    StartGenerateRequest,
)
from .router import Router
from .strategy import Strategy

__all__ = [
    "BusyError",
    "CallerError",
    "CompletionRequest",
    "CompletionResponse",
    "CompletionResponseChoice",
    "CompletionUsage",
    "ConflictError",
    "Deployment",
    "Engine",
    "EngineError",
    "Engines",
    "Fleet",
    "Leg",
    "PrepRecvRequest",
    "RemoteSendRequest",
    "Request",
    "Reservation",
    "Router",
    "Sending",
    "ServeError",
    "StartGenerateRequest",
    "Strategy",
    "Tokenizer",
    "serve",
    "start",
    "stop",
]

if _sys.executable:
    _baton.embed(_sys.executable, _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "__main__.py"))
