"""Requests of the three calls: a completion request, and a range of its prompt. Negative positions count from the prompt's end."""

from __future__ import annotations

from dataclasses import dataclass

from .openai_api_protocol import CompletionRequest


@dataclass(kw_only=True)
class PrepRecvRequest(CompletionRequest):
    """Reserves room for the KV of `prompt[:end]`."""

    end: int


@dataclass(kw_only=True)
class RemoteSendRequest(CompletionRequest):
    """Computes the KV of `prompt[:end]` and hands `prompt[begin:end]` to the engine that gave `kv_addr_info`, whose first device is
    `recv_rank`."""

    begin: int
    end: int
    kv_addr_info: str
    recv_rank: int


@dataclass(kw_only=True)
class StartGenerateRequest(CompletionRequest):
    """Computes `prompt[begin:]` on top of what was received, then generates."""

    begin: int
