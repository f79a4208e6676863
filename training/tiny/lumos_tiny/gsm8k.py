"""Reads GSM8K's training questions: a subgoal for each `<<a*b=c>>` annotation of the solution."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

from .calculator import evaluate_actions, evaluate_formula, show
from .sources import asked
from .story import Problem, Step, numbers_in

_ANNOTATION = re.compile(r"<<([^=<>]+)=([^<>]+)>>")
_LITERAL = re.compile(r"\d*\.?\d+")
_TERM = re.compile(r"(?<![\w.])(?:\d*\.\d+|\d+)")
_ALLOWED = re.compile(r"[\d.+\-*/() ]+")
#: Numbers that a question may imply, such as by *half*, *a dozen* or *a week*.
CONSTANTS = frozenset(map(Fraction, (*range(1, 13), 24, 30, 31, 52, 60, 100, 365, 1000, "0.5", "0.25", "1.5")))
_UNFINISHED = re.compile(r"[#<>=*+]| - |\n|\b(?:is|of|at|so|and|if|because|since|the|a|per)$|^the number of \w+$")
MAX_FORMULAS = 8
MAX_QUESTION = 600
#: Formulas of one subgoal.
MAX_TOGETHER = 3
_TRIVIAL = re.compile(r"<<[\d.,]*=[\d.,]*>>")
#: A calculation in the text of a solution, with its result.
_CALCULATION = re.compile(r"(?<![\w.,/%>)])((?:\(?\$?\d[\d,]*(?:\.\d+)?\)?(?: ?[a-z]+)? ?[-+*/x] ?)+\(?\$?\d[\d,]*(?:\.\d+)?\)?)(?: ?[a-z]+)? ?= ?\$?(\d[\d,]*(?:\.\d+)?)(?![\d,]*[\d/%])")
_LEADING = re.compile(
    r"^(?:(?:so|then|thus|therefore|hence|next|first|second|finally|now|and|since|this means|that means|which means|meaning|this is|that is|we know|"
    r"in total|altogether|if|that|because|as|for|to|we (?:first )?(?:find|know|need to find)(?: that)?|(?:first )?find)\b[,:]?\s*)+",
    re.I,
)
_COMMON = frozenset(
    """he she they it the his her their its we you a an each every this that these those there in on at from during after before half all one two
    three four five both with by for if when to over total""".split()
)
_WHEN = frozenset("In On At From During After Before By For With Over When".split())
_BE = r"(?:is|are|was|were|=|equals|would be|will be|costs?|totals?|comes to|amounts to)"
_THERE = re.compile(r"^there (?:are|were|is|was|will be|would be)\b(?: now| a total of| only| still)?\s*\$?#\s*(.+)$", re.I)
_QUANTITY = re.compile(rf"^((?:the|his|her|their|its|each|every|all|\w+'s?|\w+s') [^#]*?) {_BE}(?: now| only| a total of)?\s*\$?#", re.I)
_CLAUSE = re.compile(r"^([^#]{2,}?)\s*(?:a total of |only |about )?(\$?)#\s*(.*)$")
_UNIT = re.compile(r"^((?:[a-z][a-z-]*)(?: (?!in\b|on\b|at\b|for\b|per\b|of\b|every\b|each\b|a\b|an\b|and\b|to\b|left\b|from\b|more\b|that\b|than\b|during\b|with\b|by\b|after\b|before\b|because\b|since\b|total\b|altogether\b|over\b|so\b|as\b|the\b|all\b|together\b)[a-z][a-z-]*)?)\b\s*(.*)$")


def annotated(answer: str) -> str:
    """Returns a solution in which calculations without an annotation have one too, if their results are right, and annotations without one have none."""

    def annotate(found: re.Match) -> str:
        expression = re.sub(r"[$,a-wyz ]", "", found[1]).replace("x", "*")
        result = found[2].replace(",", "")
        if evaluate_formula(expression, {}) != Fraction(result):
            return found.group()
        return f"{found.group()[: found.start(2) - found.start()]}<<{expression}={result}>>{found[2]}"

    lines = []
    answer = _TRIVIAL.sub("", answer)
    for line in answer.split("\n"):
        if "####" not in line and "<<" not in line:
            line = _CALCULATION.sub(annotate, line)
        lines.append(line)
    return "\n".join(lines)


def _formulas(question: str, answer: str) -> list[str] | None:
    """Returns the annotated calculations with variables for earlier results, or None if a number has no source."""
    told = {Fraction(number) for number in numbers_in(question)}
    percents = {Fraction(number) for number in re.findall(r"(\d+(?:\.\d+)?) ?(?:%|percent)", question)}
    results: dict[Fraction, list[str]] = {}
    used: set[Fraction | str] = set()
    formulas: list[str] = []
    for expression, _ in _ANNOTATION.findall(answer):
        expression = expression.replace(",", "").strip()
        if not _ALLOWED.fullmatch(expression):
            return None
        unknown = False

        def source(found: re.Match) -> str:
            # A result is usually used once, and a number of the question before an equal result.
            nonlocal unknown
            number = Fraction(found.group())
            if number in results and (number not in told or number in used):
                fresh = [name for name in results[number] if name not in used]
                name = (fresh or results[number])[-1]
                used.add(name)
                return name
            if number in told:
                used.add(number)
                return show(number)
            for percent in percents:
                for whole, text in ((0, "({} / 100)"), (1, "(1 - {} / 100)"), (-1, "(1 + {} / 100)")):
                    if number == abs(whole - percent / 100) and not (whole == -1 and number < 1):
                        return text.format(show(percent))
            unknown = number not in CONSTANTS or unknown
            return show(number)

        formula = _TERM.sub(source, expression.replace(" ", ""))
        if unknown:
            return None
        formulas.append(re.sub(r" *([+\-*/]) *", r" \1 ", formula).replace("( - ", "(0 - "))
        computed = evaluate_actions(formulas)
        if computed is None:
            return None
        results.setdefault(computed, []).append(f"R{len(formulas)}")
    return formulas


def _told_as(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip(" .,;:!=")


def _lower(text: str) -> str:
    """Returns a text with a small first letter, if its first word is a common one."""
    first = re.split(r"[ ,']", text, maxsplit=1)[0].lower()
    return text[:1].lower() + text[1:] if first in _COMMON else text


def _without_calculation(head: str, expression: str) -> str | None:
    """Returns a text without the calculation at its end, which ends with an equals sign."""
    needed = len(_LITERAL.findall(expression))
    for match in reversed(list(re.finditer(r"\(?\$?\d[\d.,/]*%?", head))):
        needed -= max(1, len(re.findall(r"\d+(?:\.\d+)?", match.group())))
        if needed <= 0:
            return head[: match.start()]
    return None


def _goal(line: str, expression: str, value: str) -> str | None:
    """Returns what a sentence of a solution calculates, as a goal without the calculation, or None if its form is not known.

    `#` in `line` is the annotation. *Natalia sold 48/2 = #24 clips in May* gives *how many clips Natalia sold in May*.
    """
    head, _, tail = line.partition("#")
    money = "$" if "$" in line else ""
    head = re.sub(r"[$\s]*$", "", head)
    if head.endswith("="):
        head = _without_calculation(head[:-1], expression) or ""
    head = re.sub(r"^.*[.;] ", "", head)
    tail = re.split(r"[.;](?: |$)", re.sub(r"^\$?[\d.,]*\d", "", tail))[0]
    if (because := re.search(r"\b(?:because|since)\s*$", head)) and value in head:
        head, _, tail = head[: because.start()].partition(value)
    sentence = f"{_told_as(_LEADING.sub('', head.strip()))} # {_told_as(tail)}".strip()
    if found := _THERE.match(sentence):
        goal = ("how many " if found[1].startswith(("of ", "more ")) else "the number of ") + found[1]
    elif found := _QUANTITY.match(sentence):
        cost = money and re.search(r"costs?\s*\$?#", sentence) and not re.search(r"\b(?:cost|price|total|amount)\b", found[1])
        goal = ("the cost of " if cost else "") + _lower(found[1])
    elif sentence.startswith("#"):
        goal = ("how much " if money else "the number of ") + sentence[1:].strip()
    elif found := _CLAUSE.match(sentence):
        subject, _, rest = found.groups()
        *first, subject = re.split(r", (?:so |and |then )?| so (?:that )?|: ", subject)
        when = f" {_lower(first[0])}" if first and first[0].split(" ")[0] in _WHEN else ""
        unit = None if money else _UNIT.match(rest)
        if re.match(r"the (?:total|number|amount|cost|price)\b", subject, re.I):
            return _told_as(_lower(re.sub(rf" {_BE}$", "", subject)) + when)
        goal = f"how many {unit[1]} {_lower(subject)} {unit[2]}" if unit else f"how {'much' if money else 'many'} {_lower(subject)} {rest}"
        goal = _told_as(goal) + when
    else:
        return None
    goal = _told_as(goal)
    return goal if 10 < len(goal) < 110 and not _UNFINISHED.search(goal) else None


def _goals(answer: str) -> list[str | None]:
    goals: list[str | None] = []
    for line in answer.split("\n"):
        for found in _ANNOTATION.finditer(line):
            text = _ANNOTATION.sub("", line[: found.start()]) + "#" + _ANNOTATION.sub("", line[found.end() :])
            goals.append(_goal(text, found[1], found[2]))
    return goals


def _steps(goals: list[str | None], formulas: list[str], question: str) -> tuple[Step, ...]:
    """Returns subgoals. A formula without a goal of its own belongs to the next one: no goal is known, it repeats one, or has a result in its text."""
    told, steps, waiting = set(numbers_in(question)), [], []
    for number, (goal, formula) in enumerate(zip(goals, formulas, strict=True)):
        waiting.append(formula)
        last = number == len(goals) - 1
        own = goal is not None and goal not in goals[number + 1 :] and not set(re.findall(r"\d+", goal)) - told
        if goal is not None and (own or last):
            steps.append(Step(goal, tuple(waiting)))
            waiting = []
    return tuple(steps)


def load(path: Path) -> list[Problem]:
    """Returns the problems of the training file whose calculation can be traced."""
    problems = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        question, answer = " ".join(record["question"].split()), annotated(record["answer"])
        formulas, goal = _formulas(question, answer), asked(question)
        if not formulas or goal is None or len(formulas) > MAX_FORMULAS or len(question) > MAX_QUESTION:
            continue
        value = evaluate_actions(formulas)
        if value != Fraction(record["answer"].split("####")[-1].replace(",", "").strip()):
            continue
        steps = _steps([*_goals(answer)[:-1], goal], formulas, question)
        if max(len(step.formulas) for step in steps) <= MAX_TOGETHER:
            problems.append(Problem("gsm8k", question, steps, value, None))
    return problems
