"""KV in int8: the same promise of equal bytes, in half the memory, among engines that all have it."""
from contextlib import ExitStack

import pytest

import workload
from deployment import DISAGG, engine, refused, serve

INT8 = ("--kv-dtype", "int8")
# Layers, KV heads and dimensions of the bundled model: 32 tokens of K and of V, with a scale of 4 bytes in int8.
PAGE_BYTES = {"bf16": 2 * 6 * 2 * 32 * 64 * 2, "int8": 2 * 6 * 2 * 32 * (64 + 4)}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("int8"), "--prefill", "0", "--enable-prefix-cache=false", *INT8) as single:
        return workload.reference(single)


@pytest.mark.parametrize(
    "flags",
    [
        (*DISAGG, "--prefill", "1", "--decode", "1"),
        (*DISAGG, "--prefill", "1", "--decode", "1", "--endpoint-num-gpus", "2,1", "--fabric", "tcp", "--step-tokens", "100"),
        (*DISAGG, "--prefill", "2", "--decode", "1", "--endpoint-num-gpus", "1,1,6", "--pd-balance-factor", "0.5"),
        ("--prefill", "0", "--decode", "1", "--tp", "2", "--kv-pages", "52", "--step-tokens", "32"),
    ],
    ids=["1p1d", "tp-2to1-tcp", "2p1d-tp-1to6", "single-tight"],
)
def test_same_bytes_all_in_flight(tmp_path, reference, flags):
    requests, alone = reference
    with serve(tmp_path, *INT8, *flags) as baton:
        workload.check_all_in_flight(baton.url, requests, alone)
        if "0" not in flags:
            assert baton.metric("baton_handoffs_received_total") > 0, "nothing was handed over"
            pages = baton.metric("baton_kv_pages_received_total")
            assert baton.metric("baton_kv_bytes_received_total") == pages * PAGE_BYTES["int8"] > 0
            assert baton.metric("baton_kv_checksum_failures_total") == 0


def test_close_to_bf16(single, reference):
    """Another answer than bf16's, but hardly."""
    requests, int8 = reference
    bf16 = [answer["choices"] for answer in workload.run(single.url, requests, concurrent=False)]
    # Measured: 0.019.
    assert 0 < workload.largest_gap(bf16, int8) < 0.03


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_memory_holds_as_many_pages_as_fit(tmp_path, dtype):
    with serve(tmp_path, "--prefill", "0", "--kv-memory", "8M", "--kv-dtype", dtype) as baton:
        assert baton.metric("baton_kv_pages") == (8 << 20) // PAGE_BYTES[dtype]


def test_engines_with_other_kv_are_refused(tmp_path):
    with ExitStack() as stack:
        bf16 = stack.enter_context(engine(tmp_path)).address
        int8 = stack.enter_context(engine(tmp_path, *INT8)).address
        code, message = refused("router", "--engine", f"{int8}=prefill", "--engine", f"{bf16}=decode")
        assert code == 2 and "has numerics" in message and "kv-int8" in message, message
