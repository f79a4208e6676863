"""Facts that patterns find in real paragraphs, and reading exercises from real questions: HotpotQA's training split only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .relations import NATIONS

_WORD = r"(?:[A-Z]\.|[A-Z][\w'’-]+)"
_NAME = rf"({_WORD}(?: (?:{_WORD}|de|van|von|of|the)){{0,3}} [A-Z][\w'’-]+)"
_PLACE = r"([A-Z][\w'’-]+(?:(?:, | )[A-Z][\w'’-]+){0,3})"
_DATE = r"((?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)(?: \d{1,2},)? \d{4})"
_NATION = "(" + "|".join([*NATIONS, "New Zealand", "South African", "Argentine", "Israeli", "Korean", "Welsh"]) + ")"
_WHAT = r"(?:is|was|are|were) (?:an?|the) ([a-zA-Z][\w' -]{3,60}?)(?=[,.;]| who | which | that | known | best | by | from | in | on | at | for | directed | written | released | located | founded | published)"
#: key, pattern and questions; `{X}` is the title
PATTERNS = [
    ("born", rf"\((?:[^()]*; )?born {_DATE}", ("When was {X} born?", "What is the date of birth of {X}?", "When was {X} born?")),
    ("born", rf"\({_DATE} [–-]", ("When was {X} born?", "What is the date of birth of {X}?")),
    ("nationality", rf"(?:is|was) an? {_NATION}\b", ("What is the nationality of {X}?", "What nationality is {X}?", "What nationality was {X}?")),
    ("director", rf"directed by {_NAME}", ("Who directed {X}?", "Who is the director of {X}?", "Who directed the film {X}?")),
    ("writer", rf"written by {_NAME}", ("Who wrote {X}?", "Who is the writer of {X}?", "Who was {X} written by?")),
    ("star", rf"(?:starring|stars) {_NAME}", ("Who stars in {X}?", "Who starred in {X}?", "Which actor is in {X}?")),
    ("released", r"(?:is|was) an? (\d{4}) ", ("In what year was {X} released?", "When was {X} released?", "What year is {X} from?")),
    ("released", rf"released (?:in|on) {_DATE}", ("When was {X} released?", "On what date was {X} released?")),
    ("located", rf"located in (?:the )?{_PLACE}", ("Where is {X} located?", "Where is {X}?", "In which place is {X} located?")),
    ("founded", r"(?:founded|established|formed) in (\d{4})", ("When was {X} founded?", "When was {X} formed?", "In what year was {X} established?")),
    ("founder", rf"founded (?:in \d{{4}} )?by {_NAME}", ("Who founded {X}?", "Who is the founder of {X}?")),
    ("based", rf"(?:headquartered|based) in {_PLACE}", ("Where is {X} based?", "Where are the headquarters of {X}?", "What city is {X} based in?")),
    ("publisher", rf"published by {_NAME}", ("Who published {X}?", "Who is the publisher of {X}?")),
    ("developer", rf"developed by {_NAME}", ("Who developed {X}?", "Which company developed {X}?")),
    ("producer", rf"produced by {_NAME}", ("Who produced {X}?", "Who is the producer of {X}?")),
    ("artist", rf"(?:album|single|song|EP) (?:by|from|of)(?: the)?(?: [a-z-]+| [A-Z][a-z]+){{0,4}} (?:band|singer|rapper|group|artist|duo|musician) {_NAME}", ("Who recorded {X}?", "Who made {X}?", "Which artist recorded {X}?")),
    ("birthplace", rf"born (?:and raised )?in {_PLACE}", ("Where was {X} born?", "In which city was {X} born?", "What is the birthplace of {X}?")),
    ("player", rf"(?:played|portrayed) by {_NAME}", ("Who played {X}?", "Who portrayed {X}?")),
    ("county", rf"(?:city|town|village|community|township|census-designated place) (?:located )?in (?:the )?{_PLACE}", ("Where is {X}?", "In which place is {X}?")),
    ("what", _WHAT, ("What is {X}?", "Who is {X}?", "What kind of thing is {X}?", "What is {X} known as?")),
]  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """A fact about a page."""

    title: str
    key: str
    asks: tuple[str, ...]
    answer: str


def records(paths: list[Path]) -> list[dict]:
    """Reads files in HotpotQA's format, JSON lines."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def pages(found: list[dict]) -> dict[str, str]:
    """Returns the paragraphs of records by title."""
    texts = {title: " ".join(sentence.strip() for sentence in sentences) for record in found for title, sentences in record["context"]}
    return {title: text for title, text in texts.items() if 40 < len(text) < 900 and ";" not in title}


def facts(texts: dict[str, str]) -> list[Fact]:
    """Returns what the patterns find."""
    found = []
    for title, text in texts.items():
        bare = re.sub(r" \(.*\)$", "", title)
        for key, pattern, asks in PATTERNS:
            match = re.search(pattern, text)
            answer = match[1].strip() if match else ""
            if answer and answer not in bare and len(answer) < 60 and ";" not in answer:
                found.append(Fact(title, key, tuple(ask.replace("{X}", bare) for ask in asks), answer))
    return found


def exercises(found: list[dict], r: Random, variants: int) -> Iterator[tuple[str, list[str], str]]:
    """Yields questions with some sentences and the answer that they give: the supporting sentences among others, or only others."""
    for record in found:
        by_title = {title: [sentence.strip() for sentence in sentences] for title, sentences in record["context"]}
        supporting = [by_title[t][i] for t, i in record["supporting_facts"] if t in by_title and i < len(by_title[t])]
        others = [s for sentences in by_title.values() for s in sentences if s not in supporting and 20 < len(s) < 250]
        answer = record["answer"].strip()
        if answer not in ("yes", "no") and not any(answer in sentence for sentence in supporting):
            continue
        for _ in range(variants):
            evidence = r.sample(others, min(len(others), r.randint(0, max(0, 5 - len(supporting)))))
            reply = answer
            if r.random() < 0.15 and answer not in ("yes", "no"):
                evidence = [s for s in r.sample(others, min(len(others), 5)) if answer not in s]
                reply = ""
            else:
                evidence += supporting
            r.shuffle(evidence)
            yield record["question"].strip(), evidence, reply
