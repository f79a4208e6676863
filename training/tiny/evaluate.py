"""Runs both formulations on held-out problems and prints accuracies."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from fractions import Fraction
from itertools import islice
from pathlib import Path

import torch

from lumos_tiny.agent import Episode, Module, run_iterative, run_onetime
from lumos_tiny.calculator import show
from lumos_tiny.export import load
from lumos_tiny.generator import stream


def problems(args: argparse.Namespace) -> list[tuple[str, str, Fraction]]:
    """Returns kind, question and answer of problems from a file in the GSM8K format or from the generator."""
    if args.file:
        records = [json.loads(line) for line in args.file.read_text().splitlines()]
        return [
            ("file", r["question"], Fraction(r["answer"].split("####")[-1].replace(",", "").strip()))
            for r in records[: args.count]
        ]
    return [(p.kind, p.question, p.answer) for p in islice(stream(args.seed, args.split), args.count)]


def describe(question: str, gold: Fraction, episode: Episode) -> str:
    """Returns a failed episode as text."""
    return f"{question}\n  plan   {episode.plan}\n  ground {episode.ground}\n  gold   {show(gold)}"


def main() -> None:
    """Evaluates both formulations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder of the three model folders")
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--file", type=Path, help="problems in the GSM8K format instead of generated ones")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--failures", type=int, default=0, help="failed episodes to print")
    args = parser.parse_args()
    torch.set_num_threads(1)
    grounder = Module(*load(args.models / "grounder"))
    drawn = problems(args)
    for formulation, run in (("iterative", run_iterative), ("onetime", run_onetime)):
        planner = Module(*load(args.models / f"planner-{formulation}"))
        right, total, shown, start = Counter(), Counter(), 0, time.monotonic()
        for kind, question, gold in drawn:
            episode = run(planner, grounder, question)
            total[kind] += 1
            right[kind] += episode.answer == gold
            if episode.answer != gold and shown < args.failures:
                shown += 1
                print(describe(question, gold, episode))
        seconds = time.monotonic() - start
        print(f"{formulation}: {sum(right.values())}/{len(drawn)} correct, {seconds:.0f} s")
        print("  " + ", ".join(f"{kind} {right[kind]}/{total[kind]}" for kind in sorted(total)))


if __name__ == "__main__":
    main()
