"""Converts GSM8K training questions to generator problems with their `<<a*b=c>>` annotations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

from .calculator import evaluate_actions
from .generator import split_of
from .story import Problem, Step, numbers_in

_ANNOTATION = re.compile(r"<<([^=<>]+)=([^<>]+)>>")
_LITERAL = re.compile(r"\d*\.?\d+")
_TERM = re.compile(r"(?<![\w.])(?:\d*\.\d+|\d+)")
_ALLOWED = re.compile(r"[\d.+\-*/() ]+")
CONSTANTS = frozenset(map(Fraction, (2, 3, 4, 7, 10, 12, 24, 30, 52, 60, 100, 365, 1000)))
MAX_FORMULAS = 2
SHARE = 0.08


def _formulas(question: str, answer: str) -> list[str] | None:
    """Returns the annotated calculations with variables for earlier results, or None if a number has no source."""
    told = {Fraction(number) for number in numbers_in(question)}
    results: dict[Fraction, str] = {}
    formulas: list[str] = []
    for expression, value in _ANNOTATION.findall(answer):
        expression = expression.replace(",", "").strip()
        if not _ALLOWED.fullmatch(expression) or _LITERAL.fullmatch(expression):
            return None
        used = [Fraction(number) for number in _LITERAL.findall(expression)]
        if any(n not in told and n not in results and n not in CONSTANTS for n in used):
            return None

        def source(found: re.Match) -> str:
            number = Fraction(found.group())
            return results[number] if number in results and number not in told else found.group()

        formula = _TERM.sub(source, expression.replace(" ", ""))
        formulas.append(re.sub(r"([+\-*/])", r" \1 ", formula))
        computed = evaluate_actions(formulas)
        if computed is None:
            return None
        results[computed] = f"R{len(formulas)}"
    return formulas


def _asked(question: str) -> str | None:
    """Returns the last sentence of a question as a goal."""
    sentence = re.split(r"(?<=[.?!,]) ", question.strip())[-1].rstrip("?").strip()
    start = re.search(r"\b[Hh]ow (?:many|much|long|far|old)\b|\b[Ww]hat\b", sentence)
    if start is None or not question.strip().endswith("?"):
        return None
    text = sentence[start.start() :]
    return text[0].lower() + text[1:]


def load(path: Path) -> list[Problem]:
    """Returns the short problems of the training file whose calculation can be traced."""
    problems = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        question = " ".join(record["question"].split())
        formulas, goal = _formulas(question, record["answer"]), _asked(question)
        if not formulas or goal is None or len(formulas) > MAX_FORMULAS or len(question) > 400:
            continue
        if len(formulas) > 1 and "R1" not in formulas[1]:
            continue
        value = evaluate_actions(formulas)
        gold = Fraction(record["answer"].split("####")[-1].replace(",", "").strip())
        problem = Problem("gsm8k", question, (Step(goal, tuple(formulas)),), gold, None)
        if value == gold and split_of(problem) == "train":
            problems.append(problem)
    return problems


def renumbered(problem: Problem, r: Random) -> Problem:
    """Returns a problem with other integers, or unchanged if that is not possible."""
    told = numbers_in(problem.question)
    fresh = {}
    literals = {term for formula in problem.formulas for term in _TERM.findall(formula)}
    if not literals <= {*told, "2"}:
        return problem
    for number in set(told):
        in_digits = re.search(rf"(?<![\d.,/]){number}(?![\d,/%]|\.\d)", problem.question)
        if told.count(number) == 1 and in_digits and number.isdigit() and int(number) > 2:
            fresh[number] = str(r.randint(max(2, int(number) // 2), 2 * int(number)))

    def swap(found: re.Match) -> str:
        return fresh.get(found.group(), found.group())

    question = re.sub(r"(?<![\d.,/])\d+(?![\d,/%]|\.\d)", swap, problem.question)
    step = problem.steps[0]
    formulas = [re.sub(r"(?<![\w.])\d+(?![\d.])", swap, formula) for formula in step.formulas]
    values = [evaluate_actions(formulas[: i + 1]) for i in range(len(formulas))]
    if any(value is None or value <= 0 or value.denominator != 1 for value in values):
        return problem
    goal = re.sub(r"(?<![\d.,/])\d+(?![\d,/%]|\.\d)", swap, step.goal)
    changed = Problem(problem.kind, question, (Step(goal, tuple(formulas)),), values[-1], None)
    return changed if split_of(changed) == "train" else problem


def mixed(stream: Iterator[Problem], path: Path | None, r: Random) -> Iterator[Problem]:
    """Yields the generator's stream, with a share of GSM8K training problems if their file is given."""
    extra = load(path) if path else []
    for problem in stream:
        yield renumbered(r.choice(extra), r) if extra and r.random() < SHARE else problem
