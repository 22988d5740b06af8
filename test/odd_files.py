"""Ten files as people have them, each with traps, and what is true of them: worked out while they are written, by other means
than those that read them."""

from __future__ import annotations

import datetime
import io
import json
import random
import sqlite3
from pathlib import Path

MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def german(value: float) -> str:
    """1234567.5 as 1.234.567,50."""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def umsatz(path: Path) -> dict[str, float]:
    """Windows' encoding, semicolons, 1.234,56 €, days first, lines above the table and a total below it."""
    rng, rows, truth = random.Random(1), [], {}
    for i in range(400):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=rng.randrange(366))
        region, amount = rng.choice(["Köln", "München", "Düsseldorf", "Saarbrücken"]), round(rng.uniform(-500, 25_000), 2)
        truth[f"{day:%Y-%m}"] = truth.get(f"{day:%Y-%m}", 0) + amount
        truth[region] = truth.get(region, 0) + amount
        rows.append(f"{day:%d.%m.%Y};{region};{german(amount)} €;{rng.randrange(1, 90)}")
    truth["sum"] = sum(truth[r] for r in ("Köln", "München", "Düsseldorf", "Saarbrücken"))
    head = "Umsätze der Filialen\nStand: 31.12.2024; vertraulich\n\nBuchungsdatum;Filiale;Umsatz (brutto);Stück\n"
    path.write_bytes((head + "\n".join(rows) + f"\nSumme;;{german(truth['sum'])} €;\n").encode("cp1252"))
    return truth


def ledger(path: Path) -> dict[str, float]:
    """UTF-16, tabs, (negative) dollars, four ways to write a date."""
    rng, rows, truth = random.Random(2), [], {}
    for i in range(300):
        day, amount = datetime.date(2023, 1, 1) + datetime.timedelta(days=rng.randrange(365)), rng.randrange(-900_000, 900_000) / 100
        form = i % 4
        written = [f"{day:%Y-%m-%d}", f"{day:%m/%d/%Y}", f"{day.day} {MONTHS[day.month - 1]} {day.year}", f"{MONTHS[day.month - 1]} {day.day}, {day.year}"][form]
        money = f"${amount:,.2f}" if amount >= 0 else f"(${-amount:,.2f})"
        quarter = f"Q{(day.month - 1) // 3 + 1}"
        truth[quarter] = truth.get(quarter, 0) + amount
        rows.append(f"{i:05d}\t{written}\t{money}\t{rng.choice(['rent', 'wages', 'travel'])}")
    truth["rows"] = len(rows)
    path.write_bytes(("entry\tposted on\tamount\tkind\n" + "\n".join(rows) + "\n").encode("utf-16"))
    return truth


def budget(path: Path) -> dict[str, float]:
    """Excel with a title, names in two lines with merged cells, merged labels, a number that is text, a total, a second sheet."""
    import openpyxl

    rng, truth = random.Random(3), {"plan": 0.0, "actual": 0.0}
    book = openpyxl.Workbook()
    page = book.active
    page.title = "Budget 2024"
    page["A1"] = "Budget by region, in thousands"
    page.merge_cells("A1:F1")
    for cell, text in (("A3", "Region"), ("B3", "Team"), ("C3", "H1"), ("E3", "H2"), ("C4", "Plan"), ("D4", "Actual"), ("E4", "Plan"), ("F4", "Actual")):
        page[cell] = text
    for area in ("A3:A4", "B3:B4", "C3:D3", "E3:F3"):
        page.merge_cells(area)
    row, sums = 5, [0.0] * 4
    for region in ("North", "South", "West"):
        for team in range(4):
            values = [round(rng.uniform(100, 2000), 1) for _ in range(4)]
            sums = [s + v for s, v in zip(sums, values)]
            page.cell(row, 1, region if team == 0 else None)
            page.cell(row, 2, f"Team {team + 1}")
            for i, v in enumerate(values):
                page.cell(row, 3 + i, f"{v:,.1f}" if (region, team, i) == ("South", 2, 1) else v)
            truth[region] = truth.get(region, 0) + values[1] + values[3]
            row += 1
        page.merge_cells(start_row=row - 4, end_row=row - 1, start_column=1, end_column=1)
    page.cell(row, 1, "Total")
    for i, s in enumerate(sums):
        page.cell(row, 3 + i, s)
    truth["plan"], truth["actual"] = sums[0] + sums[2], sums[1] + sums[3]
    other = book.create_sheet("Rates")
    for line in (["currency", "rate"], ["EUR", 1.0], ["USD", 0.92], ["CHF", 1.04]):
        other.append(line)
    book.save(path)
    return truth


def orders_json(path: Path) -> dict[str, float]:
    """Records deep in an answer of an API, nested, with numbers as text."""
    rng, items, truth = random.Random(4), [], {}
    for i in range(250):
        country, total = rng.choice(["NA", "NO", "NL"]), rng.randrange(100, 5_000_000) / 100
        truth[country] = truth.get(country, 0) + total
        items.append({"id": i, "customer": {"name": f"Customer {i % 40}", "country": country}, "total": f"{total:,.2f}", "placed": f"2024-{rng.randrange(1, 13):02d}-11T10:00:00Z", "tags": ["a", "b"][: i % 3]})
    path.write_text(json.dumps({"status": "ok", "page": {"n": 1}, "data": {"orders": items, "errors": []}}))
    return truth


def shop(path: Path) -> dict[str, float]:
    """SQLite with two tables, money as text with a comma, days first."""
    rng, truth = random.Random(5), {}
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE products (sku TEXT PRIMARY KEY, category TEXT)")
        db.execute("CREATE TABLE sales (day TEXT, sku TEXT, price TEXT, n INTEGER)")
        kinds = {f"{n:04d}": rng.choice(["tea", "coffee", "cocoa"]) for n in range(30)}
        db.executemany("INSERT INTO products VALUES (?, ?)", kinds.items())
        for _ in range(500):
            sku, price, n = rng.choice(sorted(kinds)), rng.randrange(99, 250_000) / 100, rng.randrange(1, 9)
            truth[kinds[sku]] = truth.get(kinds[sku], 0) + price * n
            db.execute("INSERT INTO sales VALUES (?, ?, ?, ?)", (f"{rng.randrange(1, 29):02d}/{rng.randrange(1, 13):02d}/2024", sku, german(price), n))
    db.close()
    return truth


def customers(path: Path) -> dict[str, float]:
    """Post codes with leading zeros, ids longer than numbers are exact, line breaks and commas in quotes, a name twice, NA the country."""
    rng, truth = random.Random(6), {"zeros": 0, "NA": 0, "spent": 0.0, "ids": set()}
    out = io.StringIO()
    out.write("id,name,zip,country,spent,spent,comment\r\n")
    for i in range(350):
        code, country, spent = f"{rng.randrange(1, 99_999):05d}", rng.choice(["DE", "NA", "US"]), rng.randrange(0, 100_000) / 100
        number = f"98765432109876{i:05d}"
        truth["zeros"] += code.startswith("0")
        truth["NA"] += country == "NA"
        truth["spent"] += spent
        truth["ids"].add(number)
        comment = '"said ""hello"",\nthen left"' if i % 7 == 0 else ""
        out.write(f'{number},"Doe, Jane {i}",{code},{country},{spent:.2f},{int(spent)},{comment}\r\n')
    truth["ids"] = len(truth["ids"])
    path.write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())
    return truth


def russian(path: Path) -> dict[str, float]:
    """Windows' Cyrillic, bars, spaces in numbers, a decimal comma."""
    rng, truth, rows = random.Random(7), {}, []
    for i in range(300):
        city, value = rng.choice(["Москва", "Казань", "Самара"]), rng.randrange(100_000, 900_000_000) / 100
        truth[city] = truth.get(city, 0) + value
        written = f"{value:,.2f}".replace(",", " ").replace(".", ",")
        rows.append(f"{city}|{rng.randrange(1, 29):02d}.{rng.randrange(1, 13):02d}.23|{written}|склад")
    path.write_bytes(("Город|Дата|Выручка|Примечание\n" + "\n".join(rows)).encode("cp1251"))
    return truth


def stock(path: Path) -> dict[str, float]:
    """Swiss 1'234.50, percent, days first with slashes, five ways to say missing, a source below."""
    rng, truth, rows = random.Random(8), {"missing": 0, "value": 0.0, "share": [], "march": 0.0}, []
    for i in range(260):
        day = datetime.date(2024, 1, 1) + datetime.timedelta(days=i)
        value, share = rng.randrange(10_000, 900_000_000) / 100, rng.randrange(0, 1000) / 10
        if i % 11 == 0:
            truth["missing"] += 1
            written = rng.choice(["n/a", "-", "", "NULL", "#N/A"])
        else:
            truth["value"] += value
            truth["march"] += value if day.month == 3 else 0
            written = f"{value:,.2f}".replace(",", "'")
        truth["share"].append(share)
        rows.append(f"{day:%d/%m/%Y},{written},{share}%")
    truth["share"] = sum(truth["share"]) / len(truth["share"])
    path.write_text("day,stock value,share\n" + "\n".join(rows) + "\nSource: Swiss warehouse\n")
    return truth


def trips(path: Path) -> dict[str, float]:
    """Parquet, with times of a zone, and numbers that are missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, truth, columns = random.Random(9), {"km": 0.0, "none": 0}, {"began": [], "km": [], "kind": []}
    for i in range(1000):
        km = None if i % 13 == 0 else rng.randrange(1, 4000) / 10
        truth["none"] += km is None
        truth["km"] += km or 0
        columns["began"].append(datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(minutes=17 * i))
        columns["km"].append(km)
        columns["kind"].append(rng.choice(["bus", "tram"]))
    pq.write_table(pa.table(columns), path)
    return truth


def readings(path: Path, megabytes: int) -> dict[str, float]:
    """A large CSV: semicolons, decimal commas, Windows' encoding, and a missing value far behind the start."""
    rng = random.Random(10)
    block, sums, counts = [], {}, {}
    for i in range(20_000):
        site, tenths = rng.choice(["Zürich", "Genève", "Basel"]), rng.randrange(-200, 3500)
        block.append((site, tenths))
        sums[site] = sums.get(site, 0) + tenths
        counts[site] = counts.get(site, 0) + 1
    start = datetime.datetime(2020, 1, 1)
    written, rows, repeats = 0, 0, 0
    with open(path, "wb") as file:
        file.write("Zeit;Ort;Temperatur;Sensor;Bemerkung\n".encode("cp1252"))
        while written < megabytes << 20:
            lines = []
            for n, (site, tenths) in enumerate(block):
                at = start + datetime.timedelta(seconds=rows)
                rows += 1
                lines.append(f"{at:%d.%m.%Y %H:%M:%S};{site};{tenths // 10 if tenths >= 0 else '-' + str(-tenths // 10)},{abs(tenths) % 10};S-{n % 977:04d};gemessen ohne Störung\n")
            written += file.write("".join(lines).encode("cp1252"))
            repeats += 1
        file.write(f"{start + datetime.timedelta(seconds=rows):%d.%m.%Y %H:%M:%S};Basel;defekt;S-0000;gestört\n".encode("cp1252"))
    truth: dict[str, float] = {site: sums[site] * repeats / 10 for site in sums}
    truth["rows"], truth["mean Basel"] = rows + 1, truth["Basel"] / (counts["Basel"] * repeats)
    return truth
