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
NAME = rf"({_WORD}(?: (?:{_WORD}|de|van|von|of|the)){{0,3}} [A-Z][\w'’-]+)"
PLACE = r"([A-Z][\w'’-]+(?:(?:, | )[A-Z][\w'’-]+){0,3})"
DATE = r"((?:\d{1,2} )?(?:January|February|March|April|May|June|July|August|September|October|November|December)(?: \d{1,2},)? \d{4})"
NATION = "(" + "|".join([*NATIONS, "New Zealand", "South African", "Argentine", "Israeli", "Korean", "Welsh"]) + ")"
_WHAT = r"(?:is|was|are|were) (?:an?|the) ([a-zA-Z][\w' -]{3,60}?)(?=[,.;]| who | which | that | known | best | by | from | in | on | at | for | directed | written | released | located | founded | published | based | produced | starring | featuring | recorded | created | developed | about | to | formed | set )"
#: key, pattern and questions; `{X}` is the title
PATTERNS = [
    ("born", rf"\((?:[^()]*; )?born {DATE}", ("When was {X} born?", "What is the date of birth of {X}?", "When was {X} born?")),
    ("born", rf"\({DATE} [–-]", ("When was {X} born?", "What is the date of birth of {X}?")),
    ("nationality", rf"(?:is|was) an? {NATION}\b", ("What is the nationality of {X}?", "What nationality is {X}?", "What nationality was {X}?")),
    ("director", rf"directed by {NAME}", ("Who directed {X}?", "Who is the director of {X}?", "Who directed the film {X}?")),
    ("writer", rf"written by {NAME}", ("Who wrote {X}?", "Who is the writer of {X}?", "Who was {X} written by?")),
    ("star", rf"(?:starring|stars) {NAME}", ("Who stars in {X}?", "Who starred in {X}?", "Which actor is in {X}?")),
    ("released", r"(?:is|was) an? (\d{4}) ", ("In what year was {X} released?", "When was {X} released?", "What year is {X} from?")),
    ("released", rf"released (?:in|on) {DATE}", ("When was {X} released?", "On what date was {X} released?")),
    ("located", rf"located in (?:the )?{PLACE}", ("Where is {X} located?", "Where is {X}?", "In which place is {X} located?")),
    ("founded", r"(?:founded|established|formed) in (\d{4})", ("When was {X} founded?", "When was {X} formed?", "In what year was {X} established?")),
    ("founder", rf"founded (?:in \d{{4}} )?by {NAME}", ("Who founded {X}?", "Who is the founder of {X}?")),
    ("based", rf"(?:headquartered|based) in {PLACE}", ("Where is {X} based?", "Where are the headquarters of {X}?", "What city is {X} based in?")),
    ("publisher", rf"published by {NAME}", ("Who published {X}?", "Who is the publisher of {X}?")),
    ("developer", rf"developed by {NAME}", ("Who developed {X}?", "Which company developed {X}?")),
    ("producer", rf"produced by {NAME}", ("Who produced {X}?", "Who is the producer of {X}?")),
    ("artist", rf"(?:album|single|song|EP) (?:by|from|of)(?: the)?(?: [a-z-]+| [A-Z][a-z]+){{0,4}} (?:band|singer|rapper|group|artist|duo|musician) {NAME}", ("Who recorded {X}?", "Who made {X}?", "Which artist recorded {X}?")),
    ("birthplace", rf"born (?:and raised )?in {PLACE}", ("Where was {X} born?", "In which city was {X} born?", "What is the birthplace of {X}?")),
    ("player", rf"(?:played|portrayed) by {NAME}", ("Who played {X}?", "Who portrayed {X}?")),
    ("county", rf"(?:city|town|village|community|township|census-designated place) (?:located )?in (?:the )?{PLACE}", ("Where is {X}?", "In which place is {X}?")),
    ("died", rf"\([^()]*[–-] {DATE}\)", ("When did {X} die?", "On what date did {X} die?", "What is the date of death of {X}?")),
    ("alias", rf"(?:also|better|otherwise|professionally|formerly) known (?:simply )?(?:as|by (?:his|her) stage name) (?:the )?\"?([A-Z][\w'’-]+(?: [A-Z][\w'’-]+){{0,3}})", ("What is another name of {X}?", "What is {X} also known as?", "By what other name is {X} known?")),
    ("spouse", rf"(?:married to|married|wife of|husband of) {NAME}", ("Who did {X} marry?", "Who is the spouse of {X}?", "Who was {X} married to?")),
    ("college", rf"(?:graduated from|studied at|attended|educated at|student at) (?:the )?((?:[A-Z][\w'’-]+ )*(?:University|College|School|Institute|Academy)(?: of [A-Z]\w+(?: [A-Z]\w+)?)?)", ("Where did {X} study?", "Which school did {X} attend?", "What college did {X} go to?")),
    ("population", r"population (?:of|was|is)(?: [a-z]+)? (\d[\d,]+)", ("What is the population of {X}?", "How many people live in {X}?", "How many inhabitants does {X} have?")),
    ("label", rf"(?:released|issued)[^.]{{0,40}} (?:on|by|through) (?:the )?((?:[A-Z][\w'’-]+ )+(?:Records|Music|Entertainment))", ("Which label released {X}?", "What record label released {X}?")),
    ("team", rf"plays? (?:[a-z ]{{0,30}})?for (?:the )?([A-Z][\w'’-]+(?: [A-Z][\w'’-]+){{1,3}})", ("Which team does {X} play for?", "What club does {X} play for?")),
    ("member", rf"member of (?:the )?(?:[a-z ]{{0,20}})?{NAME}", ("Which group is {X} a member of?", "What was {X} a member of?")),
    ("based_on", rf"based on (?:the )?(?:[a-z0-9 ]{{0,30}})?\"?{NAME}", ("What is {X} based on?", "On what is {X} based?")),
    ("capital", rf"capital of (?:the )?{PLACE}", ("What is {X} the capital of?",)),
    ("role", rf"(?:known|famous) for (?:his|her) (?:role|portrayal|performance) (?:of|as) {NAME}", ("What role is {X} known for?", "Which character did {X} play?")),
    ("awards", rf"(?:won|received) (?:the|an?) ([A-Z][\w'’-]+(?: [A-Z][\w'’-]+)* (?:Award|Prize|Medal|Championship|Cup))", ("Which award did {X} win?", "What prize did {X} receive?")),
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
    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [record for record in found if len(record["answer"]) < 60 and "(" not in record["answer"]]


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
            if key == "what" and re.search(r"(?:ed|small|private|public|large|only|given|key|type|part|first|common|new|former) *$", answer):
                continue
            if answer and answer not in bare and len(answer) < 60 and ";" not in answer:
                found.append(Fact(title, key, tuple(ask.replace("{X}", bare) for ask in asks), answer))
    return found


def exercises(found: list[dict], r: Random, variants: int, unanswered: float = 0.15) -> Iterator[tuple[str, list[str], str]]:
    """Yields questions with some sentences and the answer that they give: the supporting sentences among others, or only others."""
    for record in found:
        by_title = {title: [sentence.strip() for sentence in sentences] for title, sentences in record["context"]}
        supporting = [by_title[t][i] for t, i in record["supporting_facts"] if t in by_title and i < len(by_title[t])]
        others = [s for sentences in by_title.values() for s in sentences if s not in supporting and 20 < len(s) < 250]
        answer = record["answer"].strip()
        if answer not in ("yes", "no") and not any(answer in sentence for sentence in supporting):
            continue
        for _ in range(variants):
            # As many others as the product shows, five sentences in all.
            evidence = r.sample(others, min(len(others), r.randint(0, max(0, 5 - len(supporting)))))
            reply = answer
            if r.random() < unanswered and answer not in ("yes", "no"):
                evidence = [s for s in r.sample(others, min(len(others), 5)) if answer not in s]
                reply = ""
            else:
                evidence += supporting
            r.shuffle(evidence)
            yield record["question"].strip(), evidence, reply
