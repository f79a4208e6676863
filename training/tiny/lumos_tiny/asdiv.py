"""Reads ASDiv (Miao et al. 2020): `dataset/ASDiv.xml` of chaochun/nlu-asdiv-dataset."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

from .calculator import evaluate_actions, show
from .sources import asked
from .story import Problem, Step

MAX_FORMULAS = 3
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _formulas(expression: str) -> list[str] | None:
    """Returns the formulas of an expression, an operation each, or None if it has anything but operations on numbers."""
    formulas: list[str] = []

    def operand(node: ast.expr) -> str:
        if isinstance(node, ast.Constant):
            return show(Fraction(str(node.value)))
        if not isinstance(node, ast.BinOp):
            raise ValueError
        formulas.append(f"{operand(node.left)} {_OPERATORS[type(node.op)]} {operand(node.right)}")
        return f"R{len(formulas)}"

    try:
        operand(ast.parse(expression.replace("%", "/100"), mode="eval").body)
    except (SyntaxError, ValueError, KeyError):
        return None
    return formulas or None


def load(path: Path) -> list[Problem]:
    """Returns the problems with one calculation and one number as the answer, which follows from it."""
    problems = []
    for record in ElementTree.parse(path).iter("Problem"):
        body, question, formula, answer = (" ".join((record.findtext(key) or "").split()) for key in ("Body", "Question", "Formula", "Answer"))
        text = f"{body} {question}".strip()
        expression, _, result = formula.partition("=")
        goal, number = asked(text), re.fullmatch(r"(\d+(?:\.\d+)?) *(?:\([^()]*\))?", answer)
        formulas = _formulas(expression)
        if goal is None or number is None or formulas is None or len(formulas) > MAX_FORMULAS or not re.fullmatch(r"[\d.]+", result):
            continue
        value = evaluate_actions(formulas)
        if value is not None and value > 0 and abs(value - Fraction(number[1])) < Fraction(1, 100):
            problems.append(Problem("asdiv", text, (Step(goal, tuple(formulas)),), value, None))
    return problems
