"""One request on its way through a `Router`: what its calls have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from itertools import count
from typing import Any

from . import _baton
from ._loop import router_loop
from .errors import BusyError, EngineError
from .protocol import (
    CompletionRequest,
    CompletionResponse,
    CompletionResponseChoice,
    PrepRecvRequest,
    RemoteSendRequest,
    StartGenerateRequest,
)

current: ContextVar[Exchange | None] = ContextVar("current", default=None)
"""The request that a task serves."""

CHANGEABLE = ("prompt", "max_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "logit_bias")
FIXED = ("n", "best_of", "stop", "logprobs", "echo", "suffix", "response_format")
NOWHERE = ""
"""The address of room that was not reserved: the engine that generates computes the whole prompt."""


class Exchange:
    def __init__(self, attempt: _baton.Attempt, model: str, tokenizer: _baton.Tokenizer):
        request = attempt.request
        self.attempt, self.id = attempt, request.id
        self._request, self._tokenizer, self._model = request, tokenizer, model
        self._rooms: dict[str, tuple[int, _baton.Reservation]] = {}
        self._sendings: dict[int, _baton.Sending] = {}
        self._numbers = count(1)
        self._lost: BaseException | None = None
        self.completion = CompletionRequest(
            model=model,
            prompt=request.prompt,
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
            logprobs=request.logprobs,
            logit_bias=request.logit_bias or None,
            max_tokens=request.max_tokens,
            n=request.n,
            seed=request.seed,
            stream=True,
            temperature=request.temperature,
            top_p=request.top_p,
        )
        self._as_it_came = {**self.completion.model_dump(), "prompt": list(request.prompt)}

    async def prep_recv(self, server: int, call: PrepRecvRequest) -> tuple[str, int]:
        request = self._changed(call)
        if request.needs_whole_prompt:
            return NOWHERE, _absolute(call.end, request)
        try:
            room = await self._engine(server).prep_recv(request, call.end)
        except BusyError:
            # In the engine's queue it is served in any case, if not as well.
            return NOWHERE, _absolute(call.end, request)
        address = f"{self.id}/{next(self._numbers)}"
        self._rooms[address] = (server, room)
        return address, room.matched

    def receiver(self, call: RemoteSendRequest) -> int | None:
        """The engine whose room `call` names."""
        if call.kv_addr_info == NOWHERE:
            return None
        if call.kv_addr_info not in self._rooms:
            raise ValueError("kv_addr_info is not what send_prepare_receive returned for this request")
        return self._rooms[call.kv_addr_info][0]

    async def remote_send(self, server: int, call: RemoteSendRequest) -> None:
        receiver = self.receiver(call)
        if receiver is None:
            return
        _, room = self._rooms[call.kv_addr_info]
        sending = self._engine(server).remote_send(self._changed(call), room, call.begin, call.end)
        self._sendings[receiver] = sending
        await sending

    async def start_generate(self, server: int, call: StartGenerateRequest) -> AsyncIterator[CompletionResponse]:
        request = self._changed(call)
        room = self._take_room(server)
        sending = self._sendings.pop(server, None)
        leg = await self._engine(server).start_generate(request, room, sending if room else None)
        reader = leg.read(self._tokenizer, router_loop().native)
        del leg, room, sending
        while (chunk := await reader.next()) is not None:
            if chunk.choices:
                yield self._response(chunk)
            if chunk.failure is not None:
                if not chunk.may_go_on:
                    raise chunk.failure
                self._lost = chunk.failure
                preempted = CompletionResponseChoice(text="", finish_reason="preempt")
                yield CompletionResponse(id=self.id, model=self._model, choices=[preempted])
                return

    def pass_on(self, response: Any) -> None:
        """The client gets the tokens of `response`. Raises where the request has to go on elsewhere."""
        if response is None or any(choice.finish_reason == "preempt" for choice in response.choices):
            raise self._lost or EngineError("the router gave this attempt up")
        chunk = getattr(response, "_chunk", None)
        if chunk is None:
            raise TypeError("a router yields what send_start_generate() yields: this response has no tokens")
        if [choice.text for choice in response.choices] != [text for _, text, _ in chunk.choices]:
            raise TypeError("the text of a response cannot be changed: the client gets the tokens it stands for")
        self.attempt.pass_on(chunk)

    def _response(self, chunk: _baton.Chunk) -> CompletionResponse:
        choices = [CompletionResponseChoice(index=index, text=text, finish_reason=reason) for index, text, reason in chunk.choices]
        response = CompletionResponse(id=self.id, model=self._model, choices=choices)
        response._chunk = chunk  # type: ignore[attr-defined]
        return response

    def _take_room(self, server: int) -> _baton.Reservation | None:
        """What was reserved last on this engine."""
        mine = [address for address, (at, _) in self._rooms.items() if at == server]
        rooms = [self._rooms.pop(address)[1] for address in mine]
        return rooms[-1] if rooms else None

    def _changed(self, call: CompletionRequest) -> _baton.Request:
        """The client's request, with what the router has changed."""
        came = self._as_it_came
        for name in FIXED:
            if getattr(call, name) != came[name]:
                raise ValueError(f"a router cannot change {name}")
        changes = {name: getattr(call, name) for name in CHANGEABLE if getattr(call, name) != came[name]}
        return self._request.replace(**changes) if changes else self._request

    def _engine(self, server: int) -> _baton.Engine:
        try:
            return self.attempt.fleet.engine(server)
        except KeyError:
            raise EngineError(f"engine {server} is not ready") from None


def _absolute(position: int, request: _baton.Request) -> int:
    return position + request.prompt_tokens if position < 0 else position
