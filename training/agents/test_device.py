"""Tests of the data of trainings on a GPU: `python -m unittest`."""

from __future__ import annotations

import unittest
from random import Random

import numpy as np

from lumos_agents.conversations import Conversation
from lumos_agents.encoding import groups, is_held_back, stored
from lumos_agents.texts import ASSISTANT, PLAN, USER, constants
from lumos_agents.tokens import train_tokenizer
from lumos_tiny.onetime import ONETIME


def conversations(count: int) -> list[Conversation]:
    """Returns first replies of planners in both formulations, and of readers."""
    r, made = Random(0), []
    for number in range(count):
        task = f"who wrote {r.choice(('song', 'book', 'film'))} {number}?"
        formulation = r.choice(("iterative", "onetime"))
        prompt = f"{USER}{PLAN}Task: {task}; Initial Environment Description: None.{ASSISTANT}"
        made.append(Conversation(task, "planner", formulation, [(prompt, f"Subgoal 1: {task}")]))
        made.append(Conversation(task, "qa", formulation, [(f"{USER}Question: {task}{ASSISTANT}", "No answer")]))
    return made


class Stored(unittest.TestCase):
    """Conversations encoded by several processes."""

    def test_all_are_encoded_in_the_same_order_by_any_number_of_processes(self) -> None:
        made = conversations(1300)
        tokenizer = train_tokenizer((c.text for c in made[:200]), 500, constants("qa"))
        one, three = (stored(tokenizer, made, 100, 0.1, 1, workers) for workers in (1, 3))
        self.assertTrue(np.array_equal(one.ids, three.ids) and np.array_equal(one.targets, three.targets))
        names = [str(name) for name in one.names]
        self.assertEqual([name for name in names if name != "copying"], [groups(c)[-1] for c in made])
        self.assertGreater(names.count("copying"), 100)
        other = tokenizer.token_to_id(ONETIME)
        for name, start in zip(names, one.starts, strict=False):
            if name.startswith("planner"):
                self.assertEqual(one.ids[start] == other, name == "planner-onetime")

    def test_a_task_is_held_back_with_all_its_conversations(self) -> None:
        made = conversations(500)
        held = [c for c in made if is_held_back(c, 0.1)]
        self.assertEqual(len(held), 2 * len({c.task for c in held}))
        self.assertTrue(40 <= len(held) <= 160, len(held))


if __name__ == "__main__":
    unittest.main()
