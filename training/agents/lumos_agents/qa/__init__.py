"""Questions over pages (HotpotQA and StrategyQA): generated worlds and questions, and the oracle that answers them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from zlib import crc32

from ..texts import ASSISTANT, KEEP, NEXT_USER, PLAN, RESULT, STOP, USER
from . import comparisons, mined, questions, relations, sentences, world

_GROUND = (
    f"{USER}Please ground the given subgoal to corresponding executable actions for solving the given task. "
    "The grounded actions must be the one in available action list.\n\n"
    "The available action list is 'KnowledgeQuery', 'ParagraphRetrieve', 'QA', 'Calculator', and 'Code'.\n"
    "Calculator(formula): Calculate the input formula; KnowledgeQuery(query): Capture the relevant webpages according to the query; "
    "ParagraphRetrieve(context, query): Given a query, retrieve the most relevant paragraphs from the given context; "
    "QA(context, query): Given context, answer the given query; Calculator(formula): Calculate the input formula; "
    "Code(pseudo_code): Generate a Python function that corresponds to the pseudo code.\n\nTask: "
)
_ONE, _ALL = " \nSubgoal to be grounded: ", " \nSubgoals to be grounded: "
_ANSWER = "Please answer the following question"
_BRIEF = "Please answer with one brief entity, beginning with 'Answer: '."
_READ = (
    f"{_ANSWER} according to the context. {_BRIEF} If the answer can't be found in the context, answer 'No answer'. "
    "No more details and explanations.\n\nQuestion: "
)
CONSTANTS = [
    f"{USER}{PLAN}Task: ", "; Initial Environment Description: None.", _GROUND, _ONE, _ALL, f"{NEXT_USER}Subgoal to be grounded: ",
    " The grounding could be based on the following results:", " The execution result for Subgoal ",
    f"{USER}{_READ}", f"{USER}{_ANSWER}. {_BRIEF}", " If the answer can't be answered, output 'No answer'. No more details and explanations.",
    "\n\nQuestion: ", "\nContext: ", "\nEvidence ", "Evidence ", "Answer: ", "; Answer: ", "; Question: ", "No answer", " Must answer yes/no.",
    " = KnowledgeQuery(", " = ParagraphRetrieve(", " = QA([", ", Query: ", "], Question: ", "; Subgoal ", "Question: ", "); R",
]  # fmt: skip
TASKS_PER_WORLD = 150
MINED_SHARE = 0.4
COMPARED_SHARE = 0.55
#: Kind of questions with one step, the question itself: those of HotpotQA's training split, and those made from its sentences.
REAL = "real"
KINDS = {"hotpotqa": questions.HOTPOT, "strategyqa": questions.STRATEGY}


def reading_prompt(question: str, context: str) -> str:
    """Returns the question to the QA tool's model, as a model without a chat template receives it."""
    return f"{USER}{_READ}{question}\nContext: {context.strip()}{ASSISTANT}"


def split_of(text: str) -> str:
    """Returns the split of a question."""
    return {0: "test", 1: "dev"}.get(crc32(text.encode()) % 32, "train")


def generate(split: str, seed: int, count: int, folder: Path, texts: list[Path] | None = None) -> None:
    """Writes a corpus of pages, `count` records for each benchmark in its format, and what the oracle knows.

    `texts` are files of HotpotQA's training split, whose paragraphs add pages, and questions that patterns find in them, and as many again
    that rules make from their sentences. Their own questions are added too, each to the split that its text belongs to.
    """
    r = Random(f"qa:{split}:{seed}")
    read = mined.records(texts or [])
    real = mined.pages(read)
    found_facts = mined.facts(real)
    by_key: dict[str, list[mined.Fact]] = {}
    for fact in found_facts:
        by_key.setdefault(fact.key, []).append(fact)
    makers_of = KINDS | ({"hotpotqa": questions.LONG} if texts else {})
    pages: dict[str, list[str]] = {title.lower(): [title, text] for title, text in real.items()}
    known: dict[str, dict] = {}
    records: dict[str, list[dict]] = {name: [] for name in KINDS}
    while any(len(found) < count for found in records.values()):
        place = world.draw(r)
        if any(name.lower() in pages for name in place.pages):
            place.things = [thing for thing in place.things if thing.name.lower() not in pages]
        pages |= {name.lower(): [name, *sentences] for name, sentences in place.pages.items() if name.lower() not in pages}
        for name, makers in makers_of.items():
            for _ in range(TASKS_PER_WORLD):
                about_real = found_facts and name == "hotpotqa" and r.random() < MINED_SHARE
                if about_real:
                    question = comparisons.compare(r, by_key) if r.random() < COMPARED_SHARE else comparisons.single(r, found_facts)
                else:
                    question = questions.draw(r, place, makers)
                if len(records[name]) >= count or split_of(question.text) != split or question.text in known or ";" in question.text:
                    continue
                steps = [vars(step) for step in question.steps]
                known[question.text] = {"answer": question.answer, "steps": steps, "kind": question.kind}
                answer = question.answer == "yes" if name == "strategyqa" else question.answer
                records[name].append({"question": question.text, "answer": answer, "type": question.kind})
    if texts:
        _add_real(split, r, count, read, found_facts, known, records["hotpotqa"])
    for name, found in records.items():
        (folder / name).mkdir(exist_ok=True)
        if name == "strategyqa":
            found = [{"question": record["question"], "answer": record["answer"]} for record in found]
        (folder / name / "test.json").write_text(json.dumps(found, indent=0))
    with (folder / "pages.jsonl").open("w") as file:
        for title, *sentences in pages.values():
            file.write(json.dumps({"title": title, "text": " ".join(sentences)}) + "\n")
    (folder / "oracle.json").write_text(json.dumps(known))


def _add_real(split: str, r: Random, count: int, read: list[dict], found: list[mined.Fact], known: dict[str, dict], records: list[dict]) -> None:
    """Adds `count` questions from sentences, and HotpotQA's own, of a split."""

    def add(text: str, answer: str, steps: list[questions.Step], type_: str = REAL) -> bool:
        if ";" in text or text in known or split_of(text) != split:
            return False
        kind = "comparison" if steps else REAL
        # One step, whose search is for the question itself, unless it compares the same fact of two pages.
        known[text] = {"answer": answer, "steps": [vars(step) for step in steps or [questions.Step(text, text, answer)]], "kind": kind}
        records.append({"question": text, "answer": answer, "type": "comparison" if steps else type_})
        return True

    facts = {(fact.title, fact.key): fact for fact in found}
    for record in read:
        add(record["question"].strip(), record["answer"].strip(), comparisons.of_record(record, facts))
    made = iter(sentences.made(read, r))
    added = 0
    while added < count and (question := next(made, None)):
        added += add(question.question, question.answer, [], f"made-{question.kind}")


class Oracle:
    """Replies to prompts about generated questions: planner, grounder and the QA tool's model."""

    def __init__(self, folder: Path, formulation: str = "iterative") -> None:
        self.one_time = formulation == "onetime"
        self.known = json.loads((folder / "oracle.json").read_text())
        for question, known in self.known.items():
            # The last action of a one-time plan answers the question, if values have to be compared.
            compares = known["kind"] not in ("bridge", REAL)
            known["whole"] = question if compares else ""
        # The answers of subgoals' questions. A one-time plan's later questions have none of their own.
        self.answers: dict[str, set[str]] = {}
        # By questions without the name of their page: the page and the answer.
        self.unnamed: dict[str, set[tuple[str, str]]] = {}
        for question, known in self.known.items():
            self.answers.setdefault(question, set()).add(known["answer"])
            for step in known["steps"]:
                self.answers.setdefault(step["ask"], set()).add(step["answer"])
                if step["unnamed"]:
                    self.unnamed.setdefault(step["unnamed"], set()).add((step["page"], step["answer"]))

    def reply(self, prompt: str) -> str:
        """Returns the next reply."""
        if _ANSWER in prompt:
            return self._read(prompt)
        last = prompt.split("Task: ", 1)[1]
        if prompt.startswith(_GROUND):
            for mark, one_time in ((_ONE, False), (_ALL, True)):
                if mark in last:
                    question, rest = last.split(mark, 1)
                    return self._ground(self.known[question], rest, one_time)
        question, rest = last.split("; Initial Environment Description:", 1)
        return self._plan(self.known[question], rest)

    def _plan(self, known: dict, rest: str) -> str:
        turn, steps = rest.count(RESULT), known["steps"]
        if self.one_time:
            asks = [step["ask_before"] or step["ask"] for step in steps] + ([known["whole"]] if known["whole"] else [])
            return "; ".join(f"Subgoal {i}: {ask}" for i, ask in enumerate(asks, 1))
        if turn >= len(steps):
            return STOP
        return f"{KEEP if turn else ''}Subgoal {turn + 1}: {steps[turn]['ask']}"

    def _ground(self, known: dict, rest: str, one_time: bool) -> str:
        steps = known["steps"]
        if not one_time:
            turn = rest.count(ASSISTANT) - 1
            return self._actions(steps[turn]["page"], steps[turn]["ask"], 3 * turn + 1, "")
        actions = []
        for index, step in enumerate(steps):
            page = f"R{3 * index}" if step["follows"] else step["page"]
            earlier = f"R{3 * index}, " if step["follows"] else ""
            ask = step["ask_before"] or step["ask"]
            actions.append(self._actions(page, ask, 3 * index + 1, earlier, step["unnamed"], step["search"]))
        if known["whole"]:
            values = ", ".join(f"R{3 * i}" for i in range(1, len(steps) + 1))
            actions.append(f"R{3 * len(steps) + 1} = QA([{values}], Question: {known['whole']})")
        return "; ".join(actions)

    @staticmethod
    def _actions(page: str, ask: str, first: int, earlier: str, unnamed: str = "", search: str = "") -> str:
        query = search or (ask if page == ask else questions.search_query(ask))
        find = f"R{first} = KnowledgeQuery({page}); R{first + 1} = ParagraphRetrieve(R{first}, Query: {query})"
        return f"{find}; R{first + 2} = QA([{earlier}R{first + 1}], Question: {unnamed or ask})"

    def _read(self, prompt: str) -> str:
        question, _, context = prompt.split("Question: ", 1)[1].partition("\nContext: ")
        question = question.strip()
        bare = question.removesuffix(" Must answer yes/no.")
        known = self.known.get(bare)
        if known and known["kind"] == REAL and known["answer"] in ("yes", "no"):
            return f"Answer: {known['answer']}" if context else "No answer"
        if known and (len(known["steps"]) > 1 or known["answer"] in ("yes", "no")):
            shown = all(step["answer"] in context for step in known["steps"])
            return f"Answer: {known['answer']}" if shown or question != bare else "No answer"
        found = [answer for answer in sorted(self.answers.get(bare, ())) if answer in context]
        if not found:
            about = sorted((-context.count(page), page, answer) for page, answer in self.unnamed.get(bare, ()) if page in context and answer in context)
            found = [answer for _, _, answer in about]
        return f"Answer: {found[0]}" if found else "No answer"
