"""Training conversations of the planner and the grounder, and their token sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tokenizers import Tokenizer

from . import protocol, words
from .calculator import evaluate_actions, show
from .onetime import marked
from .protocol import Turn
from .sources import asked
from .story import Problem
from .tokens import newline_id

IGNORE = -100
GENERIC_GOALS = ("the answer", "the final answer", "the result", "what is asked", "the unknown number", "the final amount")

#: Share of the grounder's conversations that have another list of actions.
OTHER_ACTIONS = 0.5
CALCULATIONS = (
    "Calculate the formula", "Calculate the input formula", "Calculate a formula", "Compute the formula", "Evaluate the formula", "Work out a calculation",
    "Compute an arithmetic expression", "Add, subtract, multiply or divide numbers", "Calculate with numbers and earlier results",
)  # fmt: skip
#: Actions that an agent of mathematics might have beside the calculator, with their arguments and descriptions.
BESIDE = (
    ("Convert", "amount, from, to", "Convert an amount of money"), ("Convert", "value, unit", "Convert a value to another unit"),
    ("Round", "number, digits", "Round a number"), ("Count", "list", "Count the number of elements in the given list"), ("Define", "variable", "Define a variable"),
    ("SetEquation", "equation", "Set up an equation to be solved"), ("SolveEquation", "equation", "Solve the previous set equation"),
    ("Code", "pseudo_code", "Generate a function that corresponds to the pseudo code"), ("Search", "query", "Search for pages"), ("Lookup", "name", "Look up a value"),
    ("Price", "item", "Find the price of an item"), ("Date", "day, month, year", "Find the day of the week of a date"), ("Distance", "from, to", "Find the distance between two places"),
)  # fmt: skip


def ground_head(r: Random) -> str:
    """Returns the beginning of the grounder's prompt: the benchmark's actions, or a calculator and some others, as an agent of one's own may have."""
    if r.random() >= OTHER_ACTIONS:
        return protocol.GROUND_HEAD
    actions = [("Calculator", r.choice(("formula", "formula", "expression", "calculation", "input")), r.choice(CALCULATIONS))]
    for _ in range(r.choice((0, 0, 0, 1, 1, 2, 3, 4))):
        name, arguments, text = r.choice(BESIDE)
        if r.random() < 0.2:
            name = words.invented_noun(r).capitalize()
        if name not in (action[0] for action in actions):
            actions.append((name, arguments, text))
    r.shuffle(actions)
    return protocol.other_ground_head(actions)


def goals_of(problem: Problem, formulas: bool) -> list[str]:
    """Returns the goals of a plan, with their `formulas` if wanted. The last is the question's own words, which a planner can copy from any question."""
    goals = [*(step.goal for step in problem.steps[:-1]), asked(problem.question) or problem.steps[-1].goal]
    if not formulas:
        return goals
    return [f"{goal}: {', then '.join(step.formulas)}" for goal, step in zip(goals, problem.steps, strict=True)]


def planner_iterative(problem: Problem, r: Random) -> list[Turn]:
    """Returns a conversation with one subgoal per turn and the executed results in between."""
    turns, done = [], []
    prompt = protocol.plan_prompt(problem.question)
    for number, (step, goal) in enumerate(zip(problem.steps, goals_of(problem, formulas=True), strict=True), 1):
        keep = protocol.KEEP if number > 1 else ""
        turns.append(Turn(prompt, keep + protocol.subgoal(number, goal)))
        done.extend(step.formulas)
        value = evaluate_actions(done)
        assert value is not None
        prompt = protocol.result_prompt(number, show(value))
    return [*turns, Turn(prompt, protocol.STOP)]


def planner_onetime(problem: Problem, r: Random) -> list[Turn]:
    """Returns a conversation with all subgoals in one reply."""
    reply = "; ".join(protocol.subgoal(i, goal) for i, goal in enumerate(goals_of(problem, formulas=True), 1))
    return [Turn(protocol.plan_prompt(problem.question), reply)]


def _goal_as_read(problem: Problem, goal: str, r: Random) -> str:
    """Returns the goal of a problem's only subgoal, sometimes another one, a vague or a wrong one, so that the question decides."""
    chance = r.random()
    if chance < 0.1:
        return r.choice(GENERIC_GOALS)
    if chance < 0.15 and problem.other_goal is not None:
        return problem.other_goal
    return problem.steps[0].goal if chance < 0.3 else goal


def grounder(problem: Problem, r: Random) -> list[Turn]:
    """Returns a conversation with the actions for the subgoals, one by one or all at once. Subgoals without their calculation occur too."""
    formulas = r.random() < 0.6
    goals = goals_of(problem, formulas)
    if len(goals) == 1 and not formulas:
        goals = [_goal_as_read(problem, goals[0], r)]
    subgoals = [protocol.subgoal(i, goal) for i, goal in enumerate(goals, 1)]
    head = ground_head(r)
    if r.random() < 0.5:
        prompt = protocol.ground_prompt(problem.question, "; ".join(subgoals), onetime=True, head=head)
        return [Turn(prompt, protocol.actions(problem.formulas, 1))]
    turns, variable = [], 1
    prompt = protocol.ground_prompt(problem.question, subgoals[0], onetime=False, head=head)
    for number, step in enumerate(problem.steps):
        if number:
            prompt = protocol.next_ground_prompt(protocol.KEEP + subgoals[number])
        turns.append(Turn(prompt, protocol.actions(list(step.formulas), variable)))
        variable += len(step.formulas)
    return turns


CONVERSATIONS: dict[str, Callable[[Problem, Random], list[Turn]]] = {
    "planner-iterative": planner_iterative,
    "planner-onetime": planner_onetime,
    "grounder": grounder,
}
#: Shares of the conversations, in their order.
SHARES = {"both": (0.45, 0.3, 0.25), "planner": (0.6, 0.4, 0), "grounder": (0, 0, 1)}


def conversation(problem: Problem, role: str, r: Random) -> tuple[str, list[Turn]]:
    """Returns a random conversation of a role, `planner`, `grounder` or `both`, and its kind."""
    (name,) = r.choices(list(CONVERSATIONS), SHARES[role])
    return name, CONVERSATIONS[name](problem, r)


@dataclass(frozen=True)
class Example:
    """Token ids and, for every position, the token to predict next (or IGNORE)."""

    ids: list[int]
    targets: list[int]


def encode(tokenizer: Tokenizer, turns: list[Turn], question: bool = False) -> Example:
    """Encodes a conversation as one sequence. Replies are learned; with `question`, the first prompt as well.

    Prompts begin and end with protocol tokens, so the text of a whole conversation encodes to the
    concatenation of its parts. After a reply, the target is the newline that stops generation, while
    the sequence itself continues with the next turn.
    """
    stop = newline_id(tokenizer)
    ids: list[int] = []
    targets: list[int] = []
    for turn in turns:
        prompt = tokenizer.encode(turn.prompt, add_special_tokens=False).ids
        reply = tokenizer.encode(turn.reply, add_special_tokens=False).ids
        ids += prompt + reply
        targets += prompt[1:] if question and turn is turns[0] else [IGNORE] * (len(prompt) - 1)
        targets += [*reply, stop]
    return Example(ids, targets)


def encoded(tokenizer: Tokenizer, problem: Problem, role: str, r: Random, kind: str | None = None, questions: float = 0.0) -> tuple[str, Example]:
    """Returns a random conversation, or one of a kind, as a sequence in which the planner's formulations differ, and its kind.

    `questions` is the share of conversations in which the question is learned too.
    """
    name, turns = (kind, CONVERSATIONS[kind](problem, r)) if kind else conversation(problem, role, r)
    example = encode(tokenizer, turns, question=r.random() < questions)
    return name, replace(example, ids=marked(tokenizer, example.ids)) if name == "planner-onetime" else example
