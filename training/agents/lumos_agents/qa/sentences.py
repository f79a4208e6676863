"""Questions in HotpotQA's style from sentences of real paragraphs: HotpotQA's training split only.

Rules turn a sentence into questions about its dates, numbers and names (`clozes`), about the title of its page by what it does
(`subjects`), and about two pages of which one names the other (`bridges`). Each answer is a span of the shown text, and no
question contains its answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from .mined import DATE, NAME, NATION, PLACE, facts

#: a name or a place ends here, and is not a part of a longer one
_END = r"(?=[,.;:)]|$| (?:(?:and|or)(?= [a-z])|(?:in|on|at|by|from|to|with|who|that|which|where|as|for|of|is|was|after|before|during|but|until|since)\b))"
_NOT_PLACES = re.compile(rf"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b|^{NATION}$|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|^(?:The|Highway|Route)$|\b(?:of|The)$")
_COMPANY = re.compile(r"\b(?:Records|Company|Co|Inc|Studios?|Pictures|Entertainment|Press|University|Films?|Productions?|Group|Games|Music|Corporation|Network|Television|Books|Media|Association|Railway)\b")
_PARTICIPLE = re.compile(r"(?:(?:[a-z]+ly|also|first|later) )?[a-z]+(?:ed|en|wn|ilt|un|ade|orn|eld|ught|old|und|ung|set|won|led)\b")
_OTHER = r"(?:He|She|It|They|The (?:film|book|band|album|song|series|company|novel|show|group|team|school|city|town|village|station|single|game|magazine|club|airline|play))"
_NOUN = (
    "actor|actress|singer|director|writer|author|band|film|novel|album|song|player|producer|composer|comedian|musician|rapper|politician|poet|king|queen|"
    "company|magazine|series|city|town|county|state|river|island|university|college|school|club|team|king|emperor|general|novelist|journalist|architect|"
    "brother|sister|father|mother|husband|wife|son|daughter|label|network|studio|group|duo|character|footballer|coach|president|founder|designer|sitcom|show|episode|book|musical|opera|game|trilogy|franchise|agency|airline|village|district"
)
_TITLED = re.compile(rf"\b(?:the |an? |his |her |its )?((?:[A-Z][a-z]+ )?(?:[a-z-]+ ){{0,2}}(?:{_NOUN})) (?=[A-Z\"])")
COUNTRIES = set(
    "Afghanistan|Argentina|Australia|Austria|Bangladesh|Belgium|Brazil|Bulgaria|Canada|Chile|China|Colombia|Croatia|Cuba|Denmark|Egypt|England|Estonia|Ethiopia|Finland|France|Germany|"
    "Ghana|Greece|Hungary|Iceland|India|Indonesia|Iran|Iraq|Ireland|Israel|Italy|Jamaica|Japan|Kenya|Latvia|Lebanon|Lithuania|Malaysia|Mexico|Nepal|Netherlands|New Zealand|Nigeria|"
    "Northern Ireland|Norway|Pakistan|Peru|Philippines|Poland|Portugal|Romania|Russia|Scotland|Serbia|Singapore|South Africa|South Korea|Soviet Union|Spain|Sri Lanka|Sweden|Switzerland|"
    "Taiwan|Thailand|Turkey|UK|Ukraine|United Kingdom|United States|Uruguay|Venezuela|Vietnam|Wales|Zimbabwe".split("|")
)
STATES = set(
    "Alabama|Alaska|Arizona|Arkansas|California|Colorado|Connecticut|Delaware|Florida|Georgia|Hawaii|Idaho|Illinois|Indiana|Iowa|Kansas|Kentucky|Louisiana|Maine|Maryland|Massachusetts|"
    "Michigan|Minnesota|Mississippi|Missouri|Montana|Nebraska|Nevada|New Hampshire|New Jersey|New Mexico|New York|North Carolina|North Dakota|Ohio|Oklahoma|Oregon|Pennsylvania|Rhode Island|"
    "South Carolina|South Dakota|Tennessee|Texas|Utah|Vermont|Virginia|Washington|West Virginia|Wisconsin|Wyoming".split("|")
)
_BEFORE_NAME = _TITLED.pattern.replace(r" (?=[A-Z\"])", " $")
PREPOSITIONS = ("by", "in", "with", "of", "for", "from", "at", "and", "as", "to", "on", "starring")
VERBS = dict(
    pair.split(":")
    for pair in (
        "won:win became:become played:play died:die married:marry joined:join moved:move began:begin founded:found wrote:write directed:direct starred:star appeared:appear "
        "served:serve attended:attend graduated:graduate studied:study received:receive made:make took:take led:lead signed:sign opened:open produced:produce recorded:record "
        "lived:live worked:work lost:lose defeated:defeat competed:compete represented:represent released:release left:leave returned:return debuted:debut premiered:premiere "
        "aired:air ran:run finished:finish hosted:host created:create published:publish held:hold retired:retire performed:perform sold:sell reached:reach peaked:peak "
        "moved:move grew:grow taught:teach coached:coach managed:manage acquired:acquire merged:merge launched:launch introduced:introduce toured:tour featured:feature "
        "started:start ended:end came:come went:go earned:earn gained:gain formed:form developed:develop designed:design built:build fought:fight ruled:rule"
    ).split()
)
#: kinds of spans: pattern, how a question ends with it, and how it begins with it
SPANS = [
    ("date", re.compile(rf"\b(?:on|until|since) {DATE}"), ("what date",), ("On what date", "When", "On which date")),
    ("year", re.compile(r"\b(?:in|since|until) ((?:1[0-9]|20)\d\d)\b(?!s)"), ("what year", "which year"), ("In what year", "What year", "In which year", "When")),
    ("person", re.compile(rf"\b(?:by|starring|with|married) {NAME}{_END}"), ("whom", "who", "which person"), ("By whom",)),
    ("place", re.compile(rf"\b(?:in|at|from|near) (?:the )?{PLACE}{_END}"), ("what place", "which place", "what location"), ("Where", "In which place", "In what place")),
    ("number", re.compile(r"\b(\d[\d,.]*\d|\d+|two|three|four|five|six|seven|eight|nine|ten|twelve) [a-z]{4,}s\b"), ("how many",), ()),
    ("quoted", re.compile(r"\"([^\"]{3,60})\""), ("what",), ()),
    ("title", re.compile(rf"\b(?:of|for|as|to) (?:the )?{NAME}{_END}"), ("what",), ()),
]  # fmt: skip
#: for keys of facts: how the question ends about a thing that is described ("a singer born when"), and how it asks about a phrase
ENDS = {
    "born": ("born on what date", "who was born when"), "birthplace": ("born in what place", "who was born where"), "nationality": ("of what nationality",),
    "director": ("directed by whom", "that was directed by who"), "writer": ("written by whom",), "star": ("starring whom", "that stars which actor"), "released": ("released when", "from what year"),
    "located": ("located where", "located in what place"), "founded": ("founded in what year", "which was founded when"), "founder": ("founded by whom",),
    "based": ("based in what place", "headquartered where"), "publisher": ("published by whom",), "developer": ("developed by whom",), "producer": ("produced by whom",),
    "college": ("who studied where",), "alias": ("also known by what name",), "population": ("with how many inhabitants",), "label": ("released by what label",), "team": ("who plays for what team",),
}  # fmt: skip
#: for keys of facts whose value may be a page: phrases for the value
PHRASES = {
    "director": ("the director of {X}", "the person who directed {X}", "the filmmaker behind {X}"), "writer": ("the writer of {X}", "the person who wrote {X}", "the author of {X}"),
    "star": ("the star of {X}", "the actor who starred in {X}"), "founder": ("the founder of {X}", "the person who founded {X}"), "publisher": ("the publisher of {X}",),
    "developer": ("the developer of {X}", "the company that developed {X}"), "producer": ("the producer of {X}", "the person who produced {X}"), "artist": ("the artist who recorded {X}", "the performer of {X}"),
    "located": ("the place where {X} is located",), "birthplace": ("the birthplace of {X}", "the place where {X} was born"), "based": ("the place where {X} is based",),
    "player": ("the person who played {X}",), "spouse": ("the spouse of {X}", "the person who married {X}"), "college": ("the school that {X} attended",), "label": ("the label that released {X}",),
    "team": ("the team that {X} played for",), "member": ("the group of which {X} is a member",),
}  # fmt: skip
#: for keys of facts whose value may be a page: what stands between a page and the value
JOINED = {
    "director": "was directed by", "writer": "was written by", "star": "stars", "founder": "was founded by", "producer": "was produced by", "publisher": "was published by",
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """A question with its answer and the sentences that show it."""

    question: str
    answer: str
    shown: tuple[str, ...]
    kind: str


@dataclass
class Page:
    """A page with what its first sentence says that it is, and what patterns find in it."""

    title: str
    bare: str
    sentences: list[str]
    what: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    asks: dict[str, tuple[str, ...]] = field(default_factory=dict)


def pages(records: list[dict]) -> dict[str, Page]:
    """Returns the pages of HotpotQA's records by title without what is in brackets."""
    texts = {title: [s.strip() for s in sentences if s.strip()] for record in records for title, sentences in record["context"]}
    texts = {t: s for t, s in texts.items() if 40 < sum(map(len, s)) < 1400 and ";" not in t}
    found = {title: Page(title, re.sub(r" \(.*\)$", "", title), sentences) for title, sentences in texts.items()}
    for fact in facts({title: " ".join(sentences) for title, sentences in texts.items()}):
        page = found[fact.title]
        page.facts[fact.key], page.asks[fact.key] = fact.answer, fact.asks
    for page in found.values():
        page.what = page.facts.get("what", "")
    return {page.bare: page for page in found.values()}


def _plain(text: str) -> str:
    """Returns a sentence without brackets and its final full stop."""
    text = re.sub(r"\s*\([^()]*\)", "", text)
    return re.sub(r"\s+([,.])", r"\1", re.sub(r"\s+", " ", text)).strip().rstrip(".")


def predicate(page: Page, sentence: str, first: bool) -> str:
    """Returns what a sentence says about the subject of its page, or nothing."""
    text = _plain(sentence)
    if text.startswith(page.bare + " "):
        rest = text[len(page.bare) + 1 :]
    elif other := re.match(rf"{_OTHER} (?=[a-z])", text):
        rest = text[other.end() :]
    elif first and (other := re.match(r".{3,70}? (?=(?:is|was|are|were) (?:an?|the) )", text)):
        rest = text[other.end() :]
    else:
        return ""
    return rest if re.match(r"(?:is|was|are|were|has|had|" + "|".join(VERBS) + r")\b", rest) else ""


def _usable(question: str, answer: str, shown: tuple[str, ...]) -> bool:
    words = len(question.split())
    return (
        5 <= words <= 45
        and 1 < len(answer) < 60
        and answer.lower() not in question.lower()
        and any(answer in sentence for sentence in shown)
        and not set(";[]\n=") & set(question + answer)
        and question.count('"') % 2 == 0
        and not re.search(r"\.\.|[a-z]\. [A-Z]| 's|^(?:List|History|Index|Outline) of|\b(?:and|or|the|an?|that|gross)\?$", question)
    )


def _make(question: str, answer: str, shown: tuple[str, ...], kind: str) -> Iterator[Made]:
    question = re.sub(r"\s+", " ", question).replace(" ,", ",").replace(" ?", "?").strip()
    question = question[0].upper() + question[1:]
    if _usable(question, answer, shown):
        yield Made(question, answer, shown, kind)


def _kind_of_place(name: str) -> str:
    """Returns what a question calls a place."""
    first, _, last = name.partition(", ")
    if name in COUNTRIES:
        return "country"
    if name in STATES:
        return "state"
    if first.endswith("County"):
        return "county"
    known = re.search(r"(University|College|School|Festival|Stadium|Theatre|Theater|Studios|Hospital|Museum|Park|Island|Islands|League|Records|District|Hall|Club)$", first)
    if known:
        return known[1].lower()
    return "city" if last in COUNTRIES or last in STATES else "place"


def _fronted(rest: str, subject: str, before: str, wh: str) -> str:
    """Returns a question that begins with `wh`, from what precedes the span, or nothing."""
    if " by " in before or before.count(",") > 1:
        return ""
    before = re.sub(r",? (?:in|on|by|at|from|near|since|until)(?: the)?$", "", before.rstrip())
    verb, _, middle = before.partition(" ")
    if verb in ("is", "was", "are", "were"):
        return f"{wh} {verb} {subject} {middle}?" if _PARTICIPLE.match(middle) else ""
    return f"{wh} did {subject} {VERBS[verb]} {middle}?" if verb in VERBS else ""


def clozes(r: Random, page: Page) -> Iterator[Made]:
    """Yields questions about the spans of a page's sentences."""
    for index, sentence in enumerate(page.sentences):
        rest = predicate(page, sentence, index == 0)
        # The same sentence may be long: questions end at the span.
        for kind, pattern, ends, starts in SPANS if rest else ():
            for match in list(pattern.finditer(rest))[:2]:
                answer, before = match[1].strip(" ,."), re.sub(r"\bthe $", "", rest[: match.start(1)].replace('"', "") if kind == "quoted" else rest[: match.start(1)])
                if len(before.split()) < 3 or (kind in ("place", "title") and _NOT_PLACES.search(answer)):
                    continue
                titled = re.search(_BEFORE_NAME, before)
                if titled and kind in ("person", "title", "quoted", "place"):
                    end = f"{before[: titled.start()]}{r.choice(('which', 'what'))} {titled[1]}"
                elif kind == "number":
                    end = f"{before}how many {rest[match.end(1) :].split()[0].strip(',.')}"
                elif kind == "quoted":
                    end = before + r.choice(ends)
                elif kind == "person" and (before.endswith("with ") or _COMPANY.search(answer)):
                    end = before + ("what" if before.endswith("with ") else r.choice(("which company", "what company", "whom")))
                elif kind == "place":
                    end = before + r.choice((f"what {_kind_of_place(answer)}", f"which {_kind_of_place(answer)}", *ends[:1]))
                else:
                    end = before + r.choice(ends)
                yield from _make(f"{page.bare} {end}?", answer, (sentence,), kind)
                if page.what and index and r.random() < 0.5:
                    yield from _make(f"The {page.what} {page.bare} {end}?", answer, (page.sentences[0], sentence), kind)
                if starts:
                    yield from _make(_fronted(rest, page.bare, before, r.choice(starts)) or "?", answer, (sentence,), kind)


def _clause(rest: str, what: str) -> str:
    """Returns what the first sentence says after the description, as a predicate."""
    after = rest.partition(what)[2].strip(" ,")
    after = re.sub(r"^(?:who|that|which) ", "", after)
    if re.match(r"(?:directed|written|released|produced|founded|located|based|published|created|recorded|developed|formed|known|best known|set|built|born)\b", after):
        return f"was {after}" if not after.startswith(("known", "best known", "located", "based")) else f"is {after}"
    after = re.sub(r"^starring ", "stars ", after)
    return after if re.match(r"(?:is|was|are|were|has|stars|" + "|".join(VERBS) + r")\b", after) else ""


def _shortened(r: Random, text: str) -> str:
    """Returns the text, ended at one of its commas where it is long."""
    parts = re.split(r"(?<=[a-z0-9]), (?=and |which |who |where |but |as |with |after |before )", text)
    return parts[0] if r.random() < 0.6 or len(text.split()) > 28 else text


def subjects(r: Random, page: Page) -> Iterator[Made]:
    """Yields questions whose answer is the title of the page."""
    if not page.what:
        return
    for index, sentence in enumerate(page.sentences):
        rest = predicate(page, sentence, index == 0)
        said = _clause(rest, page.what) if index == 0 else rest
        if not said or said.startswith(("is a", "was a")):
            continue
        shown = tuple(dict.fromkeys((page.sentences[0], sentence)))
        said = _shortened(r, said)
        yield from _make(f"{r.choice(('What', 'Which'))} {page.what} {said}?", page.bare, shown, "subject")
        known = [key for key in ("born", "released", "founded", "birthplace", "director", "located") if key in page.facts and page.facts[key] not in said + page.what]
        if known and r.random() < 0.5:
            key = r.choice(known)
            how = {"born": "born", "released": "released in", "founded": "founded in", "birthplace": "born in", "director": "directed by", "located": "located in"}[key]
            yield from _make(f"{r.choice(('What', 'Which'))} {page.what}, {how} {page.facts[key]}, {said}?", page.bare, (*page.sentences[:1], sentence), "subject")


def _mentions(page: Page, known: dict[str, Page]) -> Iterator[tuple[str, str, bool]]:
    """Yields a sentence, the bare title of another page in it, and whether it is the first sentence."""
    for index, sentence in enumerate(page.sentences):
        for match in re.finditer(r"[A-Z][\w'’.-]+(?: (?:[A-Z][\w'’.-]+|of|the|and|de|van))*", sentence):
            words = match[0].split()
            for size in range(len(words), 1, -1):
                name = " ".join(words[:size]).rstrip(".,")
                if name in known and name != page.bare and known[name].what and page.bare not in name and name not in page.bare:
                    yield sentence, name, index == 0
                    break


def bridges(r: Random, page: Page, known: dict[str, Page]) -> Iterator[Made]:
    """Yields questions that join a page and another that it names, without the other's name."""
    for sentence, name, first in _mentions(page, known):
        yield from _described(r, page, known[name], sentence, first)
        for key, value in page.facts.items():
            if value == name and key in PHRASES:
                yield from _of_value(r, page, key, known[name], sentence)


def _described(r: Random, page: Page, other: Page, sentence: str, first: bool) -> Iterator[Made]:
    """Yields questions from a sentence in which a description takes the place of the other page's name."""
    rest = predicate(page, sentence, first)
    before, found, after = rest.partition(other.bare)
    # The name may be a part of a longer one.
    if not found or (re.search(r"[A-Z][\w'’-]+ $", before) and not re.search(_BEFORE_NAME, before)) or re.match(r" [A-Z]|[\w'’-]", after):
        return
    before = re.sub(r"\b(?:the|an?|his|her|its) $", "", re.sub(_BEFORE_NAME, "", before))
    if not before or before.split()[-1] not in PREPOSITIONS:
        return
    shown = (sentence, other.sentences[0])
    yield from _make(f"{page.bare} {before}{r.choice(('which', 'what'))} {other.what}?", other.bare, shown, "bridge")
    described = f"{article_of(other.what)} {other.what}"
    for key, answer in other.facts.items():
        if key in ENDS and answer not in other.what:
            subject = f"the {page.what} {page.bare}" if page.what and not first and r.random() < 0.5 else page.bare
            yield from _make(f"{subject} {before}{described} {r.choice(ENDS[key])}?", answer, (sentence, *_shows(other, answer)), "bridge")
    said = _clause(rest, page.what) if first and page.what else "" if first else rest
    if page.what and other.bare in said:
        asked = f"{r.choice(('What', 'Which'))} {page.what} {_shortened(r, said.replace(other.bare, described))}?"
        yield from _make(asked, page.bare, (page.sentences[0], *shown), "bridge")


def _of_value(r: Random, page: Page, key: str, other: Page, sentence: str) -> Iterator[Made]:
    """Yields questions about a page that is the value of another's fact, such as its director."""
    for asked, answer in other.facts.items():
        described = f"the {page.what} {page.bare}" if page.what and r.random() < 0.7 else page.bare
        phrase = r.choice(PHRASES[key]).replace("{X}", described)
        shown = (sentence, *_shows(other, answer))
        if asked != "what":
            yield from _make(r.choice(other.asks[asked]).replace(other.bare, phrase), answer, shown, "bridge")
        if page.what and asked in ENDS and key in JOINED:
            yield from _make(f"{described} {JOINED[key]} {article_of(other.what)} {other.what} {r.choice(ENDS[asked])}?", answer, shown, "bridge")


def article_of(text: str) -> str:
    """Returns the article of a noun phrase."""
    if re.match(r"(?:most|first|second|third|fourth|fifth|sixth|largest|capital|only|last|main|oldest|highest|current|official)\b", text):
        return "the"
    return "an" if text[:1].lower() in "aeiou" else "a"


def _shows(page: Page, answer: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in page.sentences if answer in sentence)[:1]


def made(records: list[dict], r: Random) -> list[Made]:
    """Returns the questions of all pages, each once, in random order: those that join pages, and long ones, rather early."""
    known = pages(records)
    found: dict[str, Made] = {}
    for page in known.values():
        for question in (*clozes(r, page), *subjects(r, page), *bridges(r, page, known)):
            found.setdefault(question.question, question)
    questions = list(found.values())
    weights = {made: 3 if made.kind == "bridge" or len(made.question.split()) >= 24 else 1 for made in questions}
    return sorted(questions, key=lambda made: r.random() ** (1 / weights[made]), reverse=True)

