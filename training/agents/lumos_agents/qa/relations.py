"""Relations between things: how pages state them, how questions ask for them, and how phrases refer to their values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Relation:
    """A relation of a type of things.

    `value` is the type of its value: another type of things, or `year`, `number`, `word`, `country`, `sea` … for plain values.
    In texts, `{X}` is the thing and `{Y}` the value. `phrases` refer to the value, and are empty for plain values.
    """

    of: str
    key: str
    value: str
    say: tuple[str, ...]
    ask: tuple[str, ...]
    phrases: tuple[str, ...] = ()


def _r(of: str, key: str, value: str, say: str, ask: str, phrases: str = "") -> Relation:
    parts = lambda text: tuple(part.strip() for part in text.split("|") if part.strip())  # noqa: E731
    return Relation(of, key, value, parts(say), parts(ask), parts(phrases))


RELATIONS = [
    _r("person", "born", "year", "{X} was born in {Y}.|{X} (born 4 May {Y}) grew up in a small town.|{X} was born on 12 March {Y}.|{X} (born {Y}) spent a quiet childhood on a farm.",
       "When was {X} born?|In which year was {X} born?|In what year was {X} born?|What year was {X} born?"),
    _r("person", "died", "year", "{X} died in {Y}.|{X} died on 9 June {Y} after a long illness.|{X} lived in the mountains until {Y}.",
       "When did {X} die?|In which year did {X} die?|What year did {X} die?"),
    _r("person", "birthplace", "city", "{X} was born in {Y}.|{X} was born and raised in {Y}.|{X}, a native of {Y}, left school early.|{X} was born into a large family in {Y}.",
       "Where was {X} born?|In which city was {X} born?|In what town was {X} born?|What is the birthplace of {X}?", "the city where {X} was born|the birthplace of {X}|the town in which {X} was born"),
    _r("person", "deathplace", "city", "{X} died in {Y}.|{X} died at home in {Y}.|{X} spent the last years in {Y} and died there.",
       "Where did {X} die?|In which city did {X} die?|In which town did {X} die?", "the city where {X} died"),
    _r("person", "nationality", "nation", "{X} is a {Y} artist.|{X} was a {Y} scientist.|{X} is a {Y} public figure.|{X} was an early {Y} campaigner.",
       "What is the nationality of {X}?|What nationality is {X}?|What nationality was {X}?"),
    _r("person", "work", "work", "{X} was a {Y}.|{X} is best known as a {Y}.|{X} worked as a {Y} for many years.|{X} became a {Y} in later life.",
       "What is the profession of {X}?|What was the occupation of {X}?|What is {X} best known as?"),
    _r("person", "father", "person", "The father of {X} was {Y}.|{X} was the only child of {Y}.|Her father was {Y}, and {X} often wrote about this.|{X} is the eldest son of {Y}.",
       "Who was the father of {X}?|Who is the father of {X}?", "the father of {X}"),
    _r("person", "spouse", "person", "{X} married {Y}.|{X} was married to {Y} for twenty years.|The wife of {X} was {Y}.|{X} met {Y} at a ball, and they married soon after.",
       "Who married {X}?|Who was {X} married to?|Who was the wife of {X}?|Who was the husband of {X}?", "the person who married {X}|the wife of {X}|the husband of {X}"),
    _r("person", "college", "school", "{X} studied at {Y}.|{X} graduated from {Y}.|{X} received a degree from {Y}.|{X} was a student at {Y}.",
       "Where did {X} study?|Which university did {X} attend?|What school did {X} graduate from?", "the university that {X} attended|the school where {X} studied"),
    _r("film", "director", "person", "{X} is a drama film directed by {Y}.|{Y} directed {X}.|The film {X} was directed by {Y}.|{X} is a comedy film by the director {Y}.",
       "Who directed {X}?|Who directed the film {X}?|Who is the director of {X}?|Who was the director of the film {X}?", "the director of {X}|the director of the film {X}|the person who directed {X}|the man that directed {X}"),
    _r("film", "star", "person", "{X} stars {Y} in the main role.|{Y} played the lead in {X}.|The main character of {X} is portrayed by {Y}.|{X} starred {Y}.",
       "Who starred in {X}?|Who played the lead in {X}?|Who stars in the film {X}?", "the actor who starred in {X}|the star of {X}|the actress who played the lead in {X}|the woman who portrayed the main character in {X}"),
    _r("film", "released", "year", "{X} is a {Y} film.|{X} was released in {Y}.|The film {X} came out in {Y}.|{X} is a {Y} comedy that won several prizes.",
       "When was {X} released?|In which year was {X} released?|In what year did the film {X} come out?|What year was {X} released?"),
    _r("film", "genre", "word", "{X} is a {Y} film.|{X} belongs to the {Y} genre.|{X} is often called a {Y} classic.", "What is the genre of {X}?|What kind of film is {X}?"),
    _r("book", "author", "person", "{X} is a novel by {Y}.|{X} was written by {Y}.|{Y} wrote {X} in one summer.|{X} is a book by the writer {Y}.",
       "Who wrote {X}?|Who is the author of {X}?|Who wrote the book {X}?|Who was the author of the novel {X}?", "the author of {X}|the writer of {X}|the person who wrote {X}|the writer that wrote {X}"),
    _r("book", "published", "year", "{X} was published in {Y}.|{X} is a {Y} novel.|The book {X} first appeared in {Y}.", "When was {X} published?|In which year was {X} published?|In what year did {X} first appear?"),
    _r("book", "publisher", "company", "{X} was published by {Y}.|The publisher of {X} is {Y}.|{Y} printed {X} in a small edition.", "Who published {X}?|Which company published {X}?|Who is the publisher of {X}?", "the company that published {X}|the publisher of {X}"),
    _r("band", "origin", "city", "{X} is a band from {Y}.|{X} was formed in {Y}.|{X} is a rock group that comes from {Y}.", "Where was {X} formed?|Which city is {X} from?|Where does the band {X} come from?", "the city where {X} was formed"),
    _r("band", "formed", "year", "{X} was formed in {Y}.|{X} began in {Y} as a school band.|{X} is a group founded in {Y}.", "When was {X} formed?|In which year was {X} formed?|In what year did the band {X} begin?"),
    _r("band", "singer", "person", "The singer of {X} is {Y}.|{Y} is the lead singer of {X}.|{X} is fronted by {Y}.|{Y} sings in {X}.", "Who is the singer of {X}?|Who is the lead singer of {X}?|Who sings in {X}?", "the lead singer of {X}|the singer of {X}|the person who sings in {X}"),
    _r("album", "artist", "band", "{X} is an album by {Y}.|{X} is the second album of {Y}.|{X} was recorded by {Y}.", "Who recorded {X}?|Which band recorded {X}?|Who made the album {X}?", "the band that recorded {X}|the group that made the album {X}"),
    _r("album", "out", "year", "{X} was released in {Y}.|The album {X} came out in {Y}.", "When was the album {X} released?|In which year did {X} come out?"),
    _r("company", "founder", "person", "{X} was founded by {Y}.|{Y} founded {X} with borrowed money.|{X} is a company started by {Y}.|The founder of {X} was {Y}.", "Who founded {X}?|Who is the founder of {X}?|Who started the company {X}?", "the founder of {X}|the person who founded {X}|the man that started {X}"),
    _r("company", "seat", "city", "{X} is based in {Y}.|The headquarters of {X} are in {Y}.|{X} is a company headquartered in {Y}.|{X} has its main office in {Y}.", "Where is {X} based?|Where are the headquarters of {X}?|In which city is {X} headquartered?|What city is {X} based in?", "the city where {X} is based"),
    _r("company", "founded", "year", "{X} was founded in {Y}.|{X} was established in {Y}.|{X} started business in {Y}.", "When was {X} founded?|In which year was {X} founded?|What year was {X} established?"),
    _r("company", "product", "word", "{X} makes {Y} machines.|{X} is known for its {Y} products.|{X} sells {Y} tools.", "What does {X} make?|What is {X} known for?"),
    _r("building", "architect", "person", "{X} was designed by {Y}.|The architect of {X} was {Y}.|{Y} designed {X}.", "Who designed {X}?|Who was the architect of {X}?|Who is the architect of {X}?", "the architect of {X}|the person who designed {X}|the architect that designed {X}"),
    _r("building", "place", "city", "{X} stands in {Y}.|{X} is a building in {Y}.|{X} is located in {Y}.|{X} is an old hall in the centre of {Y}.", "Where is {X} located?|In which city is {X}?|In which city does {X} stand?|Where is {X}?", "the city where {X} stands|the town where {X} is located"),
    _r("building", "height", "number", "{X} is {Y} metres high.|{X} rises to {Y} metres.|The height of {X} is {Y} metres.", "How high is {X}?|How tall is {X}?|What is the height of {X}?"),
    _r("building", "built", "year", "{X} was built in {Y}.|{X} was opened in {Y}.|{X} was completed in {Y}.", "When was {X} built?|In which year was {X} built?|When was {X} opened?"),
    _r("school", "town", "city", "{X} is a university in {Y}.|{X} is located in {Y}.|The campus of {X} lies in {Y}.", "Where is {X}?|In which city is {X} located?|What city is {X} in?", "the city where {X} is located"),
    _r("school", "opened", "year", "{X} was founded in {Y}.|{X} opened in {Y}.", "When was {X} founded?|In which year was {X} opened?"),
    _r("city", "country", "country", "{X} is a city in {Y}.|{X} is a town in the north of {Y}.|{X} lies in {Y}.|{X} is one of the oldest towns of {Y}.", "In which country is {X}?|Which country is {X} in?|In what country is {X} located?|What country is {X} in?"),
    _r("city", "river", "river", "{X} lies on the {Y}.|The {Y} flows through {X}.|{X} was built on the banks of the {Y}.", "Which river flows through {X}?|On which river does {X} lie?|What river flows through {X}?", "the river that flows through {X}|the river that divides {X}"),
    _r("city", "people", "number", "{X} has a population of {Y}.|About {Y} people live in {X}.|The population of {X} is {Y}.", "What is the population of {X}?|How many people live in {X}?"),
    _r("city", "mayor", "person", "The mayor of {X} is {Y}.|{Y} was elected mayor of {X}.", "Who is the mayor of {X}?|Who was elected mayor of {X}?", "the mayor of {X}|the person who was elected mayor of {X}"),
    _r("river", "mouth", "sea", "The {X} flows into the {Y}.|The {X} ends in the {Y}.|The {X} is a river that flows into the {Y}.", "Into which sea does the {X} flow?|Where does the {X} end?|The {X} flows into which sea?|What sea does the {X} flow into?"),
    _r("river", "length", "number", "The {X} is {Y} kilometres long.|The length of the {X} is {Y} kilometres.|The {X} has a length of {Y} kilometres.", "How long is the {X}?|What is the length of the {X}?"),
    _r("mountain", "high", "number", "{X} is {Y} metres high.|{X} rises to {Y} metres.|{X} has a height of {Y} metres.", "How high is {X}?|What is the height of {X}?"),
    _r("mountain", "land", "country", "{X} is a mountain in {Y}.|{X} is the highest mountain of {Y}.|{X} lies in {Y}.", "In which country is {X}?|Which country is {X} in?|In which country does {X} stand?"),
    _r("mountain", "climber", "person", "{X} was first climbed by {Y}.|{Y} was the first to climb {X}.", "Who first climbed {X}?|Who was the first to climb {X}?", "the first person to climb {X}|the climber that first climbed {X}"),
    _r("team", "ground", "building", "{X} plays at {Y}.|The home ground of {X} is {Y}.|{X} plays its home games at {Y}.", "Where does {X} play?|What is the home ground of {X}?", "the stadium where {X} plays|the home ground of {X}"),
    _r("team", "coach", "person", "{X} is coached by {Y}.|The coach of {X} is {Y}.|{Y} has trained {X} since last year.", "Who coaches {X}?|Who is the coach of {X}?", "the coach of {X}|the person who coaches {X}"),
    _r("team", "home", "city", "{X} is a football club from {Y}.|{X} is based in {Y}.|{X} is a team of {Y}.", "Where is {X} based?|Which city is {X} from?", "the city where {X} is based"),
    _r("invention", "inventor", "person", "The {X} was invented by {Y}.|{Y} invented the {X}.|{Y} is the inventor of the {X}.", "Who invented the {X}?|Who was the inventor of the {X}?", "the inventor of the {X}|the person who invented the {X}|the engineer that invented the {X}"),
    _r("invention", "invented", "year", "The {X} was invented in {Y}.|The {X} dates from {Y}.|The first {X} was built in {Y}.", "When was the {X} invented?|In which year was the {X} invented?|When was the first {X} built?"),
    _r("animal", "weight", "number", "A {X} weighs about {Y} kilograms.|The {X} can weigh {Y} kilograms.|An adult {X} has a weight of {Y} kilograms.", "How much does a {X} weigh?|How heavy is a {X}?|What is the weight of a {X}?"),
    _r("animal", "legs", "small", "A {X} has {Y} legs.|The {X} is an animal with {Y} legs.", "How many legs does a {X} have?"),
    _r("animal", "food", "word", "The {X} feeds on {Y}.|The {X} eats {Y}.|The diet of the {X} is {Y}.", "What does a {X} eat?|What does the {X} feed on?"),
    _r("animal", "home", "country", "The {X} lives in {Y}.|The {X} is found in {Y}.", "Where does the {X} live?|In which country is the {X} found?"),
]  # fmt: skip

OF_TYPE: dict[str, list[Relation]] = {}
for _relation in RELATIONS:
    OF_TYPE.setdefault(_relation.of, []).append(_relation)

NATIONS = (
    "French German Italian Spanish Portuguese Swedish Norwegian Danish Finnish Polish Austrian Hungarian Greek Turkish Japanese Chinese "
    "Indian Brazilian Chilean Mexican Canadian Kenyan Egyptian Irish Icelandic Belgian Dutch Russian American British English Scottish Australian"
).split()
WORKS = (
    "actor singer writer poet painter composer director producer politician scientist physician mathematician engineer architect lawyer journalist "
    "explorer footballer pianist photographer novelist screenwriter musician comedian sculptor chemist biologist historian"
).split()
SEAS = "Black Sea|North Sea|Baltic Sea|Red Sea|Caspian Sea|Adriatic Sea|Aegean Sea|Atlantic Ocean|Pacific Ocean|Indian Ocean|Arctic Ocean|Irish Sea|Sea of Marmara|Yellow Sea".split("|")
