"""`pandastack analyst` against a real sandbox: ten files as people have them, whose truth is worked out while they are written, and
a scripted model over real HTTP, which refuses when what its cells print is not that truth."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import pty
import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import nbclient
import nbformat
import odd_files as odd
import pytest
from daemon import BIN, ROOT
from PIL import Image
from test_agent import cli, code, scripted

import pandastack

LARGE_MB = int(os.environ.get("PANDASTACK_LARGE_MB", "70"))  # of the large file; `PANDASTACK_LARGE_MB=1024` tries the whole
LARGE_MEMORY = 2048 if LARGE_MB >= 300 else 1024


def said(**values: float) -> str:
    """A cell that prints these expressions, to be held against `seen`."""
    return "\n".join(f"print({label!r}, round(float({expression}), 2))" for label, expression in values.items())


def seen(**values: float) -> list[str]:
    """What the model demands to be told."""
    return [rf"^{re.escape(label)} {re.escape(str(round(float(value), 2)))}$".replace("^", "(?m)^", 1) for label, value in values.items()]


@dataclass
class Case:
    make: Callable[[Path], dict[str, Any]]
    cell: str
    truth: Callable[[dict[str, Any]], dict[str, float]]
    found: list[str]  # of what the loader says it found


PLOT = "\nimport matplotlib.pyplot as plt\n{}\nplt.title('it')\nplt.show()"

CASES = {
    "umsatz.csv": Case(
        odd.umsatz,
        "by_month = umsatz.groupby(umsatz['Buchungsdatum'].dt.strftime('%Y-%m'))['Umsatz (brutto)'].sum()\n"
        + said(march="by_month['2024-03']", koeln="umsatz[umsatz.Filiale == 'Köln']['Umsatz (brutto)'].sum()", all="umsatz['Umsatz (brutto)'].sum()")
        + PLOT.format("by_month.plot.bar()"),
        lambda t: {"march": t["2024-03"], "koeln": t["Köln"], "all": t["sum"]},
        ["encoding cp1252", "separator ;", "2 lines above the table left out: Umsätze der Filialen", "decimal ',' and thousands '.'", "its total left out: Summe", "%d.%m.%Y"],
    ),
    "ledger.tsv": Case(
        odd.ledger,
        "quarter = 'Q' + ledger['posted on'].dt.quarter.astype(str)\nsums = ledger.amount.groupby(quarter).sum()\n"
        + said(Q1="sums['Q1']", Q4="sums['Q4']", rows="len(ledger)", undated="ledger['posted on'].isna().sum()") + PLOT.format("sums.plot()"),
        lambda t: {"Q1": t["Q1"], "Q4": t["Q4"], "rows": t["rows"], "undated": 0},
        ["encoding utf-16", "separator tab", "'entry' stays text: it has leading zeros", "%Y-%m-%d, %m/%d/%Y, %d %b %Y, %b %d, %Y", "thousands ','"],
    ),
    "budget.xlsx": Case(
        odd.budget,
        "b = budget_budget_2024\n"
        + said(plan="(b['H1 Plan'] + b['H2 Plan']).sum()", actual="(b['H1 Actual'] + b['H2 Actual']).sum()",
               South="(lambda s: (s['H1 Actual'] + s['H2 Actual']).sum())(b[b.Region == 'South'])", rates="len(budget_rates)")
        + PLOT.format("b.groupby('Region')[['H1 Plan', 'H1 Actual']].sum().plot.bar()"),
        lambda t: {"plan": t["plan"], "actual": t["actual"], "South": t["South"], "rates": 3},
        ["2 lines of names, joined: Region, Team, H1 Plan, H1 Actual, H2 Plan, H2 Actual", "areas of merged cells", "its total left out: Total", "sheet 'Rates'"],
    ),
    "orders.json": Case(
        odd.orders_json,
        "by = orders.groupby('customer.country').total.sum()\n" + said(Namibia="by['NA']", Norway="by['NO']", month="orders.placed.dt.month.between(1, 12).mean()") + PLOT.format("by.plot.pie()"),
        lambda t: {"Namibia": t["NA"], "Norway": t["NO"], "month": 1},
        ["the records of ['data']['orders']", "nested fields became columns: customer.name, customer.country"],
    ),
    "shop.db": Case(
        odd.shop,
        "both = shop_sales.merge(shop_products, on='sku')\nby = (both.price * both.n).groupby(both.category).sum()\n" + said(tea="by['tea']", cocoa="by['cocoa']", january="(shop_sales.day.dt.year == 2024).sum()")
        + PLOT.format("by.plot.barh()"),
        lambda t: {"tea": t["tea"], "cocoa": t["cocoa"], "january": 500},
        ["table 'products'", "table 'sales'", "'sku' stays text", "%d/%m/%Y", "decimal ',' and thousands '.'"],
    ),
    "customers.csv": Case(
        odd.customers,
        said(zeros="customers.zip.str.startswith('0').sum()", namibia="(customers.country == 'NA').sum()", spent="customers.spent.sum()", ids="customers.id.nunique()", rows="len(customers)",
             second="(customers.spent.astype(int) == customers.spent_2).mean()") + PLOT.format("customers.spent.hist()"),
        lambda t: {"zeros": t["zeros"], "namibia": t["NA"], "spent": t["spent"], "ids": t["ids"], "rows": 350, "second": 1},
        ["utf-8-sig", "'zip' stays text: it has leading zeros", "'id' stays text: its numbers are longer", "'spent' is there more than once"],
    ),
    "выручка.csv": Case(
        odd.russian,
        "by = выручка.groupby('Город')['Выручка'].sum()\n" + said(moscow="by['Москва']", kazan="by['Казань']", year="выручка['Дата'].dt.year.eq(2023).sum()") + PLOT.format("by.plot()"),
        lambda t: {"moscow": t["Москва"], "kazan": t["Казань"], "year": 300},
        ["encoding cp1251", "separator |", "decimal ',' and thousands ' '"],
    ),
    "stock.csv": Case(
        odd.stock,
        said(missing="stock['stock value'].isna().sum()", value="stock['stock value'].sum()", share="stock.share.mean()",
             march="stock[stock.day.dt.month == 3]['stock value'].sum()") + PLOT.format("stock.plot(x='day', y='stock value')"),
        lambda t: {"missing": t["missing"], "value": t["value"], "share": t["share"], "march": t["march"]},
        ["thousands \"'\"", "is in percent", "its end left out: Source: Swiss warehouse", "%d/%m/%Y"],
    ),
    "trips.parquet": Case(
        odd.trips,
        said(km="trips.km.sum()", none="trips.km.isna().sum()", rows="len(trips)") + PLOT.format("trips.groupby('kind').km.sum().plot.bar()"),
        lambda t: {"km": t["km"], "none": t["none"], "rows": 1000},
        ["Parquet"],
    ),
}


def analyst(daemon, tmp_path, turns: list[dict[str, Any]], *args: object, timeout: float = 300) -> dict[str, Any]:
    with scripted(tmp_path, turns) as url:
        got = cli(daemon, "--json", "analyst", *args, "--model", "openai:scripted", "--base-url", url, timeout=timeout)
        answer: dict[str, Any] = json.loads(got.stdout) if got.stdout else {}
        assert got.returncode == 0, (got.stderr, answer.get("error"))
    return answer


def outputs(notebook: Any) -> list[tuple[str, Any]]:
    """What cells show: text, and pictures by their pixels."""
    out: list[tuple[str, Any]] = []
    for cell in notebook.cells:
        for o in cell.get("outputs", []):
            if o.output_type == "stream" and out and out[-1][0] == o.name:
                out[-1] = (o.name, out[-1][1] + o.text)  # Jupyter cuts streams where time does
            elif o.output_type == "stream":
                out.append((o.name, o.text))
            elif o.output_type == "error":
                out.append(("error", o.ename))
            elif "image/png" in o.data:
                image = Image.open(io.BytesIO(base64.b64decode(o.data["image/png"]))).convert("RGB")
                out.append(("figure", (image.size, image.tobytes())))
            else:
                out.append(("value", o.data.get("text/html") or o.data["text/plain"]))
    return out


def run_again(folder: Path, name: str) -> Any:
    """Runs a notebook with Jupyter's own client and IPython's own kernel, beside its files."""
    notebook = nbformat.read(folder / name, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def same(before: list[tuple[str, Any]], after: list[tuple[str, Any]]) -> None:
    """The same numbers, and the same pictures but for what a font may do to single pixels."""
    assert [kind for kind, _ in before] == [kind for kind, _ in after]
    for (kind, a), (_, b) in zip(before, after, strict=True):
        if kind != "figure":
            assert a == b
            continue
        assert a[0] == b[0], "the figures differ in size"
        differing = sum(x != y for x, y in zip(a[1], b[1], strict=True))
        assert differing < 0.005 * len(a[1]), f"{differing} of {len(a[1])} bytes differ"


@pytest.mark.parametrize("name", CASES)
def test_it_is_right_on_files_with_traps(daemon, tmp_path, name):
    case = CASES[name]
    truth = case.truth(case.make(tmp_path / name))
    answer = analyst(daemon, tmp_path, [code(case.cell), {"say": "FINAL ANSWER: as printed", "expect": seen(**truth), "image": True}],
                     tmp_path / name, "What is it?", "--notebook", tmp_path / "out.ipynb")
    assert answer["answer"] == "as printed"
    notes = "\n".join(note for table in answer["tables"] for note in table["notes"])
    for words in case.found:
        assert words in notes, notes
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    before = outputs(notebook)
    assert len([kind for kind, _ in before if kind == "figure"]) == 1
    same(before, outputs(run_again(tmp_path, "out.ipynb")))


@pytest.mark.slow
def test_a_large_file_is_read_piece_by_piece(daemon, tmp_path):
    name = tmp_path / "readings.csv"
    truth = odd.readings(name, LARGE_MB)
    ask = "answer = sql('SELECT Ort, sum(Temperatur) AS total, avg(Temperatur) AS mean FROM readings GROUP BY Ort ORDER BY Ort')\nanswer = answer.set_index('Ort')\n"
    cell = ask + said(Zurich="answer.total['Zürich']", mean="answer['mean']['Basel']", rows="sql('SELECT count(*) AS n FROM readings').n[0]",
                      none="sql('SELECT count(*) AS n FROM readings WHERE Temperatur IS NULL').n[0]",
                      last="sql('SELECT year(max(Zeit)) AS y FROM readings').y[0]") + PLOT.format("answer['mean'].plot.bar()")
    year = (odd.datetime.datetime(2020, 1, 1) + odd.datetime.timedelta(seconds=truth["rows"])).year
    expect = seen(Zurich=truth["Zürich"], mean=truth["mean Basel"], rows=truth["rows"], none=1, last=year)
    answer = analyst(daemon, tmp_path, [code(cell), {"say": "FINAL ANSWER: large", "expect": expect}], name, "How warm is it?",
                     "--memory", LARGE_MEMORY, "--notebook", tmp_path / "out.ipynb", "--max-time", "60m", timeout=3600)
    table = answer["tables"][0]
    assert table["on_disk"] and table["rows"] == truth["rows"]
    notes = "\n".join(table["notes"])
    assert "'Temperatur': 1 values are no numbers and became missing, as 'defekt'" in notes and "too much for a DataFrame" in notes
    print(json.dumps({k: table[k] for k in ("bytes", "rows", "seconds")}))
    if LARGE_MB < 300:
        before = outputs(nbformat.read(tmp_path / "out.ipynb", as_version=4))
        same(before, outputs(run_again(tmp_path, "out.ipynb")))


def test_questions_that_follow_find_what_was_there(daemon, tmp_path):
    """One kernel, one load; the model is told what was asked; notebook and report have all of it, failures included."""
    (tmp_path / "sales.csv").write_text("month,region,sales\n2024-01,North,\"1,200\"\n2024-02,North,800\n2024-02,South,2400\n")
    turns = [
        code("total = sales.sales.sum()\nloads = id(sales)\nsales.nothing"),
        code("print('sum', total)\nsales", expect=["AttributeError"]),
        {"say": "FINAL ANSWER: 4400 <b>in all</b>", "expect": ["sum 4400"]},
        code("print('still', total, id(sales) == loads)\nimport matplotlib.pyplot as plt\nsales.groupby('region').sales.sum().plot.bar(); plt.show()"),
        {"say": "FINAL ANSWER: South", "expect": ["still 4400 True"], "image": True},
    ]
    answer = analyst(daemon, tmp_path, turns, tmp_path / "sales.csv", "How much was sold?", "--then", "And which region sold most?",
                     "--notebook", tmp_path / "out.ipynb", "--report", tmp_path / "out.html", "--charts", tmp_path / "charts")
    assert answer["answer"] == "South" and answer["earlier"][0]["answer"] == "4400 <b>in all</b>" and answer["follows"] == answer["earlier"][0]["id"]
    assert answer["charts"] == [str(tmp_path / "charts" / "chart-1.png")] and answer["context_id"] == answer["earlier"][0]["context_id"]
    prompt = next(json.loads(line)["text"] for line in cli(daemon, "agent", "show", answer["id"], "--format", "jsonl").stdout.splitlines() if '"type":"prompt"' in line)
    for words in ("`sales`: DataFrame of sales.csv, 3 rows", "How much was sold?", "print('sum', total)", "Answer: 4400"):
        assert words in prompt, prompt
    before = outputs(nbformat.read(tmp_path / "out.ipynb", as_version=4))
    again = outputs(run_again(tmp_path, "out.ipynb"))
    same([o for o in before if o[0] != "value"], [o for o in again if o[0] != "value"])
    assert any(kind == "stdout" and "sum 4400\n" in text for kind, text in again) and ("error", "AttributeError") in again
    page = (tmp_path / "out.html").read_text()
    assert "<table>" in page and "&lt;b&gt;in all" in page and page.count("data:image/png") == 1 and "<script" not in page and "http" not in page.replace('http-equiv', '')
    with pytest.raises(pandastack.NotFoundError):
        pandastack.Sandbox.get(answer["sandbox_id"], api_url=daemon.url, api_key=daemon.key)


def test_tables_are_there_again_after_the_interpreter_is_lost(daemon, tmp_path):
    (tmp_path / "n.csv").write_text("n;m\n1,5;a\n2,5;b\n")
    turns = [
        code("import os\nos.kill(os.getpid(), 9)"),
        code("print('sum', n.n.sum())", expect=["All variables", "made anew before the next cell"]),
        {"say": "FINAL ANSWER: 4", "expect": ["sum 4"]},
        code("os_gone = 1\nimport os\nos.kill(os.getpid(), 9)"),
        code("print('again', n.n.sum())"),
        {"say": "FINAL ANSWER: still 4", "expect": ["again 4"]},
    ]
    answer = analyst(daemon, tmp_path, turns, tmp_path / "n.csv", "Sum?", "--then", "Again?")
    assert answer["answer"] == "still 4"


def test_a_run_that_is_set_back_keeps_its_tables(daemon, tmp_path):
    (tmp_path / "n.csv").write_text("n\n1\n2\n")
    turns = [*[code("n.nothing")] * 4, code("print('sum', n.n.sum())"), {"say": "FINAL ANSWER: 3", "expect": ["sum 3"]}, code("print('still', n.n.sum())"), {"say": "FINAL ANSWER: 3", "expect": ["still 3"]}]
    answer = analyst(daemon, tmp_path, turns, tmp_path / "n.csv", "Sum?", "--then", "Still?", "--notebook", tmp_path / "out.ipynb")
    assert answer["earlier"][0]["rewinds"] >= 1
    assert "n.nothing" not in (tmp_path / "out.ipynb").read_text()  # what was set back is not done again


def test_somebody_at_a_terminal_asks_more(daemon, tmp_path):
    (tmp_path / "n.csv").write_text("n\n1\n2\n")
    turns = [code("x = int(n.n.sum())\nprint('x', x)"), {"say": "FINAL ANSWER: three"}, code("print('still', x)"), {"say": "FINAL ANSWER: kept", "expect": ["still 3"]}]
    ours, theirs = pty.openpty()
    with scripted(tmp_path, turns) as url:
        process = subprocess.Popen([BIN, "analyst", tmp_path / "n.csv", "Sum?", "--model", "openai:scripted", "--base-url", url],
                                   env=daemon.env, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True)
        os.close(theirs)
        shown = ""
        for answer in (b"Is it kept?\n", b"\n"):
            while not shown.endswith("nothing to end: "):
                shown += os.read(ours, 4096).decode(errors="replace")
            shown += "\n"
            os.write(ours, answer)
        drain = threading.Thread(target=lambda: list(iter(lambda: read_or_nothing(ours), b"")))
        drain.start()
        assert process.stdout and process.stdout.read() == "three\nkept\n" and process.wait(timeout=60) == 0
        drain.join()
    os.close(ours)
    assert "n: n.csv, 2 rows, 1 columns" in shown, shown


def read_or_nothing(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody is at the other end any more
        return b""


def test_a_kept_session_goes_on(daemon, tmp_path):
    (tmp_path / "n.csv").write_text("n\n1\n2\n")
    first = analyst(daemon, tmp_path, [code("x = int(n.n.sum())"), {"say": "FINAL ANSWER: 3"}], tmp_path / "n.csv", "Sum?", "--keep")
    second = analyst(daemon, tmp_path, [code("print('x', x + 1)"), {"say": "FINAL ANSWER: 4", "expect": ["x 4"]}], "--follow", first["id"], "And one more?")
    assert second["sandbox_id"] == first["sandbox_id"]
    pandastack.Sandbox.get(first["sandbox_id"], api_url=daemon.url, api_key=daemon.key).kill()
    late = cli(daemon, "analyst", "--follow", first["id"], "And now?", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1")
    assert late.returncode == 3 and "sandbox" in late.stderr


@pytest.mark.parametrize(("name", "content", "words"), [
    ("empty.csv", b"", "is empty"),
    ("old.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "save it as .xlsx"),
    ("not.parquet", b"PAR1" + b"\xff" * 100, "damaged Parquet file"),
    ("not.db", b"SQLite format 3\0" + b"\xff" * 5000, "damaged SQLite file"),
    ("no.json", b'{"a": [1, 2', "is no JSON"),
    ("blank.csv", b"\n\n \n", "has no rows"),
    ("binary.csv", bytes(range(256)) * 50, "is not text"),
])
def test_files_that_are_no_data_end_the_run_in_words(daemon, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    got = cli(daemon, "--json", "analyst", tmp_path / name, "What?", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1")
    answer = json.loads(got.stdout)
    assert got.returncode == 1 and answer["reason"] == "no_data" and words in answer["error"], answer


def test_what_cannot_be_asked(daemon, tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("n.csv", "a/n.csv"):
        (tmp_path / name).write_text("n\n1\n")
    for args, words in [
        (["no question"], "give files"), ([tmp_path / "none.csv", "How much?"], "none.csv"), ([tmp_path, "x"], "is a folder"),
        ([tmp_path / "n.csv", tmp_path / "a/n.csv", "x"], "same name"), ([tmp_path / "n.csv", "x", "--follow", "ag-0000000000000000"], "name none"),
        ([tmp_path / "n.csv", "x", "--report", tmp_path / "no/out.html"], "no such file"),
    ]:
        got = cli(daemon, "analyst", *args)
        assert got.returncode == 2 and words in got.stderr, got.stderr
    client = pandastack.Client(api_url=daemon.url, api_key=daemon.key)
    with pytest.raises(pandastack.BadRequestError, match="data"):
        pandastack.Agent("openai:x", base_url="http://127.0.0.1:9/v1", api_url=daemon.url, api_key=daemon.key).start("x", data=["../x"])
    with pytest.raises(pandastack.NotFoundError):
        pandastack.Agent("openai:x", base_url="http://127.0.0.1:9/v1", api_url=daemon.url, api_key=daemon.key).start("x", follows="ag-0000000000000000")
    client.close()


def test_the_python_sdk(daemon, tmp_path):
    (tmp_path / "sales.csv").write_text("month;sales\n2024-01;1,5\n2024-02;2,5\n")
    turns = [
        code("print('sum', sales.sales.sum())\nimport matplotlib.pyplot as plt\nsales.plot(); plt.show()\nkept = 7"), {"say": "FINAL ANSWER: 4", "expect": ["sum 4"]},
        code("print('kept', kept)"), {"say": "FINAL ANSWER: yes", "expect": ["kept 7"]},
        code("print('kept', kept)"), {"say": "FINAL ANSWER: still", "expect": ["kept 7"]},
    ]
    with scripted(tmp_path, turns) as url:
        more = dict(model="openai:scripted", base_url=url, api_url=daemon.url, api_key=daemon.key)
        heard: list[str] = []
        with pandastack.Analyst(tmp_path / "sales.csv", **more) as a:
            with pytest.raises(RuntimeError, match="nothing yet"):
                a.report()
            first = a.ask("How much?", on_event=lambda e: heard.append(e.type))
            assert first.text == "4" and first.figures[0].startswith(b"\x89PNG") and first.run.reason == "answer" and "loaded" in heard
            assert a.tables[0]["name"] == "sales" and any("decimal ','" in note for note in a.tables[0]["notes"])
            assert a.ask("Is it kept?").text == "yes"
            notebook = nbformat.reads(a.notebook().decode(), as_version=4)
            nbformat.validate(notebook)
            assert "Is it kept?" in a.report() and any("Is it kept?" in c.source for c in notebook.cells)
            sandbox = a.sandbox
            with pandastack.Analyst(follows=a.run.id, **more) as b:
                assert b.ask("Still?").text == "still"
            assert sandbox.run_code("1").text == "1"  # b found it there, and leaves it
        with pytest.raises(pandastack.NotFoundError):
            pandastack.Sandbox.get(sandbox.id, api_url=daemon.url, api_key=daemon.key)


def test_an_analyst_calls_functions_of_this_program(daemon, tmp_path):
    """In each question, and in those of a program that goes on later; without them that asks nothing."""
    (tmp_path / "sales.csv").write_text("month,sales\n1,4\n")

    def rate(currency: str) -> float:
        return {"EUR": 1.5}[currency]

    turns = [code("from tools import rate\nprint('is', sales.sales[0] * rate(currency='EUR'))"), {"say": "FINAL ANSWER: 6", "expect": ["is 6.0"]},
             code("print('is', 2 * rate(currency='EUR'))"), {"say": "FINAL ANSWER: 3", "expect": ["is 3.0"]}]
    with scripted(tmp_path, turns) as url:
        more = dict(model="openai:scripted", base_url=url, api_url=daemon.url, api_key=daemon.key)
        with pandastack.Analyst(tmp_path / "sales.csv", tools=[rate], **more) as a:
            assert a.ask("How much?").text == "6"
            with pandastack.Analyst(follows=a.run.id, **more) as without, pytest.raises(ValueError, match="not here: rate"):
                without.ask("And twice?")
            with pandastack.Analyst(follows=a.run.id, tools=[rate], **more) as later:
                assert later.ask("And twice?").text == "3"


IN_TYPESCRIPT = """
import { Analyst } from "%s";
const [file, baseUrl] = process.argv.slice(-2);
const analyst = new Analyst([file], { model: "openai:scripted", baseUrl });
const first = await analyst.ask("How much?");
const second = await analyst.ask("Is it kept?");
console.log(JSON.stringify({
  texts: [first.text, second.text], png: first.figures[0][1] === 80, tables: analyst.tables.map((t) => t.name),
  report: (await analyst.report()).includes("Is it kept?"), nbformat: JSON.parse(new TextDecoder().decode(await analyst.notebook())).nbformat, sandbox: analyst.sandbox.id,
}));
await analyst.close();
"""

IN_GO = """
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func main() {
	ctx := context.Background()
	client := must(pandastack.NewClient())
	o := pandastack.AnalystOptions{AgentOptions: pandastack.AgentOptions{AgentRequest: api.AgentRequest{Model: "openai:scripted", BaseURL: os.Args[2]}}}
	analyst := must(client.NewAnalyst(ctx, []string{os.Args[1]}, o))
	first := must(analyst.Ask(ctx, "How much?", nil))
	second := must(analyst.Ask(ctx, "Is it kept?", nil))
	var book struct{ NBFormat int }
	if err := json.Unmarshal(must(analyst.Notebook(ctx)), &book); err != nil {
		panic(err)
	}
	out := must(json.Marshal(map[string]any{
		"texts": []string{first.Text, second.Text}, "png": first.Figures[0][1] == 'P', "tables": []string{analyst.Tables[0].Name},
		"report": strings.Contains(string(must(analyst.Report(ctx))), "Is it kept?"), "nbformat": book.NBFormat, "sandbox": analyst.Sandbox.ID,
	}))
	fmt.Println(string(out))
	if err := analyst.Close(ctx); err != nil {
		panic(err)
	}
}
"""


@pytest.mark.parametrize("language", ["typescript", "go"])
def test_the_other_sdks(daemon, tmp_path, language):
    (tmp_path / "sales.csv").write_text("month;sales\n2024-01;1,5\n2024-02;2,5\n")
    if language == "typescript":
        subprocess.run(["make", "-s", "ts"], cwd=ROOT, check=True)
        (tmp_path / "ask.mjs").write_text(IN_TYPESCRIPT % (ROOT / "sdk/typescript/dist/esm/index.js").as_uri())
        program = ["node", str(tmp_path / "ask.mjs")]
    else:
        (tmp_path / "ask.go").write_text(IN_GO)
        subprocess.run(["go", "build", "-o", tmp_path / "ask", tmp_path / "ask.go"], cwd=ROOT, check=True)
        program = [str(tmp_path / "ask")]
    turns = [
        code("print('sum', sales.sales.sum())\nimport matplotlib.pyplot as plt\nsales.plot(); plt.show()\nkept = 7"), {"say": "FINAL ANSWER: 4", "expect": ["sum 4"]},
        code("print('kept', kept)"), {"say": "FINAL ANSWER: yes", "expect": ["kept 7"]},
    ]
    with scripted(tmp_path, turns) as url:
        ran = subprocess.run([*program, str(tmp_path / "sales.csv"), url], env=daemon.env, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout)
    sandbox = got.pop("sandbox")
    assert got == {"texts": ["4", "yes"], "png": True, "tables": ["sales"], "report": True, "nbformat": 4}
    with pytest.raises(pandastack.NotFoundError):
        pandastack.Sandbox.get(sandbox, api_url=daemon.url, api_key=daemon.key)


def test_the_report_is_a_page(daemon, tmp_path, sandbox):
    """In Chromium: it needs nothing from elsewhere, and shows its figure."""
    odd.umsatz(tmp_path / "umsatz.csv")
    case = CASES["umsatz.csv"]
    turns = [code(case.cell + "\numsatz.groupby('Filiale')[['Umsatz (brutto)']].sum()"), {"say": "FINAL ANSWER: München sold most, 1,350,371.66 €."}]
    analyst(daemon, tmp_path, turns, tmp_path / "umsatz.csv", "Which branch sold most?", "--report", tmp_path / "out.html")
    sandbox.filesystem.upload(tmp_path / "out.html", "/workspace/out.html")
    sandbox.exec(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=900,1400", "--screenshot=/workspace/page.png", "file:///workspace/out.html"],
                 timeout_seconds=120, check=True)
    shot = sandbox.filesystem.read("/workspace/page.png")
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    assert image.size == (900, 1400)
    data = image.tobytes()
    blue = sum(r < 80 and 90 < g < 150 and b > 150 for r, g, b in zip(data[::3], data[1::3], data[2::3], strict=True))
    assert blue > 20_000, "the bars are not there"
    if keep := os.environ.get("PANDASTACK_KEEP_PAGE"):
        Path(keep).write_bytes(shot)


def test_the_notebook_of_an_asynchronous_analyst(daemon, tmp_path):
    (tmp_path / "n.csv").write_text("n\n1\n2\n")

    async def main(url: str) -> str | None:
        async with pandastack.AsyncAnalyst(tmp_path / "n.csv", model="openai:scripted", base_url=url, api_url=daemon.url, api_key=daemon.key) as a:
            answer = await a.ask("Sum?")
            assert b'"nbformat": 4' in await a.notebook()
            return answer.text

    with scripted(tmp_path, [code("print('sum', n.n.sum())"), {"say": "FINAL ANSWER: 3", "expect": ["sum 3"]}]) as url:
        assert asyncio.run(main(url)) == "3"
