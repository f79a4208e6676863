"""Writes generated web tasks in Mind2Web's format."""

from __future__ import annotations

import json
from html import escape
from itertools import count as numbers
from pathlib import Path
from random import Random

from ..invented import word
from ..splits import split_of
from .sites import Element, Step, WebTask, draw_task
from .sites_a import KINDS as FIRST_KINDS
from .sites_b import KINDS as OTHER_KINDS

KINDS = FIRST_KINDS + OTHER_KINDS
ROOT = Path(__file__).parents[4]
SAMPLES = ROOT / "benchmarks/samples/mind2web.json"
SITES = "At {}, {}|On {}: {}|{1} (on {0})|Go to {}. {}|Use {} for this: {}"


def page_html(step: Step, heading: str) -> tuple[str, list[str]]:
    """Returns a page, and the identifiers of its elements (an empty one for texts and forms).

    Every element has an element of its own around it, as on real pages: a candidate's text for the ranker contains its siblings, so
    that elements side by side could not be told apart by their words.
    """
    ids = numbers(1)

    def text(content: str) -> str:
        return f'<text backend_node_id="{next(ids)}">{escape(content)}</text>'

    def tag(name: str, identifier: int, attributes: str, content: str = "") -> str:
        start = f'<{name} backend_node_id="{identifier}"{attributes}'
        return f"{start}>{content}</{name}>" if content else f"{start}/>"

    def words(content: str) -> str:
        return tag("span", next(ids), "", text(content))

    found: list[str] = []
    parts: list[list[str]] = [[], [], []]  # navigation, form, the rest

    def element(e: Element) -> str:
        around, own = next(ids), next(ids)
        found.append(str(own))
        label = escape(e.text, quote=True)
        if e.tag == "a":
            return tag("li", around, "", tag("a", own, ' role="link"', words(e.text)))
        if e.tag == "button":
            return tag("div", around, "", tag("button", own, ' type="submit"', words(e.text)))
        if e.tag in ("input", "select"):
            name = tag("label", next(ids), "", text(e.text))
            if e.tag == "input":
                return tag("div", around, "", name + tag("input", own, f' type="text" aria_label="{label}"'))
            options = "".join(tag("option", next(ids), "", text(o)) for o in e.options)
            return tag("div", around, "", name + tag("select", own, f' name="{label}"', options))
        if e.tag == "svg":
            return tag("div", around, "", tag("svg", own, f' aria_label="{label}"'))
        found[-1] = ""
        return tag("p", own, "", text(e.text))

    html, body, title = next(ids), next(ids), tag("h1", next(ids), "", text(heading))
    place = 0 if step.elements[0].tag == "a" else 2
    for e in step.elements:
        if e.tag == "form":
            found.append("")
            place = 1
            continue
        if place == 0 and e.tag != "a":
            place = 2
        parts[place].append(element(e))
    nav, form, rest = parts
    content = title
    if nav:
        content += tag("nav", next(ids), ' role="navigation"', "".join(nav))
    if form:
        content += tag("form", next(ids), ' role="search"', "".join(form))
    content += "".join(rest)
    return tag("html", html, "", tag("body", body, "", content)), found


def record(task: WebTask, identifier: str) -> dict:
    """Returns a task's record."""
    actions = []
    for number, step in enumerate(task.steps):
        page, found = page_html(step, f"{task.site.split('-')[0].title()} {step.page}")
        gold = found[step.index]
        actions.append(
            {
                "action_uid": f"{identifier}-{number}",
                "cleaned_html": page,
                "operation": {"original_op": step.operation, "op": step.operation, "value": step.value},
                "pos_candidates": [{"backend_node_id": gold}],
                "neg_candidates": [{"backend_node_id": other} for other in found if other not in ("", gold)],
            }
        )
    return {
        "annotation_id": identifier,
        "website": task.site,
        "domain": task.domain,
        "subdomain": task.subdomain,
        "confirmed_task": task.text,
        "action_reprs": [step.representation for step in task.steps],
        "actions": actions,
    }


def on_site(r: Random, text: str) -> str:
    """Returns a task that names an invented site."""
    site = word(r, 2, 3).title()
    return r.choice(SITES.split("|")).format(site, text)


def generate(split: str, seed: int, count: int, folder: Path) -> None:
    """Writes `mind2web/test_domain/test_domain_0.json` with `count` tasks of a split, and `oracle.jsonl`.

    Every task has another text. The product's sample tasks are left out.
    """
    r = Random(f"web {seed} {split}")
    seen = {task["confirmed_task"] for task in json.loads(SAMPLES.read_text())}
    records, known = [], []
    while len(records) < count:
        task = draw_task(r, KINDS)
        if task.text in seen or r.random() < 0.12:
            task.text = on_site(r, task.text)
        if task.text in seen or split_of(task.text) != split:
            continue
        seen.add(task.text)
        records.append(record(task, f"{split}-{len(records):05}"))
        steps = [{"operation": s.operation, "role": s.element.tag, "said": s.said, "value": s.value} for s in task.steps]
        known.append({"task": task.text, "steps": steps})
    place = folder / "mind2web" / "test_domain"
    place.mkdir(parents=True, exist_ok=True)
    (place / "test_domain_0.json").write_text(json.dumps(records, separators=(",", ":"), ensure_ascii=False))
    with (folder / "oracle.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in known)
