"""Twenty prompts of 1 to 1500 tokens, and a way to run them all at once or one at a time."""
import asyncio
import random
from math import exp

import httpx

LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 100, 127, 128, 200, 255, 256, 257, 400, 511, 777, 1024, 1500]
OUTPUT_TOKENS = 64

SENTENCES = """Once upon a time there was a little girl named Lily who lived near a big forest.
One day she found a small red boat under the old bridge and asked her mom if she could keep it.
The cat looked at the moon and said that it wanted to fly over the tall trees.
Tom was sad because his friend had lost the blue ball in the deep water.
They walked together to the park, and the sun was warm and the birds sang a happy song.
"Do not be afraid," said the wise owl, "I will help you find your way home."
The bear shared his honey with the rabbit, and they were best friends from that day on.
Her grandma baked a cake with apples, and everybody wanted a second piece.
It started to rain, so they ran into the cave and waited until the storm was over.
At the end of the day they were tired but very happy, and they went to sleep.""".split("\n")


def prompts(tokenize) -> list[list[int]]:
    """Every third prompt starts like the one before it, so that prefixes are shared across page borders."""
    rng = random.Random(7)
    found: list[list[int]] = []
    for index, length in enumerate(LENGTHS):
        ids = list(found[-1]) if index % 3 == 2 else []
        while len(ids) < length:
            ids += tokenize(" ".join(rng.sample(SENTENCES, 5)))
        found.append(ids[:length])
    return found


def bodies(prompt_ids: list[list[int]]) -> list[dict]:
    """Greedy, and seeded sampling with two choices, in turn; log-probabilities show a flipped bit that the text would hide."""
    common = dict(model="storyteller-11m", max_tokens=OUTPUT_TOKENS, ignore_eos=True, logprobs=2)
    sampled = dict(temperature=1.0, top_p=1.0, n=2)
    return [
        common | dict(prompt=ids) | (dict(temperature=0.0) if i % 2 == 0 else sampled | dict(seed=1000 + i))
        for i, ids in enumerate(prompt_ids)
    ]


async def _run(url: str, requests: list[dict], order: list[int], concurrent: bool) -> list[dict]:
    answers: list[dict] = [{} for _ in requests]
    async with httpx.AsyncClient(timeout=240, limits=httpx.Limits(max_connections=None)) as client:

        async def one(index: int):
            answer = await client.post(f"{url}/v1/completions", json=requests[index])
            assert answer.status_code == 200, answer.text
            answers[index] = answer.json()

        if concurrent:
            await asyncio.gather(*(one(index) for index in order))
        else:
            for index in order:
                await one(index)
    return answers


def run(url: str, requests: list[dict], *, concurrent: bool, arrival_seed: int = 0) -> list[dict]:
    order = list(range(len(requests)))
    random.Random(arrival_seed).shuffle(order)
    return asyncio.run(_run(url, requests, order, concurrent))


def reference(single) -> tuple[list[dict], list]:
    """Requests, and what a single engine chooses, one at a time."""
    requests = bodies(prompts(single.tokens))
    return requests, [answer["choices"] for answer in run(single.url, requests, concurrent=False)]


def check_all_in_flight(url: str, requests: list[dict], alone: list, runs: int = 2) -> None:
    """The same choices, twice: the second run finds a warm cache."""
    for number in range(runs):
        for index, answer in enumerate(run(url, requests, concurrent=True, arrival_seed=number)):
            assert answer["choices"] == alone[index], f"prompt of {LENGTHS[index]} tokens, run {number}"


def largest_gap(one: list, other: list) -> float:
    """Between probabilities of the first tokens, which both chose after the same prompt."""
    first = [[choices[0]["logprobs"]["top_logprobs"][0] for choices in answers] for answers in (one, other)]
    gaps = [abs(exp(one[token]) - exp(two[token])) for one, two in zip(*first) for token in one if token in two]
    assert len(gaps) >= len(one)
    return max(gaps)
