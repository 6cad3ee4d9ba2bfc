"""MLC's entry point for microserving: the built-in router, here with engine 0 for prompts."""

from baton.interface.router import serve

serve(
    model="storyteller-11m",
    model_lib=None,
    router_host="127.0.0.1",
    router_port=9123,
    endpoint_hosts=["127.0.0.1", "127.0.0.1"],
    endpoint_ports=[9124, 9125],
    endpoint_num_gpus=[1, 1],
    enable_prefix_cache=False,
    router_mode="disagg",
    pd_balance_factor=0.0,
)
