"""English and French sentences with clock times, dates, prices and units, for training."""

# ruff: noqa: SIM905 (a list of words is easier to read as one string)

import random

from measures import MONTHS_EN, WEEKDAYS_EN, Pair, distinct, english_number, filled, frames, measures

ONES_FR = """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept
    dix-huit dix-neuf""".split()
TENS_FR = "vingt trente quarante cinquante soixante soixante quatre-vingt quatre-vingt".split()
# All of them follow "à" and "de" without another form of the preposition.
CITIES = """Paris Lyon Marseille Toulouse Bordeaux Lille Strasbourg Nantes Berlin Madrid Dublin Boston Chicago Montréal
    Bruxelles Manchester Bristol Barcelone Stockholm Budapest""".split()
IN_ENGLISH = {"Montréal": "Montreal", "Bruxelles": "Brussels", "Barcelone": "Barcelona"}


def french_number(n: int) -> str:
    """Write a number below a hundred in French words."""
    if n < 20:
        return ONES_FR[n]
    tens, ones = TENS_FR[n // 10 - 2], n % 10
    if n // 10 in (7, 9):
        ones += 10
    if ones == 0:
        return f"{tens}s" if n == 80 else tens
    return f"{tens} et {ONES_FR[ones]}" if ones in (1, 11) and n < 80 else f"{tens}-{ONES_FR[ones]}"


def in_digits(whole: int, part: str = "") -> Pair:
    """Write a number as English and French do: 1,234.5 and 1 234,5. A French number of four digits may be closed."""
    french = f"{whole:,}".replace(",", " ")
    return (f"{whole:,}.{part}", f"{french},{part}") if part else (f"{whole:,}", french)


def number(rng: random.Random, most: int) -> Pair:
    """Draw a number of about `most` at most, in words or in digits, in English and French; it is two or more."""
    kind = rng.random()
    if kind < 0.25:
        n = rng.choice([*range(2, 13), *(n for n in range(13, 100) if n % 10 != 1)])
        return english_number(n), french_number(n)
    if kind < 0.55 or (kind >= 0.78 and most < 2000):
        return in_digits(rng.choice([rng.randint(2, 30), rng.randint(2, min(most, 999))]))
    if kind < 0.78:
        tenth = str(rng.randint(1, 9))
        return in_digits(rng.randint(2, min(most, 250)), rng.choice([tenth, tenth, f"{rng.randint(0, 9)}{tenth}"]))
    return in_digits(rng.choice([rng.randint(1000, 9999), rng.randint(1000, most), 100 * rng.randint(11, most // 100)]))


def put(frame: Pair, english: str, french: str, rng: random.Random) -> Pair:
    """Put a quantity and a city into a frame, each side with its name of the city."""
    city = rng.choice(CITIES)
    english_side, _ = filled(frame, english, french, IN_ENGLISH.get(city, city))
    return english_side, filled(frame, english, french, city)[1]


# --- clock times ----------------------------------------------------------------------------------------------

AT = [("at", "à"), ("at", "à"), ("at", "à"), ("around", "vers"), ("shortly after", "peu après")]
CLOCKED = frames("""
    The train to {city} leaves {q}. | Le train pour {city} part {q}.
    Our flight to {city} departs {q}. | Notre vol pour {city} décolle {q}.
    The bus from {city} arrives {q}. | Le bus de {city} arrive {q}.
    The meeting begins {q}. | La réunion commence {q}.
    The lecture starts {q} in the great hall. | Le cours magistral commence {q} dans la grande salle.
    The concert ended {q}. | Le concert s'est terminé {q}.
    The shop opens {q}. | Le magasin ouvre {q}.
    The museum closes {q} on Sundays. | Le musée ferme {q} le dimanche.
    She usually gets up {q}. | D'habitude, elle se lève {q}.
    He went to bed {q}. | Il s'est couché {q}.
    We had dinner {q}. | Nous avons dîné {q}.
    They called me {q}. | Ils m'ont appelé {q}.
    The police were called {q}. | La police a été appelée {q}.
    The accident happened {q}. | L'accident s'est produit {q}.
    The fire broke out {q}. | L'incendie s'est déclaré {q}.
    I have an appointment with the dentist {q}. | J'ai rendez-vous chez le dentiste {q}.
    Breakfast is served {q}. | Le petit-déjeuner est servi {q}.
    Shall we meet {q}? | On se retrouve {q} ?
    The match kicked off {q}. | Le coup d'envoi du match a été donné {q}.
    The children came home {q}. | Les enfants sont rentrés {q}.
    The ferry to {city} left {q} yesterday. | Hier, le ferry pour {city} est parti {q}.
    The doors close {q}, so don't be late. | Les portes ferment {q}, alors ne soyez pas en retard.
    My grandmother drinks tea {q} every day. | Ma grand-mère boit du thé tous les jours {q}.
    The press conference took place {q}. | La conférence de presse a eu lieu {q}.
    The minister arrived in {city} {q}. | Le ministre est arrivé à {city} {q}.
    Can you pick me up {q}? | Peux-tu venir me chercher {q} ?
    The alarm clock rang {q}. | Le réveil a sonné {q}.
    The sun rose {q}. | Le soleil s'est levé {q}.
""")
TOLD = frames("""
    It is {q}. | Il est {q}.
    It's already {q}. | Il est déjà {q}.
    It was {q} when the phone rang. | Il était {q} quand le téléphone a sonné.
    It was almost {q} when we reached {city}. | Il était presque {q} quand nous sommes arrivés à {city}.
    My watch says {q}. | Ma montre indique {q}.
    I waited until {q}. | J'ai attendu jusqu'à {q}.
    The office is open until {q}. | Le bureau est ouvert jusqu'à {q}.
    The library is open from {q}. | La bibliothèque est ouverte à partir de {q}.
    Please be here by {q}. | Veuillez être ici avant {q}.
    We slept until {q}. | Nous avons dormi jusqu'à {q}.
""")


def hours(hour: int) -> str:
    """Say a full hour in French. Noon and midnight cannot be told apart in English, so twelve is noon."""
    return {1: "une heure", 12: "midi"}.get(hour, f"{french_number(hour)} heures")


def spoken_time(hour: int, minute: int, quarter: str = "quarter") -> Pair:
    """Say a time that is no full hour, with a minute that five divides. French adds up to half an hour."""
    then = hour % 12 + 1
    if minute == 30:
        return f"half past {english_number(hour)}", f"{hours(hour)} et {'demi' if hour == 12 else 'demie'}"
    if minute < 30:
        past = "et quart" if minute == 15 else french_number(minute)
        return (
            f"{quarter if minute == 15 else english_number(minute)} past {english_number(hour)}",
            f"{hours(hour)} {past}",
        )
    left = 60 - minute
    less = "moins le quart" if left == 15 else f"moins {french_number(left)}"
    return f"{quarter if left == 15 else english_number(left)} to {english_number(then)}", f"{hours(then)} {less}"


def clock(rng: random.Random) -> Pair:
    """Draw a time of day: with digits, as a full hour, or as it is spoken."""
    hour, minute, kind = rng.randint(1, 12), rng.choice(range(0, 60, 5)), rng.random()
    if kind < 0.3:
        day, exact = rng.randint(1, 23), rng.choice([minute, rng.randint(1, 59)])
        minutes = f"{exact:02d}" if exact else ""
        french = rng.choice([f"{day} h {minutes}", f"{day} h {minutes}", f"{day}h{minutes}"]).strip()
        half = "a.m." if day < 12 else "p.m."
        return f"{(day - 1) % 12 + 1}:{exact:02d} {half}" if rng.random() < 0.6 else f"{day}:{exact:02d}", french
    if minute == 0:
        digits = f"{hour} o'clock", f"{hour} heure{'s' * (hour > 1)}"
        return (f"{english_number(hour)} o'clock", hours(hour)) if rng.random() < 0.6 else digits
    return spoken_time(hour, minute, rng.choice(["quarter", "a quarter"]))


def clock_pair(rng: random.Random) -> Pair:
    """Make a sentence with a time of day."""
    english, french = clock(rng)
    if rng.random() < 0.25:
        return put(rng.choice(TOLD), english, french, rng)
    at, a = rng.choice(AT)
    return put(rng.choice(CLOCKED), f"{at} {english}", f"{a} {french}", rng)


# --- units ----------------------------------------------------------------------------------------------------

KINDS = measures("""
    most 300
    feet=pieds, metres=mètres, meters=mètres, inches=pouces, centimetres=centimètres, cm=cm, m=m, yards=yards
    The tower is {q} high. | La tour fait {q} de haut.
    The wall is {q} thick. | Le mur fait {q} d'épaisseur.
    The screen is {q} wide. | L'écran fait {q} de large.
    The tree has grown {q}. | L'arbre a grandi de {q}.
    The diver reached a depth of {q}. | Le plongeur a atteint une profondeur de {q}.
    The board must be {q} long. | La planche doit mesurer {q} de long.
    The river rose by {q} overnight. | La rivière a monté de {q} pendant la nuit.
    He jumped {q}. | Il a sauté {q}.

    most 20000
    miles=miles, kilometres=kilomètres, km=km, kilometers=kilomètres, nautical miles=milles marins, yards=yards
    feet=pieds
    The nearest village is {q} away. | Le village le plus proche est à {q}.
    We walked {q} today. | Nous avons marché {q} aujourd'hui.
    The town lies {q} north of {city}. | La ville se trouve à {q} au nord de {city}.
    She drives {q} to work every day. | Elle fait {q} en voiture chaque jour pour aller au travail.
    The route is {q} long. | L'itinéraire est long de {q}.
    The road was closed for {q}. | La route était fermée sur {q}.
    After {q} the engine stopped. | Au bout de {q}, le moteur s'est arrêté.

    most 900000
    acres=acres, hectares=hectares, square metres=mètres carrés, square feet=pieds carrés
    square kilometres=kilomètres carrés, m²=m², square miles=miles carrés
    The farm covers {q}. | La ferme s'étend sur {q}.
    They bought {q} of land near {city}. | Ils ont acheté {q} de terrain près de {city}.
    The fire destroyed {q} of forest. | L'incendie a détruit {q} de forêt.
    The park has an area of {q}. | Le parc a une superficie de {q}.
    He inherited {q} from his uncle. | Il a hérité de {q} de son oncle.

    most 20000
    pounds=livres, kilograms=kilogrammes, kilos=kilos, kg=kg, ounces=onces, grams=grammes, tons=tonnes, tonnes=tonnes
    The parcel weighs {q}. | Le colis pèse {q}.
    He lost {q} in a month. | Il a perdu {q} en un mois.
    The truck can carry {q}. | Le camion peut transporter {q}.
    We bought {q} of potatoes. | Nous avons acheté {q} de pommes de terre.
    The harvest yielded {q} of wheat. | La récolte a donné {q} de blé.

    most 90000
    litres=litres, liters=litres, gallons=gallons, cubic metres=mètres cubes, millilitres=millilitres, barrels=barils
    pints=pintes
    The tank holds {q}. | Le réservoir contient {q}.
    The car uses {q} of petrol. | La voiture consomme {q} d'essence.
    More than {q} of oil leaked into the sea. | Plus de {q} de pétrole se sont déversés dans la mer.
    Add {q} of milk. | Ajoutez {q} de lait.

    most 300
    kilometres per hour=kilomètres par heure, km/h=km/h, kilometres an hour=kilomètres à l'heure, mph=miles à l'heure
    miles per hour=miles à l'heure, knots=nœuds, metres per second=mètres par seconde
    The car was travelling at {q}. | La voiture roulait à {q}.
    The wind reached {q}. | Le vent a atteint {q}.
    The speed limit here is {q}. | La vitesse est limitée ici à {q}.
    Gusts of up to {q} are expected in {city}. | Des rafales pouvant atteindre {q} sont attendues à {city}.

    most 60
    degrees Celsius=degrés Celsius, degrees=degrés, °C=°C, degrees Fahrenheit=degrés Fahrenheit
    The temperature rose to {q}. | La température est montée à {q}.
    Preheat the oven to {q}. | Préchauffez le four à {q}.
    In {city} it was {q} yesterday. | Hier, il faisait {q} à {city}.

    most 90
    percent=%, per cent=%, percent=pour cent
    Unemployment rose by {q}. | Le chômage a augmenté de {q}.
    Only {q} of the voters took part. | Seuls {q} des électeurs ont participé.
    Sales fell by {q} compared to the previous year. | Les ventes ont baissé de {q} par rapport à l'année précédente.
    The party gained {q}. | Le parti a gagné {q}.

    most 90
    seconds=secondes, minutes=minutes, hours=heures, days=jours, weeks=semaines, months=mois, years=ans
    The journey takes {q}. | Le voyage dure {q}.
    We had to wait {q}. | Nous avons dû attendre {q}.
    She has lived in {city} for {q}. | Elle vit à {city} depuis {q}.
    He died {q} later. | Il est mort {q} plus tard.
    The shop closed {q} ago. | Le magasin a fermé il y a {q}.
    I'll be back in {q}. | Je serai de retour dans {q}.
    The trial lasted {q}. | Le procès a duré {q}.

    most 9000
    watts=watts, kilowatts=kilowatts, volts=volts, megawatts=mégawatts, kilowatt hours=kilowattheures
    horsepower=chevaux
    The engine delivers {q}. | Le moteur développe {q}.
    The device needs {q}. | L'appareil a besoin de {q}.
    The plant near {city} generates {q}. | La centrale près de {city} produit {q}.
""")
SYMBOLS = "m cm km kg m² km/h °C mph".split()  # nobody writes "three km/h"
AROUND = [("", "")] * 8 + [("about ", "environ "), ("almost ", "presque "), ("more than ", "plus de ")]


def unit_pair(rng: random.Random) -> Pair:
    """Make a sentence with a quantity and its unit."""
    kind = rng.choice(KINDS)
    (unit, unite, _), (english, french) = rng.choice(kind.units), number(rng, kind.most)
    if (unit in SYMBOLS or unite == "%") and english[0].isalpha():
        return unit_pair(rng)
    frame = rng.choice(kind.frames)
    about, environ = rng.choice(AROUND) if "ore than" not in frame[0] else ("", "")
    return put(frame, f"{about}{english} {unit}", f"{environ}{french} {unite}", rng)


# --- prices and dates -----------------------------------------------------------------------------------------

PRICED = frames("""
    The ticket costs {q}. | Le billet coûte {q}.
    She paid {q} for the coat. | Elle a payé {q} pour le manteau.
    He earns {q} a month. | Il gagne {q} par mois.
    I owe him {q}. | Je lui dois {q}.
    The fine was {q}. | L'amende était de {q}.
    A night in {city} costs {q}. | Une nuit à {city} coûte {q}.
    They charged me {q} for the repair. | Ils m'ont fait payer {q} pour la réparation.
    He found {q} in the street. | Il a trouvé {q} dans la rue.
""")
DEAR = frames("""
    The damage amounts to {q}. | Les dégâts s'élèvent à {q}.
    The company invested {q} in {city}. | L'entreprise a investi {q} à {city}.
    They raised {q} for the hospital. | Ils ont collecté {q} pour l'hôpital.
    The city of {city} owes the banks {q}. | La ville de {city} doit {q} aux banques.
    The project will cost {q}. | Le projet coûtera {q}.
    Last year the group made a loss of {q}. | L'an dernier, le groupe a enregistré une perte de {q}.
    Exports rose to {q}. | Les exportations ont atteint {q}.
    The budget was cut by {q}. | Le budget a été réduit de {q}.
    The bank in {city} needs {q}. | La banque de {city} a besoin de {q}.
""")
CURRENCIES = [
    ("euros", "euros", "€"),
    ("dollars", "dollars", "$"),
    ("pounds", "livres", "£"),
    ("francs", "francs", None),
]
SCALES = [("million", "millions"), ("billion", "milliards"), ("billion", "milliards"), ("trillion", "billions")]


def price_pair(rng: random.Random) -> Pair:
    """Make a sentence with a sum of money. French says "deux millions d'euros", and "2 millions €" is not used."""
    unit, unite, sign = rng.choice(CURRENCIES)
    if rng.random() < 0.5:
        n, tenth, (scale, echelle) = rng.randint(2, 900), rng.randint(1, 9), rng.choice(SCALES)
        english, french = rng.choice([in_digits(n), in_digits(n % 30 + 2, str(tenth))])
        of = "d'" if unite[0] in "aeiou" else "de "
        said = f"{sign}{english} {scale}" if sign and rng.random() < 0.4 else f"{english} {scale} {unit}"
        return put(rng.choice(DEAR), said, f"{french} {echelle} {of}{unite}", rng)
    english, french = number(rng, 3000)
    if english[0].isdigit() and sign and rng.random() < 0.4:
        return put(rng.choice(PRICED), f"{sign}{english}", f"{french} {rng.choice([unite, sign])}", rng)
    return put(rng.choice(PRICED), f"{english} {unit}", f"{french} {unite}", rng)


MONTHS_FR = "janvier février mars avril mai juin juillet août septembre octobre novembre décembre".split()
WEEKDAYS_FR = "lundi mardi mercredi jeudi vendredi samedi dimanche".split()
DATED = frames("""
    She was born on {q}. | Elle est née le {q}.
    The contract was signed on {q}. | Le contrat a été signé le {q}.
    The exhibition opens in {city} on {q}. | L'exposition ouvre à {city} le {q}.
    The bridge was opened on {q}. | Le pont a été inauguré le {q}.
    The deadline is {q}. | La date limite est le {q}.
    On {q} the war ended. | Le {q}, la guerre prit fin.
    The law came into force on {q}. | La loi est entrée en vigueur le {q}.
    The next meeting will take place on {q}. | La prochaine réunion aura lieu le {q}.
    The team plays in {city} on {q}. | L'équipe joue à {city} le {q}.
    Since {q} he has been living in {city}. | Depuis le {q}, il vit à {city}.
""")
ON_WEEKDAY = ("The festival begins on {q}.", "Le festival commence le {q}.")


def date_pair(rng: random.Random) -> Pair:
    """Make a sentence with a date. The first of a month is "1er"."""
    day, month, year = rng.randint(1, 28), rng.choice(range(12)), rng.randint(1780, 2035)
    english = rng.choice([f"{day} {MONTHS_EN[month]}", f"{MONTHS_EN[month]} {day}"])
    french = f"{'1er' if day == 1 else day} {MONTHS_FR[month]}"
    if rng.random() < 0.75:
        english += f" {year}" if english[0].isdigit() else f", {year}"
        french += f" {year}"
    if rng.random() < 0.15:
        weekday = rng.choice(range(7))
        return put(ON_WEEKDAY, f"{WEEKDAYS_EN[weekday]}, {english}", f"{WEEKDAYS_FR[weekday]} {french}", rng)
    return put(rng.choice(DATED), english, french, rng)


def measure_pairs(count: int, rng: random.Random) -> list[Pair]:
    """Make this many different sentences in English and French with times, dates, prices and units."""
    return distinct([clock_pair, clock_pair, unit_pair, unit_pair, unit_pair, price_pair, date_pair], count, rng)
