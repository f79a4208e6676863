"""Tests of the generator, the tokenizer and the exported models: `python -m unittest`."""

from __future__ import annotations

import unittest
from itertools import islice
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F

from lumos_tiny.calculator import evaluate_actions, show
from lumos_tiny.examples import CONVERSATIONS, IGNORE, Example, encode
from lumos_tiny.export import load
from lumos_tiny.generator import SPLITS, split_of, stream
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.packed import loss, packs
from lumos_tiny.tokens import newline_id

ASSETS = Path(__file__).parents[2] / "models" / "assets" / "tiny"


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


class Exported(unittest.TestCase):
    """The built-in model folders."""

    def test_conversations_encode_in_parts(self) -> None:
        for role, make in CONVERSATIONS.items():
            _, tokenizer = load(ASSETS / role)
            r = Random(0)
            for problem in islice(stream(4, "dev"), 200):
                turns = make(problem, r)
                text = "".join(turn.prompt + turn.reply for turn in turns)
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                self.assertEqual(encode(tokenizer, turns).ids, ids)
                self.assertEqual(tokenizer.decode(ids), text)

    def test_round_trip_of_odd_text(self) -> None:
        _, tokenizer = load(ASSETS / "grounder")
        for text in ("\n", "  a\t b\n\n c ", "ünïcode – “€5” 日本 🙂", "<|user|>\n<|assistant|>", "R1 = ", "1,234.50%"):
            self.assertEqual(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids), text)
        self.assertEqual(tokenizer.encode("\n", add_special_tokens=False).ids, [newline_id(tokenizer)])

    def test_folders(self) -> None:
        for role in CONVERSATIONS:
            size = sum(path.stat().st_size for path in (ASSETS / role).iterdir())
            self.assertLess(size, 6_000_000)
            model, _ = load(ASSETS / role)
            self.assertTrue(all(torch.isfinite(p).all() for p in model.parameters()))


if __name__ == "__main__":
    unittest.main()
