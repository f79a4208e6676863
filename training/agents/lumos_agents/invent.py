"""Invented words and names, so that models must copy rather than remember."""

from __future__ import annotations

from random import Random

_ONSETS = "b br c ch cl d dr f fl g gr h j k kr l m n p pl pr qu r s sh sk sl st t th tr v w z".split()
_VOWELS = "a e i o u a e i o ai au ea ee ia io oa ou".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk", "st", "x", "th", "ck", "ld", "ng"]
FIRST = (
    "Anna Ben Clara David Emma Frank Grace Henry Irene Jack Karen Liam Maria Noah Olga Paul Quinn Rosa Simon Tara Umar Vera "
    "Will Xenia Yusuf Zoe Alan Bruno Carol Diego Elena Felix Gina Hugo Ivan Julia Kofi Laura Marco Nina Oscar Petra Ravi "
    "Sara Tomas Ursula Victor Wanda Yara Aaron Beth Carl Dora Eric Fiona George Hana Ian Jane Kurt Lena Mona Neil Otto Pia "
    "Robert Stella Theo Uma Vince Agnes James John William Charles Edward Mary Elizabeth Alice Peter Michael Thomas Joseph"
).split()
LAST = (
    "Smith Jones Brown Taylor Wilson Evans Walker White Green Hall Wood Clark Hughes Baker King Turner Hill Cooper Ward "
    "Morris Moore Lee Harris Young Allen Scott Adams Nelson Carter Mitchell Roberts Campbell Phillips Parker Collins Stewart "
    "Garcia Lopez Silva Costa Rossi Weber Fischer Novak Kim Tanaka Sato Nguyen Patel Khan Singh Chen Wang Ivanov Petrov Berg "
    "Lund Holm Larsen Jansen Dubois Moreau Schmidt Keller Murphy Kelly Ryan Byrne Fraser Duncan Grant Marsh Stone Fox Webb"
).split()
COUNTRIES = (
    "France Germany Italy Spain Portugal Sweden Norway Denmark Finland Poland Austria Hungary Greece Turkey Japan China India "
    "Brazil Chile Peru Mexico Canada Kenya Ghana Egypt Morocco Nigeria Ireland Iceland Belgium Netherlands Russia Ukraine "
    "Thailand Vietnam Australia Argentina Cuba Jamaica Nepal"
).split() + ["United States", "New Zealand", "South Korea", "United Kingdom", "South Africa"]
CITIES = (
    "London Paris Berlin Madrid Rome Vienna Oslo Lisbon Dublin Prague Athens Cairo Delhi Tokyo Osaka Lima Boston Chicago Denver "
    "Dallas Houston Seattle Austin Toronto Montreal Sydney Perth Accra Lagos Nairobi Bergen Lyon Milan Turin Porto Seville "
    "Munich Hamburg Krakow Geneva Leeds Bristol Glasgow Cardiff Albany Portland Phoenix Detroit"
).split()


def word(r: Random, syllables: int | None = None) -> str:
    """Returns an invented word in lower case."""
    count = syllables or r.choice((1, 2, 2, 2, 3))
    text = "".join(r.choice(_ONSETS) + r.choice(_VOWELS) + r.choice(_CODAS if i == count - 1 else _CODAS[:7]) for i in range(count))
    return text if len(text) > 2 else text + r.choice("nrst")


def name(r: Random) -> str:
    """Returns a person's name, of known and invented parts."""
    first = r.choice(FIRST) if r.random() < 0.6 else word(r, 2).capitalize()
    last = r.choice(LAST) if r.random() < 0.4 else word(r).capitalize()
    return f"{first} {last}"


def place(r: Random) -> str:
    """Returns the name of a town."""
    if r.random() < 0.35:
        return r.choice(CITIES)
    return word(r).capitalize() + r.choice(("", "", "", "ton", "ville", "burg", "ford", " Bay", " Hill"))


def title(r: Random) -> str:
    """Returns the title of a work."""
    nouns = (
        "River Road Light House Garden Winter Summer Night Storm Stone Bridge Letter Island Mirror Song Shadow Sky Forest Clock Bird "
        "Harbour Orchard Salt Rain Field Star Window Tower Dream Silence Fire Crown Sea Mountain Train Ghost King Queen Wolf"
    ).split()
    qualities = "Red Blue Long Silent Lost Last Broken Golden Quiet Dark Bright Hidden Cold Old New Distant Little Great Wild Secret".split()
    chance = r.random()
    if chance < 0.3:
        return f"The {r.choice(qualities)} {r.choice(nouns)}"
    if chance < 0.5:
        return f"{r.choice(nouns)} of {r.choice(nouns)}s" if r.random() < 0.5 else f"{r.choice(qualities)} {r.choice(nouns)}"
    if chance < 0.7:
        return f"{r.choice(nouns)} in {word(r).capitalize()}"
    if chance < 0.85:
        return word(r).capitalize() + " " + r.choice(nouns)
    return word(r, 2).capitalize()
