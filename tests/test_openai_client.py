"""The official `openai` package, used as its users do."""
import asyncio

import openai
import pytest

from deployment import eventually

STORY = [{"role": "user", "content": "Tell me a story about a brave cat."}]
MODEL = "storyteller-11m"


@pytest.fixture(scope="module")
def client(baton):
    with openai.OpenAI(base_url=f"{baton.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_chat_is_a_story(client):
    answer = client.chat.completions.create(model=MODEL, messages=STORY, seed=1)
    text = answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert len(text.split()) > 40 and "cat" in text.lower()
    assert "<|im" not in text, "markup of the template must not leak"
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 256


def test_chat_stream_equals_chat(client):
    options = dict(model=MODEL, messages=STORY, seed=3, temperature=1.0, max_tokens=60)
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert len({chunk.id for chunk in chunks}) == 1


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=STORY, temperature=0, max_tokens=8, logprobs=True, top_logprobs=3
    )
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 8
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the most likely"
        assert entry.logprob == entry.top_logprobs[0].logprob <= 0
    assert b"".join(bytes(e.bytes) for e in entries).decode() == answer.choices[0].message.content


def test_content_parts_are_joined(client):
    parts = [{"type": "text", "text": "Tell me a story "}, {"type": "text", "text": "about a brave cat."}]
    joined = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": parts}], temperature=0, max_tokens=20
    )
    plain = client.chat.completions.create(model=MODEL, messages=STORY, temperature=0, max_tokens=20)
    assert joined.choices[0].message.content == plain.choices[0].message.content


def test_completion_and_stream(client):
    options = dict(model=MODEL, prompt="Once upon a time", temperature=0, max_tokens=24)
    whole = client.completions.create(**options)
    assert whole.usage.completion_tokens == 24 and whole.choices[0].finish_reason == "length"
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert client.completions.create(model=MODEL, prompt="Once", temperature=0).usage.completion_tokens == 16


def test_completion_prompts_and_choices(client, baton):
    ids = baton.tokens("Once upon a time")
    greedy = dict(model=MODEL, temperature=0, max_tokens=12)
    text = client.completions.create(prompt="Once upon a time", **greedy).choices[0].text
    assert client.completions.create(prompt=ids, **greedy).choices[0].text == text
    both = client.completions.create(prompt=["Once upon a time", "The dog"], n=2, **greedy)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.choices[0].text == both.choices[1].text == text
    lists = client.completions.create(prompt=[ids, baton.tokens("The dog")], **greedy)
    assert [choice.text for choice in lists.choices] == [both.choices[0].text, both.choices[2].text]


def test_echo_with_logprobs(client, baton):
    answer = client.completions.create(
        model=MODEL, prompt="Once upon a time", echo=True, logprobs=1, max_tokens=3, temperature=0
    )
    choice = answer.choices[0]
    assert choice.text.startswith("Once upon a time")
    prompt_tokens = len(baton.tokens("Once upon a time"))
    assert answer.usage.prompt_tokens == prompt_tokens
    assert len(choice.logprobs.tokens) == prompt_tokens + 3
    assert choice.logprobs.token_logprobs[0] is None and all(p <= 0 for p in choice.logprobs.token_logprobs[1:])
    scored = client.completions.create(model=MODEL, prompt="Once upon a time", echo=True, logprobs=1, max_tokens=0)
    assert scored.choices[0].logprobs.token_logprobs == choice.logprobs.token_logprobs[:prompt_tokens]


def test_echo_offsets_point_into_the_text(client):
    text = "<|im_start|>user cat"
    choice = client.completions.create(model=MODEL, prompt=text, echo=True, logprobs=1, max_tokens=2).choices[0]
    begins = choice.logprobs.text_offset
    assert begins[:2] == [0, len("<|im_start|>")]
    assert all(choice.text[at:].startswith(token) for at, token in zip(begins, choice.logprobs.tokens))


def test_min_tokens_raises_the_default_length(client):
    answer = client.completions.create(model=MODEL, prompt="Once", extra_body=dict(min_tokens=20))
    assert answer.usage.completion_tokens == 20


def test_stop_strings_across_token_borders(client):
    options = dict(model=MODEL, prompt="Once upon a time", temperature=0, max_tokens=60)
    text = client.completions.create(**options).choices[0].text
    for begin in (7, 19, 40):
        stop = text[begin : begin + 9]
        for stream in (False, True):
            answer = client.completions.create(**options, stop=[stop, "never there"], stream=stream)
            choices = [chunk.choices[0] for chunk in answer] if stream else [answer.choices[0]]
            assert "".join(choice.text for choice in choices) == text[: text.index(stop)]
            assert choices[-1].finish_reason == "stop"


def test_sampling_fields_change_the_answer(client):
    options = dict(model=MODEL, prompt="Once upon a time there was a", max_tokens=40, seed=11, temperature=1.0)
    plain = client.completions.create(**options).choices[0].text
    for change in (
        dict(seed=12),
        dict(temperature=0.0),
        dict(frequency_penalty=2.0),
        dict(presence_penalty=2.0),
        dict(extra_body=dict(repetition_penalty=1.8)),
        dict(extra_body=dict(top_k=1)),
        dict(top_p=0.05),
        dict(extra_body=dict(min_p=0.9)),
    ):
        assert client.completions.create(**{**options, **change}).choices[0].text != plain, change
    assert client.completions.create(**options).choices[0].text == plain


def test_a_stop_string_ends_its_choice_alone(client, baton):
    options = dict(model=MODEL, prompt="Once upon a time", temperature=1, seed=5, n=2, max_tokens=300)
    unstopped = client.completions.create(**options, extra_body=dict(ignore_eos=True))
    first, second = (choice.text for choice in unstopped.choices)
    stop = next(first[at : at + 8] for at in range(20, len(first)) if first[at : at + 8] not in second)
    before = baton.metric("baton_generated_tokens_total")
    answer = client.completions.create(**options, stop=stop, extra_body=dict(ignore_eos=True))
    assert answer.choices[0].text == first[: first.index(stop)] and answer.choices[1].text == second
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "length"]
    generated = baton.metric("baton_generated_tokens_total") - before
    assert generated < answer.usage.completion_tokens + 50, "the engine went on with the choice that had ended"


def test_logit_bias_min_tokens_and_stop_ids(client, baton):
    (banana,) = baton.tokens("!")[:1]
    answer = client.completions.create(model=MODEL, prompt="Hello", max_tokens=5, logit_bias={str(banana): 100})
    assert answer.choices[0].text == "!" * 5
    stopped = client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=5, logit_bias={str(banana): 100}, extra_body=dict(stop_token_ids=[banana])
    )
    assert stopped.choices[0].finish_reason == "stop" and stopped.usage.completion_tokens == 1
    longer = client.completions.create(
        model=MODEL, prompt="Hello", max_tokens=5, logit_bias={str(banana): 90},
        extra_body=dict(stop_token_ids=[banana], min_tokens=3),
    )
    assert longer.usage.completion_tokens >= 4


def test_async_many_at_once(baton):
    async def main():
        async with openai.AsyncOpenAI(base_url=f"{baton.url}/v1", api_key="none", max_retries=0) as client:
            async def one(seed):
                stream = await client.chat.completions.create(
                    model=MODEL, messages=STORY, seed=seed, max_tokens=30, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            first = await asyncio.gather(*(one(seed) for seed in range(12)))
            again = await asyncio.gather(*(one(seed) for seed in range(12)))
            return first, again

    first, again = asyncio.run(main())
    assert first == again and len(set(first)) > 6


@pytest.mark.parametrize(
    "change, kind, param",
    [
        (dict(model="gpt-4"), openai.NotFoundError, "model"),
        (dict(temperature=9), openai.BadRequestError, "temperature"),
        (dict(messages=[]), openai.BadRequestError, "messages"),
        (dict(messages=[{"role": "user", "content": "cat " * 3000}]), openai.BadRequestError, "messages"),
    ],
)
def test_error_classes(client, change, kind, param):
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{**dict(model=MODEL, messages=STORY), **change})
    assert caught.value.param == param and caught.value.type == "invalid_request_error"


def test_a_client_that_hangs_up_frees_the_engine(client, baton):
    aborted = baton.metric("baton_aborted_total")
    # Long enough to be given up in the middle.
    options = dict(model=MODEL, prompt="Once", n=8, max_tokens=2000, extra_body=dict(ignore_eos=True))
    stream = client.completions.create(**options, stream=True)
    next(iter(stream))
    stream.close()
    eventually(lambda: baton.metric("baton_aborted_total") > aborted, "a stream is aborted")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).completions.create(**options)
    eventually(lambda: baton.metric("baton_aborted_total") > aborted + 1, "an answer is aborted")
    eventually(lambda: baton.metric("baton_requests_running") == 0, "nothing runs")
    assert client.completions.create(model=MODEL, prompt="Once").usage.completion_tokens == 16
