"""Tests of the generator, the tokenizer and the exported models: `python -m unittest`."""

from __future__ import annotations

import json
import unittest
from fractions import Fraction
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F

from lumos_tiny import gsm8k, mawps
from lumos_tiny.calculator import evaluate_actions, show
from lumos_tiny.examples import CONVERSATIONS, IGNORE, Example, encode
from lumos_tiny.export import load
from lumos_tiny.generator import SPLITS, split_of, stream
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.packed import loss, packs
from lumos_tiny.sources import partial, renumbered
from lumos_tiny.story import Problem, Step, numbers_in
from lumos_tiny.tokens import newline_id

ASSETS = Path(__file__).parents[2] / "models" / "assets" / "tiny" / "maths"


class Generator(unittest.TestCase):
    """Problems are reproducible, consistent and split."""

    def test_streams_repeat(self) -> None:
        first, second = (list(islice(stream(3, "train"), 50)) for _ in range(2))
        self.assertEqual(first, second)

    def test_splits_do_not_meet(self) -> None:
        drawn = {split: list(islice(stream(1, split), 400)) for split in SPLITS}
        texts = {split: {p.question for p in problems} for split, problems in drawn.items()}
        self.assertFalse(texts["train"] & texts["test"] or texts["train"] & texts["dev"])
        for split, problems in drawn.items():
            self.assertTrue(all(split_of(problem) == split for problem in problems))

    def test_answers_and_texts(self) -> None:
        for problem in islice(stream(2, "train"), 1000):
            self.assertEqual(evaluate_actions(problem.formulas), problem.answer)
            texts = problem.question + "".join(step.goal for step in problem.steps)
            self.assertFalse(set(texts) & set("[]{}|\n"), texts)

    def test_show(self) -> None:
        shown = [show(evaluate_actions([formula])) for formula in ("6 * 2", "7 / 2", "7 / 3", "0 - 1 / 4")]
        self.assertEqual(shown, ["12", "3.5", "7/3", "-0.25"])


class Packed(unittest.TestCase):
    """Steps on packed sequences."""

    def test_losses_and_gradients_equal_those_of_single_sequences(self) -> None:
        torch.manual_seed(0)
        r = Random(0)
        model = TinyLlama(ModelConfig(90, 64, 96, 2, 2, 2, 256, rope_theta=1e6))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 3
        examples = []
        for length in (40, 5, 1, 77, 16, 33, 64):
            ids = [r.randrange(90) for _ in range(length)]
            examples.append(Example(ids, [r.choice((IGNORE, target)) for target in ids]))
        whole = Example([0] * 200, [IGNORE] * 200)
        first, *_ = packs(iter([*examples, whole]), 250, 0.7)
        ids, starts, asked, targets = first
        self.assertEqual(starts.tolist(), [0, 40, 45, 46, 123, 139, 172, 236, 250])
        self.assertEqual(len(targets), 175)
        self.assertEqual(targets[targets != IGNORE].tolist(), [t for e in examples for t in e.targets if t != IGNORE])
        loss(model, *first).backward()
        given = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        parts, count = [], 0
        for example in examples:
            wanted = torch.tensor([example.targets])
            logits = model.logits(model.hidden(torch.tensor([example.ids]), wanted != IGNORE))
            parts.append(F.cross_entropy(logits, wanted[wanted != IGNORE], reduction="sum"))
            count += int((wanted != IGNORE).sum())
        expected = torch.stack(parts).sum() / count
        expected.backward()
        self.assertAlmostEqual(loss(model, *first).item(), expected.item(), delta=0.02)
        for gradient, parameter in zip(given, model.parameters(), strict=True):
            self.assertLess(float((gradient - parameter.grad).norm() / parameter.grad.norm()), 0.05)


class Written(unittest.TestCase):
    """Problems from questions that people wrote."""

    PROBLEM = Problem(
        "gsm8k",
        "Anna has 12 apples. She buys 3 bags with 5 apples each. Half of them are red. How many red apples does Anna have?",
        (
            Step("how many apples she buys", ("3 * 5",)),
            Step("how many apples Anna has", ("12 + R1",)),
            Step("how many red apples does Anna have", ("R2 / 2",)),
        ),
        Fraction(27, 2),
        None,
    )

    def test_gsm8k_solutions_become_plans(self) -> None:
        record = {
            "question": "Natalia sold clips to 48 of her friends in April, and then she sold 25% as many clips in May. How many clips did she sell?",
            "answer": "Natalia sold 48*.25 = <<48*.25=12>>12 clips in May.\nNatalia sold 48+12 = <<48+12=60>>60 clips altogether.\n#### 60",
        }
        with TemporaryDirectory() as folder:
            path = Path(folder) / "train.jsonl"
            path.write_text(json.dumps(record) + "\n")
            (problem,) = gsm8k.load(path)
        self.assertEqual(problem.formulas, ["48 * (25 / 100)", "48 + R1"])
        self.assertEqual([step.goal for step in problem.steps], ["how many clips Natalia sold in May", "how many clips did she sell"])

    def test_mawps_equations_become_formulas(self) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "train.csv"
            path.write_text("Question,Numbers,Equation,Answer\nTom had number0 pens . He lost number1 . How many pens are in number2 boxes ?,9 3 2,/ - number0 number1 number2,3\n")
            (problem,) = mawps.load(path)
        self.assertEqual(problem.question, "Tom had 9 pens. He lost 3. How many pens are in 2 boxes?")
        self.assertEqual(problem.formulas, ["9 - 3", "R1 / 2"])

    def test_other_numbers_keep_the_calculation(self) -> None:
        r = Random(0)
        for _ in range(200):
            changed = renumbered(self.PROBLEM, r)
            told = numbers_in(changed.question)
            first, second, third = changed.formulas
            self.assertEqual(first, f"{told[1]} * {told[2]}")
            self.assertEqual(second, f"{told[0]} + R1")
            self.assertEqual(third, "R2 / 2")
            self.assertEqual(evaluate_actions(changed.formulas), changed.answer)

    def test_a_part_asks_for_what_it_calculates(self) -> None:
        r = Random(0)
        for _ in range(20):
            part = partial(self.PROBLEM, r)
            self.assertIn(len(part.steps), (1, 2))
            self.assertIn(part.steps[-1].goal, part.question.lower().replace("anna", "Anna"))
            self.assertEqual(evaluate_actions(part.formulas), part.answer)


class Exported(unittest.TestCase):
    """The built-in model folders."""

    def test_conversations_encode_in_parts(self) -> None:
        _, tokenizer = load(ASSETS / "planner")
        r = Random(0)
        for make in CONVERSATIONS.values():
            for problem in islice(stream(4, "dev"), 200):
                turns = make(problem, r)
                text = "".join(turn.prompt + turn.reply for turn in turns)
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                self.assertEqual(encode(tokenizer, turns).ids, ids)
                self.assertEqual(tokenizer.decode(ids), text)

    def test_numbers_below_1000_are_tokens(self) -> None:
        _, tokenizer = load(ASSETS / "planner")
        for number in range(1000):
            self.assertEqual(len(tokenizer.encode(str(number), add_special_tokens=False).ids), 1)
        self.assertEqual(tokenizer.encode("1,234", add_special_tokens=False).tokens, ["1", ",", "234"])
        self.assertEqual(tokenizer.encode("12345", add_special_tokens=False).tokens, ["12", "345"])

    def test_round_trip_of_odd_text(self) -> None:
        _, tokenizer = load(ASSETS / "grounder")
        for text in ("\n", "  a\t b\n\n c ", "ünïcode – “€5” 日本 🙂", "<|user|>\n<|assistant|>", "R1 = ", "1,234.50%"):
            self.assertEqual(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids), text)
        self.assertEqual(tokenizer.encode("\n", add_special_tokens=False).ids, [newline_id(tokenizer)])

    def test_folders(self) -> None:
        for role in ("planner", "grounder"):
            size = sum(path.stat().st_size for path in (ASSETS / role).iterdir())
            self.assertLess(size, 5_000_000)
            model, _ = load(ASSETS / role)
            self.assertTrue(all(torch.isfinite(p).all() for p in model.parameters()))


if __name__ == "__main__":
    unittest.main()
