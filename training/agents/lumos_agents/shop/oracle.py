"""The oracle of the shop. It reads everything that it needs in the prompts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..texts import ASSISTANT, NEXT_USER, PLAN, USER

ROOT = Path(__file__).parents[4]
EXEMPLARS = ROOT / "tasks/src/families/shop/exemplars.json"

SUBGOALS = [
    "Subgoal 1: Search two relevant items and the product names according to the instruction.",
    "Subgoal 2: Select the most relevant features of item ",
    "Subgoal 3: Select the most relevant features of item ",
    "Subgoal 4: Pick up the most related one from the two relevant items according to the product names and their features.",
    "Subgoal 5: Buy this item by selecting its relevant features.",
]
GROUND = (
    "Please ground the given subgoal to corresponding executable actions for solving the given task. The grounded actions must be "
    "the one in available action list.\n\n"
    "The available action list is 'Search', 'FeatureRetrieve', 'Pick' and 'Click'.\n"
    "Search(Query): Search related items according to the Query; FeatureRetrieve(Feature_list, Query): Select the most relevant "
    "features from Feature_list according to Query; Pick(Item_names, Item_features, Query): Pick the most relevant item from "
    "Item_names according to Query, Item_names and Item_features; Click(Item): Click the Item to check more information.\n\n"
)
PLAN_TAIL = "; Initial Environment Description: None." + ASSISTANT
GROUND_TAIL = " \nSubgoal to be grounded: "
NEXT_SUBGOAL = NEXT_USER + "Subgoal to be grounded: "
RESULT = NEXT_USER + "The executed result for Subgoal "


def heads() -> tuple[str, str]:
    """Returns the beginnings of the planner's and of the grounder's prompts, up to the task: the product's worked examples."""
    exemplars = json.loads(EXEMPLARS.read_text())
    plan = ground = ""
    for planned, grounded in zip(exemplars["PLAN_EXAMPLARS"], exemplars["GROUND_EXAMPLARS"], strict=True):
        task = planned["instruction"]
        plan += f"{USER}{PLAN}Task: {task}{PLAN_TAIL}"
        ground += f"{USER}{GROUND}Task: {task}{GROUND_TAIL}"
        actions = [" || ".join(a.split(":", 1)[1].strip() for a in part.split(" || ")) for part in grounded["actions"].split("; Action ")]
        for number, (text, action) in enumerate(zip(planned["subgoals"].split("; Subgoal "), actions, strict=True), 1):
            subgoal, result = text.split(" || Results: ")
            subgoal = (subgoal if number == 1 else f"Subgoal {subgoal}").strip()
            plan += f"{subgoal}{NEXT_USER}The execution result for Subgoal {number} is {result.strip('.')}.{ASSISTANT}"
            ground += ("" if number == 1 else NEXT_SUBGOAL) + subgoal + ASSISTANT + action.replace(" || ", "; ")
        plan += "\n\n"
        ground += "\n\n"
    return plan + USER + PLAN + "Task: ", ground + USER + GROUND + "Task: "


PLAN_HEAD, GROUND_HEAD = heads()

CONSTANTS = [
    PLAN_HEAD, GROUND_HEAD, PLAN_TAIL, GROUND_TAIL, NEXT_SUBGOAL, *(f"{RESULT}{i} is " for i in range(1, 6)), *SUBGOALS, "." + ASSISTANT,
    " ** ", " - ", "Search(", "R2 = Click(", "); R3 = FeatureRetrieve(R2, Query: ",
    "R4 = Click(< prev); R5 = Click(", "); R6 = FeatureRetrieve(R5, Query: ", "R7 = Pick(Item_names: R1, Item_features: [R3, R6], Query: ",
    "R8 = Click(< prev); R9 = Click(R7); R10 = Click(", *(f"); R{i} = Click(" for i in range(11, 16)), "buy now)", ".)", "Find me ",
    ", and price lower than ", " dollars", ": ", ", and ", " with ", ", ", ")", "(",
    # Runs of zeros in identifiers. As single zeros, which one is to be copied next could only be counted.
    *("0" * length for length in range(2, 9)),
]  # fmt: skip


def read_instruction(text: str) -> tuple[str, str, list[str]]:
    """Returns an instruction without `Find me` and the price, the part of it before the options, and the options."""
    text = text.removeprefix("Find me ")
    text = re.sub(r", and price lower than [\d.]+ dollars$", "", text)
    starts = list(re.finditer(r" with (?=[^,:]{1,40}: )", text))
    if not starts:
        return text, text, []
    options = [part.split(": ", 1)[-1] for part in text[starts[-1].end() :].split(", and ")]
    return text, text[: starts[-1].start()], options


def actions(instruction: str, number: int, item: str) -> str:
    """Returns the actions of a subgoal; those of the first continue `R1 = `. `item` is the item that the subgoal names."""
    query, core, options = read_instruction(instruction)
    # Paper behaviour cuts the last character of this query.
    features = ", ".join(options or [core]) + "."
    if number == 1:
        return f"Search({query})"
    if number == 2:
        return f"R2 = Click({item}); R3 = FeatureRetrieve(R2, Query: {features})"
    if number == 3:
        return f"R4 = Click(< prev); R5 = Click({item}); R6 = FeatureRetrieve(R5, Query: {features})"
    if number == 4:
        return f"R7 = Pick(Item_names: R1, Item_features: [R3, R6], Query: {query})"
    clicks = "".join(f"R{10 + index} = Click({option}); " for index, option in enumerate(options))
    return f"R8 = Click(< prev); R9 = Click(R7); {clicks}R{10 + len(options)} = Click(buy now)"


def plan(conversation: str) -> str:
    """Returns the next subgoal. `conversation` is the planner's prompt after the worked examples."""
    number = conversation.count(RESULT) + 1
    subgoal = SUBGOALS[min(number, 5) - 1]
    if number not in (2, 3):
        return subgoal
    found = conversation.split(RESULT + "1 is ", 1)[1].split(ASSISTANT, 1)[0]
    items = [item.split(" - ", 1)[0].strip() for item in found.split(" ** ")]
    return f"{subgoal}{items[min(number - 2, len(items) - 1)]}."


class Oracle:
    """Replies to the prompts of planner and grounder."""

    def __init__(self, folder: Path, formulation: str = "iterative") -> None:
        """The folder is not used: everything is in the prompts."""

    def reply(self, prompt: str) -> str:
        """Returns the reply to a prompt, or nothing if it is not a prompt of the shop."""
        if prompt.startswith(GROUND_HEAD):
            rest = prompt[len(GROUND_HEAD) :]
            subgoal = rest.rsplit("Subgoal to be grounded: ", 1)[1]
            number = int(subgoal.removeprefix("Subgoal ")[0])
            item = re.search(r" of item (\S+)\.", subgoal)
            return actions(rest.split(GROUND_TAIL, 1)[0], number, item[1] if item else "")
        return plan(prompt[len(PLAN_HEAD) :]) if prompt.startswith(PLAN_HEAD) else ""
