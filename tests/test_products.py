"""Other products of quantized weights than floats: the same promise of equal bytes, among engines that all have them."""
import signal
from contextlib import ExitStack

import pytest

import storyteller_gguf
import workload
from deployment import DISAGG, engine, eventually, refused, serve, tries, when_busy

FLOAT, INTEGER, BOTH = (("--products", kind) for kind in ("float", "integer", "both"))
SINGLE = ("--prefill", "0", "--decode", "1")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """With one kind of matrix in Q8_0: enough to make a difference."""
    return str(storyteller_gguf.write(tmp_path_factory.mktemp("gguf") / "storyteller-11m.gguf", "ffn_down.weight"))


@pytest.fixture(scope="module", params=[INTEGER, BOTH], ids=["integer", "both"])
def reference(request, file, tmp_path_factory):
    """A kind of products, and what a single engine does with them that caches nothing."""
    with serve(tmp_path_factory.mktemp("reference"), file, *SINGLE, "--enable-prefix-cache=false", *request.param) as single:
        return request.param, *workload.reference(single)


@pytest.mark.parametrize(
    "flags",
    [
        (*DISAGG, "--prefill", "1", "--decode", "1"),
        (*DISAGG, "--prefill", "1", "--decode", "1", "--endpoint-num-gpus", "2,1", "--step-tokens", "100", "--pd-balance-factor", "0.5"),
        ("--prefill", "0", "--decode", "1", "--tp", "2", "--kv-pages", "52", "--step-tokens", "32"),
    ],
    ids=["1p1d", "tp-2to1", "single-tight"],
)
def test_same_bytes_all_in_flight(tmp_path, file, reference, flags):
    products, requests, alone = reference
    with serve(tmp_path, file, *products, *flags) as baton:
        workload.check_all_in_flight(baton.url, requests, alone)
        if "0" not in flags:
            assert baton.metric("baton_handoffs_received_total") > 0, "nothing was handed over"
        if "52" in flags:
            assert baton.metric("baton_preemptions_total") > 0, "no sequence was preempted"


def test_same_bytes_when_the_decode_engine_dies(tmp_path, file, reference):
    """What it had generated is computed again, as what it is."""
    products, requests, alone = reference
    requests, alone = requests[6:16], alone[6:16]
    for _ in tries():
        with serve(tmp_path, file, *DISAGG, *products) as pair:
            (pid,) = [p for p in pair.engine_pids() if "decode-0" in pair.engine_name(p)]
            killer = when_busy(pair, "baton_generated_tokens_total", pid, signal.SIGKILL)
            answers = workload.run(pair.url, requests, concurrent=True)
            killer.join()
            assert [answer["choices"] for answer in answers] == alone
            eventually(lambda: pair.metric("baton_engine_up") == 2, "the engine came back")
            if pair.metric("baton_resumed_total") > 0:
                return
    pytest.fail("never killed in the middle of an answer")


def test_close_to_float(tmp_path, file, reference):
    """Another answer than with floats, but hardly; and where prompts are floats, the same first token."""
    products, requests, choices = reference
    with serve(tmp_path, file, "--prefill", "0", *FLOAT) as baton:
        float_ = [answer["choices"] for answer in workload.run(baton.url, requests, concurrent=True)]
    assert float_ != choices
    gap = workload.largest_gap(float_, choices)
    # Measured: 0.007.
    assert gap == 0 if products == BOTH else 0 < gap < 0.01


@pytest.mark.parametrize("products, cached", [(None, 160), (INTEGER, 160), (BOTH, 96)], ids=["bf16", "integer", "both"])
def test_the_next_turn(tmp_path, file, products, cached):
    """Its prompt has the answer of the one before in it, whose KV may be used only if a prompt's would be the same."""
    of_model = () if products is None else (file, *products)
    body = dict(model="storyteller-11m", max_tokens=80, ignore_eos=True, temperature=0, logprobs=1)

    def turns(url: str) -> tuple[dict, list]:
        (first,) = workload.run(url, [body | dict(prompt=prompt)], concurrent=False)
        answer = tokens(first["choices"][0]["text"])
        (second,) = workload.run(url, [body | dict(prompt=prompt + answer + prompt[:9])], concurrent=False)
        return second["usage"], second["choices"]

    with ExitStack() as stack:
        kinds = ("--enable-prefix-cache=false",), ("--enable-prefix-cache=true",)
        cold, warm = (stack.enter_context(serve(tmp_path, *of_model, *SINGLE, *kind)) for kind in kinds)
        tokens, prompt = cold.tokens, workload.prompts(cold.tokens)[8]
        (_, expected), (usage, got) = turns(cold.url), turns(warm.url)
    assert got == expected
    assert usage["prompt_tokens_details"]["cached_tokens"] == cached


@pytest.mark.parametrize("other", [INTEGER, BOTH], ids=["integer", "both"])
def test_engines_with_other_products_are_refused(tmp_path, file, other):
    with ExitStack() as stack:
        float_, other = (stack.enter_context(engine(tmp_path, *kind, model=file)).address for kind in (FLOAT, other))
        code, message = refused("router", "--engine", f"{other}=prefill", "--engine", f"{float_}=decode")
        assert code == 2 and "has numerics" in message and "int14" in message and "--products" in message, message
