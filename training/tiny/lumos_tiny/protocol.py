"""The texts that the agent exchanges with its planner and its grounder."""

from __future__ import annotations

from dataclasses import dataclass

USER = "<|user|>\n"
ASSISTANT = "\n<|assistant|>\n"
NEXT_USER = "\n\n<|user|>\n"

PLAN_HEAD = USER + "Please provide a reasonable subgoal-based plan to solve the given task.\nTask: "
PLAN_TAIL = "; Initial Environment Description: None." + ASSISTANT
RESULT_HEAD = NEXT_USER + "The executed result for Subgoal "
RESULT_TAIL = ". Should we stop planning?" + ASSISTANT
KEEP = "No, I will keep planning. "
STOP = "Yes, I will stop planning."

GROUND_START = (
    USER + "Please ground the given subgoal to corresponding executable actions for solving the given task. "
    "The grounded actions must be the one in available action list.\n\n"
)
GROUND_HEAD = (
    GROUND_START + "The available action list is 'Calculator', 'SetEquation', 'SolveEquation', 'Count', 'SolveInequality', "
    "'Code', and 'Define'.\n"
    "Calculator(formula): Calculate the input formula; SetEquation(equation): Set up an equation to be solved; "
    "SolveEquation(equation): Solve the previous set equation; Count(list): Count the number of elements in the "
    "given list; SolveInequality(inequality): Solve the previous set inequality; Code(pseudo_code): Generate a "
    "Python function that corresponds to the pseudo code; Define(variable/number): Define a variable or a number "
    "for latter usage.\n\nTask: "
)
ONE_SUBGOAL = " \nSubgoal to be grounded: "
ALL_SUBGOALS = " \nSubgoals to be grounded: "
NEXT_SUBGOAL = NEXT_USER + "Subgoal to be grounded: "

CONSTANTS = [
    PLAN_HEAD, PLAN_TAIL, RESULT_HEAD, RESULT_TAIL, KEEP, STOP, GROUND_HEAD, ONE_SUBGOAL, ALL_SUBGOALS,
    NEXT_SUBGOAL, ASSISTANT, NEXT_USER, USER, "Subgoal ", ": Calculate ", " = Calculator(",
]  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """A text that is appended to the conversation, and the reply to it."""

    prompt: str
    reply: str


def subgoal(number: int, goal: str) -> str:
    """Returns a subgoal in the planner's format."""
    return f"Subgoal {number}: Calculate {goal}."


def plan_prompt(question: str) -> str:
    """Returns the first prompt of the planner in both formulations."""
    return PLAN_HEAD + question + PLAN_TAIL


def result_prompt(number: int, result: str) -> str:
    """Returns the text appended to the planner's conversation after a subgoal was executed."""
    return f"{RESULT_HEAD}{number} is {result}{RESULT_TAIL}"


def other_ground_head(actions: list[tuple[str, str, str]]) -> str:
    """Returns the beginning of the grounder's prompt for other actions: names, arguments and descriptions, as for an agent of a task file."""
    quoted = [f"'{name}'" for name, _, _ in actions]
    names = " and ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    described = "; ".join(f"{name}({arguments}): {text}" for name, arguments, text in actions)
    return f"{GROUND_START}The available action list is {names}.\n{described}.\n\nTask: "


def ground_prompt(question: str, subgoals: str, onetime: bool, head: str = GROUND_HEAD) -> str:
    """Returns the first prompt of the grounder."""
    return head + question + (ALL_SUBGOALS if onetime else ONE_SUBGOAL) + subgoals + ASSISTANT


def next_ground_prompt(reply: str) -> str:
    """Returns the text appended to the grounder's conversation for a later subgoal."""
    return NEXT_SUBGOAL + reply + ASSISTANT


def actions(formulas: list[str], start: int) -> str:
    """Returns the actions of consecutive formulas. The first assigns variable `R{start}`."""
    return "; ".join(f"R{i} = Calculator({formula})" for i, formula in enumerate(formulas, start))
