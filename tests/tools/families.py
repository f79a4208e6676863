"""Compares both backends of `lumos complete` with the reference folders of transformers; see families.sh."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

ENGINE = ["llama-mha", "llama-gqa-tied", "llama3-rope"]
FAMILIES = ["gemma2", "gemma3", "granite", "mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen2-yarn", "qwen3", "qwen3-moe"]
# What candle-transformers computes differently: the field that its error names.
REFUSED = {"granite": "embedding_multiplier", "qwen2-yarn": "rope_type", "mistral": "sliding_window", "gemma2": "sliding_window"}
# Windows of these do not matter in sequences of this length.
WINDOW = 48
NEW_TOKENS = 48
TOLERANCE = 1e-3


class Refused(Exception):
    """The program rejected the model."""


def complete(lumos, folder, cases, backend, concurrency, limit):
    """Completes all prompts and returns the objects that the program prints."""
    command = [lumos, "complete", "--model", f"candle:{folder}", "--jsonl", "--backend", backend]
    command += ["--concurrency", str(concurrency), "--max-new-tokens", str(NEW_TOKENS), "--ignore-eos", "--stop", ""]
    command += ["--logits", "1024"]
    if backend == "native":
        command += ["--batch-size", "16"]
    if limit:
        command += ["--max-sequence-length", str(limit)]
    prompts = "".join(json.dumps({"prompt": case["prompt"]}) + "\n" for case in cases)
    done = subprocess.run(command, input=prompts, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode == 2:
        raise Refused(done.stderr.strip())
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    found = [json.loads(line) for line in done.stdout.split("\n") if line]
    for one in found:
        # Depends on what was computed before.
        one["usage"].pop("cached_tokens")
    return found


def compare(case, found, limit):
    """Returns the first difference from the reference, or None, and the largest error of a logit."""
    if found["prompt_tokens"] != case["ids"]:
        return "prompt ids", 0.0
    length = min(NEW_TOKENS, limit - len(case["ids"])) if limit else NEW_TOKENS
    if len(found["tokens"]) != length:
        return f"{len(found['tokens'])} tokens instead of {length}", 0.0
    safe = min(case["safe_tokens"], length)
    if found["tokens"][:safe] != case["greedy"][:safe]:
        return "greedy tokens", 0.0
    logits = dict(map(tuple, found["logits"]))
    error = max(abs(logits[token] - logit) for token, logit in case["first_top8"])
    return (None if error < TOLERANCE else f"a logit differs by {error:.1e}"), error


def check(lumos, folder, backend, limit=None):
    """Checks one folder and returns whether it is as expected."""
    with gzip.open(folder / "cases.jsonl.gz", "rt", encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    if limit:
        cases = [case for case in cases if len(case["ids"]) < limit]
    label = f"{folder.name:16} {backend:20}"
    expected = REFUSED.get(folder.name) if backend != "native" and not limit else None
    try:
        alone = complete(lumos, folder, cases, backend, 1, limit)
    except Refused as refused:
        if expected and expected in str(refused) and "config.json" in str(refused):
            print(f"{label} refused by name: {expected}")
            return True
        print(f"{label} REFUSED: {refused}")
        return False
    if expected:
        print(f"{label} NOT REFUSED: expected an error with {expected}")
        return False
    problems, largest = [], 0.0
    for index, (case, found) in enumerate(zip(cases, alone, strict=True)):
        problem, error = compare(case, found, limit)
        largest = max(largest, error)
        if problem:
            problems.append(f"case {index}: {problem}")
    if complete(lumos, folder, cases, backend, 16, limit) != alone:
        problems.append("results with 16 prompts in progress differ")
    note = f", at most {limit} tokens" if limit else ""
    print(f"{label} {len(cases)} cases{note}, largest error of a logit {largest:.1e}: {'; '.join(problems) or 'equal'}")
    return not problems


def main():
    """Checks all folders with the given backend, or with both."""
    lumos = sys.argv[1] if len(sys.argv) > 1 else "target/debug/lumos"
    backends = sys.argv[2:] or ["native", "candle-transformers"]
    shared = os.environ.get("LUMOS_SHARED")
    if not shared:
        raise SystemExit("LUMOS_SHARED is not set: it names the folder with golden/engine and golden/families")
    golden = Path(shared) / "golden"
    folders = [golden / "engine" / name for name in ENGINE] + [golden / "families" / name for name in FAMILIES]
    results = [check(lumos, folder, backend) for backend in backends for folder in folders]
    if "candle-transformers" in backends:
        short = [folder for folder in folders if REFUSED.get(folder.name) == "sliding_window"]
        results += [check(lumos, folder, "candle-transformers", WINDOW) for folder in short]
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
