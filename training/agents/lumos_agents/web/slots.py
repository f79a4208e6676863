"""Values of tasks on web pages: names, places, dates, numbers and choices. Most names are invented."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ..invented import code, number, word

FIRST = "Ada Grace Alan Edsger Barbara Donald Radia Ken Niklaus Frances Tony Margaret Dennis Lynn Claude Mary Leslie Katherine Tim Hedy Omar Ines Yuki Ravi Lena Paulo Zofia Amir Greta Hugo".split()
CITIES = "Boston|New York|San Francisco|Lisbon|Oslo|Vienna|Kyoto|Lima|Nairobi|Porto|Leeds|Ghent|Turin|Bergen|Cork|Alder|Birch|Elmford|Ashby|Rowan Hill|Oakham|Willow Bay|Maple Falls|Chicago|Denver|Austin|Seattle|Toronto".split("|")
MONTHS = "January February March April May June July August September October November December".split()
ADJECTIVES = "salt silver quiet broken golden last hidden winter iron paper long green lost blue small northern second crooked distant burning".split()
THINGS = "road river garden lighthouse map house bridge letter clock island orchard harbour mirror kitchen forest letter train violin lantern winter".split()
TOPICS = "rivers mountains birds bees chess gardening sailing trains cooking astronomy volcanoes history music bridges weaving pottery mushrooms castles whales glaciers jazz robots".split()
DISHES = "apple cake|poppy seed cake|lentil soup|onion soup|rye bread|carrot cake|tomato salad|mushroom risotto|lemon tart|pumpkin pie|chicken curry|fish stew|bean chili|potato gratin|plum dumplings|cheese omelette".split("|")
GOODS = "kettle|desk lamp|running shoes|backpack|winter coat|office chair|water bottle|headphones|tent|rain jacket|bicycle helmet|coffee grinder|yoga mat|phone case|wool blanket|garden hose|toaster|umbrella".split("|")
JOBS = "nurse|gardener|software engineer|baker|teacher|electrician|librarian|accountant|welder|designer|translator|cook|driver|chemist|carpenter".split("|")
NUMBER_WORDS = "one two three four five six seven eight".split()


def invented_name(r: Random) -> str:
    """Returns an invented name in capitals, of one or two words."""
    return " ".join(word(r, 1, 2).title() for _ in range(1 if r.random() < 0.7 else 2))


def place(r: Random) -> str:
    """Returns a place."""
    return r.choice(CITIES) if r.random() < 0.4 else invented_name(r)


def person(r: Random) -> str:
    """Returns first and last name."""
    return f"{r.choice(FIRST) if r.random() < 0.6 else word(r, 1, 2).title()} {word(r, 1, 2).title()}"


def title(r: Random) -> str:
    """Returns the title of a book, film or song."""
    middle = r.choice(ADJECTIVES) if r.random() < 0.5 else word(r, 1, 2)
    last = r.choice(THINGS) if r.random() < 0.6 else word(r, 1, 2)
    start = r.choice(("The ", "The ", "A ", "", ""))
    return r.choice((f"{start}{middle} {last}", f"{start}{last}", f"{middle} and {last}", f"{last} of {middle}")).title().replace(" And ", " and ").replace(" Of ", " of ")


def searched(text: str) -> str:
    """Returns a title as it is typed into a search field: in lower case, without an article at the start."""
    return text.lower().removeprefix("the ").removeprefix("a ")


def date(r: Random) -> str:
    """Returns a day."""
    return f"{r.randint(1, 28)} {r.choice(MONTHS)}"


def two_dates(r: Random) -> dict[str, str]:
    """Returns two days, the second later in the same month."""
    first, month = r.randint(1, 20), r.choice(MONTHS)
    return {"date": f"{first} {month}", "date2": f"{first + r.randint(1, 8)} {month}"}


def two_places(r: Random) -> dict[str, str]:
    """Returns two places."""
    return {"city": place(r), "city2": place(r)}


def counted(name: str, most: int = 6) -> Callable[[Random], dict[str, str]]:
    """Returns a slot: a number as a digit (`name`), and in the words of a task (`name` with `_said`)."""

    def draw(r: Random) -> dict[str, str]:
        value = r.randint(1, most)
        return {name: str(value), f"{name}_said": NUMBER_WORDS[value - 1] if r.random() < 0.5 else str(value)}

    return draw


def choice(name: str, *pairs: str) -> Callable[[Random], dict[str, str]]:
    """Returns a slot: one of `option=words in tasks|words in tasks`, or of `option`, which is said in lower case."""

    def draw(r: Random) -> dict[str, str]:
        option, _, said = r.choice(pairs).partition("=")
        return {name: option, f"{name}_said": r.choice((said or option.lower()).split("|"))}

    return draw


def one(name: str, make: Callable[[Random], str]) -> Callable[[Random], dict[str, str]]:
    """Returns a slot with one value."""
    return lambda r: {name: make(r)}


def book(r: Random) -> dict[str, str]:
    """Returns a title, and what is typed to find it."""
    text = title(r)
    return {"book": text, "book_q": searched(text)}


def mixed(words: list[str]) -> Callable[[Random], str]:
    """Returns a maker of one of these words, of an invented one, or of both together."""

    def make(r: Random) -> str:
        chance = r.random()
        if chance < 0.45:
            return r.choice(words)
        return word(r, 1, 3) if chance < 0.7 else f"{r.choice((word(r, 1, 2), r.choice(ADJECTIVES)))} {r.choice(words)}"

    return make


SLOTS: dict[str, Callable[[Random], dict[str, str]]] = {
    "book": book,
    "author": one("author", person),
    "person": one("person", person),
    "topic": one("topic", mixed(TOPICS)),
    "dish": lambda r: (lambda text: {"dish": text.capitalize(), "dish_said": text})(mixed(DISHES)(r)),
    "goods": one("goods", mixed(GOODS)),
    "job": one("job", mixed(JOBS)),
    "cities": two_places,
    "city": one("city", place),
    "date": one("date", date),
    "dates": two_dates,
    "guests": counted("guests"),
    "adults": counted("adults", 5),
    "name": one("name", invented_name),
    "email": one("email", lambda r: f"{word(r, 1, 2)}{r.choice(('', '.' + word(r, 1, 2), number(r, 2)))}@{word(r, 1, 2)}.{r.choice(('com', 'org', 'net', 'example'))}"),
    "tracking": one("tracking", lambda r: code(r, r.randint(6, 10)) if r.random() < 0.5 else number(r, r.randint(6, 10))),
    "zip": one("zip", lambda r: number(r, 5)),
    "amount": one("amount", lambda r: f"{r.randint(2, 990)}{r.choice(('', '', '.50', '.99'))}"),
    "price": one("price", lambda r: str(r.randint(2, 60) * 10)),
    "time": one("time", lambda r: f"{r.randint(1, 12)}:{r.choice(('00', '15', '30', '45'))} {r.choice(('am', 'pm'))}"),
    "symbol": one("symbol", lambda r: "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(r.randint(2, 5)))),
    "phone": one("phone", lambda r: f"{number(r, 3)}-{number(r, 4)}"),
    "class": choice("class", "First=first class", "Second=second class", "Business=business class", "Economy=economy class"),
    "age": choice("age", "Adult=an adult", "Child=a child", "Student=a student", "Senior=a senior"),
    "room": choice("room", "Double=a double room", "Single=a single room", "Suite=a suite", "Twin=a twin room", "Family=a family room"),
    "media": choice("media", "Novels=novels|only novels", "Maps=maps|only maps", "Comics=comics|only comics", "Poetry=poetry|only poetry", "Magazines=magazines|only magazines", "Cookbooks=cookbooks|only cookbooks"),
    "sort": choice("sort", "Price=the cheapest {} first|{} sorted by price|{} ordered by price", "Time=the quickest {} first|{} sorted by time|the fastest {} first", "Name=the {} in alphabetical order|{} sorted by name", "Stars=the best rated {} first|{} sorted by stars", "Newest=the newest {} first|{} sorted by newest", "Distance=the nearest {} first|{} sorted by distance"),
    "size": choice("size", "Small", "Medium", "Large", "X-Large=x-large|extra large"),
    "colour": choice("colour", "Red", "Blue", "Black", "White", "Green", "Grey", "Yellow"),
    "language": choice("language", "French=French", "German=German", "Spanish=Spanish", "Japanese=Japanese", "Italian=Italian", "Polish=Polish"),
    "genre": choice("genre", "Comedy", "Drama", "Horror", "Documentary", "Animation=animated"),
    "doctor": choice("doctor", "Dentist", "Dermatology=skin doctor|dermatologist", "Cardiology=heart doctor|cardiologist", "Pediatrics=children's doctor|pediatrician", "Eye care=eye doctor"),
    "car": choice("car", "Compact", "Electric", "Van", "Convertible", "SUV=SUV"),
    "account": choice("account", "Savings=savings account", "Checking=checking account", "Joint=joint account"),
    "contract": choice("contract", "Full time=full time|full-time", "Part time=part time|part-time", "Internship=internship", "Remote=remote"),
    "cuisine": choice("cuisine", "Thai=Thai", "Italian=Italian", "Mexican=Mexican", "Vegan", "Indian=Indian", "Greek=Greek"),
    "animal": choice("animal", "Dogs=a dog|dogs", "Cats=a cat|cats", "Rabbits=a rabbit|rabbits", "Birds=a bird|birds"),
    "period": choice("period", "Today", "This week", "This month", "This weekend", "Next week"),
    "currency": choice("currency", "Euro=euros", "Dollar=dollars", "Yen=yen", "Franc=francs", "Pound=pounds"),
}  # fmt: skip
