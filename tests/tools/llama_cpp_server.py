"""Compares runs on llama.cpp's server (`openai:…`) with in-process runs (`builtin:tiny`) with the same weights.

    tests/tools/llama-cpp-server.sh [path of lumos] [items per benchmark]

The built-in planner and grounder are written as GGUF with their vocabulary, once in float32 with a float32 cache, and
once in their stored type (float16) with llama.cpp's default cache (float16). Both formulations of GSM8K and SVAMP run
on the built-in samples, once with both models on the server and once with only the grounder there. Replies and token
counts of an episode are compared up to the first difference, because later replies have different prompts.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = ROOT / "models/assets/tiny"
# GGML's number for float32.
CACHE_F32 = "0"


class Server:
    def __init__(self, gguf, alias, float32):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "llama_cpp.server", "--model", str(gguf), "--model_alias", alias]
        command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "1024", "--verbose", "false"]
        command += ["--n_threads", "1", "--n_threads_batch", "1"]
        if float32:
            command += ["--type_k", CACHE_F32, "--type_v", CACHE_F32]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}/v1"
        self.name = f"openai:{alias}@{self.url}"
        for _ in range(600):
            assert self.process.poll() is None, "failed to start the server"
            try:
                urllib.request.urlopen(f"{self.url}/models", timeout=1).read()
                return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("timed out waiting for the server")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def samples(lumos, folder, name, formulation, planner, grounder, limit):
    """Runs lumos. Returns the replies of models and the status, by benchmark and item."""
    command = [lumos, "run", "--tasks", "gsm8k,svamp", "--formulation", formulation, "--limit", str(limit), "-q"]
    command += ["--planner", planner, "--grounder", grounder, "--output-path", str(folder), "--name", name]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LUMOS_", "OPENAI_"))}
    environment["LUMOS_OPENAI_CONCURRENCY"] = "1"
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {}
    for path in sorted((folder / name).glob("samples_*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            steps = [step for step in json.loads(row["trajectory"]) if step["step"] == "generate"]
            rows[row["task"], row["doc_id"]] = ([(s["prompt"], s["reply"], s["prompt_tokens"]) for s in steps], row["status"])
    return rows


def compare(kind, here, there):
    assert here.keys() == there.keys()
    replies = equal = items = counts = 0
    for key, (ours, status) in here.items():
        theirs, their_status = there[key]
        for (prompt, reply, tokens), (their_prompt, their_reply, their_tokens) in zip(ours, theirs):
            assert prompt == their_prompt, key
            replies += 1
            equal += reply == their_reply
            counts += tokens == their_tokens
            if reply != their_reply:
                print(f"  {key}: {reply!r} in process, {their_reply!r} on the server")
                break
        items += [reply for _, reply, _ in ours] == [reply for _, reply, _ in theirs] and status == their_status
    print(f"{kind}: {equal} of {replies} replies equal, {items} of {len(here)} items, {counts} prompts of equal length")
    return items == len(here)


def main():
    lumos, limit = sys.argv[1], int(sys.argv[2])
    exact = True
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for formulation in ("iterative", "onetime"):
            here = samples(lumos, folder, f"{formulation}-here", formulation, "builtin:tiny", "builtin:tiny", limit)
            for float32 in (True, False):
                kind = "float32" if float32 else "float16"
                files = {}
                for role in ("planner", "grounder"):
                    files[role] = folder / f"{role}-{kind}.gguf"
                    model = folder / f"{role}-{formulation}-{kind}"
                    shutil.copytree(TINY / "maths", model)
                    if (role, formulation) == ("planner", "onetime"):
                        (model / "tokenizer-onetime.json").replace(model / "tokenizer.json")
                    command = [sys.executable, str(ROOT / "benches/peers/to_gguf.py"), str(model), str(files[role])]
                    subprocess.run(command + ["--float32"] * float32, check=True)
                serve = lambda role: Server(files[role], role, float32)
                with serve("planner") as planner, serve("grounder") as grounder:
                    for who, names in (
                        ("both there", (planner.name, grounder.name)),
                        ("planner here, grounder there", ("builtin:tiny", grounder.name)),
                    ):
                        name = f"{formulation}-{kind}-{who}".replace(" ", "-").replace(",", "")
                        there = samples(lumos, folder, name, formulation, *names, limit)
                        equal = compare(f"{formulation}, {kind}, {who}", here, there)
                        exact &= equal or not float32
    sys.exit(0 if exact else 1)


main()
