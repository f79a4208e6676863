"""Trains a model for mathematics, on the tokens of its replies only: planner of both formulations, grounder, or both in one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from lumos_tiny import gsm8k, mawps
from lumos_tiny.copying import with_copying
from lumos_tiny.examples import SHARES, Example, conversation, encode
from lumos_tiny.export import load, save
from lumos_tiny.generator import stream
from lumos_tiny.initial import ROPE_THETA, copied_share, grown, write_copying_circuit
from lumos_tiny.loop import Schedule, fit
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.packed import compiled, packs
from lumos_tiny.sources import Names, held_back, varied
from lumos_tiny.story import Problem
from lumos_tiny.tokens import train_tokenizer


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=SHARES, default="both", help="conversations to train on")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--init", type=Path, help="folder of a model to start from")
    parser.add_argument("--grow", type=int, default=0, help="with --init: layers to add, which change nothing at first")
    parser.add_argument("--gsm8k", type=Path, help="GSM8K's train.jsonl")
    parser.add_argument("--mawps", type=Path, help="MAWPS as a CSV file of the SVAMP repository")
    parser.add_argument("--leave-out", type=Path, help="questions of these that are not learned, as overlap.py writes them")
    parser.add_argument("--shares", type=float, nargs=2, default=(0.45, 0.15), help="shares of the problems that are from GSM8K and MAWPS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True, help="length of the schedule, in batches")
    parser.add_argument("--minutes", type=float, help="end the schedule early after this time; the run can then not be repeated exactly")
    parser.add_argument("--hold", type=float, default=0.0, help="share of the schedule at the peak learning rate, before the decay")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens per batch")
    parser.add_argument("--packed", type=float, default=0.25, help="share of the tokens that may be learned")
    parser.add_argument("--copying", type=float, default=0.0, help="share of random sequences to copy from, beside the conversations")
    parser.add_argument("--muon", action="store_true", help="train the matrices of the layers with Muon instead of AdamW")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--vocab", type=int, default=2048, help="entries of the tokenizer without numbers and constants")
    parser.add_argument("--hidden", type=int, default=160, help="hidden size, in heads of 32")
    parser.add_argument("--ffn", type=int, default=416, help="feed-forward size")
    parser.add_argument("--layers", type=int, default=5)
    return parser.parse_args()


def written(args: argparse.Namespace) -> list[tuple[list[Problem], float]]:
    """Returns the problems of each data set that may be learned, with their share."""
    left_out = set(json.loads(args.leave_out.read_text())) if args.leave_out else set()
    sets = []
    for name, read, path, share in (("GSM8K", gsm8k.load, args.gsm8k, args.shares[0]), ("MAWPS", mawps.load, args.mawps, args.shares[1])):
        problems = [p for p in read(path) if not held_back(p.question) and p.question not in left_out] if path else []
        print(f"{len(problems)} problems of {name}", flush=True)
        if problems:
            sets.append((problems, share))
    return sets


def mixed(generated: Iterator[Problem], sets: list[tuple[list[Problem], float]], r: Random) -> Iterator[Problem]:
    """Yields generated problems, and problems of the data sets with other numbers, names and things."""
    draws: list[Callable[[], Problem]] = [partial(next, generated)]
    shares = [1 - sum(share for _, share in sets)]
    short = [problem for problems, _ in sets for problem in problems if len(problem.formulas) == 1]
    for problems, share in sets:
        names = Names([problem.question for problem in problems])
        draws.append(lambda problems=problems, names=names: varied(r.choice(problems), short, names, r))
        shares.append(share)
    while True:
        yield r.choices(draws, shares)[0]()


def make_tokenizer(sets: list[tuple[list[Problem], float]], vocab_size: int) -> Tokenizer:
    """Returns a tokenizer of the texts of problems."""
    problems = [*islice(stream(0, "train"), 10_000), *(problem for problems, _ in sets for problem in problems)]
    return train_tokenizer((text for p in problems for text in (p.question, *(s.goal for s in p.steps))), vocab_size)


def main() -> None:
    """Trains a model and exports it."""
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    r = Random(args.seed)
    sets = written(args)
    if args.init:
        model, tokenizer = load(args.init)
        model = grown(model, args.grow).train()
    else:
        tokenizer = make_tokenizer(sets, args.vocab)
        heads = args.hidden // 32
        shape = (args.hidden, args.ffn, args.layers, heads, heads, 1024)
        model = TinyLlama(ModelConfig(tokenizer.get_vocab_size(), *shape, rope_theta=ROPE_THETA))
        write_copying_circuit(model)
    vocabulary = tokenizer.get_vocab_size()
    print(f"{sum(p.numel() for p in model.parameters())} parameters; copies {copied_share(model, vocabulary):.0%} of random tokens", flush=True)
    problems = mixed(stream(args.seed, "train"), sets, r)
    examples: Iterator[Example] = (encode(tokenizer, conversation(problem, args.role, r)) for problem in problems)
    if args.copying:
        examples = with_copying(examples, args.copying, vocabulary, r)
    source = packs(examples, args.tokens, args.packed)
    schedule = Schedule(args.steps, args.minutes, args.rate, True, args.hold, args.muon)
    fit(model, lambda _: next(source), schedule, lambda: save(model, tokenizer, args.out), compiled)


if __name__ == "__main__":
    main()
