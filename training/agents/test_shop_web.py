"""Tests of the generators and oracles of the shop and of web pages."""

import json
import tempfile
import unittest
from pathlib import Path
from random import Random

from lumos_agents.conversations import encode, of_trajectory
from lumos_agents.shop import actions, read_instruction
from lumos_agents.shop.catalogue import generate as generate_shop
from lumos_agents.shop.oracle import GROUND_HEAD, GROUND_TAIL, PLAN_HEAD, PLAN_TAIL, RESULT
from lumos_agents.shop.oracle import Oracle as ShopOracle
from lumos_agents.splits import split_of
from lumos_agents.texts import ASSISTANT, constants
from lumos_agents.tokens import train_tokenizer
from lumos_agents.web.oracle import Oracle as WebOracle
from lumos_agents.web.oracle import grounded, sentence
from lumos_agents.web.sites import draw_task
from lumos_agents.web.tasks import KINDS, SAMPLES, generate, record
from lumos_tiny.examples import IGNORE

HELD_OUT = Path(__file__).parent / "heldout"
PRODUCTS, ATTRIBUTES = "webshop/items_1000_documents.jsonl", "webshop/items_ins_v2_1000.json"
INSTRUCTION = "Find me non slip mats with easy carry with color: a1 | red, and size: 6 (pack of 2), and price lower than 40.00 dollars"


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Shop(unittest.TestCase):
    def test_instructions_are_read(self) -> None:
        query, core, options = read_instruction(INSTRUCTION)
        self.assertEqual(query, "non slip mats with easy carry with color: a1 | red, and size: 6 (pack of 2)")
        self.assertEqual((core, options), ("non slip mats with easy carry", ["a1 | red", "6 (pack of 2)"]))
        self.assertEqual(read_instruction("Find me soft mats for dogs"), ("soft mats for dogs", "soft mats for dogs", []))

    def test_options_are_clicked_before_buying(self) -> None:
        expected = "R8 = Click(< prev); R9 = Click(R7); R10 = Click(a1 | red); R11 = Click(6 (pack of 2)); R12 = Click(buy now)"
        self.assertEqual(actions(INSTRUCTION, 5, ""), expected)

    def test_the_oracle_copies_the_second_item(self) -> None:
        found = f"{RESULT}1 is b07 - Mat, Red ** lm01 - Rug *{ASSISTANT}Subgoal 2: x{RESULT}2 is red{ASSISTANT}"
        reply = ShopOracle(Path()).reply(f"{PLAN_HEAD}{INSTRUCTION}{PLAN_TAIL}Subgoal 1: x{found}")
        self.assertEqual(reply, "Subgoal 3: Select the most relevant features of item lm01.")
        ground = f"{GROUND_HEAD}{INSTRUCTION}{GROUND_TAIL}{reply}{ASSISTANT}"
        self.assertTrue(ShopOracle(Path()).reply(ground).startswith("R4 = Click(< prev); R5 = Click(lm01); R6 = "))

    def test_the_held_out_catalogue_is_that_of_the_generator(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            generate_shop("test", 1, 150, Path(folder))
            attributes = json.loads((Path(folder) / ATTRIBUTES).read_text())
            made = [{**p, "attributes": attributes[p["asin"]]} for p in lines(Path(folder) / PRODUCTS)]
        self.assertEqual(made, lines(HELD_OUT / "shop.jsonl"))
        asked = [row["attributes"]["instruction"] for row in made if "instruction" in row["attributes"]]
        self.assertEqual({split_of(text) for text in asked}, {"test"})


class Web(unittest.TestCase):
    def test_every_task_of_every_kind_can_be_solved(self) -> None:
        for kind in KINDS:
            for seed in range(60):
                task = draw_task(Random(f"{kind.name} {seed}"), [kind])
                written = record(task, "x")
                for step, action in zip(task.steps, written["actions"], strict=True):
                    self.assertIn(f'backend_node_id="{action["pos_candidates"][0]["backend_node_id"]}"', action["cleaned_html"])
                    if step.operation == "SELECT":
                        self.assertIn(step.value, step.element.options)

    def test_subgoals_become_actions(self) -> None:
        step = {"operation": "TYPE", "role": "input", "said": "Title or author", "value": "salt road"}
        self.assertEqual(sentence(step), "Type salt road in the input Title or author")
        self.assertEqual(grounded(f"Subgoal 2: {sentence(step)}", 2), f"R2 = TYPE(R1, QUERY: {' '.join(['input Title or author'] * 3)}, TEXT: salt road)")
        self.assertEqual(grounded("Subgoal 1: Click a The Salt Road", 1), "R1 = CLICK(Env, QUERY: a The Salt Road a The Salt Road a The Salt Road)")

    def test_a_sentence_of_the_product_stands_in_the_place_of_the_reply(self) -> None:
        second = "Subgoal 1: Pick up Maps in the select Kind\n\n<|user|>\nWe have already pick up Maps in the select Kind. ?\n"
        steps = [
            {"step": "generate", "role": "planner", "prompt": "task\n", "reply": "Subgoal 1: Select Maps in the select Kind"},
            {"step": "generate", "role": "planner", "prompt": "task\n" + second, "reply": "Subgoal 2: Click a Home"},
        ]
        [conversation] = of_trajectory("task", "iterative", steps)
        self.assertEqual(conversation.text, "task\n" + second + "Subgoal 2: Click a Home")
        tokenizer = train_tokenizer([conversation.text] * 3, 400, constants("web"))
        example = encode(tokenizer, conversation)
        learned = [target for target in example.targets if target != IGNORE]
        stop = tokenizer.encode("\n").ids
        replies = [tokenizer.encode(step["reply"]).ids + stop for step in steps]
        self.assertEqual(learned, replies[0] + replies[1])
        self.assertNotEqual(example.ids[-len(learned) :], learned)

    def test_splits_and_the_samples_are_apart(self) -> None:
        samples = {task["confirmed_task"] for task in json.loads(SAMPLES.read_text())}
        with tempfile.TemporaryDirectory() as folder:
            texts = {}
            for split in ("train", "test"):
                generate(split, 1, 150, Path(folder) / split)
                texts[split] = set(WebOracle(Path(folder) / split).steps)
            self.assertEqual(lines(Path(folder) / "test/oracle.jsonl"), lines(HELD_OUT / "web.jsonl"))
        self.assertFalse(texts["train"] & texts["test"] or samples & (texts["train"] | texts["test"]))
        self.assertEqual({split_of(text) for text in texts["test"]}, {"test"})


if __name__ == "__main__":
    unittest.main()
