"""Exact evaluation of formulas with fractions: numbers, variables, + - * / and parentheses."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from functools import lru_cache
from types import CodeType

_NUMBER = re.compile(r"R\d+|\d+(?:\.\d+)?|\.\d+")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub)


def _checked(node: ast.expr) -> None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS):
        _checked(node.left)
        _checked(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, _OPERATORS):
        _checked(node.operand)
    elif not isinstance(node, ast.Subscript):
        raise ValueError


@lru_cache(4096)
def _compiled(form: str) -> CodeType:
    """Returns the code of a formula with `n[0]`, `n[1]`, … in place of its numbers. Formulas with other numbers share it."""
    tree = ast.parse(form, mode="eval")
    _checked(tree.body)
    return compile(tree, "formula", "eval")


def evaluate_formula(formula: str, results: dict[str, Fraction]) -> Fraction | None:
    """Returns the value of a formula, or None if it cannot be evaluated."""
    numbers: list[Fraction] = []

    def place(found: re.Match) -> str:
        text = found.group()
        numbers.append(results[text] if text[0] == "R" else Fraction(int(text)) if text.isdecimal() else Fraction(text))
        return f"n[{len(numbers) - 1}]"

    try:
        form = _NUMBER.sub(place, formula).strip()
        if "n" in formula or "[" in formula:
            return None
        return eval(_compiled(form), {"__builtins__": {}, "n": numbers})  # noqa: S307 (only operators on the numbers)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError):
        return None


def evaluate_actions(formulas: list[str]) -> Fraction | None:
    """Returns the value of the last of several formulas, which are evaluated in order as R1, R2, ..."""
    results: dict[str, Fraction] = {}
    value = None
    for number, formula in enumerate(formulas, 1):
        value = evaluate_formula(formula, results)
        if value is None:
            return None
        results[f"R{number}"] = value
    return value


def show(value: Fraction) -> str:
    """Formats integers and terminating decimals in full and other rationals as reduced fractions, like lumos."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = 1
    while (value * 10**digits).denominator != 1:
        digits += 1
    scaled = abs(value.numerator * 10**digits // value.denominator)
    whole, part = divmod(scaled, 10**digits)
    return f"{'-' if value < 0 else ''}{whole}.{part:0{digits}d}"
