"""Requests and responses of routers that are written for MLC's microserving."""

from .microserving_entrypoints import PrepRecvRequest, RemoteSendRequest, StartGenerateRequest
from .openai_api_protocol import CompletionRequest, CompletionResponse, CompletionResponseChoice, CompletionUsage

__all__ = [
    "CompletionRequest",
    "CompletionResponse",
    "CompletionResponseChoice",
    "CompletionUsage",
    "PrepRecvRequest",
    "RemoteSendRequest",
    "StartGenerateRequest",
]
