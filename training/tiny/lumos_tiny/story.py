"""Building blocks of a generated problem: worlds, facts, questions, and their assembly into text.

A *world* is a numerically consistent situation with more facts than one question needs. Each of its
questions lists the facts that the text must contain and those that it must not contain. Other facts may be
included as distractors. The same story therefore has different questions, and the answer depends on the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from . import words
from .calculator import evaluate_actions

Number = int | str
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ARTICLE = re.compile(r"(?<=[a-z,] )(?:A|The)(?= [a-z])")
_REPEATED = re.compile(r"\b(altogether|in total|in all|together) (?:altogether|in total|in all|together)\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Step:
    """A subgoal: its goal, and its formulas (variables R1, R2, ... are numbered across the problem)."""

    goal: str
    formulas: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """A finished problem."""

    kind: str
    question: str
    steps: tuple[Step, ...]
    answer: Fraction
    other_goal: str | None

    @property
    def formulas(self) -> list[str]:
        """All formulas in order."""
        return [formula for step in self.steps for formula in step.formulas]


@dataclass(frozen=True)
class Fact:
    """A sentence of the story. `vague` can replace it if the fact must not be in the text."""

    key: str
    text: str
    vague: str | None = None


@dataclass(frozen=True)
class Ask:
    """A question about a world."""

    text: str
    steps: tuple[Step, ...]
    need: str
    hide: str = ""

    @property
    def goal(self) -> str:
        """The goal of the last step."""
        return self.steps[-1].goal


class Teller:
    """Expands `[one|other]` choices and `{slots}`. Integers are written in digits or, if small, in words."""

    def __init__(self, r: Random, **slots: object) -> None:
        self.r = r
        self.wordy = r.random() < 0.12
        self.money_style = r.choice(("${}", "${}", "${}", "$ {}", "{} dollars", "{} dollars", "$ {} dollars"))
        self.slots: dict[str, str] = {}
        self.set(**slots)

    def set(self, **slots: object) -> None:
        """Adds slots."""
        for name, value in slots.items():
            self.slots[name] = self.number(value) if isinstance(value, int) else str(value)

    def number(self, value: int) -> str:
        """Returns an integer as text."""
        if value <= 20 and (self.wordy or self.r.random() < 0.05) and value > 0:
            return words.SMALL[value]
        if value >= 1000 and self.r.random() < 0.6:
            return f"{value:,}"
        return str(value)

    def cash(self, value: Number) -> str:
        """Returns an amount of money as text."""
        return self.money_style.format(f"{value:,}" if isinstance(value, int) and value >= 1000 else value)

    def __call__(self, template: str, **slots: object) -> str:
        """Expands a template."""
        if slots:
            self.set(**slots)
        while (found := _CHOICE.search(template)) is not None:
            option = self.r.choice(found.group(1).split("|"))
            template = template[: found.start()] + option + template[found.end() :]
        text = template.format_map(self.slots)
        text = _ARTICLE.sub(lambda found: found.group().lower(), text)
        text = _REPEATED.sub(r"\1", re.sub(r"  +", " ", text))
        return text.replace(" .", ".").replace(" ,", ",").replace(" ?", "?").strip()

    def ask(self, text: str, goal: str, formulas: str | list[str], need: str, hide: str = "") -> Ask:
        """Returns a question with one subgoal."""
        if isinstance(formulas, str):
            formulas = [formulas]
        return Ask(self(text), (Step(self(goal), tuple(formulas)),), need, hide)

    def plan(self, text: str, steps: list[tuple[str, str | list[str]]], need: str, hide: str = "") -> Ask:
        """Returns a question with several subgoals."""
        built = tuple(Step(self(g), (f,) if isinstance(f, str) else tuple(f)) for g, f in steps)
        return Ask(self(text), built, need, hide)

    def fact(self, key: str, text: str, vague: str | None = None) -> Fact:
        """Returns a fact of the world."""
        return Fact(key, self(text), None if vague is None else self(vague))


@dataclass
class World:
    """A situation, with the questions that can be asked about it."""

    teller: Teller
    facts: list[Fact]
    asks: list[Ask]
    shuffle: bool = False
    lead: list[str] = field(default_factory=list)
    extra: float = 0.35


def numbers_in(text: str) -> list[str]:
    """Returns the numbers in a text, in order and in the format of formulas."""
    found: list[tuple[int, str]] = []
    for match in re.finditer(r"\d[\d,]*(?:\.\d+)?", text):
        found.append((match.start(), match.group().replace(",", "").rstrip(".")))
    for match in re.finditer(r"[A-Za-z]+", text):
        word = match.group().lower()
        if word in words.SMALL:
            found.append((match.start(), str(words.SMALL.index(word))))
    return [number for _, number in sorted(found)]


def _canonical(formula: str, told: list[str]) -> str:
    """Orders the literal terms of a pure sum or product as in the text."""
    for sign in (" + ", " * "):
        parts = formula.split(sign)
        if len(parts) > 1 and all(_NUMBER.fullmatch(part) for part in parts):
            rank = {number: i for i, number in reversed(list(enumerate(told)))}
            return sign.join(sorted(parts, key=lambda part: rank.get(part, len(told))))
    return formula


def _lower_first(sentence: str) -> str:
    """Changes the first letter to lower case if the first word is a common one."""
    first = sentence.split(" ", 1)[0]
    if first in _NAMES or first == "I" or not first[0].isalpha():
        return sentence
    common = first.lower() in _LOWERABLE
    return sentence[0].lower() + sentence[1:] if common else sentence


_NAMES = frozenset(words.MEN) | frozenset(words.WOMEN)
_LOWERABLE = frozenset(
    """there the each he she they it a an his her their every one two three four five six seven eight nine ten
    in on now so over by if after before then later during some all out of at for""".split()
)

_NOISE = (
    "{A} is {n} years old.",
    "The [store|shop|school|library|park] is {n} [miles|blocks|minutes] away.",
    "It took {A} {n} minutes to [get there|finish|walk home].",
    "{A} has {n} [cousins|friends|brothers and sisters].",
    "There were also {n} {Z} [there|nearby|in the {P}|on the table].",
    "{A} also [has|had|owns|saw|found] {n} {Z}.",
    "The weather was {n} degrees that day.",
    "{A} woke up {n} hours [earlier|later] than usual.",
)
_CALM = (
    "{A} [likes|loves|enjoys] {Z}.",
    "It was a [sunny|rainy|busy|quiet|cold] [day|morning|afternoon].",
    "{A} was [very happy|tired|excited|hungry] that day.",
    "[Everyone|The whole family] was [there|happy|looking forward to it].",
    "{A} went to the {P}.",
    "{A} lives near the {P}.",
)


def filler(r: Random, teller: Teller, numeric: bool) -> str:
    """Returns a sentence that is unrelated to the question."""
    names = {"A": teller.slots.get("A", r.choice(words.MEN + words.WOMEN)), "Z": r.choice(words.THINGS)}
    own = Teller(r, n=r.randint(2, 60), P=r.choice(words.PLACES), **names)
    return own(r.choice(_NOISE if numeric else _CALM))


def _join(r: Random, sentences: list[str], question: str) -> str:
    """Joins the story and its question in one of several layouts."""
    layout = r.random()
    last = sentences[-1]
    bare = last[:-1] if last.endswith(".") else last
    simple = "." not in bare and "If " not in bare and not bare.startswith(("Then", "Later", "After"))
    if simple and layout < 0.25:
        mark = r.choice(("", "", ",", ","))
        asked = question if not mark or r.random() < 0.3 else question[0].lower() + question[1:]
        return " ".join([*sentences[:-1], "If " + _lower_first(bare) + mark, asked])
    if simple and layout < 0.29 and question.endswith("?"):
        return " ".join([*sentences[:-1], question[:-1] + " if " + _lower_first(bare) + "?"])
    if layout < 0.33 and len(sentences) > 1:
        return " ".join([question, *sentences])
    if layout < 0.38 and simple and len(sentences) > 1:
        previous = sentences[-2][:-1]
        if "." not in previous:
            return " ".join([*sentences[:-2], previous + " and " + _lower_first(bare) + ".", question])
    return " ".join([*sentences, question])


def _disturb(r: Random, text: str) -> str:
    """Adds small typographical irregularities, as in real problem sets."""
    chance = r.random()
    if chance < 0.02:
        return text.lower()
    if chance < 0.04:
        return text.replace(",", "")
    if chance < 0.06:
        return text.replace(". ", " . ")
    if chance < 0.08 and text.endswith("?"):
        return text[:-1] + " ?"
    return text


def _introduce(sentences: list[str], teller: Teller) -> list[str]:
    """Replaces a leading pronoun of the story by the name of the main actor."""
    name = teller.slots["A"]
    for index, sentence in enumerate(sentences):
        if name in sentence:
            break
        if sentence.startswith(("He ", "She ")):
            sentences[index] = name + sentence[sentence.index(" ") :]
            break
    return sentences


def assemble(r: Random, kind: str, world: World) -> Problem | None:
    """Chooses a question, assembles the text and checks the result. Returns None if the problem is invalid."""
    ask, teller = r.choice(world.asks), world.teller
    need, hide = set(ask.need.split()), set(ask.hide.split())
    sentences: list[str] = []
    budget = 3
    for fact in world.facts:
        if fact.key in need:
            sentences.append(fact.text)
        elif fact.key in hide:
            if fact.vague is not None and r.random() < 0.7:
                sentences.append(fact.vague)
        elif budget and r.random() < world.extra:
            sentences.append(fact.text)
            budget -= 1
        elif fact.vague is not None and r.random() < 0.3:
            sentences.append(fact.vague)
    if world.shuffle and r.random() < 0.6:
        r.shuffle(sentences)
    if r.random() < 0.07:
        sentences.insert(r.randint(0, len(sentences)), filler(r, teller, numeric=True))
    if world.lead and r.random() < 0.35:
        sentences.insert(0, teller(r.choice(world.lead)))
    elif r.random() < 0.07:
        sentences.insert(0, filler(r, teller, numeric=False))
    if not sentences:
        return None
    sentences = _introduce([sentence[0].upper() + sentence[1:] for sentence in sentences], teller)
    question = _disturb(r, _join(r, sentences, ask.text[0].upper() + ask.text[1:]))
    told = numbers_in(question)
    steps = tuple(Step(s.goal, tuple(_canonical(f, told) for f in s.formulas)) for s in ask.steps)
    formulas = [formula for step in steps for formula in step.formulas]
    answer = evaluate_actions(formulas)
    if answer is None or answer <= 0 or answer > 10**7 or (answer * 100).denominator != 1:
        return None
    others = [other.goal for other in world.asks if other.goal != ask.goal]
    return Problem(kind, question, steps, answer, r.choice(others) if others else None)
