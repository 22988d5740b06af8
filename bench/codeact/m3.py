"""Plays the published M3ToolEval from a checkout (github.com/xingyaoww/code-act, MIT), of which nothing is in this repository.

The arm "JSON" speaks the benchmark's own format with its own prompts, one call a turn; the arm "code" is the agent loop, with the
benchmark's tools as functions of this program. A model has ten turns in both, as in the published runs; a perfect player has as many as it needs,
and what it does within ten is counted apart. JSON is shown 2000 characters of a result. What a perfect player
does is derived from the checkout: calls are recorded while the benchmark works out its own expected outputs, code is the expression by which it does,
and on its web site somebody clicks by what links are called. A real model plays when one is named. In both arms the first answer counts, while
the published program lets a model try again.

An answer is scored twice: as the benchmark's `check_answer` does, and corrected. That refuses "380.42" where 380.41999999999996 is
expected and two decimals are asked for; and two links of its site lead nowhere, since pages are named otherwise. Corrected, numbers are right when
they are within half a cent, and such pages have the name of their links.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import json
import math
import os
import re
import sys
import types
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon import Daemon
from pandastack import Agent

from . import report
from .arms import fenced, shown
from .counting import Message, Reply, Request, Tokens
from .pack import Cell
from .player import Player

TURNS = 10  # of the published runs
JSON, CODE = "JSON, one call a turn", "code"
FORMATS = {"str": str, "int": int, "float": int | float, "bool": bool, "dict": dict}  # a whole number stays one


# --- the checkout ---------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A call that was recorded while the benchmark was loaded."""

    code: types.CodeType
    arguments: list[Any]
    result: Any
    within: list[types.CodeType]  # calls that it is a part of


@dataclass
class Gold:
    """What was seen of a task when it was made: calls since the task before, and where it stands."""

    calls: list[Made]
    file: str
    line: int


class Recorder:
    """Notes calls of functions of the benchmark, and the making of tasks, while it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._open: list[tuple[types.FrameType, Made]] = []
        self._calls: list[Made] = []
        self.gold: dict[str, Gold] = {}

    def __enter__(self) -> "Recorder":
        sys.setprofile(self._saw)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)

    def _saw(self, frame: types.FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._folder):
            return
        if event == "return":
            if self._open and self._open[-1][0] is frame:
                self._open.pop()[1].result = value
        elif event == "call" and code.co_name == "__init__" and "is_single_tool_task" in code.co_varnames:
            assert frame.f_back
            self.gold[frame.f_locals["name"]] = Gold(self._calls, frame.f_back.f_code.co_filename, frame.f_back.f_lineno)
            self._calls = []
        elif event == "call" and code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<"):
            names = code.co_varnames[: code.co_argcount]
            arguments = [frame.f_locals[name] for name in names]
            if code.co_flags & inspect.CO_VARARGS:
                arguments += frame.f_locals[code.co_varnames[code.co_argcount + code.co_kwonlyargcount]]
            made = Made(code, arguments, None, [each.code for _, each in self._open])
            self._open.append((frame, made))
            self._calls.append(made)


@dataclass
class Checkout:
    tasks: list[Any]  # the benchmark's own
    modes: Any  # its ActionMode
    gold: dict[str, Gold]


def load(folder: Path) -> Checkout:
    """Loads the benchmark.

    Args:
        folder: the repository, or the folder m3tooleval in it.

    Raises:
        SystemExit: it is not there.
    """
    for place in (folder, folder / "scripts" / "eval" / "m3tooleval"):
        if (place / "tasks" / "base.py").exists():
            break
    else:
        raise SystemExit(f"there is no M3ToolEval in {folder}: name a checkout of github.com/xingyaoww/code-act, with scripts/eval/m3tooleval in it")
    place = place.resolve()
    # It shows a bar of progress with tqdm, and runs code of its own arm in IPython; neither is needed here.
    missing = {"tqdm": {"tqdm": lambda *a, **k: types.SimpleNamespace(update=lambda n: None)}}
    missing |= {"IPython": {}, "IPython.core": {}, "IPython.core.interactiveshell": {"InteractiveShell": object}, "IPython.utils": {"io": None}}
    for name, holds in missing.items():
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(holds)
    sys.path.insert(0, str(place))
    for name in [name for name in sys.modules if name == "tasks" or name.startswith("tasks.")]:
        del sys.modules[name]  # of another checkout
    try:
        with contextlib.redirect_stdout(io.StringIO()), Recorder(place / "tasks") as recorder:
            package = importlib.import_module("tasks")
        return Checkout(list(package.get_task_iterator()), package.ActionMode, recorder.gold)
    finally:
        sys.path.remove(str(place))


# --- tools as functions of this program -----------------------------------------------------------------------------


def parameters(tool: Any) -> tuple[list[str], str]:
    """The names of a tool's parameters, and that of the one which takes any number of values, "" without one."""
    try:
        signature = inspect.signature(tool.function)
    except ValueError:  # such as max
        return [], "args"
    several = [p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]
    return [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD], several[0] if several else ""


def wrapped(tool: Any) -> Callable[..., Any]:
    """A tool as a function whose arguments go by name; one that takes any number of values takes a list of them."""
    names, several = parameters(tool)

    def function(**given: Any) -> Any:
        return tool.function(*(given[name] for name in names), *(given[several] if several else ()))

    types_of = dict(re.findall(r"(\w+): (\w+)", tool.fn_signature))
    hints: dict[str, Any] = {name: FORMATS.get(types_of.get(name, ""), Any) for name in names}
    if several:
        hints[several] = list
    returns = re.search(r"-> (\w+)$", tool.fn_signature)
    own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in hints]
    function.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    function.__annotations__ = {**hints, "return": FORMATS.get(returns[1], Any) if returns else Any}
    function.__name__, function.__doc__ = tool.name, tool.description
    return function


# --- a perfect player of the benchmark ------------------------------------------------------------------------------


@dataclass
class Play:
    """What a perfect player does: calls with their arguments, code, and its answer; None where it could not be derived."""

    calls: list[tuple[str, list[Any]]] = field(default_factory=list)
    code: list[Cell] | None = None
    answer: str = ""
    read: Callable[[str], str] | None = None  # the answer off what the last cell printed; without it, that is the answer


def asked_for(task: Any, value: Any) -> str:
    """A value in the form in which a task asks for it."""
    if "'xx.xx'" in task.instruction:
        return f"{float(value):.2f}"
    return str(value)


def derive(checkout: Checkout, task: Any) -> Play:
    gold = checkout.gold[task.name]
    if "click_url" in task.tools:
        return browse(task)
    by_code = {tool.function.__code__: name for name, tool in task.tools.items() if hasattr(tool.function, "__code__")}
    calls: list[tuple[str, list[Any]]] = []
    for made in gold.calls:
        each = by_code.get(made.code, ""), made.arguments
        if each[0] and not any(code in by_code for code in made.within) and each not in calls:  # what was told once is known
            calls.append(each)
    return Play(calls, cells(task, gold), asked_for(task, task.expected_output))


def cells(task: Any, gold: Gold) -> list[Cell] | None:
    """The expression of an expected output as code over `tools`; None when it is not written beside the task."""
    tree = ast.parse(Path(gold.file).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Task" and node.lineno <= gold.line <= (node.end_lineno or 0):
            expression = next((k.value for k in node.keywords if k.arg == "expected_output"), None)
            if expression is None:
                return None
            module = next(m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == gold.file)
            return [Translator(task, module, tree).cell(expression)]
    return None


class Translator(ast.NodeTransformer):
    """Makes calls of tools go by name, and finds what an expression needs from its module."""

    def __init__(self, task: Any, module: types.ModuleType, tree: ast.Module) -> None:
        self._task, self._module, self._tree = task, module, tree
        self._tools = {id(tool.function): tool for tool in task.tools.values()}
        self.imports: dict[str, None] = {}
        self.needs: dict[str, str] = {}

    def cell(self, expression: ast.expr) -> str:
        value = ast.unparse(self.visit(expression))
        last = f"print(f'{{{value}:.2f}}')" if "'xx.xx'" in self._task.instruction else f"print({value})"
        return "\n".join([f"from tools import {', '.join(self.imports)}", *self.needs.values(), last])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        tool = self._tools.get(id(getattr(self._module, node.func.id, None))) if isinstance(node.func, ast.Name) else None
        self.generic_visit(node)
        if tool is None:
            return node
        names, several = parameters(tool)
        given = [ast.keyword(name, value) for name, value in zip(names, node.args)] + node.keywords
        if several:
            given.append(ast.keyword(several, ast.List(node.args[len(names) :], ast.Load())))
        return ast.Call(ast.Name(tool.name, ast.Load()), [], given)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = node.id
        if name in self.needs or name in self.imports or not isinstance(node.ctx, ast.Load) or hasattr(builtins, name) or not hasattr(self._module, name):
            return node
        value = getattr(self._module, name)
        if tool := self._tools.get(id(value)):
            self.imports[tool.name] = None
        elif isinstance(value, types.FunctionType):
            definition = next(n for n in ast.walk(self._tree) if isinstance(n, ast.FunctionDef) and n.name == name)
            self.needs[name] = ""
            self.needs[name] = ast.unparse(self.visit(definition))
        elif not isinstance(value, (types.ModuleType, type)):
            self.needs[name] = f"{name} = {value!r}"
        return node


LINK = re.compile(r"\[Clickable '([^']+)'\]")


class Visitor:
    """Somebody at the benchmark's site, who sees five lines at a time and goes where the names of links point."""

    def __init__(self, task: Any) -> None:
        self._tools = task.tools() if callable(task.tools) else task.tools
        self.calls: list[tuple[str, list[Any]]] = []

    def do(self, tool: str, *arguments: Any) -> str:
        self.calls.append((tool, list(arguments)))
        return str(self._tools[tool].function(*arguments))

    def read(self, address: str, enough: Callable[[str], bool] = lambda text: False) -> str:
        """A page, read on until there is enough of it, or to its end."""
        text = self.do("click_url", address) if address != "/" else self.do("view")
        while not enough(text) and (pages := re.search(r"\[Viewing page (\d+) of (\d+)\](?!.*\[Viewing)", text, re.DOTALL)) and int(pages[1]) < int(pages[2]):
            more = self.do("scroll_down")
            text += "\n" + more
            if more.startswith("[Reached"):
                break
        return text

    def section(self, address: str) -> str:
        """The page of a section, by way of the front page, which has to be read as far as its link."""
        self.read("/", lambda text: f"'{address}'" in text)
        return self.read(address)

    def find(self, section: str, slug: str) -> str:
        """The page in a section whose link has a name, which one of the lists of that section has."""
        for index in LINK.findall(self.section(section)):
            text = self.read(index, lambda text: f"/{slug}'" in text)
            if f"/{slug}'" in text:
                return self.read(next(link for link in LINK.findall(text) if link.endswith("/" + slug)))
        raise LookupError(f"no link leads to {slug}")


CRAWL = """\
import re
from tools import click_url, view, scroll_down
pages, todo = {}, ['/']
while todo:
    if (a := todo.pop()) in pages: continue
    t = view() if a == '/' else click_url(url=a)
    for _ in range(9):
        m = scroll_down()
        if m.startswith('[Reached'): break
        t += m
    pages[a] = t
    todo += re.findall(r"\\[Clickable '([^']+)'\\]", t)
print(*(t for a, t in pages.items() if %s), sep='\\n')"""
SEEN = {"email": r"Email: (\S+)", "department": r"of (.+) Department", "phone number": r"Phone: (\S+)", "expertise": r"Expertise: (\S+/.+)"}
PRICE = r"Price: \$([\d.]+)(?!.*Price)"


def slug(name: str) -> str:
    return name.strip().lower().replace(" ", "_")


def reads(pattern: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        found = re.search(pattern, text)
        return found[1] if found else ""

    return read


def browse(task: Any) -> Play:
    """Clicks, and code that crawls and prints what has to do with the task. What cannot be reached by clicks has no play."""
    with contextlib.suppress(LookupError):
        return _browse(task)
    return Play()


def _browse(task: Any) -> Play:
    words, somebody, answer = task.instruction, Visitor(task), asked_for(task, task.expected_output)
    if found := re.search(r"total price of \[([^\]]+)\](.*10% off)?", words):
        names = [slug(name) for name in found[1].split(",")]
        prices = " + ".join(re.findall(PRICE, somebody.find("/products", name))[-1] for name in names)
        somebody.do("calculator", f"({prices}) * 0.9" if found[2] else prices)
        less = " * 0.9" if found[2] else ""
        cells: list[Cell] = [CRAWL % f"any(n in t for n in {[name.strip() for name in found[1].split(',')]})", lambda told: f"print(f'{{({' + '.join(re.findall(PRICE, told))}){less}:.2f}}')"]
        return Play(somebody.calls, cells, answer)
    if found := re.search(r"current price of ([^.]+)\.", words):
        somebody.find("/products", slug(found[1]))
        return Play(somebody.calls, [CRAWL % f"'{found[1]}' in t"], answer, reads(PRICE))
    if found := re.search(r"Find the (email|department|phone number|expertise) of ([^.]+)\.", words):
        somebody.find("/team", slug(found[2]))
        return Play(somebody.calls, [CRAWL % f"'{found[2]}' in t"], answer, reads(SEEN[found[1]]))
    if found := re.search(r"people are in the (.+) Department", words):
        department = f"{found[1]} Department"
        link = next(link for link in LINK.findall(somebody.section("/team")) if link.endswith(slug(found[1])))
        if "not found" in somebody.read(link):
            raise LookupError(link)
        return Play(somebody.calls, [CRAWL % f"'{department}' in t"], answer, lambda text: str(text.count(department)))
    if found := re.search(r"person's phone number is (\S+)\?", words):
        for index in LINK.findall(somebody.section("/team")):
            for link in LINK.findall(somebody.read(index)):
                if f"Phone: {found[1]}" in somebody.read(link):
                    return Play(somebody.calls, [CRAWL % f"'{found[1]}' in t"], answer, reads(r"(.+) of .+ Department"))
    raise LookupError(words)


# --- playing --------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    arm: str
    task: str
    answer: str
    shipped: bool
    corrected: bool
    turns: int
    requests: list[Request]
    replies: list[Reply]


def fair(answer: str, expected: Any) -> bool:
    """Whether an answer is right for somebody who reads it."""
    with contextlib.suppress(ValueError, SyntaxError):
        answer_value = ast.literal_eval(answer.strip())
        if isinstance(expected, (list, tuple)):
            return isinstance(answer_value, (list, tuple)) and len(answer_value) == len(expected) and all(map(fair, map(repr, answer_value), expected))
        if isinstance(expected, (int, float)) and not isinstance(expected, bool) and isinstance(answer_value, (int, float)):
            return math.isclose(answer_value, expected, abs_tol=0.005 + 1e-9, rel_tol=1e-9)
        if answer_value == expected:
            return True
    return answer.strip().strip("'\"") == str(expected)


def result(task: Any, arm: str, answer: str, requests: list[Request], replies: list[Reply]) -> Result:
    with contextlib.redirect_stdout(io.StringIO()):
        shipped = bool(task.check_answer(answer))
    return Result(arm, task.name, answer, shipped, fair(answer, task.expected_output), len(replies), requests, replies)


def play_json(checkout: Checkout, task: Any, say: Callable[[list[Message]], str], most: int = TURNS) -> Result:
    """The benchmark's own loop: its prompt, its format, its truncation, and at most so many turns."""
    mode = checkout.modes.JSON_AS_ACTION
    said = [Message("user", task.get_prompt(mode))]
    requests, replies, answer = [], [], ""
    while len(replies) < most:
        requests.append(Request("", [], list(said)))
        text = say(said)
        replies.append(Reply(text))
        said.append(Message("assistant", text))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parsed = task.parse_generation(text)
            if parsed["type"] == "answer":
                answer = parsed["content"]
                break
            told = str(task.execute_action(parsed["content"], mode)) if parsed["type"] == "action" else parsed["content"]
        said.append(Message("user", told))
    return result(task, JSON, answer, requests, replies)


def gold_json(play: Play) -> Iterator[str]:
    for tool, arguments in play.calls:
        yield f"Action: {json.dumps({'tool': tool, 'args': arguments})} End Action"
    yield f"Answer: {play.answer}"


def gold_code(play: Play) -> Iterator[Reply]:
    told: Any = ""
    try:
        for cell in play.code or []:
            told = yield Reply(fenced(cell(shown(told)) if callable(cell) else cell))
        text = shown(told)
    except ValueError as error:
        text = str(error)
    else:
        text = play.read(text) if play.read else text
    yield Reply(f"FINAL ANSWER: {text}")


def play_code(task: Any, daemon: Daemon, **model: Any) -> tuple[str, Any]:
    """In the agent loop; the answer, and the run."""
    agent = Agent(
        tools=[wrapped(tool) for tool in task.tools.values()], limits={"max_turns": TURNS}, api_url=daemon.url, api_key=daemon.key,
        instructions="Answer with what is asked for only, such as a single number, without any other text.", **model,
    )
    run = agent.run(task.instruction)
    return run.answer or "", run


def real_json(model: str, base_url: str | None, key: str) -> Callable[[list[Message]], str]:
    """Asks a real model, over its provider's HTTP."""
    provider, _, name = model.partition(":")
    body: dict[str, Any] = {"model": name, "max_tokens": 512, "temperature": 0}
    if provider == "anthropic":
        url, headers = f"{(base_url or 'https://api.anthropic.com').removesuffix('/v1')}/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}
    else:
        url, headers = f"{base_url or 'https://api.openai.com/v1'}/chat/completions", {"Authorization": f"Bearer {key}"}

    def say(said: list[Message]) -> str:
        raw = json.dumps({**body, "messages": [{"role": m.role, "content": m.text} for m in said]}).encode()
        request = urllib.request.Request(url, raw, {"Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=300) as answered:
            got = json.load(answered)
        return str(got["content"][0]["text"] if provider == "anthropic" else got["choices"][0]["message"]["content"] or "")

    return say


def reachable() -> None:
    """Gives pages of the site the names by which links call them, where they differ by a stroke."""
    for module in [m for name, m in sys.modules.items() if name.startswith("tasks.") and hasattr(m, "PAGES")]:
        links = {link for page in module.PAGES for link in LINK.findall(page.content)}
        names = {page.name for page in module.PAGES}
        for page in module.PAGES:
            for link in links - names:
                if link.replace("_", "-") == page.name.replace("_", "-"):
                    page.name = link


def play_all(checkout: Checkout, tasks: list[Any], model: str | None, base_url: str | None) -> tuple[list[Result], list[str]]:
    """Results of both arms, and the tasks for which no play could be derived."""
    results, underived = [], []
    key = os.environ.get("PANDASTACK_MODEL_KEY") or os.environ.get(f"{(model or '').partition(':')[0].upper()}_API_KEY", "")
    daemon = Daemon(pool_ready=2, pool_prepared=1).start()
    try:
        with Player() as player:
            for task in tasks:
                with contextlib.redirect_stdout(io.StringIO()):
                    task.reset()
                if model:
                    results.append(play_json(checkout, task, real_json(model, base_url, key)))
                    answer, run = play_code(fresh(task), daemon, model=model, base_url=base_url, model_key=key or None)
                    replies = [Reply()] * run.info.turns
                    results.append(result(task, CODE, answer, [], replies))
                    continue
                play = derive(checkout, fresh(task))
                if not play.calls or play.code is None:
                    underived.append(task.name)
                    continue
                replies_of = gold_json(play)
                results.append(play_json(checkout, fresh(task), lambda said, replies_of=replies_of: next(replies_of), most=len(play.calls) + 1))
                game, url = player.game(gold_code(play))
                answer, run = play_code(fresh(task), daemon, model="openai:player", base_url=url)
                results.append(result(task, CODE, answer, game.requests, game.replies))
    finally:
        daemon.stop()
        daemon.remove()
    return results, underived


def fresh(task: Any) -> Any:
    """The task with a browser of its own, at the front page, where it has one."""
    if "click_url" in task.tools:
        task.tools = next(m for name, m in sys.modules.items() if name.startswith("tasks.") and hasattr(m, "create_tools")).create_tools()
    return task


def tables(results: list[Result], underived: list[str], model: str | None) -> str:
    out = []
    rows = [["arm", "tasks", "right, as shipped", "right, corrected", f"corrected, in {TURNS} turns", "turns"]]
    for arm in (JSON, CODE):
        own = [r for r in results if r.arm == arm]
        if own:
            shares = [f"{n} ({100 * n / len(own):.1f} %)" for n in (sum(r.shipped for r in own), sum(r.corrected for r in own), sum(r.corrected and r.turns <= TURNS for r in own))]
            rows.append([arm, str(len(own)), *shares, f"{sum(r.turns for r in own) / len(own):.2f}"])
    out.append(report.table(rows))
    if not model:
        tokens, costs = Tokens(), {}
        for r in results:
            tokens.note(text for request in r.requests for m in request.messages for text in [m.text])
            tokens.note(text for request in r.requests for text in [request.system])
            tokens.note(reply.text for reply in r.replies)
        for r in results:
            spent = sum(tokens.count([request.system, *(m.text for m in request.messages)]) for request in r.requests)
            costs.setdefault(r.task, {})[r.arm] = report.Cost(r.turns, 0, spent, tokens.count(reply.text for reply in r.replies), 0, 0)
        both = {name: arms for name, arms in costs.items() if len(arms) == 2 and all(r.corrected for r in results if r.task == name)}
        rows = [["family (right in both)", "turns: JSON", "code", "input: JSON", "code", "code ÷ JSON"]]
        for family in [*dict.fromkeys(name.partition("/")[0] for name in both), ""]:
            own = {name: arms for name, arms in both.items() if name.startswith(family + "/") or not family}
            json_sum, code_sum = (report.summed(own, arm, JSON) for arm in (JSON, CODE))
            rows.append([f"{family or 'all'} ({len(own)})", f"{json_sum.turns:.2f}", f"{code_sum.turns:.2f}", f"{json_sum.input:,.0f}", f"{code_sum.input:,.0f}", f"{code_sum.ratio:.2f}"])
        out.append(report.table(rows))
    for arm in (JSON, CODE):
        wrong = [f"{r.task} ({r.answer[:60]!r})" for r in results if r.arm == arm and not r.corrected]
        refused = [r.task for r in results if r.arm == arm and r.corrected and not r.shipped]
        if wrong:
            out.append(f"{arm}, wrong: {', '.join(wrong)}")
        if refused:
            out.append(f"{arm}, right but refused as shipped: {', '.join(refused)}")
    if underived:
        out.append(f"no play was derived: {', '.join(underived)}")
    return "\n\n".join(out)


def main(folder: Path, model: str | None, base_url: str | None, only: str) -> int:
    checkout = load(folder)
    print(f"{len(checkout.tasks)} tasks\n")
    chosen = [task for task in checkout.tasks if re.search(only, task.name)]
    results, underived = play_all(checkout, chosen, model, base_url)
    print(f"## As it is\n\n{tables(results, underived, model)}\n", flush=True)
    web = [task for task in chosen if "click_url" in task.tools]
    if web:
        reachable()
        others = [r for r in results if r.task not in {task.name for task in web}]
        results, underived = play_all(checkout, web, model, base_url)
        print(f"## With all pages of its site reachable\n\n{tables(others + results, underived, model)}\n", flush=True)
    return 0
