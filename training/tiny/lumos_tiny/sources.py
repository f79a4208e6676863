"""Problems from questions that people wrote: other numbers, names and things in them, and distractors."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from random import Random
from zlib import crc32

from . import words
from .calculator import evaluate_actions
from .story import Problem, Step, Teller, filler, numbers_in

#: A number in digits that is no part of another, of a fraction or of a percentage.
PLAIN = re.compile(r"(?<![\d.,/])\d+(?![\d,/%]|\.\d|th|st|nd|rd)")
_LITERAL = re.compile(r"(?<![\w.])\d+(?![\d.])")
_ASKED = re.compile(r"\b[Hh]ow (?:many|much|long|far|old|tall|fast|big)\b|\b[Ww]hat\b")
_TOLD = re.compile(r"(?:^|, (?:and )?|\band )(?:[Cc]alculate|[Ff]ind(?: out)?|[Dd]etermine|[Cc]ompute) (?=(?:the|how|what|his|her|their)\b)")
_VARIABLE = re.compile(r"\bR(\d+)")
_CAPITAL = re.compile(r"\b[A-Z][a-z]+\b")
_SHE, _HE = re.compile(r"\b(?:she|her|hers)\b", re.I), re.compile(r"\b(?:he|his|him)\b", re.I)
_KEPT = frozenset([*words.DAYS, *words.MONTHS, "I", "Mr", "Mrs", "Ms", "Dr", "Each", "Every"])
TRIES = 40
#: Numbers that a calculation may have because of a word, so that they are not exchanged.
_IMPLIED = [
    (re.compile(rf"\b(?:{word})", re.I), numbers)
    for word, numbers in (
        ("twice|half|halves|double|pair|both|couple|two", "2"), ("three|third|triple|thrice", "3"), ("quarter|four", "4"), ("dozen|year|month|foot|feet", "12 30 365"),
        ("week", "7 4 52 5"), ("hour|minute", "60"), ("day", "24 7"), ("dime|cent|percent", "10 100"), ("fifth|nickel|five", "5"), ("ten", "10"), ("decade|meter", "10 100 1000"),
    )
]  # fmt: skip
#: A fraction of something, or a percentage.
_FRACTION = re.compile(r"\b(\d+) / (100|[2-9]|10)\b(?= \*|$|\))")


def held_back(question: str) -> bool:
    """Whether a question is held back for the choice between models: one of 15."""
    return crc32(question.encode()) % 15 == 0


def asked(question: str) -> str | None:
    """Returns what a question asks as a goal: the last question in it, or the last sentence after *calculate* or *find*."""
    for sentence in reversed(re.split(r"(?<=[.?!]) ", question.strip())):
        if start := _TOLD.search(sentence):
            return sentence[start.end() :].rstrip(".?! ")
        if not sentence.endswith("?"):
            continue
        parts = [part for part in re.split(r", ", sentence) if _ASKED.search(part)]
        if parts:
            text = parts[-1][_ASKED.search(parts[-1]).start() :].rstrip("?. ")
            return text[0].lower() + text[1:]
    return None


class Names:
    """First names of a set of questions by gender, to exchange them."""

    def __init__(self, questions: list[str]) -> None:
        lower = {word for question in questions for word in re.findall(r"\b[a-z]+\b", question)}
        self.pools: dict[str, list[str]] = defaultdict(list)
        for question in questions:
            for name in sorted(set(re.findall(r"(?:^|[.?!] )([A-Z][a-z]+)\b", question))):
                if name.lower() not in lower and name not in _KEPT:
                    self.pools[_gender(question)].append(name)
        self.known = {name for pool in self.pools.values() for name in pool}
        self.pools["he"] += words.MEN
        self.pools["she"] += words.WOMEN

    def exchanged(self, problem: Problem, r: Random) -> Problem:
        """Returns a problem with other names, if one gender occurs."""
        gender = _gender(problem.question)
        own = sorted(set(_CAPITAL.findall(problem.question)) & self.known)
        if gender == "both" or not own:
            return problem
        pool = self.pools[gender] or self.pools["he"]
        fresh = {name: words.invented_name(r) if r.random() < 0.1 else r.choice(pool) for name in own}
        if len(set(fresh.values())) < len(fresh):
            return problem
        return _mapped(problem, lambda text: _CAPITAL.sub(lambda found: fresh.get(found.group(), found.group()), text))


def _gender(question: str) -> str:
    she, he = bool(_SHE.search(question)), bool(_HE.search(question))
    return "both" if she and he else "she" if she else "he" if he else "any"


def _mapped(problem: Problem, change) -> Problem:  # noqa: ANN001
    steps = tuple(replace(step, goal=change(step.goal)) for step in problem.steps)
    return replace(problem, question=change(problem.question), steps=steps)


_THINGS = {word: True for word in words.THINGS if " " not in word}
_WORD = re.compile(r"\b[a-z]+\b")


def other_things(problem: Problem, r: Random) -> Problem:
    """Returns a problem about other things."""
    found = sorted({word for word in _WORD.findall(problem.question) if word in _THINGS})
    fresh: dict[str, str] = {}
    for word in found:
        new = words.invented_noun(r) if r.random() < 0.15 else r.choice(words.THINGS)
        fresh |= {word: new, words.singular(word): words.singular(new)}
    if not fresh:
        return problem
    return _mapped(problem, lambda text: _WORD.sub(lambda found: fresh.get(found.group(), found.group()), text))


def renumbered(problem: Problem, r: Random) -> Problem:
    """Returns a problem with other integers and the same calculation, or unchanged if no other numbers were found."""
    told = numbers_in(problem.question)
    literals = {term for formula in problem.formulas for term in _LITERAL.findall(formula)}
    found = {match.group() for match in PLAIN.finditer(problem.question)}
    implied = {number for word, numbers in _IMPLIED for number in numbers.split() if word.search(problem.question)}
    implied |= {part for formula in problem.formulas for pair in _FRACTION.findall(formula) for part in pair}
    found -= implied
    free = sorted(n for n in found if told.count(n) == 1 and int(n) > 1 and (n in literals or int(n) < 1000))
    whole = all(value.denominator == 1 for value in _values(problem.formulas))
    if not free:
        return problem
    top = r.choice((0, 0, 0, 20, 50, 100, 100, 500))
    for attempt in range(TRIES):
        chosen = free if attempt < TRIES // 2 else r.sample(free, r.randint(1, len(free)))
        fresh = {n: str(r.randint(2, top) if top and int(n) < 2 * top else r.randint(max(2, int(n) // 2), 2 * int(n))) for n in chosen}

        def swap(match: re.Match) -> str:
            return fresh.get(match.group(), match.group())  # noqa: B023

        formulas = [_LITERAL.sub(swap, formula) for formula in problem.formulas]
        values = _values(formulas)
        if len(values) < len(formulas) or any(v <= 0 or v > 10**7 or (whole and v.denominator > 1) for v in values):
            continue
        steps, position = [], 0
        for step in problem.steps:
            own = tuple(formulas[position : position + len(step.formulas)])
            steps.append(Step(PLAIN.sub(swap, step.goal), own))
            position += len(own)
        return replace(problem, question=PLAIN.sub(swap, problem.question), steps=tuple(steps), answer=values[-1])
    return problem


def _values(formulas: list[str]) -> list[Fraction]:
    values = [evaluate_actions(formulas[: i + 1]) for i in range(len(formulas))]
    return [value for value in values if value is not None]


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text."""
    return re.split(r"(?<=[a-z0-9%)][.?!]) (?=[A-Z0-9$])", text)


def distracted(problem: Problem, others: list[Problem], r: Random) -> Problem:
    """Returns a problem with a sentence that does not matter: a random one, or one with a number from another problem."""
    names = [name for name in _CAPITAL.findall(problem.question) if name in words.MEN or name in words.WOMEN]
    sentence = ""
    if r.random() < 0.7:
        source = renumbered(r.choice(others), r).question
        own = [s for s in sentences(source) if not s.endswith("?") and re.search(r"\d", s) and not re.search(r"\b(?:each|If|same|twice|half)\b", s)]
        if own:
            sentence = r.choice(own)
            if names:
                sentence = re.sub(r"^[A-Z][a-z]+(?= (?:had|has|found|bought|saw|ate|made|got|went|sold|picked|also|gave|lost|used|spent|ran)\b)", names[0], sentence)
    sentence = sentence or filler(r, Teller(r, A=names[0] if names else r.choice(words.WOMEN)), numeric=True)
    parts = sentences(problem.question)
    parts.insert(r.randint(0, max(0, len(parts) - 1)), sentence)
    return replace(problem, question=" ".join(parts))


_PRONOUN = re.compile(r"\b(?:he|she|they|it|his|her|their|him|them|there)\b", re.I)
_CONTENT = re.compile(r"[a-z]{3,}")
_FREQUENT = frozenset(
    """the and for are was were has had have how many much does did now each with than that from they she his her their them there some more all will get got
    would what left altogether total buy bought made make found took gave given went each every also into out other both after before then when who
    which this these those him its one two three four five six seven eight nine ten day days week first second next last if can been being""".split()
)


def after_another_story(problem: Problem, other: Problem, r: Random) -> Problem:
    """Returns a problem with the story of another one, without its question, or unchanged if they have a name or a word of content in common."""
    story = [s for s in sentences(renumbered(other, r).question) if not _ASKED.search(s) and not _TOLD.search(s)]
    own, theirs = ({*_CONTENT.findall(text.lower())} - _FREQUENT for text in (problem.question, " ".join(story)))
    if not story or len(story) > 3 or own & theirs:
        return problem
    parts = sentences(problem.question)
    between = len(parts) > 1 and not _PRONOUN.search(parts[-1]) and r.random() < 0.5
    place = len(parts) - 1 if between else 0
    return replace(problem, question=" ".join([*parts[:place], *story, *parts[place:]]))


def partial(problem: Problem, r: Random) -> Problem:
    """Returns a problem that asks for an intermediate result of one with several subgoals, so that the rest of its text does not matter."""
    story = [s for s in sentences(problem.question) if not _ASKED.search(s) and not _TOLD.search(s)]
    chosen = r.randrange(len(problem.steps) - 1)
    if not story or any(len(step.formulas) > 1 for step in problem.steps):
        return problem
    needed, formulas = {chosen}, problem.formulas
    for index in range(chosen, -1, -1):
        if index in needed:
            needed |= {int(number) - 1 for number in _VARIABLE.findall(formulas[index])}
    fresh = {f"R{old + 1}": f"R{new}" for new, old in enumerate(sorted(needed), 1)}
    steps = tuple(
        Step(problem.steps[i].goal, (re.sub(r"R\d+", lambda found: fresh[found.group()], formulas[i]),)) for i in sorted(needed)
    )
    goal = steps[-1].goal
    if goal.startswith("how ") and r.random() < 0.6:
        question = goal[0].upper() + goal[1:] + "?"
    elif goal.startswith(("the ", "his ", "her ", "their ")) and r.random() < 0.6:
        question = f"What is {goal}?"
    else:
        question = r.choice(("Calculate ", "Find ")) + goal + "."
    value = evaluate_actions([step.formulas[0] for step in steps])
    assert value is not None
    return replace(problem, question=" ".join([*story, question]), steps=steps, answer=value)


def varied(problem: Problem, others: list[Problem], names: Names, r: Random) -> Problem:
    """Returns a problem with the same structure as one of a data set, or a part of it."""
    if len(problem.steps) > 1 and r.random() < 0.3:
        problem = partial(problem, r)
    if r.random() < 0.85:
        problem = renumbered(problem, r)
    if r.random() < 0.6:
        problem = names.exchanged(problem, r)
    if r.random() < 0.3:
        problem = other_things(problem, r)
    if r.random() < (0.25 if len(problem.formulas) < 3 else 0.05):
        problem = distracted(problem, others, r)
    if len(problem.formulas) < 3 and r.random() < 0.15:
        problem = after_another_story(problem, r.choice(others), r)
    return problem
