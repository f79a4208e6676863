"""Trains a model for mathematics, on the tokens of its replies only: planner of both formulations, grounder, or both in one."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from lumos_tiny import asdiv, gpu, gsm8k, mawps
from lumos_tiny.copying import with_copying
from lumos_tiny.examples import CONVERSATIONS, SHARES, Example, encoded
from lumos_tiny.export import load, save, save_mixed
from lumos_tiny.generator import stream
from lumos_tiny.initial import ROPE_THETA, copied_share, grown, write_copying_circuit
from lumos_tiny.loop import Schedule, fit
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.sources import Names, held_back, varied
from lumos_tiny.store import Store, produced, windowed
from lumos_tiny.story import Problem
from lumos_tiny.tokens import train_tokenizer

STARTED = time.monotonic()
#: Problems that a process makes at a time.
CHUNK = 2000
#: Tokens of a conversation and of a model's context.
LONGEST = 1024


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=SHARES, default="both", help="conversations to train on")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--init", type=Path, help="folder of a model to start from")
    parser.add_argument("--keep", type=float, default=0.0, help="with --init: share of the initial weights in the weights that are written, beside the trained ones")
    parser.add_argument("--grow", type=int, default=0, help="with --init: layers to add, which change nothing at first")
    parser.add_argument("--gsm8k", type=Path, help="GSM8K's train.jsonl")
    parser.add_argument("--mawps", type=Path, help="MAWPS as a CSV file of the SVAMP repository")
    parser.add_argument("--asdiv", type=Path, help="ASDiv.xml")
    parser.add_argument("--leave-out", type=Path, help="questions of these that are not learned, as overlap.py writes them")
    parser.add_argument("--shares", type=float, nargs="+", default=(0.42, 0.1, 0.12), help="shares of the problems that are from GSM8K, MAWPS and ASDiv")
    parser.add_argument("--questions", type=float, default=0.0, help="share of the conversations in which the question is learned too")
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
    parser.add_argument("--device", help="train with padded batches on cuda or cpu, on problems that other processes generate; minutes then count from the start")
    parser.add_argument("--dropout", type=float, default=0.0, help="with --device: share of what each block adds that is left out in training")
    parser.add_argument("--workers", type=int, default=4, help="with --device: processes that generate problems")
    parser.add_argument("--reuse", type=int, default=4, help="with --device: how often each generated conversation is used")
    parser.add_argument("--check", type=int, default=300, help="with --device: generated problems to check the model on when it is saved, beside the written ones held back")
    return parser.parse_args()


class Written(NamedTuple):
    """Problems of a data set: those that may be learned, their share, their names, and those held back."""

    problems: list[Problem]
    share: float
    names: Names
    held: list[Problem]


def written(args: argparse.Namespace) -> list[Written]:
    """Returns the data sets."""
    left_out = set(json.loads(args.leave_out.read_text())) if args.leave_out else set()
    sets = []
    sources = (("GSM8K", gsm8k.load, args.gsm8k), ("MAWPS", mawps.load, args.mawps), ("ASDiv", asdiv.load, args.asdiv))
    for (name, read, path), share in zip(sources, (*args.shares, 0.0), strict=False):
        found = [p for p in read(path) if p.question not in left_out] if path else []
        problems = [p for p in found if not held_back(p.question)]
        print(f"{len(problems)} problems of {name}", flush=True)
        if problems:
            names = Names([problem.question for problem in problems])
            sets.append(Written(problems, share, names, [p for p in found if held_back(p.question)]))
    return sets


def mixed(generated: Iterator[Problem], sets: list[Written], r: Random) -> Iterator[Problem]:
    """Yields generated problems, and problems of the data sets with other numbers, names and things."""
    draws: list[Callable[[], Problem]] = [partial(next, generated)]
    short = [problem for own in sets for problem in own.problems if len(problem.formulas) == 1]
    for own in sets:
        draws.append(lambda own=own: varied(r.choice(own.problems), short, own.names, r))
    shares = [1 - sum(own.share for own in sets), *(own.share for own in sets)]
    while True:
        yield r.choices(draws, shares)[0]()


def examples_of(args: argparse.Namespace, tokenizer: Tokenizer, sets: list[Written], seed: str) -> Iterator[tuple[str, Example]]:
    """Yields conversations about problems, and sequences to copy, with their kinds."""
    r = Random(seed)
    made = (encoded(tokenizer, problem, args.role, r, questions=args.questions) for problem in mixed(stream(seed, "train"), sets, r))
    made = (pair for pair in made if len(pair[1].ids) <= LONGEST)
    if not args.copying:
        return made
    return with_copying(made, args.copying, tokenizer.get_vocab_size(), r)


def held_back_examples(args: argparse.Namespace, tokenizer: Tokenizer, sets: list[Written]) -> Store:
    """Returns conversations about problems that are not learned."""
    r = Random(0)
    problems = [*islice(stream(0, "dev"), args.check), *(problem for own in sets for problem in own.held)]
    kinds = [name for name, share in zip(CONVERSATIONS, SHARES[args.role], strict=True) if share]
    named = []
    for problem in problems:
        source = problem.kind if problem.kind in ("gsm8k", "mawps", "asdiv") else "generated"
        for kind in kinds:
            named.append((f"{kind} {source}", encoded(tokenizer, problem, args.role, r, kind)[1]))
    return Store.of([pair for pair in named if len(pair[1].ids) <= LONGEST])


def make_tokenizer(sets: list[Written], vocab_size: int) -> Tokenizer:
    """Returns a tokenizer of the texts of problems."""
    problems = [*islice(stream(0, "train"), 10_000), *(problem for own in sets for problem in own.problems)]
    return train_tokenizer((text for p in problems for text in (p.question, *(s.goal for s in p.steps))), vocab_size)


def main() -> None:
    """Trains a model and exports it."""
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    sets = written(args)
    if args.init:
        model, tokenizer = load(args.init)
        model = grown(model, args.grow).train()
    else:
        tokenizer = make_tokenizer(sets, args.vocab)
        heads = args.hidden // 32
        shape = (args.hidden, args.ffn, args.layers, heads, heads, LONGEST)
        model = TinyLlama(ModelConfig(tokenizer.get_vocab_size(), *shape, rope_theta=ROPE_THETA))
        write_copying_circuit(model)
    vocabulary = tokenizer.get_vocab_size()
    print(f"{sum(p.numel() for p in model.parameters())} parameters; copies {copied_share(model, vocabulary):.0%} of random tokens", flush=True)
    schedule = Schedule(args.steps, args.minutes, args.rate, True, args.hold, args.muon, STARTED if args.device else None)
    finish = partial(save, model, tokenizer, args.out)
    if args.keep:
        initial = {name: value.clone() for name, value in model.state_dict().items()}
        finish = partial(save_mixed, model, tokenizer, args.out, initial, args.keep)
    if args.device:

        def chunk(number: int) -> Store:
            return Store.of(list(islice(examples_of(args, tokenizer, sets, f"{args.seed}:{number}"), CHUNK)))

        batches = windowed(produced(chunk, args.workers), args.tokens, args.reuse, args.seed)
        gpu.train(model, batches, held_back_examples(args, tokenizer, sets) if args.check else None, schedule, finish, args.device, args.dropout)
        return
    from lumos_tiny.packed import compiled, packs

    source = packs((example for _, example in examples_of(args, tokenizer, sets, str(args.seed))), args.tokens, args.packed)
    fit(model, lambda _: next(source), schedule, finish, compiled)


if __name__ == "__main__":
    main()
