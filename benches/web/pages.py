"""Computes the texts of a page's candidates with Python and lxml in the straightforward way: copies and prunes the page
for each candidate, serializes it as XML and converts the XML to text by replacement.

Usage: pages.py STEP [ROUNDS]   STEP: JSON file with the step's `action`, or with the step itself
Prints JSON: the texts of all candidates, and the duration of the fastest round in seconds.
"""

import copy
import json
import re
import sys
import time

from lxml import etree

ORDER = (
    "role aria_role type alt aria_description aria_label label title name text_value value placeholder "
    "input_checked input_value option_selected class"
).split()
SILENT = {"hidden", "none", "presentation", "null", "undefined"}
ID = "backend_node_id"
ENTITIES = {
    "&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&ndash;": "-", "&rsquo;": "'",
    "&lsquo;": "'", "&ldquo;": '"', "&rdquo;": '"', "&#39;": "'", "&#40;": "(", "&#41;": ")",
}  # fmt: skip


def below(element, depth=0):
    if depth <= 5:
        for child in element:
            yield child
            yield from below(child, depth + 1)


def around(page, wanted):
    """Returns the ids of the elements that are kept around a candidate."""
    element = page.xpath(f'//*[@{ID}="{wanted}"]')[0]
    near = [element, *element.iterancestors(), *list(below(element))[:50]]
    if element.getparent() is not None:
        beside = [other for other in element.getparent() if other.tag != "text"]
        place = beside.index(element)
        near += beside[max(0, place - 3) : place + 4]
    return {other.get(ID, "") for other in near}


def pruned(page, wanted):
    keep = around(page, wanted)
    page = copy.deepcopy(page)
    for element in reversed(list(page.iter("*"))):
        parent = element.getparent()
        is_text = element.tag == "text"
        owner = parent if is_text else element
        if owner.get(ID, "") not in keep and parent is not None:
            parent.remove(element)
            continue
        if is_text or element.get(ID, "") != wanted:
            element.attrib.pop(ID, None)
        says = element.attrib or is_text or any(child.tag == "text" for child in element)
        if not says and parent is not None and len(element) <= 1:
            for child in list(element):
                element.addprevious(child)
            parent.remove(element)
    return page


def said(element):
    values = []
    for name in ORDER:
        value = element.get(name, "").lower()
        if not value or value in SILENT or value.startswith("http"):
            continue
        value = " ".join([word for word in value.split() if len(word) < 15][:5])
        if value and value not in values:
            values.append(value)
    return " ".join(" ".join(values).split()[:20])


def text_of(tree):
    tree, numbers = copy.deepcopy(tree), {}
    for element in tree.iter("*"):
        if element.tag == "text":
            element.text = " ".join(element.text.split()[:20])
            continue
        attributes, identity = said(element), element.get(ID)
        element.attrib.clear()
        if identity:
            element.set("id", str(numbers.setdefault(identity, len(numbers))))
        if attributes:
            element.set("meta", attributes)
    text = etree.tostring(tree, encoding="unicode").replace('"', " ")
    text = text.replace("meta= ", "").replace("id= ", "id=").replace(" >", ">")
    text = re.sub(r"<text>(.*?)</text>", r"\1", text)
    text = text.replace("/>", "$/$>")
    text = re.sub(r"</(.+?)>", ")", text)
    text = re.sub(r"<(.+?)>", r"(\1", text).replace("$/$", ")")
    for entity, character in ENTITIES.items():
        text = text.replace(entity, character)
    return re.sub(r"\s+", " ", text).strip()


def candidate(page, wanted):
    page = pruned(page, wanted)
    element = page.xpath(f"//*[@{ID}]")[0]
    ancestors = ""
    if element.getparent() is not None:
        element.getparent().remove(element)
        ancestors = re.sub(r"\s*\(\s*", "/", text_of(page))
        ancestors = " ".join(re.sub(r"\s*\)\s*", "", ancestors).split()[-50:])
    return f"ancestors: {ancestors}\ntarget: {' '.join(text_of(element).split()[:100])}"


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        step = json.load(file)
    step = step.get("action", step)
    wanted = [one[ID] for one in step["pos_candidates"] + step["neg_candidates"]]
    best = float("inf")
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 3):
        started = time.perf_counter()
        page = etree.fromstring(step["cleaned_html"])
        texts = [candidate(page, one) for one in wanted]
        best = min(best, time.perf_counter() - started)
    json.dump({"texts": texts, "seconds": best}, sys.stdout)


if __name__ == "__main__":
    main()
