"""The agent loop end to end: `pandastack agent run` against a real sandbox, with a scripted model over real HTTP.

A turn's `expect` are patterns that the scripted model demands of what it is told next. When they are not there, the model
refuses, the run ends as `model_failed`, and the test shows why.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from daemon import BIN, ROOT, Daemon

import pandastack

DONE = {"say": "FINAL ANSWER: done"}


def code(*cells: str, expect: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A turn of the model that runs cells."""
    text = "\n\n".join(f"```python\n{cell}\n```" for cell in cells)
    return {"say": "I look.\n\n" + text, "expect": expect or [], **more}


def done(*expect: str, **more: Any) -> dict[str, Any]:
    return {**DONE, "expect": list(expect), **more}


@contextmanager
def scripted(tmp_path, turns: list[dict[str, Any]], **conversation: Any) -> Iterator[str]:
    """The base URL of a model that says this. Fails when it refused something, or was not asked for all of it."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"conversations": [{"task": "", "turns": turns, **conversation}]}))
    process = subprocess.Popen([BIN, "agent", "script", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    if not conversation.get("loop"):
        assert "were not asked for" not in said, said


class Run:
    """What `agent run --json` printed, and the transcript."""

    def __init__(self, daemon: Daemon, process: subprocess.CompletedProcess[str]) -> None:
        assert process.stdout, process.stderr
        self.process = process
        self.info = json.loads(process.stdout)
        self.events = [json.loads(line) for line in show(daemon, self.info["id"], "jsonl").splitlines()]

    @property
    def told(self) -> list[str]:
        """What the model was told, without the task."""
        return [m["text"] for e in self.events for m in e.get("messages", [])][1:]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["type"] == kind]


def cli(daemon: Daemon, *args: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN, *map(str, args)], env=daemon.env, capture_output=True, text=True, timeout=timeout)


def show(daemon: Daemon, run: str, how: str) -> str:
    shown = cli(daemon, "agent", "show", run, "--format", how)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def agent(daemon: Daemon, tmp_path, turns: list[dict[str, Any]], *args: object, model: str = "openai:scripted", task: str = "Do it.", **conversation: Any) -> Run:
    with scripted(tmp_path, turns, **conversation) as url:
        return Run(daemon, cli(daemon, "--json", "agent", "run", task, "--model", model, "--base-url", url, *args))


def answered(run: Run, answer: str = "done") -> None:
    assert (run.info["reason"], run.info.get("answer")) == ("answer", answer), run.info
    assert run.process.returncode == 0


# --- the three scenes ----------------------------------------------------------------------------------------------

SALES = """\
region,sales,status
North,14200,closed
South,8900,pending
North,23100,closed
East,31000,closed
West,19500,closed
East,12400,closed
"""

SCENES = [
    ("I aggregate the closed sales by region.", """\
import pandas as pd
from collections import defaultdict
records = pd.read_csv("sales.csv").to_dict("records")
totals = defaultdict(int)
for r in records:
    if r["status"] == "closed":
        totals[r["region"]] += r["sales"]
top = max(totals.items(), key=lambda x: x[1])
print(f"Aggregated Sales: {dict(totals)}")
print(f"Top Performing Region: {top[0]} with ${top[1]:,}")""", []),
    ("Its share, from what is there.", """\
share = top[1] / sum(totals.values()) * 100
print(f"Top Region Contribution: {share:.2f}%")""",
     [r"'North': 37300, 'East': 43400, 'West': 19500", r"East with \$43,400"]),
    ("A region that may be missing.", """\
plain = dict(totals)
value = plain["Antarctica"]
result = value / 0""", ["43.31%"]),
    ("It is not there, so I ask before.", 'print(plain.get("Antarctica", "no sales"))',
     ["KeyError in", r"----> 2 value = plain\[\"Antarctica\"\]", "KeyError: 'Antarctica'"]),
]


@pytest.mark.parametrize(("model", "dialect"), [
    ("openai:scripted", "text"), ("openai:scripted", "tool"), ("anthropic:scripted", "text"), ("anthropic:scripted", "tool")])
def test_aggregation_reuse_of_state_and_recovery(daemon, tmp_path, model, dialect):
    turns = [{"say": say, "code": cell, "expect": expect} for say, cell, expect in SCENES]
    turns.append({"say": "FINAL ANSWER: East, with 43.31 %", "expect": ["no sales"]})
    data = tmp_path / "sales.csv"
    data.write_text(SALES)
    run = agent(daemon, tmp_path, turns, "--file", data, "--dialect", dialect, model=model)
    answered(run, "East, with 43.31 %")
    assert run.info["turns"] == 5 and run.info["cells"] == 4
    assert "/workspace/sales.csv" in run.of("prompt")[0]["text"] and "pandas" in run.of("prompt")[0]["text"]
    assert pandastack.Sandbox.list(api_url=daemon.url, api_key=daemon.key, metadata={"agent": run.info["id"]}) == []
    own = loop_time(run)
    print(f"{own:.1f} ms a turn are the loop's and the HTTP of the model's")


DOCUMENT = ROOT / "docs" / "codeact.md"


def documented() -> tuple[str, str, str]:
    """What stands in the documentation before its system prompt, that prompt, and the run behind it."""
    before, prompt, between, run = re.fullmatch(r"(.*\n````text\n)(.*?)(\n````\n.*?\n## A whole run\n\n<!--[^\n]*-->\n\n[^\n]*\n\n)(.*)", DOCUMENT.read_text(), re.DOTALL).groups()
    return before, prompt, between, run


def shown_there(page: str) -> str:
    """A run as `agent show --format markdown` writes it, as the documentation has it: a part of a page, without tokens and prompt."""
    page = re.sub(r"^## system prompt .*?(?=^## )", "", page.partition("\n")[2], flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^## (.*?)( \(\d+ tokens in, \d+ out\))?$", r"#### \1", page, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def timeless(text: str) -> str:
    """Without what differs from machine to machine: seconds, and processors."""
    return re.sub(r"\d+ CPUs?", "… CPUs", re.sub(r" in \d+\.\d\d s$", " in … s", text, flags=re.MULTILINE))


def test_the_documented_run_is_what_happens(daemon, tmp_path):
    """The replies that docs/codeact.md shows are said again, over HTTP, and all the rest of it comes of them: the prompt, each observation, the end.

    With PANDASTACK_REWRITE=1 in the environment the documentation is written anew instead.
    """
    before, prompt, between, page = documented()
    replies = re.findall(r"^#### turn \d+: reply\n\n(.*?)\n*(?=^#### )", page, re.DOTALL | re.MULTILINE)
    task = re.match(r"#### told, user\n\n```text\n(.*?)\n```", page, re.DOTALL)
    assert len(replies) == 5 and task
    data = tmp_path / "sales.csv"
    data.write_text(SALES)
    run = agent(daemon, tmp_path, [{"say": reply} for reply in replies], "--file", data, task=task[1])
    told = run.of("prompt")[0]["text"]
    happened = shown_there(show(daemon, run.info["id"], "markdown"))
    if os.environ.get("PANDASTACK_REWRITE"):
        DOCUMENT.write_text(before + told + between + happened)
    else:
        assert timeless(told) == timeless(prompt)
        assert timeless(happened) == timeless(page)
    replayed(daemon, run, 4)


def replayed(daemon: Daemon, run: Run, cells: int) -> None:
    """Done again in another sandbox, its cells show the same, times aside."""
    again = cli(daemon, "agent", "replay", run.info["id"])
    assert again.returncode == 0 and f"{cells} of {cells} cells show the same" in again.stdout, again.stdout + again.stderr


def test_the_script_of_the_documentation(daemon, tmp_path):
    """What docs/codeact.md says to try first, and the same again."""
    script = re.search(r"cat > script\.json <<'END'\n(.*?)\nEND\n", DOCUMENT.read_text(), re.DOTALL)[1]
    run = agent(daemon, tmp_path, json.loads(script)["conversations"][0]["turns"], task="Add the numbers up to 100")
    answered(run, "5050")
    replayed(daemon, run, 1)


def loop_time(run: Run) -> float:
    """What a turn takes besides the model and its cells, in ms: from the reply to the next request."""
    def at(e: dict[str, Any]) -> float:
        whole, _, fraction = e["time"].rstrip("Z").partition(".")
        return (time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))) * 1000

    took, turns, began = 0.0, 0, 0.0
    for e in run.events:
        if e["type"] == "reply":
            began = at(e)
        elif e["type"] == "cell":
            took += at(e) - began
            began = at(e)
        elif e["type"] == "outcome":
            took += at(e) - began - e["outcome"]["duration_ms"]
            began = at(e)
        elif e["type"] == "asked" and began:
            took, turns, began = took + at(e) - began, turns + 1, 0.0
    return took / max(turns, 1)


# --- the four faults of harnesses that run code in a thread of their own process -----------------------------------

def test_after_a_deadline_output_is_the_next_cells_own(daemon, tmp_path):
    """A thread that is left behind goes on printing, and keeps sys.stdout."""
    run = agent(daemon, tmp_path, [
        code("print('before')\nwhile True:\n    pass"),
        code("print('after')", expect=["before", "deadline of 2 seconds", "are still there"]),
        code("import sys; print(sys.stdout is sys.__stdout__)", expect=["^Observation: ok in [0-9.]+ s\nafter\n$"]),
        done("True"),
    ], "--cell-time", "2s")
    answered(run)


def test_what_a_cell_starts_is_looked_at_in_later_turns(daemon, tmp_path):
    """Work that takes longer than a cell may: begun in one turn, without waiting for it, and asked for in the next ones."""
    run = agent(daemon, tmp_path, [
        code("import subprocess\njob = subprocess.Popen(['sh', '-c', 'while [ ! -e go ]; do sleep 0.05; done; echo built > out'])\nprint('begun')"),
        code("print('still', job.poll())", expect=["begun"]),
        code("open('go', 'w').close()\nprint(job.wait(), open('out').read())", expect=["still None"]),
        done("0 built"),
    ], "--cell-time", "60s")
    answered(run)


def test_a_syntax_error_is_told(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("total = 0\nfor i in range(3)\n    total += i"),
        done("SyntaxError in", "line 2", r"for i in range\(3\)", r"expected ':'"),
    ])
    answered(run)


def test_agents_do_not_share_variables(daemon, tmp_path, sandbox):
    """Neither in sandboxes of their own nor in the same one."""
    for more in ([], ["--sandbox", sandbox.id]):
        answered(agent(daemon, tmp_path, [code("secret_of_one = 42\nprint(secret_of_one)"), done("42")], *more))
        answered(agent(daemon, tmp_path, [code("print(secret_of_one)"), done("NameError")], *more))
    assert sandbox.run_code("'secret_of_one' in globals()").text == "False"


def test_all_blocks_of_a_reply_run(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("a = 1", "b = a + 1", "print('sum', a + b)"),
        done("cell 1 of 3: ok", "cell 2 of 3: ok", "cell 3 of 3: ok", "sum 3"),
    ])
    answered(run)
    assert run.info["cells"] == 3


# --- what models, sandboxes and providers do -----------------------------------------------------------------------

LOST = "All variables, imports and functions are lost; files are still there"

RECOVERIES: dict[str, tuple[list[dict[str, Any]], list[object]]] = {
    "key error in a function": ([
        code("def rate(r):\n    return r['metrics']['rate']\nprint('so far')\nrate({'metrics': {}})"),
        done("so far", "KeyError: 'rate'", r"----> 2     return r\['metrics'\]\['rate'\]", "line 4"),
    ], []),
    "deep in a library": ([
        code("import pandas as pd\npd.DataFrame({'a': [1]})['b']"),
        done("KeyError: 'b'", r"frames in pandas", "----> 2"),
    ], []),
    "endless loop that prints": ([
        code("x = 7\nimport time\nwhile True:\n    print('tick')\n    time.sleep(0.01)"),
        code("print(x)", expect=["tick", "the line above [0-9]+ more times", "deadline of 2 seconds", "are still there"]),
        done("7"),
    ], ["--cell-time", "2s"]),
    "deaf to interrupts": ([
        code("x = 7\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"),
        code("print('x' in globals())\nprint(math.pi)", expect=["did not react", LOST]),
        done("False\n3.14"),
    ], ["--cell-time", "3s"]),
    "memory bomb": ([
        code("x = 7\nprint('before')\nhog = []\nwhile True:\n    hog.append(bytearray(50_000_000))"),
        code("print(os.path.exists('/workspace'))", expect=["before", "MemoryError|more memory than there is"]),
        done("True"),
    ], []),
    "killed interpreter": ([
        code("x = 7\nprint('before', flush=True)\nos.kill(os.getpid(), 9)"),
        code("print('x' in globals(), collections.Counter('aab')['a'])", expect=["before", "interpreter ended", LOST]),
        done("False 2"),
    ], []),
    "600 MB of output": ([
        code("print('first')\nline = 'x' * 999_999\nfor i in range(600):\n    print(i, line)\nprint('last')"),
        done("^Observation: ok", "first", "last$|last\n", r"bytes left out; all of it is in /"),
    ], ["--cell-time", "60s"]),
    "except Exception around the final answer": ([
        code("try:\n    final_answer('done')\nexcept Exception:\n    print('caught')\nprint('went on')"),
    ], []),
    "bare except around the final answer": ([
        code("while True:\n    try:\n        final_answer('done')\n    except:\n        pass", "never()"),
    ], ["--cell-time", "3s"]),
    "an empty reply": ([{"say": ""}, {"reasoning": "what now?"}, done("Your reply was empty but for your thinking")], []),
    "a reply cut at its limit": ([
        {"say": "```python\nprint(1)\n```\nand\n```python\nfor i in range(", "stop": "length"},
        {"say": "```python\nfor i in range(", "stop": "length", "expect": ["^Observation: ok in [0-9.]+ s\n1\n", "unfinished end was not run"]},
        done("nothing of it was run"),
    ], []),
    "a provider that breaks off": ([
        {**code("print('once')"), "faults": [{"break_after": 30}, {"break_after": 20, "error": True}]},
        done("^Observation: ok in [0-9.]+ s\nonce\n$"),
    ], []),
    "a provider that is busy": ([{**DONE, "faults": [{"status": 429, "message": "slow down", "retry_after": "1"}, {"status": 503}]}], []),
    "an observation made up": ([
        {"say": "```python\nprint(6 * 7)\n```\nObservation: ok\n41\n\nFINAL ANSWER: 41"},
        done("\n42\n", "You wrote an observation yourself"),
    ], []),
}


@pytest.mark.parametrize("name", RECOVERIES)
@pytest.mark.parametrize("model", ["openai:scripted"])
def test_recovery(daemon, tmp_path, model, name):
    turns, args = RECOVERIES[name]
    answered(agent(daemon, tmp_path, turns, *args, model=model))


def test_a_model_that_repeats_itself_is_set_back(daemon, tmp_path):
    """Variables and files, whether the model thinks or answers at once, as this one does."""
    again = code("broken = True\nopen('kept', 'w').write('broken')\nos.makedirs('made/in/the/circle', exist_ok=True)\nopen('made/x', 'w').write('x')\n{}['x']")
    run = agent(daemon, tmp_path, [
        code("broken = False\nos.makedirs('sub')\nos.chdir('sub')\nopen('../kept', 'w').write('file')\nos.chdir('..')\nprint('good')"),
        again, again, again,
        {**again, "expect": ["You ran the same code 3 times"]},
        code("print(broken, open('kept').read(), sorted(os.listdir('.')), os.getcwd())",
             expect=["set back to before turn 2", "Variables, and the files below /workspace, are as they were then"]),
        done(r"False file \['kept', 'sub'\] /workspace"),
    ])
    answered(run)
    rewound = run.of("rewound")[0]
    assert run.info["rewinds"] == 1 and rewound["rewound"]["variables"] and rewound["rewound"]["files"] and run.info["context_id"] == rewound["context_id"]
    # The beginning needs no copy; from there the first cell ran once more. The next turn's state is one that had no copy.
    assert rewound["rewound"]["again"] == 1 and [e["turn"] for e in run.of("checkpoint")] == [1, 6]


def test_what_others_could_see_is_not_run_again(daemon, tmp_path):
    """With tools or a network a run goes back to the turn of a copy: here to its beginning."""
    again = code("x = 1\n{}['x']")
    run = agent(daemon, tmp_path, [
        code("open('kept', 'w').write('file')\nx = 0"), again, again, again, again,
        code("print('x' in globals(), os.listdir('.'))", expect=["set back to before turn 1", "Variables, and the files below /workspace, are as they were then"]),
        done(r"False \[\]"),
    ], "--allow", "a.example")
    answered(run)
    assert "again" not in run.of("rewound")[0]["rewound"]


def test_a_run_is_set_back_to_a_copy(daemon, tmp_path):
    """Of a model that thinks the state is copied every fifth turn, and a circle behind the copy needs no cell twice."""
    def slow(turn):
        return {**turn, "pause_ms": 1500}
    again = slow(code("seen.append(len(seen))\n{}['x']"))
    run = agent(daemon, tmp_path, [
        *[slow(code(f"seen = list(range({n}))\nprint(seen)" if n == 0 else f"seen.append('turn {n}')\nprint(seen, os.urandom(4))")) for n in range(6)],
        again, again, again, again,
        code("print(seen)", expect=["set back to before turn 6"]),
        done(r"\['turn 1', 'turn 2', 'turn 3', 'turn 4'\]"),
    ])
    answered(run)
    assert "again" not in run.of("rewound")[0]["rewound"] and run.of("checkpoint")[1]["turn"] == 6


def test_a_model_that_never_stops_is_stopped(daemon, tmp_path):
    run = agent(daemon, tmp_path, [code("1/0")], loop=True)
    assert run.info["reason"] == "stuck" and run.info["rewinds"] == 2 and run.process.returncode == 1


def test_limits_end_runs_with_their_name(daemon, tmp_path):
    counting = [code("print(os.urandom(4))")]
    for args, reason, status in [(["--max-turns", 2], "max_turns", 1), (["--max-cells", 2], "max_cells", 1), (["--max-tokens", 1500, "--max-turns", 500], "max_tokens", 1)]:
        run = agent(daemon, tmp_path, counting, *args, loop=True)
        assert (run.info["reason"], run.process.returncode) == (reason, status), run.info
    run = agent(daemon, tmp_path, [code("import time\ntime.sleep(30)")], "--max-time", "3s", "--cell-time", "60s", loop=True)
    assert (run.info["reason"], run.process.returncode) == ("max_seconds", 5)


# --- what the model sees -------------------------------------------------------------------------------------------

def test_figures_and_tables(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("import pandas as pd, matplotlib.pyplot as plt\ndf = pd.DataFrame({'a': range(500), 'b': range(500)})\ndf.a.plot()\nplt.show()\ndf"),
        done(r"figure 1, \d+×\d+ pixels", r"\[500 rows x 2 columns\]", image=True),
    ])
    answered(run)
    text = run.told[0]
    assert "<table" not in text and text.count("\n") < 30
    figure = run.of("outcome")[0]["outcome"]["figures"][0]
    assert figure["mime"] == "image/png" and figure["width"] > 300
    blind = agent(daemon, tmp_path, [
        code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"),
        done("which you cannot see: print the numbers"),
    ], "--no-vision")
    answered(blind)


def test_the_whole_output_lies_in_the_sandbox(daemon, tmp_path):
    answered(agent(daemon, tmp_path, [
        code("for i in range(5000):\n    print(i, 'x' * 10)"),
        code("print(len(open('/tmp/cells/1-1.txt').read().splitlines()))", expect=["all of it is in /tmp/cells/1-1.txt"]),
        done("5000"),
    ]))


def test_code_is_read_for_advice_and_not_held_back(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("import subprocess, requests\nwhile True:\n    if eval('True'):\n        break\nos.remove(__file__) if False else None\nprint(().__class__.__bases__)\nprint('ran')"),
        code("while 1:\n    pass", expect=["ran"]),
        DONE,
    ], "--cell-time", "4s")
    answered(run)
    first, second = ({(a["kind"], a["line"]) for a in e["outcome"]["advice"]} for e in run.of("outcome"))
    assert first == {("process", 1), ("network", 1), ("eval", 3), ("file_delete", 5), ("dunder", 6)}
    assert second == {("endless_loop", 1)}


# --- the life of runs ----------------------------------------------------------------------------------------------

def test_a_run_goes_on_after_the_daemon_was_killed(own_daemon, tmp_path):
    turns = [
        code("before = 41\nopen('count', 'a').write('x')\nimport time\nprint('began', flush=True)\ntime.sleep(4)\nprint('ended')"),
        code("print(before + 1, open('count').read())", expect=["began\nended"]),
        done("42 x\n"),
    ]
    with scripted(tmp_path, turns) as url:
        waiting = subprocess.Popen([BIN, "--json", "agent", "run", "Do it.", "--model", "openai:scripted", "--base-url", url],
                                   env=own_daemon.env, stdout=subprocess.PIPE, text=True)
        transcript = None
        deadline = time.monotonic() + 60
        while not (transcript and '"type":"cell"' in transcript.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            transcript = next((own_daemon.data / "agents").glob("*/transcript.jsonl"), None)
        own_daemon.kill9()
        own_daemon.start()
        out, _ = waiting.communicate(timeout=90)
    info = json.loads(out)
    assert (info["reason"], info["answer"], info["turns"], info["cells"]) == ("answer", "done", 3, 2), info
    assert transcript and '"type":"resumed"' in transcript.read_text()


def test_cancelled_from_elsewhere(daemon, tmp_path):
    with scripted(tmp_path, [code("import time\ntime.sleep(60)")], loop=True) as url:
        waiting = subprocess.Popen([BIN, "--json", "agent", "run", "Cancel me.", "--model", "openai:scripted", "--base-url", url, "--cell-time", "90s"],
                                   env=daemon.env, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        run = ""
        while not run:
            assert time.monotonic() < deadline
            runs = json.loads(cli(daemon, "--json", "agent", "ls").stdout)
            run = next((r["id"] for r in runs if r["task"] == "Cancel me." and r["cells"]), "")
        assert cli(daemon, "agent", "cancel", run).returncode == 0
        info = json.loads(waiting.communicate(timeout=30)[0])
    assert info["reason"] == "cancelled" and waiting.returncode == 1
    assert cli(daemon, "agent", "rm", run).returncode == 0
    assert cli(daemon, "agent", "show", run).returncode == 3


def test_what_becomes_of_the_sandbox(daemon, tmp_path):
    kept = agent(daemon, tmp_path, [code("x = 5\nprint(x)"), done("5")], "--keep", "keep")
    sb = pandastack.Sandbox.get(kept.info["sandbox_id"], api_url=daemon.url, api_key=daemon.key)
    assert sb.context(kept.info["id"]).run_code("x").text == "5"
    sb.kill()
    snapped = agent(daemon, tmp_path, [code("x = 5\nprint(x)"), done("5")], "--keep", "snapshot")
    copy = pandastack.Sandbox.create(from_snapshot=snapped.info["snapshot_id"], api_url=daemon.url, api_key=daemon.key)
    assert copy.context(snapped.info["id"]).run_code("x").text == "5"
    copy.kill()
    cli(daemon, "snapshot", "rm", snapped.info["snapshot_id"])


def test_what_a_sandbox_may_reach_and_use_is_asked_for(daemon, tmp_path):
    """The code reaches what was allowed and nothing else, and the model knows which; bad wishes are refused before anything runs."""
    page = http.server.ThreadingHTTPServer(("0.0.0.0", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))  # sends nothing
        here = f"{s.getsockname()[0]}:{page.server_address[1]}"
    reach = "import urllib.request\nfor host in ('%s', '%s'):\n    try:\n        print(urllib.request.urlopen('http://' + host, timeout=20).status)\n    except OSError as e:\n        print('no:', e)\n"
    run = agent(daemon, tmp_path, [
        code(reach % (here, here.partition(":")[0] + ":9")
             + "print(os.environ['OF_THE_TEST'], round(int(open('/proc/meminfo').readline().split()[1]) / 1024 / 100))"),
        done("ok in", "200\nno: .*refused.*\nyes 10"),
    ], "--allow", here, "--memory", 1024, "--disk", 200, "--env", "OF_THE_TEST=yes")
    page.shutdown()
    answered(run)
    assert f"of the network only {here}" in run.of("prompt")[0]["text"]
    for args, words in [
        (["--allow", "http://a.example"], "it is a URL: name its host"),
        (["--secret", "a.example=no-such-secret"], "no-such-secret"),
        (["--memory", 1], "memory_mb"),
        (["--template", "no-such-template"], "no-such-template"),
        (["--sandbox", "sb-x", "--memory", 512], "memory_mb is for a new sandbox"),
        (["--max-time", "1000h"], "limits.max_seconds"),
    ]:
        refused = cli(daemon, "agent", "run", "x", "--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", *args)
        assert refused.returncode in (2, 3) and words in refused.stderr, refused.stderr


def test_runs_are_shown(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nprint('shown')"), done("shown")], "--dialect", "text")
    text, markdown = (show(daemon, run.info["id"], how) for how in ("text", "markdown"))
    for page in (text, markdown):
        assert "plt.plot([1])" in page and "shown" in page and "You solve tasks by writing Python" in page and "done" in page
    notebook = json.loads(show(daemon, run.info["id"], "notebook"))
    kinds = [cell["cell_type"] for cell in notebook["cells"]]
    assert notebook["nbformat"] == 4 and kinds.count("code") == 2  # the first has what all cells find imported
    outputs = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][1]["outputs"]
    assert outputs[0]["data"]["image/png"].startswith("iVBOR") and outputs[1]["text"] == "shown\n"  # as they came
    listed = cli(daemon, "agent", "ls")
    assert run.info["id"] in listed.stdout and "answer" in listed.stdout
    # The replies of a run are played again, and the same comes of them.
    transcript = tmp_path / "again.jsonl"
    transcript.write_text(show(daemon, run.info["id"], "jsonl"))
    process = subprocess.Popen([BIN, "agent", "script", transcript], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    again = Run(daemon, cli(daemon, "--json", "agent", "run", "Do it.", "--model", "openai:scripted", "--base-url", process.stdout.readline().strip()))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    answered(again)
    assert [e["outcome"]["digest"] for e in again.of("outcome")] == [e["outcome"]["digest"] for e in run.of("outcome")]


def test_a_run_is_a_page_of_its_own(daemon, tmp_path):
    run = agent(daemon, tmp_path, [
        code("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nprint('<script>alert(1)</script>')"),
        code("1/0"),
        {"say": "FINAL ANSWER: <b>shown</b>"},
    ], task="Show <i>it</i>.")
    page = show(daemon, run.info["id"], "html")
    assert cli(daemon, "agent", "show", run.info["id"], "--html").stdout == page
    assert "<script" not in page and "<b>shown" not in page and "&lt;script&gt;alert(1)" in page and "Show &lt;i&gt;it" in page
    assert 'src="data:image/png;base64,iVBOR' in page and "<code>import matplotlib" in page and "ZeroDivisionError" in page and "TURN 2" in page
    assert not re.search(r'(src|href)="?(?!data:)[a-z]', page)  # nothing is fetched


def test_a_run_is_replayed(daemon, tmp_path):
    """The three scenes, a figure, an error and a file that was given: times aside, the same again. What differs is shown."""
    data = tmp_path / "sales.csv"
    data.write_text(SALES)
    turns = [{"say": say, "code": cell, "expect": expect} for say, cell, expect in SCENES]
    turns.append(code("import matplotlib.pyplot as plt\nplt.plot(list(totals.values()))\nplt.show()\nobject()"))
    turns.append(code("for i in range(60_000):\n    print(i, 'x' * 999)"))
    run = agent(daemon, tmp_path, [*turns, DONE], "--file", data)
    answered(run)
    again = cli(daemon, "agent", "replay", run.info["id"])
    assert again.returncode == 0 and "6 of 6 cells show the same" in again.stdout, again.stdout + again.stderr
    told = json.loads(cli(daemon, "--json", "agent", "replay", run.info["id"]).stdout)
    assert told["same"] and told["run"]["replay_of"] == run.info["id"] and told["run"]["answer"] == "done" and [c["turn"] for c in told["cells"]] == [1, 2, 3, 4, 5, 6]
    chance = agent(daemon, tmp_path, [code("print('always')\nprint('by chance', os.urandom(4).hex())"), DONE])
    differs = cli(daemon, "agent", "replay", chance.info["id"])
    assert differs.returncode == 1 and "turn 1, cell 1: differs" in differs.stdout and "  always" in differs.stdout and "- by chance" in differs.stdout and "+ by chance" in differs.stdout
    missing = cli(daemon, "agent", "replay", "ag-0000000000000000")
    assert missing.returncode == 3


def test_a_run_goes_on_another_way(daemon, tmp_path):
    """A fork has variables, files and words of before its turn, another model and another task; what comes out otherwise is named."""
    data = tmp_path / "n.txt"
    data.write_text("seven")
    first = agent(daemon, tmp_path, [
        code("x = open('n.txt').read()\nopen('made', 'w').write(x)\nprint(x)"), code("print(os.urandom(4))"), code("x = 'spoilt'"), {"say": "FINAL ANSWER: one way"}], "--file", data)
    answered(first, "one way")
    turns = [code("print(x, open('made').read())", expect=["In capitals, please."]), {"say": "FINAL ANSWER: SEVEN", "expect": ["seven seven"]}]
    with scripted(tmp_path, turns) as url:
        there = ["--model", "openai:another", "--base-url", url]
        fork = Run(daemon, cli(daemon, "--json", "agent", "fork", first.info["id"], "--at", 3, "--task", "In capitals, please.", *there))
    answered(fork, "SEVEN")
    assert (fork.info["fork_of"], fork.info["fork_at"], fork.info["model"], fork.info["task"], fork.info["turns"]) == (
        first.info["id"], 3, "openai:another", "In capitals, please.", 4)
    assert fork.of("forked")[0]["forked"] == {"of": first.info["id"], "at": 3, "cells": 2, "differ": ["turn 2, cell 1"]}
    assert fork.of("prompt")[0]["text"] == first.of("prompt")[0]["text"]
    words = f"from here on another way than {first.info['id']} at turn 3; the cells before ran again: 1 of 2 show the same, not turn 2, cell 1"
    assert words in show(daemon, fork.info["id"], "text") and words in show(daemon, fork.info["id"], "html")
    with scripted(tmp_path, [{"say": "FINAL ANSWER: a third way"}]) as url:
        runs = pandastack.Agent(api_url=daemon.url, api_key=daemon.key)
        third = runs.get(fork.info["id"]).fork(4, model="openai:scripted", base_url=url)
    assert (third.answer, third.info.fork_of, third.info.fork_at) == ("a third way", fork.info["id"], 4)
    for args, words in [(["--at", 5], "between 1 and 4"), (["--at", 1], "base_url")]:
        refused = cli(daemon, "agent", "fork", first.info["id"], *args)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr


def test_a_fork_is_restored_from_the_snapshot_that_its_run_kept(daemon, tmp_path):
    """It has the very variables and files, also those of chance, and nothing runs again; when the snapshot is gone, the cells do."""
    first = agent(daemon, tmp_path, [code("x = os.urandom(8).hex()\nopen('made', 'w').write(x)\nprint('x is', x)"), {"say": "FINAL ANSWER: one way"}], "--keep", "snapshot")
    x = re.search(r"x is (\w{16})", first.told[0])[1]
    turns = [code("print(x, x == open('made').read())", expect=["In capitals, please."]), {"say": "FINAL ANSWER: another way", "expect": [f"{x} True"]}]
    with scripted(tmp_path, turns) as url:
        fork = Run(daemon, cli(daemon, "--json", "agent", "fork", first.info["id"], "--at", 2, "--task", "In capitals, please.", "--model", "openai:scripted", "--base-url", url))
    answered(fork, "another way")
    snapshot = first.info["snapshot_id"]
    assert fork.of("forked")[0]["forked"] == {"of": first.info["id"], "at": 2, "snapshot_id": snapshot, "cells": 0}
    assert fork.of("prompt")[0]["text"] == first.of("prompt")[0]["text"] and fork.of("outcome")[0]["outcome"] == first.of("outcome")[0]["outcome"]
    assert f"the state before it was restored from the snapshot {snapshot}" in show(daemon, fork.info["id"], "text")

    assert cli(daemon, "snapshot", "rm", snapshot).returncode == 0
    with scripted(tmp_path, [{"say": "FINAL ANSWER: x", "expect": [r"x is \w{16}"]}]) as url:
        again = Run(daemon, cli(daemon, "--json", "agent", "fork", first.info["id"], "--at", 2, "--model", "openai:scripted", "--base-url", url))
    assert again.of("forked")[0]["forked"] == {"of": first.info["id"], "at": 2, "cells": 1, "differ": ["turn 1, cell 1"]}
    assert again.of("sandbox")[0]["note"].startswith(f"the snapshot {snapshot}, which has the state of {first.info['id']}, cannot be restored: ")


def test_from_python(daemon, tmp_path):
    heard = []
    turns = [code("print(open('n.txt').read())"), {"code": "final_answer({'n': 7})", "expect": ["seven"]}]
    with scripted(tmp_path, turns) as url:
        agent = pandastack.Agent("openai:scripted", base_url=url, limits={"max_turns": 5}, api_url=daemon.url, api_key=daemon.key)
        run = agent.run("Read it.", files={"n.txt": "seven"}, metadata={"of": "test"}, on_event=heard.append)
    assert (run.answer, run.reason, run.info.turns, run.info.metadata) == ("{'n': 7}", "answer", 2, {"of": "test"})
    kinds = [event.type for event in heard]
    assert kinds[0] == "started" and kinds[-1] == "ended" and "delta" in kinds and "output" in kinds
    assert "".join(event.text for event in heard if event.type == "delta" and event.turn == 1).startswith("I look.")
    assert agent.get(run.id).answer == run.answer and run.id in [r.id for r in agent.runs()]


def test_what_cannot_work_is_refused(daemon):
    for args, words in [
        (["--model", "nobody:x"], "there is no provider"),
        (["--model", "openai"], "PROVIDER:NAME"),
        (["--model", "openai:x"], "there is no key for the provider openai"),
        ([], "no model is named"),
        (["--model", "openai:x", "--base-url", "ftp://x"], "base_url"),
        (["--model", "openai:x", "--base-url", "http://127.0.0.1:9/v1", "--max-cost", "1"], "needs the model's price"),
    ]:
        refused = cli(daemon, "agent", "run", "x", *args)
        assert refused.returncode == 2 and words in refused.stderr, refused.stderr


def test_analyst(daemon, tmp_path):
    (tmp_path / "sales.csv").write_text("region,sales\nNorth,1\nSouth,2\n")
    (tmp_path / "more data.csv").write_text("region,sales\nWest,3\n")
    turns = [
        code("import pandas as pd, matplotlib.pyplot as plt\ndf = pd.concat(map(pd.read_csv, ['sales.csv', 'more data.csv']))\ndf.plot(); plt.show()\nprint('sum', df.sales.sum())"),
        {**done(r"sum 6", image=True), "say": "FINAL ANSWER: West"},
    ]
    ask = ["--json", "analyst", tmp_path / "sales.csv", tmp_path / "more data.csv", "Which region sold most?", "--charts", tmp_path / "out"]
    with scripted(tmp_path, turns) as url:
        said = cli(daemon, *ask, "--model", "openai:scripted", "--base-url", url)
    assert said.returncode == 0, said.stderr
    answer = json.loads(said.stdout)
    assert (answer["answer"], answer["charts"]) == ("West", [str(tmp_path / "out" / "chart-1.png")])
    assert (tmp_path / "out" / "chart-1.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(pandastack.NotFoundError):
        pandastack.Sandbox.get(answer["sandbox_id"], api_url=daemon.url, api_key=daemon.key)
    assert cli(daemon, "analyst", "no question").returncode == 2
    assert cli(daemon, "analyst", tmp_path / "none.csv", "How much?").returncode == 2
