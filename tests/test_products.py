"""Products of whole numbers: the same promise of equal bytes, among engines that all have them."""
from contextlib import ExitStack

import pytest

import storyteller_gguf
import workload
from deployment import engine, refused, serve

INTEGER = ("--products", "integer")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """With one kind of matrix in Q8_0: enough to make a difference."""
    return str(storyteller_gguf.write(tmp_path_factory.mktemp("gguf") / "storyteller-11m.gguf", "ffn_down.weight"))


@pytest.fixture(scope="module")
def reference(file, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("integer"), file, "--prefill", "0", "--enable-prefix-cache=false", *INTEGER) as single:
        return workload.reference(single)


@pytest.mark.parametrize(
    "flags",
    [
        ("--prefill", "1", "--decode", "1"),
        ("--prefill", "1", "--decode", "1", "--endpoint-num-gpus", "2,1", "--step-tokens", "100", "--pd-balance-factor", "0.5"),
        ("--prefill", "0", "--decode", "1", "--tp", "2", "--kv-pages", "52", "--step-tokens", "32"),
    ],
    ids=["1p1d", "tp-2to1", "single-tight"],
)
def test_same_bytes_all_in_flight(tmp_path, file, reference, flags):
    requests, alone = reference
    with serve(tmp_path, file, *INTEGER, *flags) as baton:
        workload.check_all_in_flight(baton.url, requests, alone)
        if "0" not in flags:
            assert baton.metric("baton_handoffs_received_total") > 0, "nothing was handed over"


def test_close_to_float(tmp_path, file, reference):
    """Another answer than with floats, but hardly."""
    requests, integer = reference
    with serve(tmp_path, file, "--prefill", "0", "--products", "float") as baton:
        float_ = [answer["choices"] for answer in workload.run(baton.url, requests, concurrent=True)]
    # Measured: 0.007.
    assert 0 < workload.largest_gap(float_, integer) < 0.01


def test_engines_with_other_products_are_refused(tmp_path, file):
    with ExitStack() as stack:
        kinds = ("--products", "float"), INTEGER
        float_, integer = (stack.enter_context(engine(tmp_path, *kind, model=file)).address for kind in kinds)
        code, message = refused("router", "--engine", f"{integer}=prefill", "--engine", f"{float_}=decode")
        assert code == 2 and "has numerics" in message and "int14" in message and "--products" in message, message
