"""The analyst's answer is what the file says, and its chart shows the file's figures."""

from __future__ import annotations

import csv
import http.client
import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List

import openai
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from analyst import Analyst  # noqa: E402
from main import QUESTION  # noqa: E402
from page import Page  # noqa: E402
from scripted_model import Script, ScriptedModel  # noqa: E402

ORANGE, BLUE = (255, 127, 14), (31, 119, 180)  # of the peak month, and of the others


@pytest.fixture(scope="module")
def revenue() -> "tuple[Counter[str], Counter[str]]":
    """Revenue by month, and by region in the best month, added up without pandas."""
    months: "Counter[str]" = Counter()
    regions: "Dict[str, Counter[str]]" = {}
    with open(HERE / "sales.csv", newline="") as file:
        for row in csv.DictReader(file):
            month = row["date"][:7]
            months[month] += float(row["revenue"])
            regions.setdefault(month, Counter())[row["region"]] += float(row["revenue"])
    return months, regions[max(months, key=months.__getitem__)]


def answer(revenue: Any) -> str:
    months, regions = revenue
    (month, most), (region, regional) = months.most_common(1)[0], regions.most_common(1)[0]
    return f"{month} brought in the most revenue, {most:.2f}; {region} was the strongest region in it with {regional:.2f}."


def bars(path: Path) -> "List[tuple[int, tuple[int, int, int]]]":
    """The bars of a chart from left to right: height in pixels and colour."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    pixels = picture.load()
    found: "List[tuple[int, tuple[int, int, int]]]" = []
    inside = None
    for x in range(picture.width):
        column = [pixels[x, y] for y in range(picture.height)]
        colour = next((c for c in (ORANGE, BLUE) if column.count(c) > 10), None)
        if colour is not None and colour != inside:
            found.append((0, colour))
        if colour is not None:
            found[-1] = (max(found[-1][0], column.count(colour)), colour)
        inside = colour
    return found


def test_the_program_answers_and_leaves_the_chart(run: Any, revenue: Any, tmp_path: Path) -> None:
    said = run(HERE / "main.py", "--scripted", "--out", tmp_path)
    assert said.rstrip().endswith(answer(revenue))
    assert f"The chart is at {tmp_path / 'chart.png'}" in said
    months = [value for _, value in sorted(revenue[0].items())]
    drawn = bars(tmp_path / "chart.png")
    assert [colour for _, colour in drawn] == [ORANGE if value == max(months) else BLUE for value in months]
    tallest = max(height for height, _ in drawn)
    for (height, _), value in zip(drawn, months):
        assert abs(height / tallest - value / max(months)) < 0.02, "each bar is as high as its month's revenue"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(Script.load(HERE / "script.json")) as served:
        yield served


def test_a_second_question_uses_what_the_first_computed(model: ScriptedModel, revenue: Any) -> None:
    steps: List[Dict[str, Any]] = []
    client = openai.OpenAI(base_url=model.base_url, api_key="scripted", max_retries=0)
    with Analyst(client, "scripted", steps.append) as analyst:
        analyst.load(HERE / "sales.csv")
        assert analyst.ask(QUESTION) == answer(revenue)
        assert analyst.ask("And which product led in that month?").startswith(("Chair", "Lamp", "Kettle"))
    assert model.refused == []
    code = [step["text"] for step in steps if step["type"] == "code"]
    assert sum("read_csv" in c for c in code) == 0, "the file is read once, before the model writes anything"
    assert len([s for s in steps if s["type"] == "chart"]) == 2
    pictures = [p for m in model.requests[-1]["messages"] if m["role"] == "user" and isinstance(m["content"], list)
                for p in m["content"] if p["type"] == "image_url"]
    assert len(pictures) == 2, "the model was shown both charts"


class Spoilt:
    """A model that makes one mistake after the other before it gives up."""

    def __init__(self, *calls: str) -> None:
        self._calls = list(calls)
        self.shown: List[str] = []
        self.chat = self
        self.completions = self

    def create(self, **request: Any) -> Any:
        self.shown += [m["content"] for m in request["messages"][-1:] if isinstance(m, dict) and m["role"] == "tool"]
        from openai.types.chat import ChatCompletion

        message: Dict[str, Any] = {"role": "assistant", "content": "I give up."}
        if self._calls:
            call = {"name": "run_python", "arguments": self._calls.pop(0)}
            message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": call}]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return ChatCompletion.model_construct(choices=[ChatCompletion.model_validate(
            {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}).choices[0]])


def test_mistakes_of_the_model_come_back_to_it_in_words() -> None:
    def cell(code: str) -> str:
        return json.dumps({"code": code})

    spoilt = Spoilt("not json", "[]", cell("df['profit']"), cell("x = 1"), cell("print('y' * 50_000)"))
    with Analyst(spoilt, "spoilt") as analyst:
        analyst.load(HERE / "sales.csv")
        assert analyst.ask("anything") == "I give up."
    no_json, no_object, missing, silent, long = spoilt.shown
    assert "JSON object" in no_json and "JSON object" in no_object
    assert "KeyError" in missing and "profit" in missing
    assert "forget to print" in silent
    assert len(long) < 21_000 and "left out" in long


def test_the_page_shows_each_step_as_it_happens(model: ScriptedModel) -> None:
    with Page() as page:
        connection = http.client.HTTPConnection("127.0.0.1", page.port)
        connection.request("GET", "/events")
        events = connection.getresponse()
        drawn = threading.Event()

        def listen(step: Dict[str, Any]) -> None:
            page.publish(step)
            if step["type"] == "chart":
                # The page has the chart before the analyst goes on.
                while next_step(events)["type"] != "chart":
                    pass
                drawn.set()

        client = openai.OpenAI(base_url=model.base_url, api_key="scripted")
        with Analyst(client, "scripted", listen) as analyst:
            analyst.load(HERE / "sales.csv")
            analyst.ask(QUESTION)
        assert drawn.is_set()
        while next_step(events)["type"] != "answer":
            pass


def next_step(events: http.client.HTTPResponse) -> Dict[str, Any]:
    while True:
        line = events.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            step: Dict[str, Any] = json.loads(line[6:])
            return step


def call(page: Page, method: str, path: str, body: str = "", **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", page.port)
    connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    return connection.getresponse().status


def test_the_page_takes_questions_from_here_only() -> None:
    with Page() as page:
        json_type = {"Content_Type": "application/json"}
        assert call(page, "GET", "/") == 200
        assert call(page, "GET", "/", Host="evil.example") == 403
        assert call(page, "POST", "/ask", '{"question": " why? "}', **json_type) == 202
        assert call(page, "POST", "/ask", '{"question": "x"}', Origin="http://evil.example", **json_type) == 403
        assert call(page, "POST", "/ask", '{"question": "x"}') == 400
        for bad in ('{"question": " "}', "[]", "{", '{"question": 3}', '{"question": "' + "x" * 5000 + '"}'):
            assert call(page, "POST", "/ask", bad, **json_type) == 400, bad
        assert next(page.questions()) == "why?"


def test_a_browser_that_comes_back_gets_what_it_missed() -> None:
    with Page() as page:
        for number in range(3):
            page.publish({"type": "output", "text": str(number)})
        connection = http.client.HTTPConnection("127.0.0.1", page.port)
        connection.request("GET", "/events", headers={"Last-Event-ID": "1"})
        events = connection.getresponse()
        assert [next_step(events)["text"], next_step(events)["text"]] == ["1", "2"]
