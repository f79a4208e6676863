"""Writes generated problems as JSON lines in the GSM8K format."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from lumos_tiny.calculator import evaluate_actions, show
from lumos_tiny.generator import SPLITS, stream
from lumos_tiny.story import Problem


def record(problem: Problem) -> dict[str, str]:
    """Returns a problem in the GSM8K format, with its calculation in the answer."""
    lines, done = [], []
    for step in problem.steps:
        for formula in step.formulas:
            done.append(formula)
            value = evaluate_actions(done)
            assert value is not None
            lines.append(f"R{len(done)} = {formula} = {show(value)}, {step.goal}")
    return {"question": problem.question, "answer": "\n".join([*lines, f"#### {show(problem.answer)}"])}


def main() -> None:
    """Writes one split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with args.out.open("w") as file:
        for problem in islice(stream(args.seed, args.split), args.count):
            file.write(json.dumps(record(problem)) + "\n")


if __name__ == "__main__":
    main()
