"""Words for databases of many areas: entities with the words for them, and their columns.

A line is `entity/other word > parents: columns`. A column `name#low-high` is a number, `name@` a date, `name=a|b` has these values; other
columns are texts, whose values follow from their last word. A parent after `>` is what the entity usually refers to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

AREAS = """
[education]
student/pupil > department: first name, last name, age#15-40, gender, major, gpa#1-4, home city, date of birth@, email, year of enrollment#1990-2023
teacher/instructor > department: name, subject, hometown, salary#20000-90000, office, phone number, hire date@, age#22-70
course/class > department teacher: title, credits#1-8, level=introductory|intermediate|advanced, semester=Fall|Spring|Summer, room, description, number of places#10-200
department/faculty: name, building, budget#10000-900000, head~, founding year#1850-2020, number of teachers#3-90
enrollment > student course: grade=A|B|C|D|F, score#0-100, enrollment date@, status=active|passed|withdrawn
school > district: name, location, number of pupils#100-3000, type=public|private|charter, mascot, founded#1850-2015, denomination
scholarship > student: title, amount#200-9000, sponsor, year#1995-2023
[health]
patient > doctor ward: first name, last name, date of birth@, gender, blood type=A|B|AB|O, phone number, insurance number, weight#40-150, height#140-210, city
doctor/physician > hospital: name, specialty, years of experience#1-40, salary#50000-300000, position, email, nationality
hospital/clinic: name, city, number of beds#20-2000, opening year#1850-2020, rating#1-5, type=public|private, address
ward > hospital: name, floor#1-20, capacity#4-60, block code
medication/drug: name, brand, dose#5-500, price#2-900, description, manufacturer
prescription > patient medication: quantity#1-10, date issued@, instructions
appointment > patient doctor: date of visit@, room, cost#20-900, reason, duration#10-120
treatment > patient: name, cost#50-9000, start date@, result=cured|improved|unchanged
[music]
singer/vocalist > country: stage name, birth year#1940-2005, age#18-80, number of albums#0-40, nationality, gender, voice=soprano|alto|tenor|bass
band/group: name, formed#1950-2020, country, style, number of members#2-9, label
album/record > band: title, release date@, year#1960-2023, number of tracks#5-20, sales#1000-900000, producer~, price#5-30
song/track > singer album: title, length#100-600, language, rating#1-10, release year#1960-2023, number of plays#10-90000
concert/show > venue: title, year#1990-2023, attendance#100-90000, ticket price#10-300, concert date@
venue/arena: name, city, capacity#200-90000, year built#1850-2023, owner~
instrument: name, type=string|brass|wind|percussion, price#20-9000, color
[film]
movie/film > director studio: title, release year#1930-2023, gross#1-900, budget#1-300, running time#60-240, language, rating#1-10, genre
director/film maker: name, birth date@, nationality, number of awards#0-40, gender
actor/performer: name, age#15-90, birthplace, height#150-210, agent~, debut year#1950-2020
cast > actor movie: character name, salary#1000-900000, importance=lead|supporting|minor
studio/production company: name, founded#1900-2015, headquarters, number of employees#10-9000, owner~
cinema/movie theater: name, location, number of screens#1-24, capacity#50-3000, opening year#1930-2020
review > movie: reviewer~, stars#1-5, comment, review date@
[television]
series/show > channel: title, number of seasons#1-20, first episode date@, rating#1-10, language, genre, production code
episode > series: title, air date@, viewers in millions#1-30, length in minutes#10-90, writer~, director~
channel/station: name, country, main language, owner, launch year#1940-2020, number of subscribers#100-90000
presenter/host: name, age#20-70, nationality, hometown, years active#1-40
[sports]
player/athlete > team country: name, age#16-42, position=goalkeeper|defender|midfielder|forward, height#150-220, weight#50-130, number of goals#0-90, salary#1000-900000, hand=left|right, birth date@, college
team/squad > stadium coach: name, city, founded#1880-2015, wins#0-60, losses#0-60, conference=East|West, nickname, points#0-120
coach/trainer: name, years of experience#1-40, nationality, salary#20000-900000, rank#1-50
stadium > city: name, location, capacity#1000-99000, opening year#1900-2020, surface=grass|clay|turf|hard, cost#1-900
game/fixture > team stadium: season, score, attendance#100-90000, date@, result=win|loss|draw, home team, away team, round
referee/umpire: name, country, age#25-60, matches refereed#1-400
tournament/competition > country: name, year#1950-2023, prize money#1000-900000, sponsor, start date@, end date@, host city
medal > athlete: type=gold|silver|bronze, event, year#1950-2023
swimmer > country: name, best time#20-300, lane#1-8, rank#1-8, style=freestyle|butterfly|backstroke
[transport]
airline/carrier > country: name, abbreviation, country, call sign, fleet size#2-900, founding year#1919-2015, active=Y|N
airport: name, city, country, code, elevation#0-4000, number of runways#1-8, number of passengers#1000-900000, latitude#1-80, longitude#1-170
flight > airline airport aircraft: flight number#100-9999, origin, destination, departure time@, price#40-3000, distance#100-15000, duration#30-900
aircraft/plane: model, description, maximum speed#200-3000, range#500-15000, wingspan#10-90, number of seats#2-500, maker
pilot > airline: name, age#21-65, rank=captain|first officer, nationality, hours flown#100-20000
train > station: name, train number#1-999, service, destination, speed#60-350, departure, arrival
station/stop > city: name, number of platforms#1-24, number of services#1-90, annual passengers#1000-900000, zone, main services
bus/coach > driver: model, license plate, number of seats#12-80, year built#1980-2023, mileage#1000-900000, color
driver/chauffeur: name, age#18-65, party, home city, license number, hire date@
trip/ride > station: start time@, duration#1-400, distance#1-400, bike number#1-900, subscription type=Subscriber|Customer, zip code
ship/vessel > port: name, type=cargo|ferry|cruise|tanker, tonnage#100-90000, built year#1930-2023, flag, owner, speed#5-40
port/harbour > country: name, depth#4-40, number of docks#1-60, code
[cars]
car/vehicle > model: horsepower#40-700, engine size#1-8, weight#600-4000, year#1965-2023, price#2000-90000, fuel consumption#3-25, number of seats#2-9, color
car maker/manufacturer > country: full name, country, founded#1890-2010, headquarters, revenue#1-900
model > car maker: name, body style=sedan|coupe|wagon, top speed#100-350, number of doors#2-5, engine
garage/workshop: name, address, number of mechanics#1-30, hourly rate#20-150
repair > car garage: description, cost#20-9000, repair date@, hours#1-60
dealer: name, city, number of cars#5-300, rating#1-5, manager~
[geography]
country/nation > continent: name, population#1000-900000, area#100-900000, capital, currency, head of state~, birth rate#5-40, year of independence#1700-2000, code, exports#1-90000
city/town > country: name, population#1000-900000, province, elevation#0-4000, mayor~, year of charter#1000-1950
river > country: name, length#10-7000, discharge#1-9000, source, mouth
mountain/peak > country: name, height#500-8900, prominence#10-4000, range, first ascent year#1800-1990
lake > country: name, area#1-90000, depth#2-1700, volume#1-900
language > country: name, alphabet, family, number of speakers#1000-900000
continent: name, number of countries#1-60, area#1000-90000
county/district: name, population#1000-900000, zip code, seat, number of villages#1-90
[business]
employee/staff member > department office manager: first name, last name, job title, salary#900-20000, hire date@, age#18-67, city, phone number, commission#1-50, email, gender
company/firm: name, industry, headquarters, market value#1-900, profits#1-90, sales#1-900, assets#1-900, chief executive~, number of employees#5-90000
office/branch > city: name, address, number of employees#2-900, rent#100-9000, floor#1-60, opened#1960-2023
shop/store > district: name, street, floor area#10-9000, manager~, postcode, opening year#1950-2023, number of cashiers#2-300
project > department client: name, budget#1000-900000, hours#10-9000, start date@, end date@, status=open|closed|on hold, outcome
client/customer: name, city, phone number, credit limit#100-90000, email, join date@, address line, payment method=cash|credit card|direct debit
invoice/bill > client: amount#10-90000, invoice date@, status=paid|unpaid|overdue, discount#0-40
job/position > department: title, minimum salary#900-9000, maximum salary#9000-40000, responsibilities
supplier: name, country, contact person~, phone number, rating#1-5
contract > company: type, start date@, end date@, value#100-900000
[shopping]
product/item > product category supplier: name, price#1-3000, color, size=S|M|L|XL, number in stock#0-900, description, weight#1-90, brand
order > client: order date@, status=Completed|Part|Delivered|Cancelled, total#5-9000, shipping address, note
order item > order product: quantity#1-50, unit price#1-900, status
product category/kind of product: name, description, typical price#1-900, unit of measure
shopping cart > client: created@, number of items#1-40, total#1-900
shipment > order: tracking number, shipment date@, carrier, weight#1-900
coupon: code, discount#1-50, expiry date@, used=Y|N
address > city: line one, city, zip code, state, country
payment > client order: amount#1-9000, payment date@, method=cash|card|transfer, transaction code
[bank]
account > client branch: balance#0-90000, account type=checking|saving, opening date@, account name, interest rate#1-9
loan > client branch: amount#100-900000, type=mortgage|auto|business|student, date@, term#12-360, interest#1-15
branch: name, city, number of customers#10-9000, state, assets#1-900
card > client account: card type=debit|credit, card number, valid from@, valid until@, limit#100-9000
transaction > account: type=sale|purchase|transfer, amount#1-9000, date of transaction@, share count#1-900, comment
investor: name, details, nationality, net worth#1-900
policy/insurance > client: type=life|car|home|health, start date@, end date@, premium#10-900
claim > policy: amount claimed#100-90000, amount settled#100-90000, date of claim@, status
[library]
book > author publisher: title, number of pages#40-1400, issues#1-20, publication year#1900-2023, price#3-90, language, isbn, rating#1-5
author/writer: first name, last name, name, birth year#1850-2000, nationality, number of books#1-60
publisher/press: name, city, founded#1800-2015, chief editor~
publication > book: publisher, price#1-90, publication date@
member/reader: name, join date@, membership level=gold|silver|standard, age#8-90, address, hometown, phone number
borrowing > book member: borrow date@, return date@, fine#0-50
journal/magazine > publisher: title, theme, sales#100-90000, issue count#1-52, founded#1850-2020
paper/article > journal: title, year#1980-2023, number of citations#0-900, topic
reviewer/critic: name, email, number of reviews#1-300
[culture]
museum: name, number of staff#2-400, opening year#1800-2020, city, ticket price#0-40, number of paintings#10-9000
visitor/guest: name, age#5-90, nationality, email, language
visit > visitor museum: number of companions#0-20, price paid#5-900, visit date@
artist/painter > country: name, year of birth#1500-1990, year joined#1980-2020, style, birthplace, age#18-90
painting/artwork > artist museum: title, year#1500-2020, medium=oil|canvas|paper|wood, height#10-400, width#10-400, location, value#100-900000
exhibition > artist museum: theme, year#1990-2023, ticket price#1-60, start date@
festival > city: name, chair name~, location, year#1980-2023, number of audience#100-90000
orchestra > conductor: name, home hall, founded#1850-2015, number of musicians#20-120
conductor: name, age#25-85, birthplace, debut year#1950-2020
performance > orchestra: programme, date@, encores#0-6, audience#100-4000
[food]
restaurant/eatery > city: name, type of food, rating#1-5, address, number of tables#4-90, opening hours, average price#5-150
dish/meal > restaurant chef: name, calories#50-1500, price#3-90, spiciness=mild|medium|hot, vegetarian=yes|no
chef/cook: name, age#20-70, specialty, years of training#1-20, city
recipe > dish: title, preparation time#5-300, difficulty=easy|medium|hard, number of servings#1-12
ingredient: name, price per kilogram#1-90, origin, supplier
wine > winery grape: name, year#1950-2022, price#4-900, score#60-100, appellation, number of cases#10-9000, drink
grape: name, color=red|white
winery/vineyard: name, county, region, area#1-900
brand/label: name, country, market share#1-60, revenue#1-900
[animals]
pet > owner: name, type=cat|dog|bird|hamster, age#1-20, weight#1-60, birth date@, color
dog > owner breed: name, age#1-18, weight#2-80, gender, coat=short|long|curly, chip number, vaccinated=yes|no
owner/person: first name, last name, city, state, email, cell number, street, zip code
breed: name, origin, life span#6-18, code
veterinarian/vet: name, email, clinic, license number
zoo > city: name, area#1-900, number of animals#10-9000, ticket price#4-60, opened#1850-2020
species > habitat: common name, scientific name, population#10-90000, average weight#1-9000, status=endangered|stable|extinct
habitat/biome: name, climate, average temperature#1-40
farm > county: name, owner~, cows#1-900, pigs#1-900, number of goats#1-900, area#1-900, main crop=wheat|corn|rice|barley
shelter: name, capacity#10-300, city, phone number
[government]
party/political party: name, leader~, founded#1850-2020, ideology, number of members#100-90000
politician/representative > party state: name, age#25-90, seniority#1-40, committee, religion, years served#1-40
election > party: year#1900-2023, votes#100-900000, seats#1-400, date@, turnout#20-100
state/province: name, population#1000-900000, area#10-90000, area code#200-999, capital
candidate > party: name, number of votes#10-90000, age#25-90, slogan, approval#1-100
petition > politician: title, number of signatures#10-90000, submitted on@
ministry: name, minister~, budget#1-900, established#1850-2020
law/act: title, year passed#1900-2023, status=passed|rejected|pending
[housing]
building > architect city: name, height#10-830, number of floors#1-163, year completed#1880-2023, address, status, type
apartment/flat > building: apartment number, number of bathrooms#1-4, number of bedrooms#1-6, type code=Studio|Duplex|Flat, rent#200-9000
tenant/resident > apartment: name, age#18-90, gender, move in date@, occupation
property/real estate > owner: address, price#10000-900000, number of rooms#1-12, kind=house|flat|land, plot area#50-9000, date sold@, garden=yes|no
architect: name, nationality, gender, number of awards#0-20
mill > architect: location, name, type, built year#1700-1950, notes
hotel/inn > city: name, star rating#1-5, number of rooms#5-900, price range, pets allowed=Y|N
room > hotel: name, bed type=King|Queen|Double, number of beds#1-4, base price#40-900, maximum occupancy#1-6, decor=modern|rustic|traditional
booking/reservation > room guest: check in@, check out@, rate#40-900, number of adults#1-4, number of kids#0-4, status code
guest/visitor: first name, last name, nationality, date of birth@, loyalty points#0-9000
facility: description, code, cost#1-900
[technology]
device > company: name, maker, platform=Android|iOS|Windows, price#50-3000, battery life#1-90, release year#2000-2023
phone > chip: model, memory#1-16, screen size#3-8, price#100-2000, maker, color
chip: name, launch year#1990-2023, number of cores#1-64, clock speed#1-6
user/account holder: name, email, number of followers#0-90000, join date@, website, role=admin|editor|viewer
post/message > user: title, body, likes#0-9000, posted on@, number of views#0-90000
tweet > user: text, created date@, number of retweets#0-900
software/program > company: name, version, release date@, license, number of downloads#10-900000
server > data center: host name, memory#1-512, status=up|down, ip address
data center: name, city, power#1-900, capacity#10-9000
browser: name, market share#1-70, release year#1990-2015
router: name, operating system, number of ports#2-64, firmware
game/video game > developer: title, units sold#1-90, platform=PC|console|mobile, release date@, price#5-80, genre, special notes
developer: name, city, founded#1970-2020, number of employees#1-9000
bug/issue > software: summary, severity=low|medium|high, reported date@, status=open|fixed|closed
[science]
scientist/researcher > institute: name, field, number of papers#1-400, birth year#1850-1995, nationality
institute/laboratory > city: name, established#1850-2015, budget#1-900, number of staff#3-900
experiment > scientist: title, cost#100-90000, start date@, hours#1-9000, result=success|failure|unknown
planet > star: name, mass#1-900, radius#1-90, number of moons#0-90, distance#1-900, discovered#1781-2020
star: name, magnitude#1-20, constellation, temperature#2000-40000
mission > ship rocket: code, launched year#1957-2023, crew size#0-8, location, speed#1-40, fate
rocket: name, height#10-120, payload#100-90000, cost per launch#1-900, manufacturer
element: name, symbol, atomic number#1-118, melting point#1-3500
gene > species: name, length#100-90000, chromosome, function
weather report > station: date@, mean temperature#1-110, max temperature#1-110, min temperature#1-90, mean humidity#1-100, wind speed#1-60, precipitation#0-90
observation > scientist: subject, observed on@, quality#1-10
[documents]
document > template: name, description, number of pages#1-900, file format=pdf|odt|txt, access count#0-9000, creation date@
template: name, version#1-20, layout=one column|two columns|letter, last changed@, author~
paragraph > document: text, number of words#1-900, language
archive: name, building, number of files#10-90000
image > document: alt text, width#10-4000, height#10-4000, url
location/place: name, code, description, address
event > location: name, type, date@, venue, participants count#1-900, details
participant/attendee > event: name, type code=Organizer|Attendant|Speaker, age#16-80, details
conference/meeting > location: name, year#1990-2023, number of attendees#10-9000, acronym, start date@
workshop group: name, venue, price per day#10-900, email
[military]
battle > war: name, date@, location, victor, number of troops#100-90000, commander~, duration in days#1-90
war/conflict: name, start year#1100-2000, end year#1101-2003, winner, number of dead#10-900000
soldier/serviceman > regiment: name, rank=private|sergeant|captain|major, age#18-60, hometown, years of service#1-40
regiment/unit: name, founded#1700-1990, strength#100-9000, garrison
weapon: name, type, caliber#1-200, range#10-9000, year introduced#1850-2020
general/commander: name, birth year#1700-1960, nationality, battles won#0-60
casualty > battle ship: cause, number wounded#0-900, number missing#0-900, recorded on@
[leisure]
club/society > student: name, description, location, number of members#3-900, founding date@
trail > park: name, length#1-90, difficulty=easy|moderate|hard, elevation gain#10-3000
park > state: name, area#1-90000, established#1870-2015, annual visitors#100-900000
attraction/sight > location: name, opening hours, entrance fee#0-90, visitors per year#100-900000
theme park > city: name, number of rides#5-90, area#1-900, ticket price#10-200
roller coaster > park: name, height#10-140, speed#30-240, length#100-2500, opened@, status=operating|closed
activity: name, cost per person#1-90, duration#10-400
hobby/interest > student: name, hours per week#1-40, cost#1-900
gymnast > country: age#12-35, vault points#1-20, beam points#1-20, total points#1-90
people/persons > country: name, height#120-220, weight#40-150, hometown, age#10-90, birth date@, nationality
host/organizer: name, nationality, age#18-80
climber > mountain: name, age#15-70, nationality, ascents#0-90, climbing time#10-900
chess player > country: name, elo rating#1000-2900, title=grandmaster|master|candidate, games won#0-900, birth year#1930-2012
race > track: name, class, date@, distance#1-900, winner~, laps#1-90
track/circuit: name, location, seating#100-90000, year opened#1900-2020, turns#3-30
entrepreneur > people: company, money requested#1000-900000, investor
phone number: owner~, number, provider, monthly fee#5-90
"""  # noqa: E501


@dataclass
class Field:
    """A column of an entity: its words, kind and values."""

    words: str
    kind: str  # text, number or date
    low: int = 0
    high: int = 0
    values: tuple[str, ...] = ()
    person: bool = False


@dataclass
class Entity:
    """What a table is about: words for it, the entities it refers to, and its columns."""

    words: str
    others: list[str]
    parents: list[str]
    fields: list[Field] = field(default_factory=list)


def _field(text: str) -> Field:
    if found := re.fullmatch(r"(.+)#(\d+)-(\d+)", text):
        return Field(found[1], "number", int(found[2]), int(found[3]))
    if "=" in text:
        words, values = text.split("=")
        return Field(words, "text", values=tuple(values.split("|")))
    if text[-1] in "@~":
        return Field(text[:-1], "date" if text[-1] == "@" else "text", person=text[-1] == "~")
    return Field(text, "text")


def _areas() -> dict[str, list[Entity]]:
    areas: dict[str, list[Entity]] = {}
    for line in AREAS.strip().splitlines():
        if line.startswith("["):
            entities = areas.setdefault(line.strip("[]"), [])
            continue
        head, columns = line.split(": ", 1)
        head, _, parents = head.partition(" > ")
        words, *others = head.split("/")
        entities.append(Entity(words, others, parents.split(), [_field(part) for part in columns.split(", ")]))
    return areas


#: Entities by area.
ENTITIES = _areas()

#: Other words in questions, by the last words of a column.
SYNONYMS = {
    "salary": ("pay", "income", "wage"), "price": ("cost",), "cost": ("price",), "city": ("town",), "country": ("nation",), "phone number": ("phone", "telephone number"),
    "capacity": ("number of seats", "size"), "founded": ("founding year", "year founded"), "description": ("details",), "title": ("name",), "gender": ("sex",),
    "age": ("age in years",), "date of birth": ("birthday", "birth date"), "birth date": ("date of birth", "birthday"), "job title": ("job",), "last name": ("surname", "family name"),
    "first name": ("given name", "forename"), "attendance": ("number of visitors",), "population": ("number of people", "number of inhabitants"), "elevation": ("altitude",),
    "horsepower": ("power",), "running time": ("duration", "length"), "length": ("duration",), "hometown": ("home town",), "citizenship": ("nationality",), "nationality": ("country of origin",),
    "gross": ("gross income", "earnings"), "year": ("year",), "opening year": ("year of opening", "opened year"), "release year": ("year of release",), "birth year": ("year of birth",),
    "location": ("place",), "address": ("street address",), "email": ("email address",), "number of employees": ("employee count", "number of workers"), "amount": ("sum",),
    "rating": ("score",), "quantity": ("number of units",), "budget": ("funding",), "color": ("colour",), "major": ("field of study",), "headquarters": ("head office",),
    "gpa": ("grade point average",), "abbreviation": ("short name",), "code": ("code",), "theme": ("topic",),
    "details": ("description",), "market share": ("share of the market",), "hire date": ("date of hiring",), "type": ("kind",), "language": ("language spoken",), "area": ("surface area",),
}  # fmt: skip
#: Adjectives for the largest and smallest value, by the last word of a column.
EXTREMES = {
    "age": ("oldest", "youngest"), "price": ("most expensive", "cheapest"), "cost": ("most expensive", "cheapest"), "weight": ("heaviest", "lightest"),
    "height": ("tallest", "shortest"), "length": ("longest", "shortest"), "population": ("most populous", "least populous"), "speed": ("fastest", "slowest"),
    "area": ("largest", "smallest"), "capacity": ("largest", "smallest"), "duration": ("longest", "shortest"), "salary": ("best paid", "worst paid"), "rating": ("best rated", "worst rated"),
    "depth": ("deepest", "shallowest"), "distance": ("longest", "shortest"), "running time": ("longest", "shortest"), "budget": ("best funded", "least funded"), "rent": ("most expensive", "cheapest"),
    "year": ("newest", "oldest"), "founded": ("newest", "oldest"), "release date": ("newest", "oldest"), "opening year": ("newest", "oldest"), "date": ("latest", "earliest"),
    "birth date": ("youngest", "oldest"), "date of birth": ("youngest", "oldest"), "birth year": ("youngest", "oldest"), "size": ("largest", "smallest"), "rank": ("lowest ranked", "top ranked"),
}  # fmt: skip
ABBREVIATIONS = {
    "number": ("num", "no", "nbr"), "department": ("dept",), "student": ("stu",), "employee": ("emp",), "address": ("addr",), "description": ("desc", "descr"), "customer": ("cust",),
    "product": ("prod",), "quantity": ("qty",), "amount": ("amt",), "first name": ("fname", "firstname"), "last name": ("lname", "lastname"), "date of birth": ("dob", "birthdate"),
    "telephone": ("tel",), "account": ("acct", "acc"), "average": ("avg",), "maximum": ("max",), "minimum": ("min",), "percent": ("pct",), "organization": ("org",),
    "manager": ("mgr",), "building": ("bldg",), "category": ("cat",), "reference": ("ref",), "language": ("lang",), "location": ("loc",), "apartment": ("apt",), "country": ("ctry",),
    "year": ("yr",), "position": ("pos",), "transaction": ("trans",), "password": ("pwd",), "message": ("msg",), "registration": ("reg",), "temperature": ("temp",), "information": ("info",),
    "instructor": ("instr",), "course": ("crs",), "population": ("pop",), "height": ("ht",), "weight": ("wt",), "number of": ("num", "num of", "no of"), "gender": ("sex",), "company": ("comp",),
    "document": ("doc",), "template": ("tmpl",), "status": ("stat",), "document type": ("doctype",), "airport": ("aprt",), "professor": ("prof",), "president": ("pres",), "teacher": ("tchr",),
}  # fmt: skip
IRREGULAR = {"person": "people", "people": "people", "persons": "people", "child": "children", "man": "men", "woman": "women", "series": "series", "species": "species", "aircraft": "aircraft",
             "serviceman": "servicemen", "staff": "staff", "sheep": "sheep", "cast": "cast entries", "mouse": "mice", "wife": "wives", "life": "lives", "hero": "heroes", "mouth": "mouths",
             "real estate": "real estates", "analysis": "analyses", "crew": "crew"}  # fmt: skip


def plural(words: str) -> str:
    """Returns the plural of a noun, or of the head of `number of …` and `kind of …`."""
    head, of, rest = words.partition(" of ")
    if of:
        return f"{plural(head)} of {rest}"
    *before, last = words.split()
    if last in IRREGULAR:
        many = IRREGULAR[last]
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        many = last[:-1] + "ies"
    elif last.endswith("ed") or (last.endswith("s") and not last.endswith(("ss", "us"))):
        many = last
    else:
        many = last + ("es" if last.endswith(("s", "x", "ch", "sh")) else "s")
    return " ".join([*before, many])


def nouns(texts: list[str]) -> list[str]:
    """Returns the words that follow an article and precede a mark or a preposition, in order of their number."""
    counts: dict[str, int] = {}
    for text in texts:
        for word in re.findall(r"\b(?:an?|the|his|her|its|their) ([a-z]{4,12})(?=[,.;]| (?:of|is|was|in|and|for|that|which|on|at|by|from|to|with) )", text):
            counts[word] = counts.get(word, 0) + 1
    return sorted((w for w, n in counts.items() if n > 1 and not w.endswith(("ly", "ing", "est"))), key=lambda w: (-counts[w], w))
