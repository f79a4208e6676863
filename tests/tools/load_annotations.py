"""Check the annotations of `lumos export --to annotations`, as the original's training code loads them.

load_annotations.py FOLDER: every row has exactly the keys `dataset`, `id` and `messages`; roles alternate, `user` first
and `assistant` last; no text contains a marker of the chat format, so that rendering and splitting a row gives it back.
Prints the number of rows and messages of every file. Needs the standard library only.
"""

import json
import sys
from collections import Counter
from pathlib import Path

USER, ASSISTANT = "<|user|>\n", "\n<|assistant|>\n"


def render(messages):
    """The chat format of the original's training: a marker line before each message, a blank line between turns."""
    pairs = zip(messages[::2], messages[1::2])
    return "\n\n".join(f"{USER}{asked['content']}{ASSISTANT}{answer['content']}" for asked, answer in pairs)


def split(text):
    turns = [turn.partition(ASSISTANT) for turn in text.removeprefix(USER).split("\n\n" + USER)]
    return [content for asked, _, answer in turns for content in (asked, answer)]


def check(path):
    ids, messages = Counter(), 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        place = f"{path.name}:{number}"
        assert list(row) == ["dataset", "id", "messages"], f"{place}: keys {list(row)}"
        assert row["id"].rpartition("_")[0] == row["dataset"], f"{place}: id {row['id']}"
        assert all(list(message) == ["role", "content"] for message in row["messages"]), place
        roles = [message["role"] for message in row["messages"]]
        assert roles and roles == ["user", "assistant"] * (len(roles) // 2), f"{place}: roles {roles}"
        contents = [message["content"] for message in row["messages"]]
        assert all(isinstance(content, str) and content.strip() for content in contents), f"{place}: empty message"
        assert split(render(row["messages"])) == contents, f"{place}: a text contains a marker"
        if "plan_iterative" in path.name:
            assert contents[-1].rstrip(".").endswith("Yes, I will stop planning"), f"{place}: {contents[-1]!r}"
        ids[row["id"]] += 1
        messages += len(roles)
    assert all(count == 1 for count in ids.values()), f"{path.name}: ids are not unique"
    print(f"{path.name}: {len(ids)} rows, {messages} messages")
    return set(ids)


def main():
    folder = Path(sys.argv[1])
    files = sorted(path for path in folder.rglob("*lumos_*.jsonl"))
    assert files, f"no annotations below {folder}"
    ids = {path.name: check(path) for path in files}
    [provenance] = folder.rglob("*provenance.jsonl")
    known = [json.loads(line) for line in provenance.read_text(encoding="utf-8").splitlines()]
    for row in known:
        assert row["id"] in ids[row["file"]], f"{row['id']} is not in {row['file']}"
    own = sum(len(found) for name, found in ids.items() if "_unified_" not in name)
    assert own == len(known), f"{own} rows, {len(known)} in {provenance.name}"
    print(f"{provenance.name}: {len(known)} rows")


if __name__ == "__main__":
    main()
