"""Where requests are sent: to what engines have cached, and where a user was served before."""
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import workload
from deployment import eventually, serve

PAGE_TOKENS = 32
MODEL = "storyteller-11m"


def complete(baton, prompt: list[int], **fields) -> dict:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True} | fields
    status, answer = baton.call("/v1/completions", body)
    assert status == 200, answer
    return answer


def cached_tokens(answer: dict) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def finished(baton) -> dict[str, float]:
    return {sample.labels["engine"]: sample.value for sample in baton.samples("baton_finished_total")}


def conversations(baton) -> list[list[int]]:
    text = workload.SENTENCES
    return [baton.tokens(" ".join(text[at:] + text[:at])) * 2 for at in range(3)]


def expected_and_found(baton) -> tuple[float, float]:
    names = ["baton_router_cached_tokens_expected_total", "baton_router_cached_tokens_found_total"]
    return tuple(baton.metric(name) for name in names)


def test_prompts_go_where_they_are_cached(tmp_path, single):
    with serve(tmp_path, "--prefill", "0", "--decode", "3", "--router-mode", "prefix-aware") as baton:
        prompts = conversations(baton)
        # Three at once have no reason to share an engine; they take long enough to be there at the same time.
        with ThreadPoolExecutor() as threads:
            first = list(threads.map(lambda prompt: complete(baton, prompt, max_tokens=200), prompts))
        assert all(count > 1 for count in finished(baton).values()), "one each was the readiness probe"
        before, (expected_before, found_before) = first, expected_and_found(baton)

        reused = 0
        for turn in range(4):
            # In another order each time, which taking turns would not meet.
            for conversation in [0, 1, 2] if turn % 2 else [1, 0, 2]:
                answer = before[conversation]
                prompt, follow_up = prompts[conversation], f"{answer['choices'][0]['text']} And then turn {turn} came."
                longer = prompt + baton.tokens(follow_up)
                before[conversation] = answer = complete(baton, longer)
                assert cached_tokens(answer) >= (len(prompt) - 1) // PAGE_TOKENS * PAGE_TOKENS, (turn, conversation)
                assert answer["choices"] == complete(single, longer)["choices"]
                reused += cached_tokens(answer)
                prompts[conversation] = longer
        expected, found = expected_and_found(baton)
        assert (expected - expected_before, found - found_before) == (reused, reused)

        # An engine that starts again has nothing, and its router does not expect anything of it.
        restarts = baton.metric("baton_engine_restarts_total")
        os.kill(baton.engine_pids()[0], signal.SIGKILL)
        eventually(lambda: baton.metric("baton_engine_restarts_total") > restarts, "it is started again")
        eventually(lambda: all(sample.value for sample in baton.samples("baton_engine_up")), "it is ready")
        answers = [complete(baton, prompt) for _ in range(2) for prompt in prompts]
        assert all(cached_tokens(answer) > 0 for answer in answers[3:])
        assert sum(cached_tokens(answer) == 0 for answer in answers[:3]) <= 1
        expected, found = expected_and_found(baton)
        assert expected == found
        assert baton.metric("baton_router_cache_event_gaps_total") == 0


def test_a_user_stays_on_an_engine(tmp_path):
    with serve(tmp_path, "--prefill", "0", "--decode", "3", "--router-mode", "session-affinity") as baton:
        prompt = baton.tokens(workload.SENTENCES[0])

        def engine_of(**fields) -> str:
            before = finished(baton)
            complete(baton, prompt, **fields)
            after = eventually(lambda: (now := finished(baton)) != before and now, "it is reported")
            return next(engine for engine in after if after[engine] > before[engine])

        users = [f"user-{number}" for number in range(12)]
        homes = {user: engine_of(user=user) for user in users}
        assert len(set(homes.values())) == 3, homes
        assert {user: engine_of(user=user) for user in reversed(users)} == homes
        assert engine_of(prompt_cache_key="user-0", user="another") == homes["user-0"]
