"""Writes reading exercises for the model of the QA tool, from questions of HotpotQA's training split with their sentences."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

from lumos_agents.conversations import END, Conversation, write
from lumos_agents.qa import reading_prompt
from lumos_agents.qa.mined import exercises, records


def conversations(paths: list[Path], variants: int, seed: int) -> Iterator[Conversation]:
    """Yields one conversation per exercise."""
    for question, evidence, answer in exercises(records(paths), Random(seed), variants):
        context = "\n".join(f"Evidence {i}: {sentence}" for i, sentence in enumerate(evidence, 1))
        reply = f"Answer: {answer}" if answer else "No answer"
        yield Conversation(question, "qa", "any", [(reading_prompt(question, context), reply)], END)


def main() -> None:
    """Writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="files of HotpotQA's training split, as JSON lines")
    parser.add_argument("--variants", type=int, default=8, help="exercises per question")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(f"{write(conversations(args.text, args.variants, args.seed), args.out)} conversations")


if __name__ == "__main__":
    main()
