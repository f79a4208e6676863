"""Trains a model of a pair on conversations, on the tokens of its replies only."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from lumos_agents.conversations import read
from lumos_agents.encoding import describe, encoded, groups, is_held_back, stored
from lumos_agents.texts import constants
from lumos_agents.tokens import fold_case, train_tokenizer
from lumos_tiny import gpu
from lumos_tiny.batches import batched
from lumos_tiny.copying import with_copying
from lumos_tiny.examples import IGNORE, Example
from lumos_tiny.export import load, save
from lumos_tiny.initial import ROPE_THETA, copied_share, grown, write_copying_circuit
from lumos_tiny.loop import Schedule, fit
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.store import repeated as repeated_store

STARTED = time.monotonic()
TOKENIZER_TEXTS = 6000


def parse() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", required=True, help="qa, sql, shop, web, or several as shop+web; selects the tokenizer's constants")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of conversations")
    parser.add_argument("--role", nargs="+", help="roles to train on: planner, grounder, qa; default: all")
    parser.add_argument("--formulation", help="train on this formulation only, in the planner's conversations")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--init", type=Path, help="folder of a model to start from")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True, help="length of the schedule, in batches")
    parser.add_argument("--minutes", type=float, help="end the schedule early after this time; the run can then not be repeated exactly")
    parser.add_argument("--hold", type=float, default=0.0, help="share of the schedule at the peak learning rate, before the decay")
    parser.add_argument("--keep", nargs="+", default=[], metavar="ROLE=SHARE", help="use only a share of a role's conversations, such as grounder=0.3, or several copies; also of planner-iterative, planner-onetime, and of a part of role qa: unanswered, read, concluded")
    parser.add_argument("--fold-case", action="store_true", help="read text in lower case, and plurals as singulars with an s (sql)")
    parser.add_argument("--grow", type=int, default=0, help="with --init: layers to add, which change nothing at first")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per batch")
    parser.add_argument("--longest", type=int, default=1200, help="leave out longer conversations, in tokens")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=128, help="hidden size, in heads of 32")
    parser.add_argument("--ffn", type=int, default=384, help="feed-forward size")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--muon", action="store_true", help="train the matrices of the layers with Muon instead of AdamW")
    parser.add_argument("--copying", type=float, default=0.0, help="share of random sequences to copy from, beside the conversations")
    parser.add_argument("--packed", type=float, metavar="SHARE", help="pack sequences without padding (faster; needs g++); share of tokens that may be learned, such as 0.25")
    parser.add_argument("--device", help="train with padded batches on cuda or cpu, after other processes have encoded the conversations; minutes then count from the start")
    parser.add_argument("--dropout", type=float, default=0.0, help="with --device: share of what each block adds that is left out in training")
    parser.add_argument("--workers", type=int, default=4, help="with --device: processes that encode")
    parser.add_argument("--check", type=float, default=0.0, help="with --device: share of the tasks to hold back, and to check the model on when it is saved")
    parser.add_argument("--no-bf16", action="store_true", help="float32 instead of bfloat16 autocast")
    return parser.parse_args()


def repeated(examples: list[tuple[str, Example]], r: Random) -> Iterator[tuple[str, Example]]:
    """Yields the examples again and again, in another order each time."""
    while True:
        r.shuffle(examples)
        yield from examples


def main() -> None:
    """Trains a model and exports it."""
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    r = Random(args.seed)
    conversations = [c for path in args.data for c in read(path)]
    if args.init:
        model, tokenizer = load(args.init)
        model = grown(model, args.grow).train()
    else:
        chosen = r.sample(conversations, min(TOKENIZER_TEXTS, len(conversations)))
        tokenizer = train_tokenizer((c.text for c in chosen), args.vocab, constants(args.domain), args.fold_case)
        heads = args.hidden // 32
        shape = (args.hidden, args.ffn, args.layers, heads, heads, 2048)
        model = TinyLlama(ModelConfig(tokenizer.get_vocab_size(), *shape, rope_theta=ROPE_THETA))
        write_copying_circuit(model)
    if args.fold_case:
        fold_case(tokenizer)
    if args.role:
        conversations = [c for c in conversations if c.role in args.role]
    if args.formulation:
        conversations = [c for c in conversations if c.role != "planner" or c.formulation == args.formulation]
    held = [c for c in conversations if args.device and is_held_back(c, args.check)]
    conversations = [c for c in conversations if not (args.device and is_held_back(c, args.check))]
    for role, share in (text.split("=") for text in args.keep):
        whole, part = divmod(float(share), 1)
        conversations = [c for c in conversations for _ in range(int(whole + (r.random() < part)) if role in groups(c) else 1)]
    schedule = Schedule(args.steps, args.minutes, args.rate, not args.no_bf16, args.hold, args.muon, STARTED if args.device else None)
    share = copied_share(model, tokenizer.get_vocab_size())
    print(f"{sum(p.numel() for p in model.parameters())} parameters; copies {share:.0%} of random tokens", flush=True)

    def finish() -> None:
        save(model, tokenizer, args.out)

    if args.device:
        store = stored(tokenizer, conversations, args.longest, args.copying, args.seed, args.workers)
        checked = stored(tokenizer, held, args.longest, 0, args.seed, args.workers) if held else None
        gpu.train(model, repeated_store(store, args.tokens, args.seed), checked, schedule, finish, args.device, args.dropout)
        return
    from lumos_tiny.packed import compiled, packs

    examples = encoded(tokenizer, conversations, args.longest)
    tokens = sum(len(example.ids) for _, example in examples)
    describe((name for name, _ in examples), tokens, len(conversations))
    learned = sum(target != IGNORE for _, example in examples for target in example.targets) / max(1, tokens)
    if args.packed and args.packed < learned:
        print(f"{learned:.0%} of the tokens are learned: batches stay partly empty with --packed {args.packed}; pass --packed {learned + 0.03:.2f}", flush=True)
    stream = repeated(examples, r)
    if args.copying:
        stream = with_copying(stream, args.copying, tokenizer.get_vocab_size(), r)
    plain = (example for _, example in stream)
    source = packs(plain, args.tokens, args.packed) if args.packed else batched(plain, args.tokens, r)
    fit(model, lambda _: next(source), schedule, finish, compiled if args.packed else None)


if __name__ == "__main__":
    main()
