"""Reads MAWPS (Koncel-Kedziorski et al. 2016) in the form of the SVAMP repository: `data/cv_mawps/fold0/{train,dev}.csv`."""

from __future__ import annotations

import csv
import re
from fractions import Fraction
from pathlib import Path

from .calculator import evaluate_actions, show
from .sources import asked
from .story import Problem, Step

MAX_FORMULAS = 3
_GLUED = re.compile(r" (?=[.,?!;:%)]|'s\b|n't\b|'re\b|'ll\b)|(?<=\$) |(?<=\() ")


def _formulas(equation: list[str], numbers: list[str]) -> list[str] | None:
    """Returns the formulas of an equation in prefix notation, an operation each."""
    formulas: list[str] = []

    def operand() -> str:
        token = equation.pop(0)
        if token in "+-*/":
            left, right = operand(), operand()
            formulas.append(f"{left} {token} {right}")
            return f"R{len(formulas)}"
        return numbers[int(token.removeprefix("number"))] if token.startswith("number") else show(Fraction(token))

    try:
        operand()
    except (IndexError, ValueError):
        return None
    return formulas if not equation and formulas else None


def load(path: Path) -> list[Problem]:
    """Returns the problems of a file whose answer follows from their equation."""
    problems = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            numbers = [show(Fraction(number)) for number in row["Numbers"].split()]
            formulas = _formulas(row["Equation"].split(), numbers)
            question = re.sub(r"number(\d+)", lambda found: numbers[int(found[1])], " ".join(row["Question"].split()))  # noqa: B023
            question = _GLUED.sub("", question)
            goal = asked(question)
            if formulas is None or goal is None or re.search(r"\.\d{3}", question) or len(formulas) > MAX_FORMULAS:
                continue
            value = evaluate_actions(formulas)
            if value is not None and value > 0 and abs(value - Fraction(row["Answer"])) < Fraction(1, 100):
                problems.append(Problem("mawps", question, (Step(goal, tuple(formulas)),), value, None))
    return problems
