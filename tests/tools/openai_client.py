"""Checks `lumos serve-model` with OpenAI's Python package: models, completions, chats, streams, errors and API keys.

    tests/tools/openai-client.sh [path of lumos]
"""

import json
import os
import signal
import subprocess
import sys

import openai

KEY = "sk-local-0123456789"
PROMPT = "<|user|>\nTask: Ann has 3 apples and buys 4 more. How many apples does she have?\n<|assistant|>\n"
CHAT = [{"role": "user", "content": "Ann has 3 apples."}]
checks = 0


def check(condition, *shown):
    global checks
    checks += 1
    assert condition, shown


def refused(kind, call, **expected):
    try:
        call()
    except kind as error:
        for name, value in expected.items():
            check(getattr(error, name) == value, name, getattr(error, name), error.body)
        return
    raise AssertionError(f"expected {kind.__name__}")


def in_process(lumos, prompt, tokens):
    """Returns the completion of the engine in a separate process."""
    command = [lumos, "complete", "--model", "builtin:tiny", "--jsonl", "--stop", "", "--max-new-tokens", str(tokens)]
    done = subprocess.run(command, input=json.dumps({"prompt": prompt}), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def completions(client, lumos):
    arguments = dict(model="tiny-planner-iterative", prompt=PROMPT, max_tokens=32, temperature=0)
    whole = client.completions.create(**arguments)
    engine = in_process(lumos, PROMPT, 32)
    check(whole.choices[0].text == engine["text"], whole, engine)
    check(whole.usage.prompt_tokens == engine["usage"]["prompt_tokens"], whole.usage)
    check(whole.usage.completion_tokens == engine["usage"]["completion_tokens"], whole.usage)
    again = client.completions.create(**arguments)
    check(again.usage.prompt_tokens_details.cached_tokens > 0, again.usage)
    ids = client.completions.create(**{**arguments, "prompt": engine["prompt_tokens"]})
    check(ids.choices[0].text == engine["text"], ids)
    many = client.completions.create(**{**arguments, "prompt": [PROMPT, "Two"]})
    check([choice.index for choice in many.choices] == [0, 1] and many.choices[0].text == engine["text"], many)
    pieces = list(client.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    check("".join(piece.choices[0].text for piece in pieces if piece.choices) == engine["text"], pieces)
    check(pieces[-1].usage.completion_tokens == engine["usage"]["completion_tokens"], pieces[-1])
    check(pieces[-2].choices[0].finish_reason in ("stop", "length"), pieces[-2])
    stop = engine["text"][4]
    stopped = client.completions.create(**arguments, stop=["never there", stop])
    check(stopped.choices[0].text == engine["text"].split(stop)[0], stopped)
    seeded = [client.completions.create(**{**arguments, "temperature": 1.0}, seed=5).choices[0].text for _ in range(2)]
    check(seeded[0] == seeded[1], seeded)
    bytes_ = client.completions.create(**{**arguments, "prompt": "é 漢字 🙂"}, stream=True)
    check(all("\ufffd" not in piece.choices[0].text or piece.choices[0].finish_reason for piece in bytes_))


def chats(client):
    arguments = dict(model="tiny-planner-iterative", messages=CHAT, max_completion_tokens=24, temperature=0)
    whole = client.chat.completions.create(**arguments)
    check(whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens > 0, whole)
    pieces = list(client.chat.completions.create(**arguments, stream=True))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    check(text == whole.choices[0].message.content, text, whole)
    check(pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason, pieces[-1])
    with client.chat.completions.stream(**arguments) as stream:
        check("".join(event.delta for event in stream if event.type == "content.delta") == text)
    # A reply is accepted as a message of the next request.
    longer = CHAT + [whole.choices[0].message.model_dump(), {"role": "user", "content": "And then?"}]
    check(client.chat.completions.create(**{**arguments, "messages": longer}).usage.prompt_tokens > 0)


def errors(client):
    create = client.completions.create
    model = "tiny-grounder"
    refused(openai.NotFoundError, lambda: create(model="gpt-4", prompt="a"), code="model_not_found", param="model")
    too_long = lambda: create(model=model, prompt=[3] * 2000)
    refused(openai.BadRequestError, too_long, code="context_length_exceeded", type="invalid_request_error")
    refused(openai.BadRequestError, lambda: create(model=model, prompt="a", n=2), param="n")
    refused(openai.BadRequestError, lambda: create(model=model, prompt="a", echo=True), param="echo")
    refused(openai.BadRequestError, lambda: create(model=model, prompt="a", logprobs=3), param="logprobs")
    refused(openai.BadRequestError, lambda: create(model=model, prompt="a", temperature=5), param="temperature")
    refused(openai.BadRequestError, lambda: create(model=model, prompt="a", extra_body={"min_p": 1}), param="min_p")
    chat = client.chat.completions.create
    refused(openai.BadRequestError, lambda: chat(model=model, messages=[]), param="messages")
    tools = [{"type": "function", "function": {"name": "f"}}]
    refused(openai.BadRequestError, lambda: chat(model=model, messages=CHAT, tools=tools), param="tools")
    refused(openai.APIStatusError, lambda: create(model=model, prompt="x" * (9 << 20)), status_code=413)
    refused(openai.NotFoundError, lambda: client.embeddings.create(model=model, input="a"))
    stranger = client.with_options(api_key="wrong")
    refused(openai.AuthenticationError, lambda: stranger.models.list(), code="invalid_api_key")


def main():
    lumos = sys.argv[1]
    environment = {**os.environ, "LUMOS_API_KEY": KEY}
    command = [lumos, "serve-model", "--model", "builtin:tiny", "--listen", "127.0.0.1:0", "--threads", "1"]
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        address = next(line.split()[2].rstrip(";") for line in server.stderr if line.startswith("listening on "))
        client = openai.OpenAI(base_url=address, api_key=KEY, max_retries=0)
        names = [model.id for model in client.models.list()]
        check(names == ["tiny-planner-iterative", "tiny-planner-onetime", "tiny-grounder"], names)
        check(client.models.retrieve("tiny-grounder").id == "tiny-grounder")
        completions(client, lumos)
        chats(client)
        errors(client)
        # After the first Ctrl-C, pending requests are completed.
        long = dict(model=names[0], prompt=PROMPT, max_tokens=600, extra_body={"ignore_eos": True}, stream=True)
        pieces = client.completions.create(**long)
        next(iter(pieces))
        server.send_signal(signal.SIGINT)
        check([piece.choices[0].finish_reason for piece in pieces][-1] == "length")
        check(server.wait(timeout=20) == 0)
    finally:
        server.kill()
    print(f"openai {openai.__version__}: {checks} checks passed")


main()
