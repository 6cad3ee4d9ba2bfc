"""One request on its way through a `Router`: what its calls have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from itertools import count
from typing import Any

from . import _baton
from ._loop import router_loop
from .errors import EngineError
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


class Exchange:
    def __init__(self, attempt: _baton.Attempt, model: str, tokenizer: _baton.Tokenizer):
        request = attempt.request
        self.attempt, self.id = attempt, request.id
        self._request, self._tokenizer, self._model = request, tokenizer, model
        self._rooms: dict[str, tuple[int, _baton.Reservation]] = {}
        self._sendings: dict[int, _baton.Sending] = {}
        self._numbers = count(1)
        self._readers: list[_baton.Reader] = []
        self._to_pass_on: deque[_baton.Chunk] = deque()
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
        # An engine holds one reservation of a request.
        if earlier := self._take_room(server):
            earlier.release()
        room = await self._engine(server).prep_recv(request, call.end)
        address = f"{self.id}/{next(self._numbers)}"
        self._rooms[address] = (server, room)
        return address, room.matched

    def receiver(self, call: RemoteSendRequest) -> int:
        """The engine whose room `call` names."""
        if call.kv_addr_info not in self._rooms:
            raise ValueError("kv_addr_info is not what send_prepare_receive returned for this request")
        return self._rooms[call.kv_addr_info][0]

    async def remote_send(self, server: int, call: RemoteSendRequest) -> None:
        receiver, room = self._rooms[call.kv_addr_info]
        sending = self._engine(server).remote_send(self._changed(call), room, call.begin, call.end)
        self._sendings[receiver] = sending
        await sending

    async def start_generate(self, server: int, call: StartGenerateRequest) -> AsyncGenerator[CompletionResponse, None]:
        request = self._changed(call)
        room = self._take_room(server)
        sending = self._sendings.pop(server, None)
        leg = await self._engine(server).start_generate(request, room, sending if room else None)
        reader = leg.read(self._tokenizer, router_loop().native)
        self._readers.append(reader)
        del leg, room, sending
        try:
            while (chunk := await reader.next()) is not None:
                if chunk.choices:
                    self._to_pass_on.append(chunk)
                    yield self._response(chunk)
                if chunk.failure is not None:
                    if not chunk.may_go_on:
                        raise chunk.failure
                    self._lost = chunk.failure
                    preempted = CompletionResponseChoice(text="", finish_reason="preempt")
                    yield CompletionResponse(id=self.id, model=self._model, choices=[preempted])
                    return
        finally:
            reader.close()

    def pass_on(self, response: Any) -> None:
        """The client gets the tokens of `response`. Raises where the request has to go on elsewhere."""
        if response is None or any(choice.finish_reason == "preempt" for choice in response.choices):
            lost, self._lost = self._lost, None
            raise lost or EngineError("the router gave this attempt up")
        chunk = getattr(response, "_chunk", None)
        if chunk is None:
            raise TypeError("a router yields what send_start_generate() yields: this response has no tokens")
        if [choice.text for choice in response.choices] != [text for _, text, _ in chunk.choices]:
            raise TypeError("the text of a response cannot be changed: the client gets the tokens it stands for")
        self._skip_to(chunk)
        self.attempt.pass_on(chunk)

    def end(self) -> None:
        """The router has yielded all that it will."""
        self._skip_to(None)
        self.attempt.end()

    def close(self) -> None:
        """Gives back what the router still has on engines."""
        for reader in self._readers:
            reader.close()
        for _, room in self._rooms.values():
            room.release()
        self._readers, self._rooms, self._sendings, self._to_pass_on, self._lost = [], {}, {}, deque(), None

    def _skip_to(self, chunk: _baton.Chunk | None) -> None:
        """Responses without text may be left out, but not the tokens they stand for."""
        while self._to_pass_on and (skipped := self._to_pass_on.popleft()) is not chunk:
            if any(text for _, text, _ in skipped.choices):
                # An attempt that is made anew in place of this one has other tokens for the same text.
                continue
            self.attempt.pass_on(skipped)

    def _response(self, chunk: _baton.Chunk) -> CompletionResponse:
        choices = [CompletionResponseChoice(index=index, text=text, finish_reason=reason) for index, text, reason in chunk.choices]
        response = CompletionResponse(id=self.id, model=self._model, choices=choices)
        response._chunk = chunk  # type: ignore[attr-defined]
        return response

    def _take_room(self, server: int) -> _baton.Reservation | None:
        """What is reserved on this engine."""
        mine = [address for address, (at, _) in self._rooms.items() if at == server]
        rooms = [self._rooms.pop(address)[1] for address in mine]
        return rooms[0] if rooms else None

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

