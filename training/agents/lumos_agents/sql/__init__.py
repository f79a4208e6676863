"""Questions to databases (InterCode SQL): generated databases and questions, and the oracle that answers them."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from random import Random
from zlib import crc32

from ..texts import ASSISTANT, KEEP, NEXT_USER, PLAN, RESULT, USER
from . import asking, questions, schema, varied as varied_names, vocabulary, wide as wide_databases

_PROMPTS = Path(__file__).parents[4] / "tasks" / "src" / "families" / "sql"
_PLAN_EXAMPLE = (_PROMPTS / "plan_example.txt").read_text()
_GROUND_EXAMPLE = (_PROMPTS / "ground_example.txt").read_text()
_ACTIONS = _GROUND_EXAMPLE.split("Task: ")[0]

#: The worked example at the beginning of the prompts of each role.
EXAMPLES = {"planner": f"{_PLAN_EXAMPLE}\n", "grounder": f"{_GROUND_EXAMPLE}\n"}
CONSTANTS = [
    f"{_PLAN_EXAMPLE}\n{USER}{PLAN}Task: ",
    f"{_GROUND_EXAMPLE}\n{_ACTIONS}Task: ",
    "; Initial Environment Description: A MySQL database named ",
    "\nSubgoal to be grounded: ",
    f"{NEXT_USER}The grounding could be based on the following results: ",
    " = ListTables() = [('", " = ListTables()", " = DescribeTable(", " = ExecuteSQL(", " = Submit(", ") = [('", " = [('", "',)]", "',), (\"", "\",), ('",
    "SELECT ", " FROM ", " WHERE ", " ORDER BY ", " GROUP BY ", "COUNT(*)", " LIMIT ", " JOIN ", " ON ",
    *(f"', '{type_}', '{null}', '{key}', None, '')" for type_ in ("int", "int(11)", "text", "float", "double", "decimal(10,2)", "varchar(20)", "varchar(40)",
      "varchar(60)", "varchar(255)", "char(20)", "date", "varchar(50)", "varchar(80)", "varchar(100)", "varchar(120)",
      "bigint(20)", "smallint(6)", "decimal(19,4)", "real", "longtext", "datetime", "timestamp") for null in ("YES", "NO") for key in ("", "PRI", "MUL") if not (key and type_ in ("text", "float", "double", "date", "real", "longtext", "datetime", "timestamp", "decimal(10,2)", "decimal(19,4)", "varchar(120)"))),
    "), ('",  "',), ('" , "', 'YES', '', None, '')", "', 'NO', '', None, '')"  "', 'NO', 'PRI', None, '')", "', 'YES', 'MUL', None, '')",
    "Find the tables of the database.", "Look at the columns of ", "Submit the rows.",
]  # fmt: skip
TASKS_PER_DATABASE = 6
#: Share of the questions at which the oracle's planner first names a wrong column, with `varied`.
SLIPS = 0.15
#: Share of the questions of wide databases at which it first names a wrong table.
MISSES = 0.06
REFUSED = " = Error executing query: "


def _split_of(question: questions.Question) -> str:
    return {0: "test", 1: "dev"}.get(crc32(f"{question.text} | {question.sql}".encode()) % 32, "train")


def _runs(r: Random, connection: sqlite3.Connection, question: questions.Question) -> bool:
    """Says whether a statement runs. Most statements without rows are left out, because real questions have few."""
    try:
        rows = connection.execute(question.sql).fetchall()
    except sqlite3.Error:
        return False
    return rows not in ([], [(0,)], [(None,)]) or r.random() < 0.25


def _paragraphs(path: Path) -> list[str]:
    return ["".join(sentences) for line in path.read_text().splitlines() for _, sentences in json.loads(line)["context"]]


def generate(split: str, seed: int, count: int, folder: Path, varied: bool = False, wide: float = 0.0, strict: float = 0.0, texts: list[Path] | None = None) -> None:
    """Writes databases, records in the format of InterCode's Spider file, and what the oracle knows.

    With `varied`, names are compound more often and differ from the words of the questions. `wide` is the share of databases of many
    areas, with more kinds of questions, and `texts` are files of HotpotQA's training split, whose nouns become names and values.
    `strict` is the share of databases with columns that are `NOT NULL` or have a default; it changes nothing else.
    """
    r, strictness = Random(f"sql:{split}:{seed}"), Random(f"sql:strict:{split}:{seed}")
    place = folder / "intercode_sql"
    (place / "sqlite").mkdir(parents=True, exist_ok=True)
    records, known, seen = [], [], set()
    number = seed * 100_000 + {"train": 0, "dev": 80_000, "test": 90_000}[split]
    nouns = vocabulary.nouns([text for path in texts or [] for text in _paragraphs(path)])
    while len(records) < count:
        is_wide = wide > 0 and r.random() < wide
        database = wide_databases.draw(r, number, nouns) if is_wide else schema.draw(r, number)
        if varied and not is_wide:
            varied_names.vary(r, database)
        number += 1
        path = place / "sqlite" / f"{database.name}.sqlite"
        schema.write(database, path, strictness if strictness.random() < strict else None)
        connection = sqlite3.connect(path)
        added = 0
        for _ in range(TASKS_PER_DATABASE * 100):
            question = asking.draw(r, database) if is_wide else questions.draw(r, database)
            if added == TASKS_PER_DATABASE or len(records) == count:
                break
            if _split_of(question) != split or question.text in seen:
                continue
            if is_wide and not _runs(r, connection, question):
                continue
            seen.add(question.text)
            added += 1
            tables = {table.name: [column.name for column in table.columns] for table in database.tables}
            records.append({"db": database.name, "gold": question.sql, "query": question.text, "hardness": question.hardness, "db_tables": tables})
            described = [table.name for table in question.tables]
            if r.random() < 0.03:
                others = [table.name for table in database.tables if table.words and table.name not in described]
                described = [*r.sample(others, min(1, len(others))), *described]
            slip = varied_names.slip(r, question, database.style) if (varied or is_wide) and r.random() < SLIPS else None
            missing = None
            if is_wide and slip and r.random() < 0.3:
                slip = wide_databases.wrong_column(r, question, database)
            elif is_wide and not slip and r.random() < MISSES:
                missing = wide_databases.wrong_table(r, question, database)
            known.append({"slip": slip, "missing": missing, "question": question.text, "database": database.name, "sql": question.sql, "goal": question.goal, "tables": described})
        connection.close()
    (place / "ic_spider_dev.json").write_text(json.dumps(records, indent=0))
    (folder / "oracle.json").write_text(json.dumps(known))


class Oracle:
    """Replies to prompts about generated questions."""

    def __init__(self, folder: Path, formulation: str = "iterative") -> None:
        self.known = {(k["question"], k["database"]): k for k in json.loads((folder / "oracle.json").read_text())}

    def reply(self, prompt: str) -> str:
        """Returns the planner's or the grounder's next reply."""
        last = prompt.rsplit("\nTask: " if prompt.startswith(_PLAN_EXAMPLE) else "\n\nTask: ", 1)[1]
        question, rest = last.split("; Initial Environment Description: A MySQL database named ", 1)
        database = re.match(r"([^.\n]*)\.", rest)[1]
        known = self.known[question, database]
        failed = last.count(REFUSED)
        if prompt.startswith(_PLAN_EXAMPLE):
            return self._plan(known, last.count(RESULT), failed)
        return self._ground(known, last.count(ASSISTANT) - 1, failed)

    @staticmethod
    def _plan(known: dict, turn: int, failed: int) -> str:
        looked = f"Look at the columns of {' and '.join(known['tables'])}."
        missing = [f"Look at the columns of {known['missing']}."] if known.get("missing") else []
        # A wrong name that the database accepts, as SQLite does with quoted ones, is not corrected.
        queries = [known["slip"]["goal"], *([known["goal"]] if failed else [])] if known.get("slip") else [known["goal"]]
        goals = ["Find the tables of the database.", *missing, looked, *queries, "Submit the rows."]
        return f"{KEEP if turn else ''}Subgoal {turn + 1}: {goals[min(turn, len(goals) - 1)]}"

    @staticmethod
    def _ground(known: dict, turn: int, failed: int) -> str:
        missing = [[f"DescribeTable({known['missing']})"]] if known.get("missing") else []
        queries = [known["slip"]["sql"], *([known["sql"]] if failed else [])] if known.get("slip") else [known["sql"]]
        turns = [["ListTables()"], *missing, [f"DescribeTable({name})" for name in known["tables"]], *[[f"ExecuteSQL({query})"] for query in queries]]
        first = 1 + sum(map(len, turns[:turn])) + max(0, turn - len(turns))
        actions = turns[turn] if turn < len(turns) else [f"Submit(R{first - 1})"]
        return "; ".join(f"R{i} = {action}" for i, action in enumerate(actions, first))
