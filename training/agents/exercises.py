"""Writes reading exercises for the model of the QA tool, from questions of HotpotQA's training split with their sentences."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

from lumos_agents.conversations import END, Conversation, write
from lumos_agents.qa import reading_prompt, sentences, split_of
from lumos_agents.qa.mined import exercises, records


def _from_sentences(found: list[dict], r: Random, count: int, unanswered: float) -> Iterator[tuple[str, list[str], str]]:
    """Yields up to `count` questions made from sentences, with these sentences among others of their pages or of any."""
    every = [s.strip() for record in found for _, sentences_ in record["context"] for s in sentences_ if 20 < len(s) < 250]
    for made in sentences.made(found, r)[:count]:
        evidence = [s for s in r.sample(every, r.randint(1, 5 - len(made.shown))) if made.answer not in s]
        if r.random() < unanswered:
            yield made.question, evidence, ""
            continue
        evidence += made.shown
        r.shuffle(evidence)
        yield made.question, evidence, made.answer


def conversations(paths: list[Path], variants: int, seed: int, count: int, unanswered: float) -> Iterator[Conversation]:
    """Yields one conversation per exercise of the split `train`."""
    found, r = records(paths), Random(seed)
    for question, evidence, answer in chain(exercises(found, r, variants, unanswered), _from_sentences(found, r, count, unanswered)):
        if split_of(question) != "train":
            continue
        context = "\n".join(f"Evidence {i}: {sentence}" for i, sentence in enumerate(evidence, 1))
        reply = f"Answer: {answer}" if answer else "No answer"
        yield Conversation(question, "qa", "any", [(reading_prompt(question, context), reply)], END)


def main() -> None:
    """Writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="files of HotpotQA's training split, as JSON lines")
    parser.add_argument("--variants", type=int, default=8, help="exercises per question")
    parser.add_argument("--sentences", type=int, default=0, help="further exercises, about questions made from sentences of the paragraphs")
    parser.add_argument("--unanswered", type=float, default=0.15, help="share of exercises without the answer in the context")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(f"{write(conversations(args.text, args.variants, args.seed, args.sentences, args.unanswered), args.out)} conversations")


if __name__ == "__main__":
    main()
