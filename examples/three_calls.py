"""A prompt computed on one engine and continued on another, by three plain HTTP calls.

    BATON_SECRET=… python3 three_calls.py http://PREFILL http://DECODE "Once upon a time"
"""
import json
import os
import sys
import urllib.request
import uuid


def call(engine: str, name: str, body: dict) -> dict:
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('BATON_SECRET', '')}"}
    request = urllib.request.Request(f"{engine}/microserving/{name}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


prefill, decode, prompt = sys.argv[1:4]
request = {"prompt": prompt, "max_tokens": 64, "temperature": 0, "user": f"request-{uuid.uuid4()}"}
end = -1  # all but the last token of the prompt

# D makes room for the KV of prompt[:end], less what it has cached, and says where that is.
reserved = call(decode, "prep_recv", request | {"end": end})
# P computes the prompt and hands its KV to D. D keeps what it has; begin = 0 is right in any case.
where = {"kv_addr_info": reserved["kv_append_metadata"], "recv_rank": 1}
call(prefill, "remote_send", request | {"begin": 0, "end": end} | where)
# D computes the rest and decodes.
answer = call(decode, "start_generate", request | {"begin": end})
print(answer["choices"][0]["text"])
