"""A router as a function from a request and the engines that are ready to a request under way."""

from __future__ import annotations

import asyncio
import traceback
from typing import Protocol, runtime_checkable

from . import _baton
from ._loop import RouterLoop


@runtime_checkable
class Strategy(Protocol):
    """Decides which engines serve a request, and composes the three calls to them.

    Tokens do not pass through Python: the client gets those of the leg that is returned. When an engine fails, `route` is called
    again, with what the client has already in the request, and the stream goes on behind it. Where an engine has no room to
    receive into, `prep_recv` gives an empty reservation, and the engine computes the prompt itself.

    >>> class OneForAll:
    ...     async def route(self, request, fleet):
    ...         return await fleet.serving().least_loaded().start_generate(request)

    >>> class Disaggregated:
    ...     async def route(self, request, fleet):
    ...         decode = fleet.decode().least_loaded()
    ...         prefill = fleet.prefill().pairing_with(decode).least_loaded()
    ...         room = await decode.prep_recv(request)
    ...         kv = prefill.remote_send(request, to=room)
    ...         return await decode.start_generate(request, room, fed_by=kv)
    """

    async def route(self, request: _baton.Request, fleet: _baton.Fleet) -> _baton.Leg: ...


def name_of(strategy: object) -> str:
    return getattr(strategy, "name", None) or type(strategy).__name__


def use(deployment: _baton.Deployment, strategy: Strategy, loop: RouterLoop) -> None:
    """Requests that begin from now on are routed by `strategy`."""

    async def route(attempt: _baton.Attempt) -> None:
        try:
            leg = await strategy.route(attempt.request, attempt.fleet)
            if not isinstance(leg, _baton.Leg):
                raise TypeError(f"route() returned {leg!r}, not the leg that start_generate() gives")
            attempt.serve(leg)
        except asyncio.CancelledError:
            # The client needs nothing more; where it does, it learns that nothing will come.
            attempt.end()
            raise
        except BaseException as error:
            attempt.fail(error)
            # Frames would keep what the router has reserved.
            traceback.clear_frames(error.__traceback__)

    name = name_of(strategy)
    deployment.route_with(name, loop.native, loop.begin(name, route))
