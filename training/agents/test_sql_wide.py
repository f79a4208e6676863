"""Tests of databases of many areas and of the kinds of questions about them: `python -m unittest`."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from random import Random

from lumos_agents import sql
from lumos_agents.texts import ASSISTANT, NEXT_USER
from lumos_agents.sql import asking, joining, schema, vocabulary, wide

NOUNS = ["festival", "valley", "record", "winner", "theatre", "survey"]


def opened(database: schema.Database, folder: str) -> sqlite3.Connection:
    """Returns a connection to a written database."""
    path = Path(folder) / "one.sqlite"
    schema.write(database, path)
    return sqlite3.connect(path)


def shop() -> schema.Database:
    """Returns a database with two tables and one that links them."""
    column = schema.Column
    clubs = schema.Table("club", "Club", [column("club id", "Club_ID", "key", type="int"), column("name", "Name", "text", "name")], [[1, "Ash"], [2, "Elm"], [3, "Fir"]])
    people = schema.Table("person", "people", [column("id", "id", "key", type="int"), column("age", "age", "number", low=10, high=60, type="int"), column("town", "town", "text", "city")],
                          [[1, 20, "Lyon"], [2, 35, "Perth"], [3, 50, "Lyon"]])  # fmt: skip
    link = schema.Table("", "member_of", [column("", "person", "ref", type="int"), column("", "Club_ID", "ref", type="int")], [[1, 1], [2, 1], [3, 2]], links=(people, clubs))
    return schema.Database("club_1", [clubs, people, link], "Snake")


class Wide(unittest.TestCase):
    """Databases of many areas."""

    def test_statements_run_and_goals_name_their_tables(self) -> None:
        r = Random(2)
        with tempfile.TemporaryDirectory() as folder:
            for number in range(25):
                database = wide.draw(r, number, NOUNS)
                names = [table.name.lower() for table in database.tables]
                self.assertEqual(len(names), len(set(names)))
                connection = opened(database, folder)
                for _ in range(20):
                    question = asking.draw(r, database)
                    with self.subTest(question.sql):
                        connection.execute(question.sql)
                        for table in question.tables:
                            self.assertRegex(question.goal, rf"\b{table.name}\b")
                connection.close()

    def test_each_kind_returns_what_python_computes(self) -> None:
        r, database = Random(5), shop()
        clubs, people, _ = database.tables
        rows = people.rows
        with tempfile.TemporaryDirectory() as folder:
            connection = opened(database, folder)
            run = lambda statement: connection.execute(statement).fetchall()  # noqa: E731
            done: Counter = Counter()
            for _ in range(900):
                maker = r.choice((asking.count, asking.aggregate, asking.superlative, asking.grouped, asking.compared, asking.select))
                question = maker(r, people)
                goal, found = question.goal, None
                if goal == "Count the rows of people.":
                    found = [(3,)]
                elif goal == "Count distinct town of people.":
                    found = [(2,)]
                elif goal == "Get average of age from people.":
                    found = [(35.0,)]
                elif goal == "Get minimum of age and sum of age from people.":
                    found = [(20, 105)]
                elif goal == "Get town from people, descending by age, first 1.":
                    found = [("Lyon",)]
                elif goal == "Get town and the count of rows from people, grouped by town.":
                    found = list(Counter(row[2] for row in rows).items())
                elif goal == "Get town from people, grouped by town with count >= 2.":
                    found = [("Lyon",)]
                elif goal == "Get town from people where age > its average.":
                    found = [("Lyon",)]
                elif goal == "Get age and town from people.":
                    found = [(row[1], row[2]) for row in rows]
                if found is not None:
                    done[goal] += 1
                    self.assertEqual(sorted(run(question.sql)), sorted(found), question.sql)
            self.assertEqual(len(done), 9, done)
            connection.close()

    def test_joins_through_a_link(self) -> None:
        r, database = Random(6), shop()
        with tempfile.TemporaryDirectory() as folder:
            connection = opened(database, folder)
            expected = {
                "people.id = member_of.person JOIN Club ON member_of.Club_ID = Club.Club_ID WHERE Club.Name = 'Ash'": 2,
                "people.id = member_of.person JOIN Club ON member_of.Club_ID = Club.Club_ID WHERE Club.Name = 'Elm'": 1,
                "FROM Club WHERE Club_ID NOT IN (SELECT Club_ID FROM member_of)": 1,
            }
            done = set()
            for _ in range(900):
                question = joining.draw(r, database)
                for end, number in expected.items():
                    if question and question.sql.endswith(end):
                        done.add(end)
                        rows = connection.execute(question.sql.replace("DISTINCT ", "")).fetchall()
                        counted = "COUNT(*)" in question.sql
                        if counted or "(" not in question.sql.split(" FROM ")[0]:
                            self.assertEqual(rows[0][0] if counted else len(rows), number, question.sql)
            self.assertEqual(done, set(expected))
            connection.close()

    def test_oracle_solves_wide_tasks(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            text = folder / "text.jsonl"
            text.write_text(json.dumps({"context": [["A", ["It is a valley of a river, and the valley of the river is deep."]]]}) + "\n")
            sql.generate("train", 3, 60, folder, wide=1.0, texts=[text])
            records = json.loads((folder / "intercode_sql" / "ic_spider_dev.json").read_text())
            known = json.loads((folder / "oracle.json").read_text())
            self.assertEqual([record["gold"] for record in records], [k["sql"] for k in known])
            self.assertTrue(any("JOIN" in record["gold"] for record in records))
            for record in records:
                self.assertIn(record["db"], {path.stem for path in (folder / "intercode_sql" / "sqlite").iterdir()})

    def test_strict_databases_differ_in_their_columns_only(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            records, required = [], []
            for strict in (0.0, 1.0):
                folder = Path(name) / str(strict)
                sql.generate("train", 3, 30, folder, wide=0.5, strict=strict)
                records.append((folder / "intercode_sql" / "ic_spider_dev.json").read_text())
                columns = []
                for file in sorted((folder / "intercode_sql" / "sqlite").iterdir()):
                    with contextlib.closing(sqlite3.connect(file)) as connection:
                        tables = [table for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                        columns += [row for table in tables for row in connection.execute(f"PRAGMA table_info(`{table}`)") if not row[5]]
                required.append({(column[3], column[4]) for column in columns})
            self.assertEqual(records[0], records[1])
            self.assertEqual(required[0], {(0, None)})
            self.assertLessEqual({(0, None), (1, None), (1, "''"), (1, "'0'")}, required[1])

    def test_wrong_names_fail(self) -> None:
        r, wrong = Random(8), Counter()
        with tempfile.TemporaryDirectory() as folder:
            for number in range(20):
                database = wide.draw(r, number, NOUNS)
                connection = opened(database, folder)
                for _ in range(10):
                    question = asking.draw(r, database)
                    if table := wide.wrong_table(r, question, database):
                        wrong["table"] += 1
                        with self.assertRaisesRegex(sqlite3.OperationalError, "no such table"):
                            connection.execute(f"SELECT * FROM {table}")
                    if slip := wide.wrong_column(r, question, database):
                        wrong["column"] += 1
                        with self.assertRaisesRegex(sqlite3.OperationalError, "no such column"):
                            connection.execute(slip["sql"])
                connection.close()
        self.assertGreater(min(wrong["table"], wrong["column"]), 60)

    def test_oracle_corrects_a_wrong_table(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            known = {"question": "List the ages.", "database": "pet_1", "sql": "SELECT age FROM pet", "goal": "Get age from pet.", "tables": ["pet"], "missing": "pets"}
            (folder / "oracle.json").write_text(json.dumps([known]))
            oracle = sql.Oracle(folder)
            task = "List the ages.; Initial Environment Description: A MySQL database named pet_1."
            plan, ground = sql.CONSTANTS[0] + task + ASSISTANT, sql.EXAMPLES["grounder"] + "\n\nTask: " + task
            replies = []
            for turn, result in enumerate(["[('pet',)]", "R2 = DescribeTable(pets) = Error executing query: Table 'pet_1.pets' doesn't exist", "[('age', 'int')]", "[(3,)]"], 1):
                plan += f"…{NEXT_USER}The executed result for Subgoal {turn} is {result}. Should we stop planning?{ASSISTANT}"
                replies.append(oracle.reply(plan).split(": ", 1)[1])
            self.assertEqual(replies, ["Look at the columns of pets.", "Look at the columns of pet.", "Get age from pet.", "Submit the rows."])
            replies = []
            for _ in range(5):
                ground += f"\nSubgoal to be grounded: …{ASSISTANT}"
                replies.append(oracle.reply(ground))
                ground += replies[-1]
            self.assertEqual(replies, ["R1 = ListTables()", "R2 = DescribeTable(pets)", "R3 = DescribeTable(pet)", "R4 = ExecuteSQL(SELECT age FROM pet)", "R5 = Submit(R4)"])

    def test_plurals_and_nouns(self) -> None:
        self.assertEqual([vocabulary.plural(w) for w in ("person", "city", "number of staff", "series", "class", "home town")],
                         ["people", "cities", "numbers of staff", "series", "classes", "home towns"])  # fmt: skip
        self.assertEqual(vocabulary.nouns(["the valley of a valley, the quickly of the quickly of"]), ["valley"])

    def test_areas_are_read(self) -> None:
        fields = [f for area in vocabulary.ENTITIES.values() for entity in area for f in entity.fields]
        self.assertGreater(len(fields), 1000)
        for field in fields:
            self.assertRegex(field.words, r"^[a-z][a-z ]*$")
            self.assertEqual(field.high > field.low, field.kind == "number", field)


if __name__ == "__main__":
    unittest.main()
