"""Prints how many replies of held-back conversations a model would give exactly, each after the right text before it."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path

import torch

from lumos_agents.conversations import Misaligned, encode, read
from lumos_tiny.examples import IGNORE
from lumos_tiny.export import load
from lumos_tiny.onetime import marked


@torch.inference_mode()
def main() -> None:
    """Checks one model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="file of conversations")
    parser.add_argument("--role", nargs="+", default=("planner", "grounder", "qa"))
    parser.add_argument("--formulation", help="only this one, in the planner's conversations")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--failures", type=int, default=0, help="wrong replies to print")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load(args.model)
    right, total, shown = Counter(), Counter(), 0
    chosen = [c for c in read(args.data) if c.role in args.role and (c.role != "planner" or args.formulation in (None, c.formulation))]
    for conversation in islice(chosen[:: max(1, len(chosen) // args.count)], args.count):
        try:
            example = encode(tokenizer, conversation)
        except Misaligned:
            continue
        onetime = conversation.role == "planner" and conversation.formulation == "onetime"
        ids = torch.tensor([marked(tokenizer, example.ids) if onetime else example.ids])
        targets = torch.tensor(example.targets)
        asked = targets != IGNORE
        given = model.logits(model.hidden(ids, asked[None])).argmax(-1)
        wanted, at, turn = targets[asked], 0, 0
        positions = asked.nonzero()[:, 0].tolist()
        while at < len(wanted):
            end = at
            while end + 1 < len(wanted) and positions[end + 1] == positions[end] + 1:
                end += 1
            turn += 1
            key = (conversation.role, turn if turn < 6 else 6)
            correct = bool((given[at : end + 1] == wanted[at : end + 1]).all())
            total[key] += 1
            right[key] += correct
            if not correct and shown < args.failures:
                shown += 1
                print(conversation.task, "|", tokenizer.decode(wanted[at:end].tolist()), "|", tokenizer.decode(given[at : end + 1].tolist()))
            at = end + 1
    for key in sorted(total):
        print(f"{key[0]} reply {key[1]}: {right[key]}/{total[key]}")


if __name__ == "__main__":
    main()
