"""English and German sentences with clock times, dates, prices and units, for training."""

# ruff: noqa: SIM905 (a list of words is easier to read as one string)

import random
import re

from measures import CITIES, MONTHS_EN, WEEKDAYS_EN, Pair, distinct, english_number, filled, frames, measures

ONES_DE = """null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn
    siebzehn achtzehn neunzehn""".split()
TENS_DE = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def german_number(n: int) -> str:
    """Write a number below a hundred in German words."""
    if n < 20:
        return ONES_DE[n]
    ones = "ein" if n % 10 == 1 else ONES_DE[n % 10]
    return f"{ones}und{TENS_DE[n // 10 - 2]}" if n % 10 else TENS_DE[n // 10 - 2]


def in_digits(whole: int, part: str = "") -> Pair:
    """Write a number as English and German do: 1,234.5 and 1.234,5."""
    english = f"{whole:,}.{part}" if part else f"{whole:,}"
    return english, english.translate(str.maketrans(",.", ".,"))


def number(rng: random.Random, most: int) -> Pair:
    """Draw a number for a quantity of about `most` at most, in words or in digits, in English and German."""
    kind = rng.random()
    if kind < 0.25:
        n = rng.choice([*range(2, 13), rng.randint(13, 99)])
        return english_number(n), german_number(n)
    if kind < 0.55 or (kind >= 0.78 and most < 2000):
        return in_digits(rng.choice([rng.randint(2, 30), rng.randint(2, min(most, 999))]))
    if kind < 0.78:
        tenth = str(rng.randint(1, 9))
        n, part = rng.randint(0, min(most, 250)), rng.choice([tenth, tenth, f"{rng.randint(0, 9)}{tenth}"])
        return in_digits(n, part)
    n = rng.choice([rng.randint(1000, 9999), rng.randint(1000, most), 100 * rng.randint(11, most // 100)])
    return in_digits(n) if kind < 0.92 else in_digits(n, str(rng.randint(1, 9)))


# --- clock times ----------------------------------------------------------------------------------------------

AT = [("at", "um"), ("at", "um"), ("at", "um"), ("around", "gegen")]
EXACTLY = [*AT, ("shortly after", "kurz nach"), ("shortly before", "kurz vor"), ("at exactly", "um Punkt")]
ROUND = re.compile("o'clock|half|quarter")
CLOCKED = frames("""
    The train to {city} leaves {q}. | Der Zug nach {city} fährt {q} ab.
    Our flight to {city} departs {q}. | Unser Flug nach {city} startet {q}.
    The bus from {city} arrives {q}. | Der Bus aus {city} kommt {q} an.
    The meeting begins {q}. | Die Sitzung beginnt {q}.
    The lecture starts {q} in the great hall. | Die Vorlesung beginnt {q} im großen Saal.
    The concert ended {q}. | Das Konzert endete {q}.
    The shop opens {q}. | Das Geschäft öffnet {q}.
    The museum closes {q} on Sundays. | Das Museum schließt sonntags {q}.
    She usually gets up {q}. | Sie steht gewöhnlich {q} auf.
    He went to bed {q}. | Er ging {q} ins Bett.
    We had dinner {q}. | Wir aßen {q} zu Abend.
    They called me {q}. | Sie riefen mich {q} an.
    The police were called {q}. | Die Polizei wurde {q} gerufen.
    The accident happened {q}. | Der Unfall ereignete sich {q}.
    The fire broke out {q}. | Das Feuer brach {q} aus.
    I have an appointment with the dentist {q}. | Ich habe {q} einen Termin beim Zahnarzt.
    Breakfast is served {q}. | Das Frühstück wird {q} serviert.
    School is over {q} today. | Die Schule ist heute {q} aus.
    Shall we meet {q}? | Wollen wir uns {q} treffen?
    The match kicked off {q}. | Das Spiel wurde {q} angepfiffen.
    The children came home {q}. | Die Kinder kamen {q} nach Hause.
    The news is broadcast {q}. | Die Nachrichten werden {q} gesendet.
    The ferry to {city} left {q} yesterday. | Die Fähre nach {city} legte gestern {q} ab.
    The doors close {q}, so don't be late. | Die Türen schließen {q}, kommen Sie also nicht zu spät.
    My grandmother drinks tea {q} every day. | Meine Großmutter trinkt jeden Tag {q} Tee.
    The press conference took place {q}. | Die Pressekonferenz fand {q} statt.
    The minister arrived in {city} {q}. | Der Minister traf {q} in {city} ein.
    Can you pick me up {q}? | Kannst du mich {q} abholen?
    The alarm clock rang {q}. | Der Wecker klingelte {q}.
    The sun rose {q}. | Die Sonne ging {q} auf.
""")
TOLD = frames("""
    It is {q}. | Es ist {q}.
    It's already {q}. | Es ist schon {q}.
    It was {q} when the phone rang. | Es war {q}, als das Telefon klingelte.
    It was almost {q} when we reached {city}. | Es war fast {q}, als wir {city} erreichten.
    My watch says {q}. | Meine Uhr zeigt {q}.
    I waited until {q}. | Ich wartete bis {q}.
    The office is open until {q}. | Das Büro ist bis {q} geöffnet.
    The library is open from {q}. | Die Bibliothek ist ab {q} geöffnet.
    Please be here by {q}. | Bitte seien Sie bis {q} hier.
    We slept until {q}. | Wir schliefen bis {q}.
""")


def spoken_time(hour: int, minute: int, quarter: str = "quarter") -> Pair:
    """Say a time that is no full hour, with a minute that five divides. German counts halves to the next hour."""
    en_now, en_next = english_number(hour), english_number(hour % 12 + 1)
    de_now, de_next = german_number(hour), german_number(hour % 12 + 1)
    special = {
        15: (f"{quarter} past {en_now}", f"Viertel nach {de_now}"),
        25: (f"twenty-five past {en_now}", f"fünf vor halb {de_next}"),
        30: (f"half past {en_now}", f"halb {de_next}"),
        35: (f"twenty-five to {en_next}", f"fünf nach halb {de_next}"),
        45: (f"{quarter} to {en_next}", f"Viertel vor {de_next}"),
    }
    if minute in special:
        return special[minute]
    if minute < 30:
        return f"{english_number(minute)} past {en_now}", f"{german_number(minute)} nach {de_now}"
    return f"{english_number(60 - minute)} to {en_next}", f"{german_number(60 - minute)} vor {de_next}"


def clock(rng: random.Random) -> Pair:
    """Draw a time of day: with digits, as a full hour, or as it is spoken."""
    hour, minute, kind = rng.randint(1, 12), rng.choice(range(0, 60, 5)), rng.random()
    if kind < 0.22:
        day, exact = rng.randint(0, 23), rng.choice([minute, rng.randint(1, 59)])
        german = f"{day}{rng.choice('::.')}{exact:02d} Uhr"
        half = "a.m." if day < 12 else "p.m."
        return f"{(day - 1) % 12 + 1}:{exact:02d} {half}" if rng.random() < 0.6 else f"{day}:{exact:02d}", german
    if kind < 0.3 or minute == 0:
        spoken = english_number(hour), "ein" if hour == 1 else german_number(hour)
        english, german = spoken if rng.random() < 0.6 else in_digits(hour)
        return f"{english} o'clock", f"{german} Uhr"
    return spoken_time(hour, minute, rng.choice(["quarter", "a quarter"]))


def clock_pair(rng: random.Random) -> Pair:
    """Make a sentence with a time of day."""
    english, german = clock(rng)
    if rng.random() < 0.25:
        return filled(rng.choice(TOLD), english, german, rng.choice(CITIES))
    at, um = rng.choice(EXACTLY if ROUND.search(english) else AT)
    return filled(rng.choice(CLOCKED), f"{at} {english}", f"{um} {german}", rng.choice(CITIES))


KINDS = measures("""
    most 300
    feet=Fuß, metres=Meter:Metern, meters=Meter:Metern, inches=Zoll, centimetres=Zentimeter:Zentimetern, cm=cm, m=m
    yards=Yards
    The tower is {q} high. | Der Turm ist {q} hoch.
    The wall is {q} thick. | Die Mauer ist {q} dick.
    The screen is {q} wide. | Der Bildschirm ist {q} breit.
    The snow was {q} deep. | Der Schnee lag {q} hoch.
    The tree has grown {q}. | Der Baum ist {q} gewachsen.
    The diver reached a depth of {q}. | Der Taucher erreichte eine Tiefe von {d}.
    The board must be {q} long. | Das Brett muss {q} lang sein.
    The river rose by {q} overnight. | Der Fluss stieg über Nacht um {q}.
    He jumped {q}. | Er sprang {q} weit.

    most 20000
    miles=Meilen, kilometres=Kilometer:Kilometern, km=km, kilometers=Kilometer:Kilometern, nautical miles=Seemeilen
    yards=Yards, feet=Fuß
    It is {q} to the nearest village. | Bis zum nächsten Dorf sind es {q}.
    We walked {q} today. | Wir sind heute {q} gelaufen.
    The town lies {q} north of {city}. | Die Stadt liegt {q} nördlich von {city}.
    The plane was flying at a distance of {q}. | Das Flugzeug flog in einer Entfernung von {d}.
    She drives {q} to work every day. | Sie fährt jeden Tag {q} zur Arbeit.
    The route is {q} long. | Die Strecke ist {q} lang.
    The road was closed for {q}. | Die Straße war auf {d} gesperrt.
    After {q} the engine stopped. | Nach {d} blieb der Motor stehen.

    most 900000
    acres=Acres, acres=Acre, hectares=Hektar, square metres=Quadratmeter:Quadratmetern, square feet=Quadratfuß
    square kilometres=Quadratkilometer:Quadratkilometern, m²=m², square miles=Quadratmeilen
    The farm covers {q}. | Der Hof umfasst {q}.
    They bought {q} of land near {city}. | Sie kauften {q} Land bei {city}.
    The fire destroyed {q} of forest. | Das Feuer zerstörte {q} Wald.
    The park has an area of {q}. | Der Park hat eine Fläche von {d}.
    The flat has {q}. | Die Wohnung hat {q}.
    He inherited {q} from his uncle. | Er erbte {q} von seinem Onkel.
    The lake extends over {q}. | Der See erstreckt sich über {q}.

    most 20000
    pounds=Pfund, kilograms=Kilogramm, kilos=Kilo, kg=kg, grams=Gramm, tonnes=Tonnen, tons=Tonnen, ounces=Unzen
    The parcel weighs {q}. | Das Paket wiegt {q}.
    I have lost {q}. | Ich habe {q} abgenommen.
    The baby weighed {q} at birth. | Das Baby wog bei der Geburt {q}.
    The truck can carry {q}. | Der Lastwagen kann {q} tragen.
    Customs officers found {q} of cocaine. | Die Zollbeamten fanden {q} Kokain.
    She bought {q} of potatoes. | Sie kaufte {q} Kartoffeln.
    The fish had a weight of {q}. | Der Fisch hatte ein Gewicht von {d}.

    most 90000
    litres=Liter:Litern, liters=Liter:Litern, gallons=Gallonen, cubic metres=Kubikmeter:Kubikmetern
    millilitres=Milliliter:Millilitern, barrels=Barrel, pints=Pints
    The tank holds {q}. | Der Tank fasst {q}.
    The car uses {q} of petrol. | Das Auto verbraucht {q} Benzin.
    You should drink {q} of water. | Man sollte {q} Wasser trinken.
    More than {q} of oil leaked into the sea. | Mehr als {q} Öl liefen ins Meer.
    Add {q} of milk. | Geben Sie {q} Milch hinzu.
    The bottle has a capacity of {q}. | Die Flasche hat ein Volumen von {d}.

    most 300
    kilometres per hour=Kilometer pro Stunde:Kilometern pro Stunde, km/h=km/h
    kilometres an hour=Stundenkilometer:Stundenkilometern, mph=Meilen pro Stunde, miles per hour=Meilen pro Stunde
    knots=Knoten, metres per second=Meter pro Sekunde:Metern pro Sekunde
    The car was travelling at {q}. | Das Auto fuhr mit {d}.
    The wind reached {q}. | Der Wind erreichte {q}.
    The speed limit here is {q}. | Die Höchstgeschwindigkeit beträgt hier {q}.
    The storm moved west at a speed of {q}. | Der Sturm zog mit einer Geschwindigkeit von {d} nach Westen.
    Gusts of up to {q} are expected in {city}. | In {city} werden Böen von bis zu {d} erwartet.

    most 60
    degrees Celsius=Grad Celsius, degrees=Grad, °C=°C, degrees Fahrenheit=Grad Fahrenheit
    The temperature rose to {q}. | Die Temperatur stieg auf {q}.
    It was {q} in {city} yesterday. | Gestern waren es in {city} {q}.
    The water boils at {q}. | Das Wasser kocht bei {d}.
    Preheat the oven to {q}. | Heizen Sie den Ofen auf {q} vor.
    At night it cooled down to minus {q}. | In der Nacht kühlte es auf minus {q} ab.
    His temperature is {q}. | Er hat {q} Fieber.

    most 90
    percent=Prozent, per cent=Prozent, percentage points=Prozentpunkte:Prozentpunkten
    Prices rose by {q}. | Die Preise stiegen um {q}.
    Unemployment fell by {q}. | Die Arbeitslosigkeit sank um {q}.
    Turnover fell by {q} compared with the previous year. | Der Umsatz ging gegenüber dem Vorjahr um {q} zurück.
    The party gained {q}. | Die Partei legte um {q} zu.
    The share in {city} is {q} higher. | In {city} liegt der Anteil um {q} höher.

    most 90
    seconds=Sekunden, minutes=Minuten, hours=Stunden, days=Tage:Tagen, weeks=Wochen, months=Monate:Monaten
    years=Jahre:Jahren
    The journey takes {q}. | Die Reise dauert {q}.
    We had to wait {q}. | Wir mussten {q} warten.
    She has lived in {city} for {q}. | Sie lebt seit {d} in {city}.
    He died {q} later. | Er starb {q} später.
    The shop closed {q} ago. | Der Laden hat vor {d} geschlossen.
    I'll be back in {q}. | Ich bin in {d} zurück.
    The trial lasted {q}. | Der Prozess dauerte {q}.

    most 9000
    watts=Watt, kilowatts=Kilowatt, volts=Volt, megawatts=Megawatt, kilowatt hours=Kilowattstunden, horsepower=PS
    The engine delivers {q}. | Der Motor leistet {q}.
    The device needs {q}. | Das Gerät braucht {q}.
    The plant near {city} generates {q}. | Das Kraftwerk bei {city} erzeugt {q}.
    The lamp has {q}. | Die Lampe hat {q}.
""")
SYMBOLS = "m cm km kg m² km/h °C mph".split()  # nobody writes "three km/h"
AROUND = [("", "")] * 8 + [("about ", "etwa "), ("almost ", "fast "), ("more than ", "mehr als ")]


def unit_pair(rng: random.Random) -> Pair:
    """Make a sentence with a quantity and its unit."""
    kind = rng.choice(KINDS)
    (unit, einheit, dative), (english, german) = rng.choice(kind.units), number(rng, kind.most)
    if unit in SYMBOLS and english[0].isalpha():
        return unit_pair(rng)
    frame = rng.choice(kind.frames)
    about, etwa = rng.choice(AROUND) if "ore than" not in frame[0] and "minus" not in frame[0] else ("", "")
    quantity = f"{etwa}{german}"
    return filled(
        frame, f"{about}{english} {unit}", f"{quantity} {einheit}", rng.choice(CITIES), f"{quantity} {dative}"
    )


# --- prices and dates -----------------------------------------------------------------------------------------

PRICED = frames("""
    The ticket costs {q}. | Die Fahrkarte kostet {q}.
    She paid {q} for the coat. | Sie bezahlte {q} für den Mantel.
    He earns {q} a month. | Er verdient {q} im Monat.
    I owe him {q}. | Ich schulde ihm {q}.
    The fine was {q}. | Die Geldstrafe betrug {q}.
    A night in {city} costs {q}. | Eine Übernachtung in {city} kostet {q}.
    They charged me {q} for the repair. | Für die Reparatur haben sie mir {q} berechnet.
    He found {q} in the street. | Er fand {q} auf der Straße.
""")
DEAR = frames("""
    The damage amounts to {q}. | Der Schaden beläuft sich auf {q}.
    The company invested {q} in {city}. | Das Unternehmen investierte {q} in {city}.
    They raised {q} for the hospital. | Sie sammelten {q} für das Krankenhaus.
    The city of {city} owes the banks {q}. | Die Stadt {city} schuldet den Banken {q}.
    The project will cost {q}. | Das Projekt wird {q} kosten.
    Last year the group made a loss of {q}. | Im vergangenen Jahr machte der Konzern einen Verlust von {q}.
    Exports rose to {q}. | Die Ausfuhren stiegen auf {q}.
    The budget was cut by {q}. | Der Haushalt wurde um {q} gekürzt.
    The bank in {city} needs {q}. | Die Bank in {city} braucht {q}.
""")
CURRENCIES = [("euros", "Euro", "€"), ("dollars", "Dollar", "$"), ("pounds", "Pfund", "£"), ("francs", "Franken", None)]
SCALES = [("million", "Millionen"), ("billion", "Milliarden"), ("billion", "Milliarden"), ("trillion", "Billionen")]


def price_pair(rng: random.Random) -> Pair:
    """Make a sentence with a sum of money."""
    unit, einheit, sign = rng.choice(CURRENCIES)
    priced, (english, german) = PRICED, number(rng, 3000)
    if rng.random() < 0.5:
        n, tenth, (scale, stufe) = rng.randint(2, 900), rng.randint(1, 9), rng.choice(SCALES)
        english, german = rng.choice([in_digits(n), in_digits(n % 30, str(tenth))])
        priced, english, german = DEAR, f"{english} {scale}", f"{german} {stufe}"
    if english[0].isdigit() and sign and rng.random() < 0.4:
        english, german = f"{sign}{english}", f"{german} {rng.choice([einheit, sign])}"
    else:
        english, german = f"{english} {unit}", f"{german} {einheit}"
    city, frame = rng.choice(CITIES), rng.choice(priced)
    return filled(frame, english, german, city)


MONTHS_DE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
WEEKDAYS_DE = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()
DATED = frames("""
    She was born on {q}. | Sie wurde am {q} geboren.
    The contract was signed on {q}. | Der Vertrag wurde am {q} unterzeichnet.
    The exhibition opens in {city} on {q}. | Die Ausstellung wird am {q} in {city} eröffnet.
    The bridge was opened on {q}. | Die Brücke wurde am {q} eröffnet.
    The deadline is {q}. | Die Frist endet am {q}.
    On {q} the war ended. | Am {q} endete der Krieg.
    The law came into force on {q}. | Das Gesetz trat am {q} in Kraft.
    The next meeting will take place on {q}. | Die nächste Sitzung findet am {q} statt.
    The team plays in {city} on {q}. | Die Mannschaft spielt am {q} in {city}.
    Since {q} he has been living in {city}. | Seit dem {q} lebt er in {city}.
""")
ON_WEEKDAY = ("The festival begins on {q}.", "Das Festival beginnt am {q}.")


def date_pair(rng: random.Random) -> Pair:
    """Make a sentence with a date."""
    day, month, year = rng.randint(1, 28), rng.choice(range(12)), rng.randint(1780, 2035)
    with_year = rng.random() < 0.75
    english = rng.choice([f"{day} {MONTHS_EN[month]}", f"{MONTHS_EN[month]} {day}"])
    german = f"{day}. {MONTHS_DE[month]}"
    if with_year:
        english += f" {year}" if english[0].isdigit() else f", {year}"
        german += f" {year}"
    if with_year and rng.random() < 0.3:
        german = rng.choice([f"{day}.{month + 1}.{year}", f"{day:02d}.{month + 1:02d}.{year}"])
    elif rng.random() < 0.2:
        weekday = rng.choice(range(7))
        english, german = f"{WEEKDAYS_EN[weekday]}, {english}", f"{WEEKDAYS_DE[weekday]}, dem {german}"
        return filled(ON_WEEKDAY, english, german, rng.choice(CITIES))
    return filled(rng.choice(DATED), english, german, rng.choice(CITIES))


def measure_pairs(count: int, rng: random.Random) -> list[Pair]:
    """Make this many different sentences in English and German with times, dates, prices and units."""
    return distinct([clock_pair, clock_pair, unit_pair, unit_pair, unit_pair, price_pair, date_pair], count, rng)
