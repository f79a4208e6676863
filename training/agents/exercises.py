"""Writes reading exercises for the model of the QA tool, from questions of HotpotQA's training split with their sentences."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

from lumos_agents.conversations import END, Conversation, write
from lumos_agents.qa import comparisons, reading_prompt, sentences, split_of
from lumos_agents.qa.mined import Fact, exercises, facts, records


def _from_sentences(found: list[dict], r: Random, count: int, unanswered: float) -> Iterator[tuple[str, list[str], str]]:
    """Yields up to `count` questions made from sentences, with these sentences among others: of the same record, or of any."""
    of_record = [[s.strip() for _, texts in record["context"] for s in texts if 20 < len(s) < 250] for record in found]
    every = [s for texts in of_record for s in texts]
    near = {s: texts for texts in of_record for s in texts}
    for made in sentences.made(found, r)[:count]:
        others = near.get(made.shown[0], every) if r.random() < 0.6 else every
        evidence = [s for s in r.sample(others, min(len(others), r.randint(1, 5 - len(made.shown)))) if made.answer not in s]
        if r.random() < unanswered:
            yield made.question, evidence, ""
            continue
        evidence += made.shown
        r.shuffle(evidence)
        yield made.question, evidence, made.answer


def _compared(found: list[dict], r: Random, count: int) -> Iterator[tuple[str, list[str], str]]:
    """Yields comparisons of two pages that the sentences decide at once."""
    texts = sentences.pages(found)
    by_key: dict[str, list[Fact]] = {}
    for fact in facts({page.title: " ".join(page.sentences) for page in texts.values()}):
        by_key.setdefault(fact.key, []).append(fact)
    for _ in range(count):
        question = comparisons.compare(r, by_key)
        pages = [texts[step.page] for step in question.steps]
        evidence = [s for page, step in zip(pages, question.steps, strict=True) for s in page.sentences if s is page.sentences[0] or step.answer in s][:4]
        if all(any(step.answer in s for s in evidence) for step in question.steps) and all(len(s) < 300 for s in evidence):
            evidence += r.sample(r.choice(pages).sentences, 1)
            evidence = list(dict.fromkeys(evidence))
            r.shuffle(evidence)
            yield question.text, evidence, question.answer


def conversations(paths: list[Path], variants: int, seed: int, count: int, unanswered: float) -> Iterator[Conversation]:
    """Yields one conversation per exercise of the split `train`."""
    found, r = records(paths), Random(seed)
    for question, evidence, answer in chain(exercises(found, r, variants, unanswered), _compared(found, r, count // 4), _from_sentences(found, r, count, unanswered)):
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
    parser.add_argument("--sentences", type=int, default=0, help="further exercises, about questions made from sentences of the paragraphs, and a quarter as many comparisons")
    parser.add_argument("--unanswered", type=float, default=0.15, help="share of exercises without the answer in the context")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(f"{write(conversations(args.text, args.variants, args.seed, args.sentences, args.unanswered), args.out)} conversations")


if __name__ == "__main__":
    main()
