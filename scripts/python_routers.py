"""What a router costs in Rust, in Python, and with the original's surface: CPU of gateway and router, and time to the first byte.

    .venv/bin/python scripts/python_routers.py [--rounds 5] [--requests 400]

Engines are mocks that answer at once, 1P1D, in processes of their own; so is the load. The variants take turns.
"""
import argparse
import asyncio
import statistics
import subprocess
import sys
import time

import baton

TOKENS, TOGETHER = 64, 8


class Disaggregated:
    async def route(self, request, fleet):
        decode = fleet.decode().least_loaded()
        prefill = fleet.prefill().pairing_with(decode).least_loaded()
        room = await decode.prep_recv(request)
        return await decode.start_generate(request, room, fed_by=prefill.remote_send(request, to=room))


class Compatible(baton.Router):
    pass


def serve(variant: str) -> None:
    """Prints where it serves, then its CPU seconds for each line that it reads."""
    if variant == "compatible":
        router = Compatible("storyteller-11m", "mock", ["127.0.0.1"] * 2, [0, 0], [1, 1], router_mode="disagg")
        router.server_urls = ["http://127.0.0.1:0", "http://127.0.0.1:1"]
        router.serve("127.0.0.1", 0)
        deployment = router.deployment
    else:
        strategy = Disaggregated() if variant == "python" else None
        deployment = baton.Deployment(model_lib="mock", prefill=1, decode=1, port=0, strategy=strategy).start()
    print(deployment.url, flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)
    deployment.stop(at_once=True)


async def load(url: str, requests: int, together: int) -> float:
    """Median seconds to the first byte of an answer."""
    import httpx

    body = {"model": "storyteller-11m", "prompt": "Once upon a time " * 120, "max_tokens": TOKENS, "stream": True}
    first_bytes: list[float] = []
    async with httpx.AsyncClient(timeout=60) as client:

        async def one() -> None:
            began = time.perf_counter()
            async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
                chunks = answer.aiter_raw()
                await anext(chunks)
                first_bytes.append(time.perf_counter() - began)
                async for _ in chunks:
                    pass

        for _ in range(0, requests, together):
            await asyncio.gather(*(one() for _ in range(together)))
    return statistics.median(first_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    variants = ["rust", "python", "compatible"]
    seen: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for round in range(options.rounds):
        for variant in variants if round % 2 == 0 else reversed(variants):
            command = [sys.executable, __file__, "--serve", variant]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            url = child.stdout.readline().strip()

            def cpu() -> float:
                child.stdin.write("\n")
                child.stdin.flush()
                return float(child.stdout.readline())

            asyncio.run(load(url, 2 * TOGETHER, TOGETHER))
            first_byte = asyncio.run(load(url, options.requests // 8, 1))
            before = cpu()
            asyncio.run(load(url, options.requests, TOGETHER))
            seen[variant].append(((cpu() - before) / options.requests, first_byte))
            child.stdin.close()
            child.wait()
    for variant, rounds in seen.items():
        costs, first_bytes = (sorted(values) for values in zip(*rounds))
        microseconds = [1e6 * cost for cost in costs]
        milliseconds = [1e3 * value for value in first_bytes]
        print(
            f"{variant:10}  CPU per request {statistics.median(microseconds):5.0f} µs ({microseconds[0]:.0f} – {microseconds[-1]:.0f})"
            f"   first byte {statistics.median(milliseconds):.2f} ms ({milliseconds[0]:.2f} – {milliseconds[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
