"""OpenAI's completion request and response, as routers see them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from ._model import Model


@dataclass(kw_only=True)
class CompletionRequest(Model):
    """A request for completions of one prompt. Chat requests arrive in this form too.

    `handle_completion` gets it with every default decided: the prompt is token ids, and what the client left out has the value that
    engines will use. A router may change `prompt`, `max_tokens`, `temperature`, `top_p`, the penalties, `seed` and `logit_bias`;
    the rest (`n`, `stop`, `logprobs`, …) is taken care of before and behind it.
    """

    model: str | None = None
    prompt: str | list[int]
    best_of: int = 1
    echo: bool = False
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logprobs: int | None = None
    logit_bias: dict[int, float] | None = None
    max_tokens: int | None = None
    n: int = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    suffix: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    response_format: dict[str, Any] | None = None
    debug_config: dict[str, Any] | None = None


@dataclass(kw_only=True)
class CompletionUsage(Model):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    extra: dict[str, Any] | None = None


@dataclass(kw_only=True)
class CompletionResponseChoice(Model):
    """`finish_reason` is "preempt" where the engine gave the request up: yield `None` to have it go on elsewhere."""

    finish_reason: Literal["stop", "length", "preempt"] | None = None
    index: int = 0
    logprobs: dict[str, Any] | None = None
    text: str


@dataclass(kw_only=True)
class CompletionResponse(Model):
    """A piece of an answer. Its text is for the router to read: the client gets the tokens it stands for."""

    id: str
    choices: list[CompletionResponseChoice]
    created: int = field(default_factory=lambda: int(time.time()))
    model: str | None = None
    object: str = "text_completion"
    usage: CompletionUsage | None = None
