"""A router with the surface that MLC's has: subclass it, and override `translate_request`."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from . import _baton
from ._exchange import Exchange, current
from ._loop import router_loop
from .deployment import Deployment, EngineStatus
from .protocol import (
    CompletionRequest,
    CompletionResponse,
    PrepRecvRequest,
    RemoteSendRequest,
    StartGenerateRequest,
)

Responses = AsyncGenerator["CompletionResponse | None", None]


class Router:
    """Starts engines, and translates each request to the three calls of microserving.

    A response that `translate_request` yields stands for the tokens it came with: the client gets those, each once and in order,
    whatever happens to engines. `None` has the request go on behind what the client has, after a while that grows.

    >>> class Alternating(Router):   # the engines take turns
    ...     turn = 0
    ...
    ...     async def translate_request(self, request, request_id):
    ...         request.user = request_id
    ...         self.turn = (self.turn + 1) % self.num_servers
    ...         start = baton.StartGenerateRequest(**request.model_dump(), begin=0)
    ...         async for response in self.send_start_generate(None, start, self.server_urls[self.turn]):
    ...             yield None if response.choices[0].finish_reason == "preempt" else response
    """

    def __init__(
        self,
        model: str,
        model_lib: str | None = None,
        hosts: list[str] | None = None,
        ports: list[int] | None = None,
        num_gpus: list[int] | None = None,
        enable_prefix_cache: bool = False,
        router_mode: Literal["disagg", "round-robin"] = "disagg",
        pd_balance_factor: float = 0.0,
    ):
        hosts = ["127.0.0.1"] if hosts is None else list(hosts)
        ports = [8080] if ports is None else list(ports)
        num_gpus = [1] if num_gpus is None else list(num_gpus)
        if not len(hosts) == len(ports) == len(num_gpus):
            lengths = f"{len(hosts)} hosts, {len(ports)} ports, {len(num_gpus)} numbers of GPUs"
            raise ValueError(f"each engine has a host, a port and a number of GPUs, but there are {lengths}")
        if router_mode not in ("disagg", "round-robin"):
            raise ValueError(f'router_mode is "disagg" or "round-robin", not {router_mode!r}')
        self.router_mode = router_mode
        self.pd_balance_factor = pd_balance_factor
        self.hosts, self.ports = hosts, ports
        self.num_servers = len(hosts)
        self.num_running_requests = [0] * self.num_servers
        # Several engines may be on free ports.
        places = enumerate(zip(hosts, ports))
        self.server_urls = [f"http://{host}:{port}" if port else f"http://{host}:0/{id}" for id, (host, port) in places]
        self.device_id_starts = [sum(num_gpus[:index]) for index in range(len(num_gpus) + 1)]
        self._model = model
        self._exchanges: dict[str, Exchange] = {}
        # A router of somebody's own may ask any engine for anything.
        mode = router_mode if type(self) is Router else "round-robin"
        self.deployment = Deployment(
            model,
            model_lib=_backend(model_lib),
            endpoint_hosts=hosts,
            endpoint_ports=ports,
            endpoint_num_gpus=num_gpus,
            enable_prefix_cache=enable_prefix_cache,
            router_mode=mode,
            pd_balance_factor=pd_balance_factor if mode == "disagg" else None,
        ).launch()
        self.tokenizer = self.deployment.tokenizer
        self.headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self.deployment.native.secret}",
        }

    @property
    def servers(self) -> list[EngineStatus]:
        """The engines, as they are now."""
        addresses = [f"{host}:{port}" for host, port in zip(self.hosts, self.ports)]
        return [replace(engine, address=address) for engine, address in zip(self.deployment.engines, addresses)]

    def serve(self, host: str, port: int) -> None:
        """Serves clients from now on. Returns at once."""
        if type(self) is not Router:
            loop, name = router_loop(), type(self).__name__
            self.deployment.native.route_with(name, loop.native, loop.begin(name, self._route))
        self.deployment.listen(host, port)

    def terminate(self) -> None:
        """Ends the engines."""
        self.deployment.stop(at_once=True)

    async def handle_completion(self, request: CompletionRequest, request_id: str) -> Responses:
        """What is done for one request; for all attempts at it where engines fail."""
        if isinstance(request.prompt, str):
            request.prompt = self.tokenizer.encode(request.prompt)
        async with aclosing(self.translate_request(request, request_id)) as responses:
            async for response in responses:
                yield response

    async def translate_request(self, request: CompletionRequest, request_id: str) -> Responses:
        """Composes the three calls. Override this."""
        if self.router_mode == "disagg":
            handled = self._handle_completion_disagg(request, request_id, self.pd_balance_factor)
        else:
            handled = self._handle_completion_round_robin(request)
        async with aclosing(handled) as responses:
            async for response in responses:
                yield response

    def _pick_endpoint(self, endpoint_ids: Iterable[int]) -> int:
        """The engine with the fewest requests of this router, among those that are ready if any of them is."""
        candidates = list(endpoint_ids)
        exchange = current.get()
        ready = {engine.id for engine in exchange.attempt.fleet.engines} if exchange else set()
        candidates = [id for id in candidates if id in ready] or candidates
        if not candidates:
            raise ValueError("there is no engine to pick from")
        return min(candidates, key=lambda id: self.num_running_requests[id])

    async def _handle_completion_round_robin(self, request: CompletionRequest) -> Responses:
        """One engine does everything."""
        endpoint = self._pick_endpoint(range(self.num_servers))
        self.num_running_requests[endpoint] += 1
        try:
            start = StartGenerateRequest(**request.model_dump(), begin=0)
            async with aclosing(self.send_start_generate(None, start, self.server_urls[endpoint])) as responses:
                async for response in responses:
                    yield _or_retry(response)
        finally:
            self.num_running_requests[endpoint] -= 1

    async def _handle_completion_disagg(
        self, original_request: CompletionRequest, request_id: str, pd_balance_factor: float = 0
    ) -> Responses:
        """Engine 0 computes the prompt, up to the share that is left to the engine that generates."""
        original_request.user = request_id
        length = len(original_request.prompt)
        split = length - 1 if abs(pd_balance_factor) < 1e-5 else int((1 - pd_balance_factor) * length)
        end = min(split, length - 1)
        prefill, decode = self.server_urls[0], self._pick_endpoint(range(min(1, self.num_servers - 1), self.num_servers))
        fields = original_request.model_dump()
        self.num_running_requests[decode] += 1
        try:
            room = PrepRecvRequest(**fields, end=end)
            kv_addr_info, matched = await self.send_prepare_receive(None, room, self.server_urls[decode])
            if matched < end and decode != 0:
                rank = self.device_id_starts[decode]
                send = RemoteSendRequest(**fields, begin=matched, end=end, kv_addr_info=kv_addr_info, recv_rank=rank)
                await self.send_remote_send(None, send, prefill)
            start = StartGenerateRequest(**fields, begin=end)
            async with aclosing(self.send_start_generate(None, start, self.server_urls[decode])) as responses:
                async for response in responses:
                    yield _or_retry(response)
        finally:
            self.num_running_requests[decode] -= 1

    async def send_prepare_receive(self, session: Any, request: PrepRecvRequest, server_url: str) -> tuple[str, int]:
        """Reserves room on an engine for `prompt[:request.end]`.

        Returns where it is, for `RemoteSendRequest.kv_addr_info`, and how much of the prompt is there already. `session` is not used
        by any of the three calls: they go over connections that the deployment has.
        """
        return await self._exchange(request).prep_recv(self._server(server_url), request)

    async def send_remote_send(self, session: Any, request: RemoteSendRequest, server_url: str) -> None:
        """Has an engine compute `prompt[:request.end]` and hand `prompt[request.begin:request.end]` over. Returns when that is there."""
        exchange = self._exchange(request)
        rank = self.device_id_starts[exchange.receiver(request)]
        if request.recv_rank != rank:
            raise ValueError(f"recv_rank is {request.recv_rank}, but the engine that gave kv_addr_info begins at {rank}")
        await exchange.remote_send(self._server(server_url), request)

    async def send_start_generate(
        self, session: Any, request: StartGenerateRequest, server_url: str
    ) -> AsyncGenerator[CompletionResponse, None]:
        """Has an engine generate, on top of what was received for it."""
        exchange = self._exchange(request)
        async with aclosing(exchange.start_generate(self._server(server_url), request)) as responses:
            async for response in responses:
                yield response

    async def _route(self, attempt: _baton.Attempt) -> None:
        exchange = Exchange(attempt, self._model, self.tokenizer)
        self._exchanges[exchange.id] = exchange
        current.set(exchange)
        try:
            async with aclosing(self.handle_completion(exchange.completion, exchange.id)) as responses:
                async for response in responses:
                    exchange.pass_on(response)
            exchange.end()
        except asyncio.CancelledError:
            exchange.close()
            attempt.end()
            raise
        except BaseException as error:
            # Before the next attempt: an engine has one of a request at a time.
            exchange.close()
            attempt.fail(error)
            traceback.clear_frames(error.__traceback__)
        finally:
            exchange.close()
            current.set(None)
            if self._exchanges.get(exchange.id) is exchange:
                del self._exchanges[exchange.id]

    def _exchange(self, request: CompletionRequest) -> Exchange:
        """The request that a call belongs to: the one that this task serves or, in a task that serves none, the one whose id is in
        `user`."""
        exchange = current.get() or self._exchanges.get(request.user or "")
        if exchange is None:
            raise RuntimeError("calls are made for requests that the router serves: request.user is none of their ids")
        return exchange

    def _server(self, url: str) -> int:
        try:
            return self.server_urls.index(url.rstrip("/"))
        except ValueError:
            raise ValueError(f"{url} is none of server_urls") from None


def _or_retry(response: CompletionResponse) -> CompletionResponse | None:
    preempted = any(choice.finish_reason == "preempt" for choice in response.choices)
    return None if preempted else response


def _backend(model_lib: str | None) -> str | None:
    """The original's compiled library is of no use here."""
    if model_lib is None:
        return None
    path = os.fspath(model_lib)
    if os.sep in path or os.path.splitext(path)[1]:
        warnings.warn(f"model_lib={path!r} is not used: Baton compiles nothing ahead", stacklevel=3)
        return None
    return path
