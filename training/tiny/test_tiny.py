"""Tests of the generator, the tokenizer and the exported models: `python -m unittest`."""

from __future__ import annotations

import json
import unittest
from contextlib import redirect_stdout
from dataclasses import replace
from fractions import Fraction
from io import StringIO
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from lumos_tiny import asdiv, gpu, gsm8k, mawps, protocol
from lumos_tiny.calculator import evaluate_actions, show
from lumos_tiny.examples import CONVERSATIONS, IGNORE, Example, encode, encoded, ground_head
from lumos_tiny.export import load, save_mixed
from lumos_tiny.generator import SPLITS, split_of, stream
from lumos_tiny.loop import Schedule, fit
from lumos_tiny.model import ModelConfig, TinyLlama
from lumos_tiny.muon import BatchedMuon
from lumos_tiny.onetime import ONETIME, marked, onetime_tokenizer
from lumos_tiny.packed import attention, loss, packs, swiglu, swiglu_backward
from lumos_tiny.sources import after_another_story, partial, renumbered
from lumos_tiny.story import Problem, Step, numbers_in
from lumos_tiny.store import Store, produced, repeated, windowed
from lumos_tiny.tokens import newline_id, train_tokenizer

torch.set_num_threads(1)
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


class OtherActions(unittest.TestCase):
    """Prompts with other lists of actions, and models between two others."""

    def test_lists_are_those_of_task_files(self) -> None:
        one, two = ("Calculator", "formula", "Calculate the formula"), ("Convert", "amount, from", "Convert money")
        start = "The grounded actions must be the one in available action list.\n\nThe available action list is "
        for actions, listed in (
            ([one], "'Calculator'.\nCalculator(formula): Calculate the formula.\n\nTask: "),
            ([one, two], "'Calculator' and 'Convert'.\nCalculator(formula): Calculate the formula; Convert(amount, from): Convert money.\n\nTask: "),
            ([one, two, two], "'Calculator', 'Convert', and 'Convert'.\n"),
        ):
            self.assertIn(start + listed, protocol.other_ground_head(actions))
        # The benchmark's own list has the same form.
        self.assertTrue(protocol.GROUND_HEAD.startswith(protocol.other_ground_head([one]).split("The available")[0]))

    def test_every_list_has_the_calculator_once(self) -> None:
        r = Random(1)
        heads = [ground_head(r) for _ in range(400)]
        self.assertTrue(all(head.count("Calculator(") == 1 for head in heads))
        self.assertTrue(150 < heads.count(protocol.GROUND_HEAD) < 250)
        self.assertGreater(len(set(heads)), 100)

    def test_mixed_weights_are_between_both(self) -> None:
        tokenizer = Tokenizer.from_file(str(ASSETS / "tokenizer.json"))
        model = TinyLlama(ModelConfig(tokenizer.get_vocab_size(), 64, 96, 2, 2, 2, 256, rope_theta=1e6))
        initial = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        with TemporaryDirectory() as folder:
            save_mixed(model, tokenizer, Path(folder), initial, 0.75)
            written, _ = load(Path(folder))
        for name, value in written.state_dict().items():
            self.assertTrue(torch.allclose(value, model.state_dict()[name] / 4, atol=1e-3), name)


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

    def test_what_is_left_of_a_batch_is_short(self) -> None:
        first, second = Example([1] * 30, [1] * 30), Example([2] * 300, [IGNORE] * 300)
        [ids, starts, asked, targets] = next(packs(iter([first, second]), 300, 0.5))
        self.assertEqual(starts.tolist(), [0, 30, 94, 158, 222, 286, 300])
        self.assertEqual((int(ids.sum()), len(asked), int((targets != IGNORE).sum())), (30, 150, 30))

    def test_sequences_have_positions(self) -> None:
        qkv, table = torch.zeros(20, 3, 1, 32).bfloat16(), torch.zeros(19, 16)
        with self.assertRaises(AssertionError):
            attention(qkv, torch.tensor([0, 20], dtype=torch.int32), table, table)

    def test_the_activation_is_a_number_for_every_gate(self) -> None:
        gates = torch.tensor([-1e30, -200, -89, -30, -1, 0, 1, 89, 200], dtype=torch.bfloat16)
        both = torch.cat((gates.repeat(4), torch.ones(36, dtype=torch.bfloat16))).view(1, -1)
        wanted = both.float().requires_grad_()
        expected = F.silu(wanted[:, :36]) * wanted[:, 36:]
        expected.sum().backward()
        torch.testing.assert_close(swiglu(both).float(), expected.detach(), rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(swiglu_backward(both, torch.ones(1, 36).bfloat16()).float(), wanted.grad, rtol=1e-2, atol=1e-2)


def numbered(number: int) -> Store | None:
    """Returns a chunk of 20 sequences that begin with its number; the third is missing."""
    r = Random(number)
    lengths = [r.randint(2, 40) for _ in range(20)]
    return None if number == 2 else Store.of([("a", Example([number] * n, [IGNORE] * (n - 1) + [number])) for n in lengths])


class OnDevice(unittest.TestCase):
    """Batches by index, and steps on padded batches."""

    def test_losses_and_gradients_equal_those_of_single_sequences(self) -> None:
        torch.manual_seed(0)
        r = Random(0)
        model = TinyLlama(ModelConfig(90, 64, 96, 3, 2, 2, 256, rope_theta=1e6))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 3
        examples = []
        for length in (40, 5, 2, 77, 16, 33, 64):
            ids = [r.randrange(90) for _ in range(length)]
            examples.append(Example(ids, [r.choice((IGNORE, target)) for target in ids[:-1]] + [ids[-1]]))
        store = Store.of([("a", example) for example in examples])
        batch = gpu.moved(store.rows(np.arange(len(store))), torch.device("cpu"))
        given = gpu.loss(model, *batch)
        given.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        parts, count = [], 0
        for example in examples:
            wanted = torch.tensor([example.targets])
            logits = model.logits(model.hidden(torch.tensor([example.ids]), wanted != IGNORE))
            parts.append(F.cross_entropy(logits, wanted[wanted != IGNORE], reduction="sum"))
            count += int((wanted != IGNORE).sum())
        expected = torch.stack(parts).sum() / count
        expected.backward()
        self.assertAlmostEqual(given.item(), expected.item(), delta=0.02)
        for gradient, parameter in zip(gradients, model.parameters(), strict=True):
            self.assertLess(float((gradient - parameter.grad).norm() / parameter.grad.norm()), 0.05)

    def test_chunks_arrive_in_order_for_any_number_of_processes(self) -> None:
        for workers in (1, 3):
            chunks = list(produced(numbered, workers, 7))
            self.assertEqual([int(chunk.ids[0]) for chunk in chunks], [0, 1, 3, 4, 5, 6])

    def test_batches_have_each_example_once_in_an_epoch(self) -> None:
        store = Store.joined(numbered(number) for number in (1, 3, 5))
        batches = repeated(store, 200, 1)
        seen = []
        while len(seen) < len(store):
            ids, targets = next(batches)
            self.assertLessEqual(ids.size, 200)
            self.assertEqual(ids.shape, targets.shape)
            for row, target in zip(ids, targets, strict=True):
                (end,) = np.flatnonzero(target != IGNORE)
                seen.append((int(row[0]), int(end) + 1))
                self.assertFalse(row[end + 1 :].any())
        expected = zip(store.ids[store.starts[:-1]].tolist(), store.lengths.tolist(), strict=True)
        self.assertEqual(sorted(seen), sorted(expected))

    def test_the_window_uses_each_example_as_often_as_asked(self) -> None:
        chunks = [numbered(number) for number in range(3, 63)]
        rows = sum(len(ids) for ids, _ in windowed(chunks, 400, 3, 1))
        self.assertAlmostEqual(rows / (60 * 20), 3, delta=0.15)
        first, second = ([batch[0].tolist() for batch in windowed(chunks, 400, 3, 1)] for _ in range(2))
        self.assertEqual(first, second)

    def test_batched_muon_equals_that_of_torch(self) -> None:
        torch.manual_seed(0)
        shapes = ((8, 8), (8, 8), (24, 8), (8, 24))
        ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
        mine = BatchedMuon(ours, lr=0.1, weight_decay=0.05)
        other = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")
        for _ in range(4):
            for a, b in zip(ours, theirs, strict=True):
                a.grad = torch.randn(a.shape)
                b.grad = a.grad.clone()
            mine.step()
            other.step()
        for a, b in zip(ours, theirs, strict=True):
            self.assertLess(float((a - b).detach().norm() / b.detach().norm()), 0.01)

    def test_training_learns_and_exact_replies_are_counted(self) -> None:
        torch.manual_seed(0)
        r = Random(0)
        examples = []
        for _ in range(200):
            asked = r.randrange(3, 9)
            examples.append((f"begins with {asked % 2}", Example([1, asked, asked + 6], [IGNORE, asked + 6, 2])))
        store = Store.of(examples)
        model = TinyLlama(ModelConfig(16, 32, 64, 2, 1, 1, 64))
        self.assertIn("0/", gpu.exact(model, store, torch.device("cpu")))
        saved = []
        gpu.train(model, repeated(store, 320, 0), store, Schedule(120, None, 1e-2, True, 0.3, True), lambda: saved.append(1), "cpu")
        self.assertTrue(saved)
        loss, *counts = gpu.exact(model, store, torch.device("cpu")).split(", ")
        self.assertIn("begins with 0", loss)
        for count in (loss.rsplit(" ", 1)[1], *(part.rsplit(" ", 1)[1] for part in counts)):
            right, total = map(int, count.split("/"))
            self.assertGreater(right, 0.9 * total)

    def test_only_steps_within_the_time_are_counted(self) -> None:
        model = TinyLlama(ModelConfig(16, 32, 64, 2, 1, 1, 64))
        with redirect_stdout(StringIO()) as printed:
            fit(model, lambda _: (), Schedule(3, 0.0, 1e-2, False), lambda: None)
        self.assertIn("done after 0 steps", printed.getvalue())

    def test_tokenizers_tell_formulations_apart(self) -> None:
        problems = list(islice(stream(3, "train"), 200))
        tokenizer = train_tokenizer((problem.question for problem in problems), 600)
        other = onetime_tokenizer(tokenizer)
        r = Random(0)
        for problem in problems[:20]:
            (turn,) = CONVERSATIONS["planner-onetime"](problem, r)
            whole = turn.prompt + turn.reply
            ids = other.encode(whole, add_special_tokens=False).ids
            self.assertEqual(other.decode(ids), whole)
            self.assertEqual(encoded(tokenizer, problem, "both", r, "planner-onetime")[1].ids, ids)
            plain = tokenizer.encode(whole, add_special_tokens=False).ids
            self.assertEqual([a == b for a, b in zip(plain, ids, strict=True)], [False] + [True] * (len(ids) - 1))
            self.assertEqual(marked(tokenizer, plain), ids)
        self.assertNotIn(tokenizer.token_to_id(ONETIME), encoded(tokenizer, problems[0], "both", r, "planner-iterative")[1].ids)


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

    def test_calculations_without_annotation_or_goal_count(self) -> None:
        record = {
            "question": "Ann has 3 boxes with 4 pens each and finds 5 pens. Half of her pens are red. Calculate the number of red pens.",
            "answer": "She has 3 x 4 = 12 pens in boxes.\n12+5=<<12+5=17>>17\nThen 1 + 1 = 3 and <<17=17>>17 pens.\nThe red pens are 17/2 = $<<17/2=8.5>>8.5\n#### 8.5",
        }
        with TemporaryDirectory() as folder:
            path = Path(folder) / "train.jsonl"
            path.write_text(json.dumps(record) + "\n")
            (problem,) = gsm8k.load(path)
        steps = [(step.goal, step.formulas) for step in problem.steps]
        self.assertEqual(steps, [("how many pens she has in boxes", ("3 * 4",)), ("the number of red pens", ("R1 + 5", "R2 / 2"))])

    def test_mawps_equations_become_formulas(self) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "train.csv"
            path.write_text("Question,Numbers,Equation,Answer\nTom had number0 pens . He lost number1 . How many pens are in number2 boxes ?,9 3 2,/ - number0 number1 number2,3\n")
            (problem,) = mawps.load(path)
        self.assertEqual(problem.question, "Tom had 9 pens. He lost 3. How many pens are in 2 boxes?")
        self.assertEqual(problem.formulas, ["9 - 3", "R1 / 2"])

    def test_asdiv_expressions_become_formulas(self) -> None:
        records = (
            ("Amy had (some) pens.", "How many pens?", "(9-3)/2.5=2.4", "2.4 (pens)", ["9 - 3", "R1 / 2.5"]),
            ("The ratio is unknown.", "What is the ratio?", "360:420=6:7", "6:7", None),
            ("It has a remainder.", "How many boxes are needed?", "810/4=202 r2", "203 (boxes)", None),
            ("Its answer is wrong.", "How many pens?", "9-3=6", "7 (pens)", None),
        )
        keys = ("Body", "Question", "Formula", "Answer")
        for *texts, formulas in records:
            fields = "".join(f"<{key}>{text}</{key}>" for key, text in zip(keys, texts, strict=True))
            with TemporaryDirectory() as folder:
                path = Path(folder) / "ASDiv.xml"
                path.write_text(f"<Corpus><Problem>{fields}</Problem></Corpus>")
                self.assertEqual([problem.formulas for problem in asdiv.load(path)], [formulas] if formulas else [], texts)

    def test_subgoals_of_plans_say_their_calculation(self) -> None:
        turns = CONVERSATIONS["planner-iterative"](self.PROBLEM, Random(0))
        self.assertEqual(turns[1].reply, "No, I will keep planning. Subgoal 2: Calculate how many apples Anna has: 12 + R1.")
        (turn,) = CONVERSATIONS["planner-onetime"](self.PROBLEM, Random(0))
        self.assertTrue(turn.reply.endswith("Subgoal 3: Calculate how many red apples does Anna have: R2 / 2."), turn.reply)

    def test_questions_are_learned_in_a_share_of_the_conversations(self) -> None:
        tokenizer = train_tokenizer([self.PROBLEM.question], 300)
        for share, learned in ((0.0, False), (1.0, True)):
            example = encoded(tokenizer, self.PROBLEM, "both", Random(0), "planner-onetime", share)[1]
            self.assertEqual(example.targets[0] == example.ids[1], learned)
            self.assertNotIn(IGNORE, example.targets[example.targets.index(newline_id(tokenizer)) - 3 :])

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

    def test_another_story_has_nothing_in_common(self) -> None:
        other = Problem("mawps", "Bob ran 7 miles. He rested. How far did Bob run?", (Step("how far did Bob run", ("7 + 0",)),), Fraction(7), None)
        whole = after_another_story(self.PROBLEM, other, Random(1))
        self.assertRegex(whole.question, r"Bob ran \d+ miles\. He rested\. ")
        self.assertNotIn("How far", whole.question)
        self.assertEqual((whole.steps, whole.answer), (self.PROBLEM.steps, self.PROBLEM.answer))
        same = replace(other, question="Bob has 4 apples. How many apples does Bob have?")
        self.assertEqual(after_another_story(self.PROBLEM, same, Random(1)), self.PROBLEM)

    def test_a_part_asks_for_what_it_calculates(self) -> None:
        r = Random(0)
        for _ in range(20):
            part = partial(self.PROBLEM, r)
            self.assertIn(len(part.steps), (1, 2))
            self.assertIn(part.steps[-1].goal, part.question.lower().replace("anna", "Anna"))
            self.assertEqual(evaluate_actions(part.formulas), part.answer)


class Exported(unittest.TestCase):
    """The built-in model folder."""

    def test_conversations_encode_in_parts(self) -> None:
        _, tokenizer = load(ASSETS)
        r = Random(0)
        for make in CONVERSATIONS.values():
            for problem in islice(stream(4, "dev"), 200):
                turns = make(problem, r)
                text = "".join(turn.prompt + turn.reply for turn in turns)
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                self.assertEqual(encode(tokenizer, turns).ids, ids)
                self.assertEqual(tokenizer.decode(ids), text)

    def test_numbers_below_1000_are_tokens(self) -> None:
        _, tokenizer = load(ASSETS)
        for number in range(1000):
            self.assertEqual(len(tokenizer.encode(str(number), add_special_tokens=False).ids), 1)
        self.assertEqual(tokenizer.encode("1,234", add_special_tokens=False).tokens, ["1", ",", "234"])
        self.assertEqual(tokenizer.encode("12345", add_special_tokens=False).tokens, ["12", "345"])

    def test_round_trip_of_odd_text(self) -> None:
        _, tokenizer = load(ASSETS)
        for text in ("\n", "  a\t b\n\n c ", "ünïcode – “€5” 日本 🙂", "<|user|>\n<|assistant|>", "R1 = ", "1,234.50%"):
            self.assertEqual(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids), text)
        self.assertEqual(tokenizer.encode("\n", add_special_tokens=False).ids, [newline_id(tokenizer)])

    def test_folder(self) -> None:
        self.assertLess(sum(path.stat().st_size for path in ASSETS.iterdir()), 10_000_000)
        model, tokenizer = load(ASSETS)
        self.assertTrue(all(torch.isfinite(p).all() for p in model.parameters()))
        onetime = Tokenizer.from_file(str(ASSETS / "tokenizer-onetime.json"))
        self.assertEqual(onetime.to_str(), onetime_tokenizer(tokenizer).to_str())


if __name__ == "__main__":
    unittest.main()
