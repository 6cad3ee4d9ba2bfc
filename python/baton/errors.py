"""What calls to engines raise, and what a router may raise to answer its client."""

from __future__ import annotations


class ServeError(Exception):
    """Why a request was not, or not fully, served.

    `retry_after`: after how many seconds another attempt may succeed, 0 for at once on other engines. With `None` the answer would
    be the same, and the client gets it.
    """

    def __init__(self, message: str, retry_after: float | None = None, param: str | None = None):
        super().__init__(message)
        self.retry_after = retry_after
        self.param = param


class CallerError(ServeError):
    """The request cannot be served as it is; `param` is the field it is about. The client sees status 400."""


class ConflictError(ServeError):
    """The request contradicts what is there. The client sees status 409."""


class BusyError(ServeError):
    """There is too much to do now. With `retry_after=None` the request would not fit into an empty engine either."""

    def __init__(self, message: str, retry_after: float | None = 1.0, param: str | None = None):
        super().__init__(message, retry_after, param)


class EngineError(ServeError):
    """An engine failed, vanished or misbehaved: the request goes on elsewhere."""

    def __init__(self, message: str, retry_after: float | None = 0.0, param: str | None = None):
        super().__init__(message, retry_after, param)
