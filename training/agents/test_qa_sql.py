"""Tests of the generators and oracles of question answering and SQL, and of conversations: `python -m unittest`."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import unittest
from pathlib import Path
from random import Random

import torch

from join import joined, left_out
from lumos_agents import qa, sql
from lumos_agents.conversations import END, Conversation, encode, of_annotations, of_trajectory, write
from lumos_tiny.copying import copying, with_copying
from lumos_tiny.initial import ROPE_THETA, copied_share, grown, write_copying_circuit
from lumos_agents.qa import comparisons, mined, sentences
from lumos_agents.sql import questions, schema, varied
from lumos_agents.texts import ASSISTANT, NEXT_USER, PLAN, USER, constants
from lumos_agents.tokens import train_tokenizer
from lumos_tiny.examples import IGNORE
from lumos_tiny.loop import learning_rate
from lumos_tiny.model import ModelConfig, TinyLlama


class Sql(unittest.TestCase):
    """Generated databases and questions."""

    def test_statements_run_and_mean_the_question(self) -> None:
        r = Random(3)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(6):
                database = schema.draw(r, number)
                path = Path(folder) / "one.sqlite"
                schema.write(database, path)
                connection = sqlite3.connect(path)
                for _ in range(40):
                    question = questions.draw(r, database)
                    if any(table.name.lower() == "order" for table in database.tables):
                        continue
                    connection.execute(question.sql)
                    for table in question.tables:
                        self.assertIn(table.name, question.goal)
                connection.close()

    def test_splits_do_not_meet_and_repeat(self) -> None:
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            for split in ("train", "test"):
                place = Path(folder) / split
                place.mkdir()
                sql.generate(split, 1, 60, place)
                records = json.loads((place / "intercode_sql" / "ic_spider_dev.json").read_text())
                found[split] = {record["query"] for record in records}
                self.assertEqual(len(records), 60)
            again = Path(folder) / "again"
            again.mkdir()
            sql.generate("test", 1, 60, again)
            first = (Path(folder) / "test" / "oracle.json").read_text()
            self.assertEqual(first, (again / "oracle.json").read_text())
        self.assertFalse(found["train"] & found["test"])

    def test_oracle_follows_the_conversation(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            known = {"question": "How many pets are there?", "database": "pet_1", "sql": "SELECT COUNT(*) FROM pet", "goal": "Count the rows of pet.", "tables": ["pet"]}
            (folder / "oracle.json").write_text(json.dumps([known]))
            oracle = sql.Oracle(folder)
            head = sql.CONSTANTS[0] + "How many pets are there?; Initial Environment Description: A MySQL database named pet_1." + ASSISTANT
            self.assertEqual(oracle.reply(head), "Subgoal 1: Find the tables of the database.")
            later = head + "Subgoal 1: Find the tables of the database." + NEXT_USER + "The executed result for Subgoal 1 is R1 = ListTables() = [('pet',)]. Should we stop planning?" + ASSISTANT
            self.assertEqual(oracle.reply(later), "No, I will keep planning. Subgoal 2: Look at the columns of pet.")


    def test_varied_names_are_unique_and_slips_fail(self) -> None:
        r = Random(11)
        slips = 0
        with tempfile.TemporaryDirectory() as folder:
            for number in range(12):
                database = schema.draw(r, number)
                varied.vary(r, database)
                names = [table.name.lower() for table in database.tables]
                self.assertEqual(len(names), len(set(names)))
                path = Path(folder) / "one.sqlite"
                schema.write(database, path)
                connection = sqlite3.connect(path)
                for _ in range(10):
                    question = questions.draw(r, database)
                    if any(table.name.lower() in ("order", "match") for table in database.tables):
                        continue
                    connection.execute(question.sql)
                    slip = varied.slip(r, question, database.style)
                    if slip:
                        slips += 1
                        with self.assertRaisesRegex(sqlite3.OperationalError, "no such column"):
                            connection.execute(slip["sql"])
                connection.close()
        self.assertGreater(slips, 30)

    def test_oracle_corrects_a_wrong_column(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            slip = {"goal": "Get ages from pet.", "sql": "SELECT ages FROM pet"}
            known = {"question": "List the ages.", "database": "pet_1", "sql": "SELECT age FROM pet", "goal": "Get age from pet.", "tables": ["pet"], "slip": slip}
            (folder / "oracle.json").write_text(json.dumps([known]))
            oracle = sql.Oracle(folder)
            prompt = sql.CONSTANTS[0] + "List the ages.; Initial Environment Description: A MySQL database named pet_1." + ASSISTANT
            again = NEXT_USER + "The executed result for Subgoal {} is {}. Should we stop planning?" + ASSISTANT
            replies = []
            for turn, result in enumerate(["[('pet',)]", "[('age', 'int')]", "R3 = ExecuteSQL(SELECT ages FROM pet) = Error executing query: no such column: ages", "[(3,)]"], 1):
                prompt += "…" + again.format(turn, result)
                replies.append(oracle.reply(prompt).removeprefix("No, I will keep planning. "))
            expected = ["Subgoal 2: Look at the columns of pet.", "Subgoal 3: Get ages from pet.", "Subgoal 4: Get age from pet.", "Subgoal 5: Submit the rows."]
            self.assertEqual(replies, expected)


class Qa(unittest.TestCase):
    """Generated pages and questions."""

    def test_answers_are_on_the_pages(self) -> None:
        r = Random(5)
        world = qa.world.draw(r)
        for _ in range(300):
            question = qa.questions.draw(r, world, qa.questions.HOTPOT + qa.questions.STRATEGY)
            for step in question.steps:
                self.assertIn(step.answer, " ".join(world.pages[step.page]))
            if question.kind == "bridge":
                self.assertEqual(question.answer, question.steps[-1].answer)
            else:
                self.assertTrue(question.answer in ("yes", "no") or question.answer in question.text)

    def test_searches_have_the_words_of_sentences(self) -> None:
        self.assertEqual(qa.questions.search_query("Where did Ann Lee die?"), "Where did Ann Lee die? died")
        self.assertEqual(qa.questions.search_query("Who directed Slate Road?"), "Who directed Slate Road?")
        for relation in qa.relations.RELATIONS:
            words = set(qa.questions.search_words(relation).split())
            self.assertTrue(words and any(words & set(text.lower().split()) for text in relation.say), relation)

    def test_yes_and_no_are_balanced(self) -> None:
        r = Random(6)
        world = qa.world.draw(r)
        drawn = [qa.questions.draw(r, world, qa.questions.STRATEGY).answer for _ in range(600)]
        self.assertTrue(240 < drawn.count("yes") < 360, drawn.count("yes"))

    def test_patterns_find_facts(self) -> None:
        text = "Slate Road is a 1994 Irish drama film directed by Ana Lund and starring Tom Berg. It was published by Hall Press."
        found = {fact.key: fact.answer for fact in mined.facts({"Slate Road (film)": text})}
        self.assertEqual((found["director"], found["released"], found["star"]), ("Ana Lund", "1994", "Tom Berg"))

    def test_questions_from_sentences(self) -> None:
        context = [
            ["Slate Road", ["Slate Road is a 1994 Irish drama film directed by Ana Lund.", " It was released by Hall Pictures in Dublin, Ireland on 3 May 1994.", " It won the Golden Oak Prize in 1995."]],
            ["Ana Lund", ["Ana Lund (born 4 June 1951) is a Danish film director.", " She studied at Aarhus University and won 12 medals."]],
        ]  # fmt: skip
        found = sentences.made([{"context": context}], Random(4))
        text = " ".join(sentence for _, parts in context for sentence in parts)
        for made in found:
            self.assertTrue(any(made.answer in sentence for sentence in made.shown), made)
            self.assertTrue(all(sentence in text for sentence in made.shown), made)
            self.assertNotIn(made.answer.lower(), made.question.lower())
        bridges = [made for made in found if made.kind == "bridge"]
        self.assertIn("4 June 1951", {made.answer for made in bridges if "Ana Lund" not in made.question})
        self.assertTrue({"date", "year", "place", "subject"} <= {made.kind for made in found}, found)

    def test_comparisons_of_real_pages(self) -> None:
        facts = [mined.Fact(f"Mill {i} (film)", "released", (f"When was Mill {i} released?",), str(1950 + i)) for i in range(9)]
        r = Random(5)
        for _ in range(60):
            question = comparisons.compare(r, {"released": facts})
            years = [int(step.answer) for step in question.steps]
            named = [step.page for step in question.steps]
            self.assertTrue(all(name in question.text for name in named))
            if question.answer in ("yes", "no"):
                self.assertEqual(question.answer == "yes", years[0] == years[1])
            else:
                later = "recently" in question.text or "later" in question.text
                self.assertEqual(question.answer, named[years.index((max if later else min)(years))])
        record = {"type": "comparison", "question": "Which film came out first, Mill 3 or Mill 2?", "answer": "Mill 2", "supporting_facts": [["Mill 2 (film)", 0], ["Mill 3 (film)", 0]]}
        steps = comparisons.of_record(record, {(fact.title, fact.key): fact for fact in facts})
        self.assertEqual([step.answer for step in steps], ["1953", "1952"])
        self.assertEqual(comparisons.of_record(record | {"question": "Which film is sad, Mill 3 or Mill 2?"}, {}), [])

    def test_clauses_do_not_change_plans(self) -> None:
        r = Random(7)
        world = qa.world.draw(r)
        for _ in range(100):
            question = qa.questions.longer(r, world)
            self.assertIn(", ", question.text)
            self.assertNotIn(question.answer, question.text)
            self.assertEqual((len(question.steps), question.steps[1].answer), (2, question.answer))

    def test_oracle_reads_only_what_is_shown(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            qa.generate("test", 1, 20, folder)
            oracle = qa.Oracle(folder)
            question, known = next((q, k) for q, k in oracle.known.items() if k["kind"] == "order")
            step = known["steps"][0]
            read = lambda context: oracle.reply(qa.reading_prompt(step["ask"], context))  # noqa: E731
            self.assertEqual(read(f"Evidence 1: {step['answer']}."), f"Answer: {step['answer']}")
            self.assertEqual(read("Evidence 1: nothing."), "No answer")
            plan = f"{USER}{PLAN}Task: {question}; Initial Environment Description: None.{ASSISTANT}"
            self.assertEqual(oracle.reply(plan), f"Subgoal 1: {step['ask']}")
            self.assertEqual(qa.Oracle(folder, "onetime").reply(plan).count("Subgoal "), 3)
            _, known = next((q, k) for q, k in oracle.known.items() if k["kind"] == "bridge" and len(k["steps"]) == 2)
            first = known["steps"][0]
            self.assertNotIn(first["page"], first["unnamed"])
            context = f"Evidence 1: {first['page']} has something to do with {first['answer']}."
            self.assertEqual(oracle.reply(qa.reading_prompt(first["unnamed"], context)), f"Answer: {first['answer']}")
            # Of several answers the first in order, which does not depend on the hashes of strings.
            oracle.answers["Which letter?"] = set("hgfedcba")
            self.assertEqual(oracle.reply(qa.reading_prompt("Which letter?", "Evidence 1: h g f e d c b a.")), "Answer: a")


class Training(unittest.TestCase):
    """Conversations and initial weights."""

    def test_conversations_follow_prompts(self) -> None:
        steps = [
            {"step": "generate", "role": "planner", "prompt": "a\n", "reply": "b"},
            {"step": "call", "call": {"tool": "chat", "role": "qa", "messages": [{"role": "user", "content": " q\n"}]}, "reply": {"reply": {"text": "r"}}},
            {"step": "generate", "role": "planner", "prompt": "a\nb\nc\n", "reply": "d"},
            {"step": "generate", "role": "planner", "prompt": "other", "reply": "e"},
        ]
        found = list(of_trajectory("task", "iterative", steps))
        planner = [c.turns for c in found if c.role == "planner"]
        self.assertEqual(planner, [[("a\n", "b"), ("\nc\n", "d")], [("other", "e")]])
        chat = next(c for c in found if c.role == "qa")
        self.assertEqual((chat.turns, chat.stop), ([("<|user|>\nq\n<|assistant|>\n", "r")], END))

    def test_only_replies_are_targets(self) -> None:
        turns = [(f"{USER}{PLAN}Task: Find Zorp; it is a Fleem{ASSISTANT}", "Subgoal 1: Find Fleem."), (f"{NEXT_USER}more{ASSISTANT}", "Yes")]
        tokenizer = train_tokenizer(["Find Zorp and Fleem"] * 9, 700, constants("qa"))
        example = encode(tokenizer, Conversation("t", "planner", "iterative", turns))
        wanted = [target for target in example.targets if target != IGNORE]
        self.assertEqual(tokenizer.decode(wanted), "Subgoal 1: Find Fleem.\nYes\n")
        self.assertEqual(tokenizer.decode(example.ids), "".join(prompt + reply for prompt, reply in turns))

    def test_plans_of_refused_actions_are_not_learned(self) -> None:
        steps = [
            {"step": "generate", "role": "planner", "prompt": "a\n", "reply": "wrong"},
            {"step": "generate", "role": "grounder", "prompt": "x\n", "reply": "R1"},
            {"step": "action", "action": "R1", "observation": {"refused": "no such column"}},
            {"step": "generate", "role": "planner", "prompt": "a\nwrong\nc\n", "reply": "right"},
        ]
        planner, grounder = sorted(of_trajectory("task", "iterative", steps), key=lambda c: c.role, reverse=True)
        self.assertEqual((planner.skipped, grounder.skipped), ([0], []))
        tokenizer = train_tokenizer(["a wrong right c"] * 9, 700, constants("sql"))
        wanted = [target for target in encode(tokenizer, planner).targets if target != IGNORE]
        self.assertEqual(tokenizer.decode(wanted), "right\n")

    def test_annotations_are_the_same_conversations(self) -> None:
        first = f"{sql.EXAMPLES['planner']}{USER}{PLAN}Task: Count the rows.; Initial Environment Description: None.{ASSISTANT}"
        second = f"{first}Subgoal 1: Count them.{NEXT_USER}R1 = Error executing query: no such table{ASSISTANT}"
        steps = [{"step": "generate", "role": "planner", "prompt": first, "reply": " Subgoal 1: Count them.\n"},
                 {"step": "action", "observation": {"refused": "no such table"}},
                 {"step": "generate", "role": "planner", "prompt": second, "reply": "Subgoal 2: Count others."}]  # fmt: skip
        (expected,) = of_trajectory("Count the rows.", "iterative", steps)
        contents = [first.removeprefix(sql.EXAMPLES["planner"] + USER).removesuffix(ASSISTANT), "Subgoal 1: Count them.",
                    "R1 = Error executing query: no such table", "Subgoal 2: Count others."]  # fmt: skip
        messages = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 2, contents, strict=True)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lumos_sql-new_plan_iterative.jsonl"
            path.write_text(json.dumps({"messages": messages}) + "\n")
            self.assertEqual(list(of_annotations(path, sql.EXAMPLES)), [expected])
            self.assertEqual(expected.skipped, [0])

    def test_joined_files_have_each_conversation_once(self) -> None:
        tokenizer = train_tokenizer(["Who was the first one and when"] * 9, 700, constants("qa"))
        make = lambda task, text: Conversation(task, "planner", "iterative", [(text, "r")])  # noqa: E731
        short, long = make("Who was born in 1990?", "Who"), make("When was the first one?", "when " * 40)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.jsonl"
            write(iter([short, short, long, make("What was it?", "What")]), path)
            test = Path(folder) / "test.json"
            test.write_text(json.dumps([{"question": "Who was born in 1991?"}]))
            keep = lambda without: [c.task for c in joined([path], without, tokenizer, 60, 1.0, Random(1))]  # noqa: E731
            self.assertEqual(keep(set()), ["Who was born in 1990?", "What was it?"])
            self.assertEqual(keep(left_out([f"{test}:question"])), ["What was it?"])

    def test_words_have_the_same_tokens_everywhere(self) -> None:
        tokenizer = train_tokenizer(["the song name of a singer"] * 9, 700, constants("sql"))
        tokens = tokenizer.encode("song_name songName (name", add_special_tokens=False).tokens
        self.assertEqual((tokens.count("name"), tokens.count("song")), (2, 2))

    def test_fresh_models_copy(self) -> None:
        torch.manual_seed(0)
        model = TinyLlama(ModelConfig(2048, 128, 256, 3, 4, 4, 512, rope_theta=ROPE_THETA))
        before = copied_share(model, 2048)
        write_copying_circuit(model)
        self.assertLess(before, 0.05)
        self.assertGreater(copied_share(model, 2048), 0.4)

    def test_copied_parts_are_clear_from_two_to_eight_tokens(self) -> None:
        r, learned = Random(0), 0
        for _ in range(50):
            example = copying(r, 500, list(range(3, 60)))
            ids = example.ids
            for i, target in enumerate(example.targets):
                if target != IGNORE:
                    learned += 1
                    first = [next(j for j in range(size, i + 2) if ids[j - size : j] == ids[i + 1 - size : i + 1]) for size in range(2, 9)]
                    self.assertIn(target, [ids[j] for j in first if j <= i])
            self.assertEqual(next(with_copying(iter([("a", example)]), 0.0, 500, r)), ("a", example))
        self.assertGreater(learned, 1000)

    def test_added_layers_change_nothing(self) -> None:
        torch.manual_seed(0)
        model = TinyLlama(ModelConfig(300, 64, 96, 2, 2, 2, 64, rope_theta=ROPE_THETA))
        larger = grown(model, 2)
        ids = torch.randint(3, 300, (2, 20))
        keep = torch.ones_like(ids, dtype=torch.bool)
        self.assertEqual(len(larger.model.layers), 4)
        torch.testing.assert_close(model.logits(model.hidden(ids, keep)), larger.logits(larger.hidden(ids, keep)))

    def test_the_schedule_depends_on_steps(self) -> None:
        rates = [learning_rate(1.0, 1000, progress, 0.5) for progress in (0.0, 0.5, 0.75, 1.0)]
        self.assertEqual([round(rate, 2) for rate in rates], [1.0, 1.0, 0.51, 0.02])


if __name__ == "__main__":
    unittest.main()
