"""`serve`, with exactly the parameters that the original has."""

from __future__ import annotations

from typing import Literal

from .._signals import StopOnSignals
from ..router import Router


def serve(
    model: str,
    model_lib: str | None,
    router_host: str,
    router_port: int,
    endpoint_hosts: list[str],
    endpoint_ports: list[int],
    endpoint_num_gpus: list[int],
    enable_prefix_cache: bool,
    router_mode: Literal["disagg", "round-robin"] = "round-robin",
    pd_balance_factor: float = 0.0,
    router_type: type[Router] = Router,
) -> None:
    """Starts engines and a router in front of them, and serves clients until SIGINT or SIGTERM.

    >>> serve(   # doctest: +SKIP
    ...     model="storyteller-11m", model_lib=None, router_host="127.0.0.1", router_port=9123,
    ...     endpoint_hosts=["127.0.0.1", "127.0.0.1"], endpoint_ports=[9124, 9125], endpoint_num_gpus=[1, 1],
    ...     enable_prefix_cache=False, router_type=MyRouter,
    ... )
    """
    with StopOnSignals() as signals:
        router = router_type(
            model=model,
            model_lib=model_lib,
            hosts=endpoint_hosts,
            ports=endpoint_ports,
            num_gpus=endpoint_num_gpus,
            enable_prefix_cache=enable_prefix_cache,
            router_mode=router_mode,
            pd_balance_factor=pd_balance_factor,
        )
        try:
            router.serve(router_host, router_port)
            signals.stop = router.deployment.native.stop
            print(f"Serving {model} at {router.deployment.url}", flush=True)
            router.deployment.wait()
        finally:
            router.terminate()
