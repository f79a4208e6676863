"""Exact evaluation of formulas with fractions: numbers, variables, + - * / and parentheses."""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

_VARIABLE = re.compile(r"R\d+")
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _value(node: ast.expr, text: str) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, text), _value(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, text)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return Fraction(ast.get_source_segment(text, node))
    raise ValueError(text)


def evaluate_formula(formula: str, results: dict[str, Fraction]) -> Fraction | None:
    """Returns the value of a formula, or None if it cannot be evaluated."""
    try:
        text = _VARIABLE.sub(lambda found: f"({results[found.group()]})", formula).strip()
        return _value(ast.parse(text, mode="eval").body, text)
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
