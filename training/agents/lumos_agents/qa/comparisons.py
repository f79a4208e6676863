"""Questions about one or two facts that patterns found in real paragraphs, with plans, and plans for HotpotQA's own comparisons."""

from __future__ import annotations

import re
from random import Random

from .mined import Fact
from .questions import Question, Step

#: yes-or-no questions whether two values are equal
SAME = {
    "nationality": (
        "Are {A} and {B} of the same nationality?", "Were {A} and {B} of the same nationality?", "Do {A} and {B} share the same nationality?", "Are {A} and {B} from the same country?",
        "Do {A} and {B} have the same nationality?", "Are both {A} and {B} of the same nationality?", "Did {A} and {B} come from the same country?",
    ),
    "director": ("Were {A} and {B} directed by the same person?", "Did the same person direct {A} and {B}?", "Do {A} and {B} have the same director?", "Are {A} and {B} by the same director?"),
    "located": ("Are {A} and {B} located in the same place?", "Are both {A} and {B} located in the same city?", "Are {A} and {B} in the same country?"),
    "based": ("Are {A} and {B} based in the same city?", "Are {A} and {B} headquartered in the same city?", "Do {A} and {B} have headquarters in the same city?"),
    "released": ("Were {A} and {B} released in the same year?", "Did {A} and {B} come out in the same year?"), "founded": ("Were {A} and {B} founded in the same year?",),
}  # fmt: skip
#: questions which of two comes first, or last
ORDER = {
    "born": (
        ("Who was born first, {A} or {B}?", "Who is older, {A} or {B}?", "Who was born earlier, {A} or {B}?", "Which person was born first, {A} or {B}?", "Between {A} and {B}, who was born first?",
         "Who was born first out of {A} and {B}?", "Who is the older of the two, {A} or {B}?", "Which {N} was born first, {A} or {B}?", "{A} and {B}, who is older?"),
        ("Who is younger, {A} or {B}?", "Who was born later, {A} or {B}?", "Which of {A} and {B} was born last?"),
    ),
    "died": (("Who died first, {A} or {B}?", "Who died earlier, {A} or {B}?"), ("Who died later, {A} or {B}?",)),
    "released": (
        ("Which was released first, {A} or {B}?", "Which came out first, {A} or {B}?", "Which {N} was released first, {A} or {B}?", "Which {N} came out first, {A} or {B}?", "Was {A} or {B} released first?",
         "Between {A} and {B}, which was released earlier?", "Which one was released first, {A} or {B}?"),
        ("Which came out more recently, {A} or {B}?", "Which {N} was released later, {A} or {B}?"),
    ),
    "founded": (
        ("Which was founded first, {A} or {B}?", "Which is older, {A} or {B}?", "Which was established first, {A} or {B}?", "Which {N} was founded first, {A} or {B}?", "Was {A} or {B} founded first?",
         "Which {N} was established first, {A} or {B}?", "Which has been around longer, {A} or {B}?", "Which started first, {A} or {B}?", "Which {N} was formed first, {A} or {B}?"),
        ("Which was founded later, {A} or {B}?", "Which was formed more recently, {A} or {B}?"),
    ),
    "population": (("Which has the smaller population, {A} or {B}?",), ("Which has a larger population, {A} or {B}?", "Which has more inhabitants, {A} or {B}?")),
}  # fmt: skip
BOTH = ("Are {A} and {B} both {V}?", "Are both {A} and {B} {V}?", "Were {A} and {B} both {V}?", "Were both {A} and {B} {V}?")
WHICH = ("Who is {V}, {A} or {B}?", "Which one is {V}, {A} or {B}?", "Of {A} and {B}, which one is {V}?", "Which of {A} and {B} is {V}?", "Is {A} or {B} {V}?")
#: what a comparison of HotpotQA's own asks about each of the two, by its words
_WORDS = [
    (r"born|older|younger|oldest|youngest|age\b", ("born",)), (r"nationality|same country|from the .* country", ("nationality", "located")), (r"direct", ("director",)),
    (r"died", ("died",)), (r"founded|established|formed|started|created first", ("founded",)), (r"released|came out|published first|first published", ("released", "founded")),
    (r"located|in the state|in the same", ("located", "county", "based")), (r"headquarter|based", ("based",)), (r"population|populous|people", ("population",)), (r"\bboth\b|profession|occupation|genre|same type", ("what",)),
]  # fmt: skip


def bare(title: str) -> str:
    """Returns a title without what is in brackets."""
    return re.sub(r" \(.*\)$", "", title)


def _person(noun: str) -> bool:
    return bool(re.search(r"(?:er|or|ist|ian|man|ess|ete|poet|model|coach|guard)$", noun))


def _steps(a: Fact, b: Fact) -> list[Step]:
    """The first form of the questions about two facts."""
    return [Step(fact.asks[0], bare(fact.title), fact.answer) for fact in (a, b)]


def _noun(what: str) -> str:
    return what.split()[-1] if what else ""


def _number(fact: Fact) -> int:
    return int(fact.answer.replace(",", "")) if fact.key == "population" else int(fact.answer[-4:])


def single(r: Random, facts: list[Fact]) -> Question:
    """Asks for one value."""
    fact = r.choice(facts)
    ask = r.choice(fact.asks)
    return Question(ask, fact.answer, "bridge", [Step(ask, bare(fact.title), fact.answer)])


def compare(r: Random, facts: dict[str, list[Fact]]) -> Question:
    """Compares two pages. `facts` are by key."""
    nouns = {fact.title: _noun(fact.answer) for fact in facts.get("what", [])}
    fill = lambda text, a, b: text.replace("{A}", bare(a.title)).replace("{B}", bare(b.title))  # noqa: E731
    while True:
        kind = r.choices(("same", "order", "both", "which"), (25, 40, 25, 10))[0]
        table = {"same": SAME, "order": ORDER}.get(kind)
        key = r.choice(sorted(key for key in table if key in facts)) if table else r.choice(("what", "nationality"))
        if kind == "same" and r.random() < 0.5:
            key = "nationality"
        if kind == "order" and r.random() < 0.6:
            key = r.choice(("born", "released", "founded"))
        if len(facts.get(key, ())) < 2:
            continue
        wanted = r.random() < 0.5
        for _ in range(200):
            a, b = r.choice(facts[key]), r.choice(facts[key])
            value = _noun(a.answer) if key == "what" else a.answer
            equal = value == (_noun(b.answer) if key == "what" else b.answer)
            if key == "nationality" and not (_person(nouns.get(a.title, "")) and _person(nouns.get(b.title, ""))):
                continue
            if key in ("released", "founded") and kind == "same":
                equal = _number(a) == _number(b)
            if bare(a.title) == bare(b.title) or a.title in b.title or b.title in a.title:
                continue
            if kind == "order":
                if _number(a) != _number(b) and (r.random() < 0.2 or nouns.get(a.title) == nouns.get(b.title)):
                    break
            elif kind == "which":
                if not equal:
                    break
            elif equal == wanted and (kind == "same" or key == "nationality" or value.isalpha()):
                break
        else:
            continue
        steps = _steps(a, b)
        if kind == "order":
            first = r.random() < 0.75
            noun = nouns.get(a.title) if nouns.get(a.title) == nouns.get(b.title) else None
            forms = [form for form in ORDER[key][0 if first else 1] if noun or "{N}" not in form]
            answer = bare((a if (_number(a) < _number(b)) == first else b).title)
            return Question(fill(r.choice(forms).replace("{N}", noun or ""), a, b), answer, "comparison", steps)
        if kind == "same":
            return Question(fill(r.choice(SAME[key]), a, b), "yes" if equal else "no", "comparison", steps)
        chosen = r.choice((a, b))
        word = _noun(chosen.answer) if key == "what" else chosen.answer
        if kind == "which":
            article = "an" if word[0].lower() in "aeiou" else "a"
            return Question(fill(r.choice(WHICH).replace("{V}", f"{article} {word}" if key == "what" else word), a, b), bare(chosen.title), "comparison", steps)
        plural = re.sub(r"(?<=[^aeiou])y$", "ie", word) + ("es" if word.endswith(("s", "ch", "sh", "x")) else "s")
        return Question(fill(r.choice(BOTH).replace("{V}", plural if key == "what" else word), a, b), "yes" if equal else "no", "comparison", steps)


def of_record(record: dict, facts: dict[tuple[str, str], Fact]) -> list[Step]:
    """Returns the plan of one of HotpotQA's comparisons: the same fact of both pages. `facts` are by title and key; empty if one is missing."""
    text = record["question"]
    titles = list(dict.fromkeys(title for title, _ in record["supporting_facts"]))
    if record["type"] != "comparison" or len(titles) != 2 or not all(bare(title) in text for title in titles):
        return []
    titles.sort(key=lambda title: text.index(bare(title)))
    for words, keys in _WORDS:
        if re.search(words, text):
            for key in keys:
                found = [facts.get((title, key)) for title in titles]
                if all(found) and (record["answer"] in ("yes", "no", *map(bare, titles)) or record["answer"] in (fact.answer for fact in found)):
                    return _steps(*found)
    return []
