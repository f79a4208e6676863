"""The oracle of web pages: it knows the gold steps of generated tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..texts import ASK_STOP, ASSISTANT, KEEP, NEXT_USER, PLAN, USER

PLAN_HEAD = USER + PLAN + "Task: "
PLAN_TAIL = "; Initial Environment Description: None." + ASSISTANT
GROUND_HEAD = (
    USER + "Please ground the given subgoal to corresponding executable actions for solving the given task. The grounded actions must "
    "be the one in available action list.\n\n"
    "The available action list is 'CLICK', 'TYPE', 'SELECT'.\n"
    "CLICK(Env, Query): Click the relevant html region in Env according to Query; TYPE(Env, Query, Text): Type Text into the relevant "
    "html region in Env according to Query; SELECT(Env, Query, Text): Select the value Text of the relevant selection box in Env "
    "according to Query.\n\nTask: "
)
GROUND_TAIL = " \nSubgoal to be grounded: "
NEXT_SUBGOAL = NEXT_USER + "Subgoal to be grounded: "
DONE = NEXT_USER + "We have already "

ROLES = ("a", "link", "button", "input", "textbox", "select", "combobox")
# The verbs of the product's sentences of gold steps (`tasks/src/families/web/prompts.rs`).
VERBS = ("Visit", "Click", "Find and go into", "Enter", "Type", "Input", "Put text", "Select", "Choose", "Pick up")

CONSTANTS = [
    *(": " + verb for verb in VERBS), *(DONE + verb.lower() for verb in VERBS), *(" in the " + role for role in ROLES),
    *("Subgoal " + str(number) for number in range(1, 9)), *(f"{KEEP}Subgoal {number}" for number in range(2, 9)),
    PLAN_HEAD, PLAN_TAIL, GROUND_HEAD, GROUND_TAIL, NEXT_SUBGOAL, DONE, ASK_STOP, KEEP, " = CLICK(", " = TYPE(", " = SELECT(", "Env",
    ", QUERY:", ", TEXT:", ")", ": ",
]  # fmt: skip


def sentence(step: dict) -> str:
    """Returns a step in the words of the product's sentences of gold steps."""
    if step["operation"] == "CLICK":
        return f"Click {step['role']} {step['said']}"
    return f"{step['operation'].capitalize()} {step['value']} in the {step['role']} {step['said']}"


def query(role: str, label: str) -> str:
    """Returns the query for an element.

    The ranker's question also contains the last three gold actions. The element's words are repeated, so that they outweigh those:
    with a ranker of words and perfect subgoals, element accuracy on generated pages (corrected behaviour) is 44 % with the label
    alone and 84 % with this query.
    """
    return " ".join([f"{role} {label}"] * 3)


def grounded(subgoal: str, number: int) -> str:
    """Returns the action of a subgoal `Subgoal 2: Type Oslo in the input To`."""
    text = subgoal.split(": ", 1)[1]
    page = "Env" if number == 1 else f"R{number - 1}"
    if text.startswith("Click "):
        _, role, label = text.split(" ", 2)
        return f"R{number} = CLICK({page}, QUERY: {query(role, label)})"
    verb, rest = text.split(" ", 1)
    value, element = rest.split(" in the ", 1)
    return f"R{number} = {verb.upper()}({page}, QUERY: {query(*element.split(' ', 1))}, TEXT: {value})"


class Oracle:
    """Replies to the prompts of planner and grounder."""

    def __init__(self, folder: Path, formulation: str = "iterative") -> None:
        """Reads `oracle.jsonl` in the folder of `generate`."""
        with (folder / "oracle.jsonl").open() as file:
            self.steps = {row["task"]: row["steps"] for row in map(json.loads, file)}

    def reply(self, prompt: str) -> str:
        """Returns the reply to a prompt, or nothing if it is not about a known task."""
        if prompt.startswith(GROUND_HEAD):
            subgoal = prompt.rsplit("Subgoal to be grounded: ", 1)[1].removesuffix(ASSISTANT)
            return grounded(subgoal, int(re.match(r"Subgoal (\d+)", subgoal)[1]))
        if not prompt.startswith(PLAN_HEAD):
            return ""
        steps = self.steps.get(prompt[len(PLAN_HEAD) :].split(PLAN_TAIL, 1)[0], [])
        number = prompt.count(DONE) + 1
        if number > len(steps):
            return ""
        keep = KEEP if number > 1 else ""
        return f"{keep}Subgoal {number}: {sentence(steps[number - 1])}"
