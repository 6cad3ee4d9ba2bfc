"""The native part of the package."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Literal, overload

class Request:
    """One attempt at a request for continuations of one prompt, with every default decided."""

    @property
    def id(self) -> str:
        """The same in all attempts."""
    @property
    def attempt(self) -> int:
        """0, and one more each time that the request goes on elsewhere."""
    @property
    def prompt(self) -> list[int]: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int:
        """Tokens that the client has from earlier attempts, of all choices."""
    @property
    def n(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def logit_bias(self) -> dict[int, float]: ...
    @property
    def logprobs(self) -> int | None: ...
    @property
    def needs_whole_prompt(self) -> bool:
        """The engine that generates computes all of the prompt: nothing of it can come from a prefix cache or another engine."""
    def replace(
        self,
        *,
        prompt: list[int] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        seed: int | None = None,
        logit_bias: dict[int, float] | None = None,
    ) -> Request:
        """This request with other values. Never more tokens than the client is waiting for."""

class Reservation:
    """Pages of an engine that wait for KV. They are given back with the last reference to this object, unless a request was started
    with them."""

    @property
    def matched(self) -> int:
        """`prompt[:matched]` is in the engine's prefix cache."""
    @property
    def end(self) -> int:
        """`prompt[matched:end]` has pages."""
    def release(self) -> None:
        """Gives the pages back."""
    def __bool__(self) -> bool:
        """Whether there is room. Nothing is sent to an empty reservation, and the engine computes the prompt."""

class Sending(Awaitable[int]):
    """KV on its way from one engine to another; awaiting it gives the number of tokens that the receiver has verified."""

    def __await__(self) -> Generator[Any, Any, int]: ...

class Leg:
    """A request under way. It is aborted with the last reference to this object, unless it is served to the client."""

    @property
    def engine(self) -> int:
        """The id of the engine that generates."""
    def read(self, tokenizer: Tokenizer, event_loop: EventLoop) -> Reader: ...

class Engine:
    """An engine that is ready."""

    @property
    def id(self) -> int:
        """Its place in the deployment; stays the same over restarts."""
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> Literal["mixed", "prefill", "decode"]: ...
    @property
    def sequences(self) -> int:
        """Requests that it has, of all routers."""
    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that it has still to compute, of all routers."""
    @property
    def cached_tokens(self) -> int:
        """How much of the request's prompt it would take from its prefix cache, as far as is known."""
    @property
    def free_kv(self) -> float:
        """The share of its KV pages, 0 to 1, that a new request can have."""
    def pairs_with(self, other: Engine) -> bool:
        """Whether KV can be handed from one to the other: their logits are equal bit by bit."""
    def prep_recv(self, request: Request, end: int = -1) -> Awaitable[Reservation]:
        """Reserves room for the KV of `prompt[:end]` as far as it is not cached.

        >>> room = await decode.prep_recv(request, end=-1)   # doctest: +SKIP
        """
    def remote_send(self, request: Request, to: Reservation, begin: int | None = None, end: int | None = None) -> Sending:
        """Computes the KV of `prompt[:end]` and hands `prompt[begin:end]` over; by default what the reservation lacks. Begins at
        once."""
    def start_generate(
        self, request: Request, reservation: Reservation | None = None, fed_by: Sending | None = None
    ) -> Awaitable[Leg]:
        """Computes what of the prompt is not there, then generates. `fed_by` brings the KV that `reservation` waits for; what does
        not come is computed here."""

class Engines(Sequence[Engine]):
    """Some engines that are ready, ascending by id."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> Engine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Engine]: ...
    def lowest(self, key: Callable[[Engine], Any]) -> Engine:
        """The one for which `key` gives the lowest value, as `min(engines, key=key)`. Raises `EngineError` when there is none.

        >>> fleet.engines.lowest(lambda engine: engine.sequences)   # doctest: +SKIP
        """
    def least_loaded(self) -> Engine:
        """The one with the least to do. Raises `EngineError` when there is none."""
    def following(self, last: int | None = None) -> Engine:
        """The first behind `last`, an engine's id, around the circle of ids."""
    def pairing_with(self, receiver: Engine) -> Engines:
        """Those of them that can hand KV to `receiver`."""
    def remote_send(self, request: Request, to: Reservation, begin: int | None = None, end: int | None = None) -> Sending:
        """Sent by the least loaded of them and, if that fails, by the next."""

class Fleet:
    """The engines that are ready for an attempt."""

    @property
    def engines(self) -> Engines:
        """All of them, whatever their roles."""
    def prefill(self) -> Engines:
        """Those that compute prompts for others."""
    def decode(self) -> Engines:
        """Those that generate."""
    def serving(self) -> Engines:
        """Those that can take a whole request: all that generate or, when none of them is there, all that are."""
    def engine(self, id_or_name: int | str) -> Engine:
        """The engine with this id or name. Raises `EngineError` while it is not ready."""

class Tokenizer:
    """Text to token ids and back, as the server does it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, tokens: list[int], skip_special_tokens: bool = True) -> str: ...

class Attempt:
    @property
    def request(self) -> Request: ...
    @property
    def fleet(self) -> Fleet: ...
    def runs_in(self, task: asyncio.Task[Any] | None) -> None: ...
    def serve(self, leg: Leg) -> None: ...
    def pass_on(self, chunk: Chunk) -> None: ...
    def fail(self, exception: BaseException) -> None: ...
    def end(self) -> None: ...

class Reader:
    def next(self) -> Awaitable[Chunk | None]: ...
    def close(self) -> None: ...

class Chunk:
    @property
    def choices(self) -> list[tuple[int, str, Literal["stop", "length"] | None]]: ...
    @property
    def failure(self) -> BaseException | None: ...
    @property
    def may_go_on(self) -> bool: ...

class EventLoop:
    def __init__(self, asyncio: asyncio.AbstractEventLoop) -> None: ...
    def close(self) -> None: ...

class Deployment:
    def __init__(self, arguments: list[str]) -> None: ...
    def launch(self) -> bool: ...
    def listen(self, host: str | None = None, port: int | None = None) -> tuple[str, int]: ...
    def run(self) -> None: ...
    def wait(self, timeout: float) -> bool: ...
    def stop(self, at_once: bool = False) -> None: ...
    def route_with(self, name: str, event_loop: EventLoop, begin: Callable[[Attempt], None]) -> None: ...
    def route_as_prepared(self) -> None: ...
    def route_by(self, name: str, parameters: dict[str, float]) -> None: ...
    def set_role(self, engine: str, role: str) -> None: ...
    def add(self, address: str, role: str) -> str: ...
    def remove(self, engine: str) -> None: ...
    @property
    def strategy(self) -> str: ...
    @property
    def engines(self) -> list[tuple[int, str, str, str | None, bool]]: ...
    @property
    def requests_in_flight(self) -> int: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def secret(self) -> str: ...

def main(arguments: list[str]) -> int: ...
def embed(interpreter: str, script: str | os.PathLike[str]) -> None: ...
def warn(text: str) -> None: ...
