"""Trains one of the three models on generated problems."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from lumos_tiny.batches import batches
from lumos_tiny.examples import ROLES
from lumos_tiny.export import load, save
from lumos_tiny.generator import is_easy, stream
from lumos_tiny.gsm8k import mixed
from lumos_tiny.loop import Schedule, fit
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.tokens import train_tokenizer


def make_tokenizer(vocab_size: int) -> Tokenizer:
    """Returns the tokenizer of all three models. It is always trained on the same problems."""
    problems = islice(stream(0, "train"), 20_000)
    texts = (text for problem in problems for text in (problem.question, *(s.goal for s in problem.steps)))
    return train_tokenizer(texts, vocab_size)


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--init", type=Path, help="folder of a model to start from")
    parser.add_argument("--gsm8k", type=Path, help="GSM8K train.jsonl to mix in")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, help="end the schedule early after this time; the run can then not be repeated exactly")
    parser.add_argument("--easy", type=float, default=0.0, help="share of the schedule on easy problems only, at the start")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens per batch")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=192, help="hidden size, in heads of 32")
    parser.add_argument("--ffn", type=int, default=448, help="feed-forward size")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    return parser.parse_args()


def main() -> None:
    """Trains a model and exports it."""
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    if args.init:
        model, tokenizer = load(args.init)
        model.train()
    else:
        tokenizer = make_tokenizer(args.vocab)
        heads = args.hidden // 32
        shape = (args.hidden, args.ffn, args.layers, heads, heads)
        model = TinyLlama(ModelConfig(tokenizer.get_vocab_size(), *shape))
    r = Random(args.seed)
    easy = batches(filter(is_easy, stream(args.seed, "train")), args.role, tokenizer, args.tokens, r)
    problems = mixed(stream(args.seed, "train"), args.gsm8k, r)
    source = batches(problems, args.role, tokenizer, args.tokens, r)
    print(f"{args.role}: {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    schedule = Schedule(args.steps, args.minutes, args.rate, args.bf16)
    draw = lambda progress: next(easy if progress < args.easy else source)  # noqa: E731
    fit(model, draw, schedule, lambda: save(model, tokenizer, args.out))


if __name__ == "__main__":
    main()
