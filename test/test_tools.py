"""Functions outside of a sandbox, called by Python inside: of this program, of an HTTP service, of an MCP server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from daemon import BIN, ROOT, Daemon, free_port
from sites import JSONHandler
from test_agent import code, done, scripted

import pandastack
from pandastack import Sandbox

SECRET = "tk-5c1f0e7a9b3d4862"


class Service:
    """An HTTP service with an OpenAPI document. It wants a key."""

    def __init__(self) -> None:
        outer = self
        self.seen: list[str] = []

        class Handler(JSONHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] == "/openapi.json":
                    return self.answer(200, outer.document)
                if self.headers.get("Authorization") != f"Bearer {SECRET}":
                    return self.answer(401, {"error": "who are you?"})
                outer.seen.append(self.path)
                if self.path.startswith("/customers/"):
                    return self.answer(404, {"error": f"none; you sent {self.headers['Authorization']}"})
                self.answer(200, [{"id": 7, "email": self.path.partition("email=")[2].replace("%40", "@")}])

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append(json.dumps(body))
                self.answer(201, {"id": 8, **body})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def document(self) -> dict[str, Any]:
        customer = {"type": "object", "required": ["id", "email"], "properties": {"id": {"type": "integer"}, "email": {"type": "string"}}}
        answer = {"content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Customer"}}}}}
        return {
            "openapi": "3.1.0",
            "servers": [{"url": self.url}],
            "components": {"schemas": {"Customer": customer}},
            "paths": {
                "/customers": {
                    "get": {
                        "operationId": "find_customer",
                        "summary": "Find customers.",
                        "parameters": [{"name": "email", "in": "query", "required": True, "description": "Of the customer.", "schema": {"type": "string"}}],
                        "responses": {"200": answer},
                    },
                    "post": {
                        "operationId": "add_customer",
                        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
                        "responses": {"201": {}},
                    },
                },
                "/customers/{id}": {"get": {"operationId": "get_customer", "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}], "responses": {"200": {}}}},
            },
        }


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()


@dataclass
class Order:
    number: int
    goods: list[str]


def total(order: Order, currency: Literal["EUR", "USD"] = "EUR") -> dict[str, Any]:
    """Add an order up.

    Args:
        order: what was ordered.
        currency: to count in.
    """
    return {"order": order.number, "total": len(order.goods) * 10, "currency": currency}


async def slow_double(n: int) -> int:
    """Twice the number, a little later."""
    await asyncio.sleep(0)
    return 2 * n


def fail(why: str) -> None:
    """Raises."""
    raise LookupError(why)


def make(daemon: Daemon, tools: Any, **options: Any) -> Sandbox:
    return Sandbox.create(template="code-interpreter", ttl_seconds=1800, tools=tools, api_url=daemon.url, api_key=daemon.key, **options)


def run(sb: Sandbox, code: str, **options: Any) -> str:
    """What a cell prints. It must end well."""
    done = sb.run_code(code, **options)
    assert done.error is None, done.error
    return done.stdout.strip()


def said(daemon: Daemon, *words: str) -> str:
    """What the command line says of a sandbox."""
    return subprocess.run([BIN, "sandbox", *words], env=daemon.env, capture_output=True, text=True, check=True, timeout=60).stdout


def test_functions_of_this_program(daemon: Daemon) -> None:
    with make(daemon, [total, slow_double, {"ns": [fail]}]) as sb:
        assert [t.name for t in sb.tools.list()] == ["ns.fail", "slow_double", "total"]
        out = run(sb, """
import inspect, tools
from tools import total, slow_double
print(inspect.signature(total))
print(total({"number": 3, "goods": ["tea", "milk"]}, currency="USD"))
print(slow_double(n=21))
help(total)
""")
        assert out.startswith("""(order: 'Total_order', currency: "Literal['EUR', 'USD']" = Ellipsis) -> 'dict[str, Any]'\n"""), out
        assert "{'order': 3, 'total': 20, 'currency': 'USD'}\n42\n" in out
        assert "Add an order up." in out and "currency: to count in." in out
        all_of_it = "space = {}\nexec('from tools import *\\nfrom tools.ns import *', space)\nprint(*sorted(n for n in space if callable(space[n])))"
        assert run(sb, all_of_it).split() == ["ToolDenied", "ToolError", "ToolTimeout", "fail", "search", "slow_double", "total"]
        out = run(sb, """
from tools import ns, ToolError
for wrong in (lambda: ns.fail(why="no such thing"), lambda: total(order=7), lambda: ns.fial(why="x")):
    try: wrong()
    except Exception as error: print(type(error).__name__, getattr(error, "kind", ""), error)
print(tools.search("add up what was ordered")[0])
""")
        first, second, third, found = out.splitlines()
        assert first == "ToolError failed ns.fail: LookupError: no such thing"
        assert second.startswith("ToolError invalid total: order: ") and "total(order: Total_order" in second
        assert third == "AttributeError  there is no tool 'ns.fial'; did you mean fail?"
        assert found.startswith("total(")
        kinds = [c.kind for c in sb.tools.calls()]
        assert kinds == ["ok", "ok", "failed", "invalid"]
        shown = [line.split(maxsplit=4) for line in said(daemon, "tools", sb.id).splitlines()]
        assert shown[0] == ["NAME", "FROM", "RISKY", "STATE", "SIGNATURE"]
        assert [line[:4] for line in shown[1:]] == [[name, "function", "-", "connected"] for name in ("ns.fail", "slow_double", "total")]
        calls = [line.split(maxsplit=4) for line in said(daemon, "tools", sb.id, "--calls").splitlines()]
        assert [line[2:4] for line in calls[1:]] == [["total", "ok"], ["slow_double", "ok"], ["ns.fail", "failed"], ["total", "invalid"]]
        assert "LookupError: no such thing" in calls[3][4]
        told = json.loads(said(daemon, "tools", sb.id, "--calls", "--limit", "1", "--json"))
        assert [(c["tool"], c["kind"]) for c in told] == [("total", "invalid")] and told[0]["duration_ms"] >= 0
    assert sb.tools._line is None


def test_asynchronous_functions_run_in_the_callers_loop(daemon: Daemon) -> None:
    async def both() -> None:
        mine = asyncio.get_running_loop()

        async def which() -> bool:
            return asyncio.get_running_loop() is mine

        sb = await pandastack.AsyncSandbox.create(template="code-interpreter", tools=[which, slow_double], api_url=daemon.url, api_key=daemon.key)
        async with sb:
            done = await sb.run_code("from tools import aio\nimport asyncio\nprint(await aio.which(), await asyncio.gather(*(aio.slow_double(n=n) for n in range(100))) == [2*n for n in range(100)])")
            assert done.stdout == "True True\n", done.error

    asyncio.run(both())


def test_a_hundred_at_once(daemon: Daemon) -> None:
    here: list[int] = []

    async def meet(n: int) -> int:
        """Returns when a hundred calls are here."""
        here.append(n)
        while len(here) < 100:
            await asyncio.sleep(0.01)
        return n

    def add(a: int, b: int) -> int:
        return a + b

    with make(daemon, [meet, add]) as sb:
        out = run(sb, """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from tools import add, aio
print(await asyncio.gather(*(aio.meet(n=n) for n in range(100))) == list(range(100)))
with ThreadPoolExecutor(20) as pool:
    print(sum(pool.map(lambda n: add(a=n, b=1), range(100))))
""", timeout_seconds=120)
        assert out == "True\n5050"


@pytest.mark.slow
def test_ten_thousand_in_one_cell(daemon: Daemon) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with make(daemon, [add]) as sb:
        out = run(sb, "from tools import add\nn = 0\nfor _ in range(10_000): n = add(a=n, b=1)\nprint(n)", timeout_seconds=1500)
        assert out == "10000"


def test_tools_that_misbehave(daemon: Daemon) -> None:
    hangs, released = threading.Event(), threading.Event()

    @pandastack.tool(timeout_seconds=1)
    def hang() -> None:
        hangs.set()
        released.wait(60)

    def big(megabytes: int) -> str:
        return "x" * (megabytes << 20)

    def odd() -> Any:
        return object()

    def nan() -> float:
        return float("nan")

    class Unreadable(Exception):
        kind = 5

        def __str__(self) -> str:
            raise ValueError("no words")

    def raises() -> None:
        raise Unreadable

    def length(text: str) -> int:
        return len(text)

    with make(daemon, [hang, big, odd, nan, raises, length]) as sb:
        out = run(sb, """
from tools import hang, big, odd, nan, raises, length, aio, ToolError
def kind(f, **given):
    try: return len(f(**given))
    except ToolError as error: return error.kind, isinstance(error, TimeoutError), str(error)
print(kind(hang)[:2])
print(kind(big, megabytes=50) == 50 << 20)
print(kind(big, megabytes=70)[0])
print(kind(odd))
print(kind(nan)[0])
print(kind(raises))
print(kind(length, text="x" * (17 << 20))[0])
try: await aio.length(text="x" * (17 << 20))
except ToolError as error: print(error.kind)
print(length(text="x" * (15 << 20)))
""", timeout_seconds=120)
        released.set()
        assert out.splitlines() == [
            "('timeout', True)", "True", "too_large", "('bad_result', False, 'odd: what it gave cannot be JSON: object is no JSON')", "bad_result",
            "('failed', False, 'raises: Unreadable: its str() raised ValueError')",
            "too_large", "too_large", str(15 << 20),
        ]
        assert hangs.is_set()
        assert sb.run_code("print(1)").stdout == "1\n"


def test_an_interrupted_cell_cancels_its_calls(daemon: Daemon) -> None:
    begun, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    async def wait(n: int) -> None:
        begun.release()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.release()
            raise

    with make(daemon, [wait]) as sb:
        ctx = sb.create_code_context()
        done: list[Any] = []
        cell = threading.Thread(target=lambda: done.append(ctx.run_code("""
import threading
import time
from tools import wait, ToolError
seen = []
def call(n):
    try: wait(n=n)
    except ToolError as error: seen.append(error.kind)
others = [threading.Thread(target=call, args=(n,)) for n in range(3)]
for t in others: t.start()
wait(n=9)
""", timeout_seconds=300)))
        cell.start()
        for _ in range(4):
            assert begun.acquire(timeout=60)
        ctx.interrupt()
        cell.join(60)
        assert done[0].end == "interrupted" and done[0].state_survived
        for _ in range(4):
            assert cancelled.acquire(timeout=60)
        assert ctx.run_code("[t.join() for t in others]; print(seen)").stdout == "['interrupted', 'interrupted', 'interrupted']\n"


def test_interrupts_while_arguments_are_on_their_way(daemon: Daemon) -> None:
    def length(text: str) -> int:
        return len(text)

    with make(daemon, [length]) as sb:
        ctx, other = sb.create_code_context(), sb.create_code_context()
        ctx.run_code("from tools import length\nbig = 'b' * (15 << 20)")
        other.run_code("from tools import length")
        for delay in range(8):
            cell = threading.Thread(target=ctx.run_code, args=("length(text=big)",), kwargs={"timeout_seconds": 60})
            cell.start()
            time.sleep(0.05 + 0.02 * delay)
            ctx.interrupt()
            cell.join(60)
            assert other.run_code("length(text='abc')", timeout_seconds=60).text == "3"
        assert ctx.run_code("length(text=big)", timeout_seconds=60).text == str(15 << 20)


def test_copies_call_for_themselves(daemon: Daemon) -> None:
    """After a fork of the context, of the sandbox, and after sleep; and a call in flight when an image is made fails once."""
    calls: list[str] = []

    def note(what: str) -> int:
        calls.append(what)
        return len(calls)

    with make(daemon, [note]) as sb:
        ctx = sb.create_code_context()
        assert ctx.run_code("from tools import note\nprint(note(what='first'))").stdout == "1\n"
        twin = ctx.fork()
        assert twin.run_code("print(note(what='twin'))").stdout == "2\n"
        assert ctx.run_code("print(note(what='original'))").stdout == "3\n"
        with sb.fork() as copy:
            assert copy.id != sb.id
            there = copy.context(ctx.id)
            assert there.run_code("print(note(what='copy'))").stdout == "4\n", copy.logs()
            assert [c.tool for c in copy.tools.calls()] == ["note"]
        sb.hibernate()
        assert ctx.run_code("print(note(what='woken'))").stdout == "5\n"
    assert calls == ["first", "twin", "original", "copy", "woken"]


def test_a_program_that_leaves(daemon: Daemon) -> None:
    here = threading.Event()
    stay = threading.Event()

    def wait() -> None:
        here.set()
        stay.wait(60)

    with make(daemon, [wait]) as sb:
        ctx = sb.create_code_context()
        done: list[Any] = []
        code = "from tools import wait, ToolError\ntry: wait()\nexcept ToolError as error: print(error.kind)"
        cell = threading.Thread(target=lambda: done.append(ctx.run_code(code, timeout_seconds=60)))
        cell.start()
        assert here.wait(60)
        sb.tools.close()
        cell.join(60)
        stay.set()
        assert done[0].stdout == "interrupted\n"
        assert ctx.run_code(code).stdout == "unavailable\n"


def test_a_sandbox_without_tools_says_so(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    done = shared_sandbox.run_code("from tools import anything")
    assert done.error_name in ("ToolError", "ImportError") and "has no tools" in (done.error or ""), done.error
    done = shared_sandbox.run_code("import pathlib; pathlib.Path('tools.py').write_text('mine = 1')\nimport sys; sys.modules.pop('tools', None)\nimport tools; print(tools.mine)")
    assert done.stdout == "1\n", "a module of the user's own comes first"


def test_what_cannot_be_a_tool_is_said(daemon: Daemon) -> None:
    def positional(a: int, /) -> None: ...

    with pytest.raises(TypeError, match="positional: the parameter a has no name"):
        make(daemon, [positional])
    with pytest.raises(pandastack.BadRequestError, match="declares no tools") as missing:
        make(daemon, ["nobody"])
    assert missing.value.field == "tools.use"
    with pytest.raises(pandastack.BadRequestError) as down:
        make(daemon, [pandastack.OpenAPI("crm", url=f"http://127.0.0.1:{free_port()}/openapi.json")])
    assert down.value.field == "tools.http.crm" and "cannot be read" in str(down.value)
    with pytest.raises(pandastack.BadRequestError, match="approve must be never, risky or always"):
        make(daemon, [total], tool_policy={"approve": "sometimes"})


def test_a_service_and_its_key_that_never_enters(daemon: Daemon, service: Service) -> None:
    client = pandastack.Client(daemon.url, daemon.key)
    client.secrets.set("crm-key", SECRET)
    crm = pandastack.OpenAPI("crm", url=service.url + "/openapi.json", headers={"Authorization": {"ref": "crm-key", "prefix": "Bearer "}})
    with make(daemon, [crm, total], tool_policy={"rules": [{"tool": "crm.add_*", "arguments": {"email": "*@evil.example"}, "action": "deny"}]}) as sb:
        out = run(sb, """
from tools import crm, total, ToolError, ToolDenied
print(crm.find_customer(email="ada@example.com"))
try: crm.get_customer(id=9)
except ToolError as error: print(error)
try: crm.add_customer(body={"email": "x@evil.example"})
except ToolDenied as error: print("denied", error)
""")
        lines = out.splitlines()
        assert lines[0] == "[{'id': 7, 'email': 'ada@example.com'}]"
        assert lines[1] == 'crm.get_customer: GET /customers/9: 404 Not Found: {"error": "none; you sent Bearer [secret]"}'
        never_entered(daemon, sb, "ada@example.com")


def never_entered(daemon: Daemon, sb: Sandbox, called: str) -> None:
    """The credential is nowhere in a snapshot of the sandbox: not in its memory, not in its files. What was called is, so the search finds what is there."""
    client = pandastack.Client(daemon.url, daemon.key)
    snapshot = sb.snapshot()
    images = [p for p in (daemon.data / "images").rglob("*") if p.is_file()]
    assert images, "the image of the snapshot is not where this test looks"
    for image in images:
        assert SECRET.encode() not in image.read_bytes(), image
    assert called.encode() in b"".join(p.read_bytes() for p in images)
    client.snapshots.delete(snapshot)


def test_everything_in_one_cell(daemon: Daemon, service: Service, tmp_path: Path) -> None:
    """An MCP server of the official SDK, an HTTP service and a function of this program; MCP over both of its transports."""
    port = free_port()
    server = Path(__file__).parent / "mcp_server.py"
    http = subprocess.Popen([sys.executable, server, "http", str(port)])
    declared = {"mcp": {"local": {"command": [sys.executable, str(server), "stdio"], "envs": {"NOTES_KEY": SECRET}}}}
    own = Daemon(tools=json.dumps(declared), pool_ready=0, pool_prepared=0)
    try:
        own.start()
        client = pandastack.Client(own.url, own.key)
        client.secrets.set("crm-key", SECRET)
        crm = pandastack.OpenAPI("crm", service.document, headers={"Authorization": {"ref": "crm-key", "prefix": "Bearer "}})
        wait_for(lambda: http.poll() is None and reachable(port))
        token = {"Authorization": {"ref": "crm-key", "prefix": "Bearer "}}
        with make(own, [total, crm, pandastack.MCPServer("notes", f"http://127.0.0.1:{port}/mcp", headers=token), "local", "server"]) as sb:
            out = run(sb, """
from tools import crm, notes, local, server, total, ToolError
assert server.now()[:2] == "20"
who = crm.find_customer(email="ada@example.com")[0]
for at in notes, local:
    at.add(title=who["email"])
    print(at.count(), at.add(title="second", text="t") == {"title": "second", "text": "t"}, at.count())
print(total(order={"number": who["id"], "goods": server.echo(value=["tea"])})["total"])
try: local.break_it()
except ToolError as error: print(error.kind, error)
""", timeout_seconds=60)
            assert out.splitlines() == [
                "1 True 2", "1 True 2", "10",
                "failed local.break_it: Error executing tool break_it: it broke, and the key is [secret]",
            ]
            never_entered(own, sb, "it broke, and the key is [secret]")
            with sb.fork() as copy:  # its session with the server is its own: a program of its own
                assert run(copy, "print(local.count())") == "0"
        with pytest.raises(pandastack.BadRequestError, match="only the server's settings may start a program"):
            Sandbox.create(template="code-interpreter", api_url=own.url, api_key=own.key, tools=[Started()])
    finally:
        http.kill()
        http.wait()
        own.stop()
        own.remove()


class Started(pandastack.MCPServer):
    """One that asks the daemon to start a program."""

    def __init__(self) -> None:
        self.name, self.wire = "shell", {"command": ["/bin/sh", "-c", "id"]}


def reachable(port: int) -> bool:
    """Whether an HTTP server answers."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/mcp", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def wait_for(true: Callable[[], Any], seconds: float = 60) -> Any:
    import time

    late = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < late, "it did not come"
        time.sleep(0.05)
    return found


# --- approvals ------------------------------------------------------------------------------------------------------


def asking(daemon: Daemon, calls: list[int], **policy: Any) -> Sandbox:
    def pay(cents: int) -> str:
        """Pay."""
        calls.append(cents)
        return f"paid {cents}"

    return make(daemon, [pandastack.tool(pay, risky=True), slow_double], tool_policy={"approve": "risky", **policy})


PAY = "from tools import pay, ToolDenied\ntry: print(pay(cents=5))\nexcept ToolDenied as error: print('denied:', error)"


def in_background(sb: Sandbox, code: str, **options: Any) -> Callable[[], Any]:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(sb.run_code(code, **options)))
    thread.start()

    def join() -> Any:
        thread.join(120)
        assert done, "the cell did not end"
        return done[0]

    return join


def test_a_risky_call_waits_for_somebody(daemon: Daemon) -> None:
    client = pandastack.Client(daemon.url, daemon.key)
    calls: list[int] = []
    with asking(daemon, calls) as sb:
        assert run(sb, "from tools import slow_double; print(slow_double(n=1))") == "2"
        # A deadline of two seconds, and three of waiting: the cell's time stands still.
        join = in_background(sb, PAY + "\nprint('after')", timeout_seconds=2)
        waiting = wait_for(sb.tools.approvals)[0]
        assert (waiting.tool, waiting.arguments, waiting.rule) == ("pay", {"cents": 5}, "approve risky")
        threading.Event().wait(3.5)
        assert calls == [] and sb.tools.approvals()
        # Two answers at once make one decision.
        outcomes: list[str] = []

        def decide(approve: bool) -> None:
            try:
                outcomes.append(client.approvals.decide(waiting.id, approve, "because").status)
            except pandastack.ConflictError as error:
                outcomes.append(str(error))

        both = [threading.Thread(target=decide, args=(yes,)) for yes in (True, False) * 4]
        for t in both:
            t.start()
        for t in both:
            t.join()
        made = [o for o in outcomes if o in ("approved", "denied")]
        assert len(made) == 1 and all("was decided before" in o for o in outcomes if o not in made)
        done = join()
        assert done.end == "ok", done.error
        if made == ["approved"]:
            assert done.stdout == "paid 5\nafter\n" and calls == [5]
        else:
            assert done.stdout == "denied: pay: somebody who was asked denied it: because\nafter\n" and calls == []
        assert client.approvals.get(waiting.id).by == daemon.key[:12]


def test_a_call_that_nobody_decides_is_denied(daemon: Daemon) -> None:
    calls: list[int] = []
    with asking(daemon, calls, expire_seconds=0.3) as sb:
        assert run(sb, PAY).startswith("denied: pay: nobody decided about it within 300ms")
        assert [a.status for a in sb.tools.approvals(None)] == ["expired"]
        assert calls == []


def test_an_agent_calls_tools_and_waits_for_somebody(daemon: Daemon, tmp_path: Path) -> None:
    paid: list[int] = []

    @pandastack.tool(risky=True)
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    turns = [code("from tools import pay, ToolDenied\nprint(pay(cents=5))\ntry: pay(cents=99)\nexcept ToolDenied: print('refused')"), done(r"paid 5\s+refused")]
    client = pandastack.Client(daemon.url, daemon.key)
    policy = {"approve": "risky", "rules": [{"tool": "pay", "arguments": {"cents": "99"}, "action": "deny"}]}
    with scripted(tmp_path, turns) as url:
        agent = pandastack.Agent("openai:scripted", base_url=url, tools=[pay, slow_double], tool_policy=policy, api_url=daemon.url, api_key=daemon.key)
        run = agent.start("Pay.")
        waiting = wait_for(lambda: client.approvals.list(agent_id=run.id))[0]
        assert run.refresh().status == "waiting" and paid == []
        client.approvals.decide(waiting.id, True)
        seen: list[Any] = []
        assert run.wait(seen.append) == "done"
    assert paid == [5]
    asked = [e.data["approval"]["status"] for e in seen if e.type == "approval"]
    assert asked == ["pending", "approved"]
    prompt = next(e.data["text"] for e in seen if e.type == "prompt")
    assert "def pay(cents: int) -> str:\n    \"\"\"Pay.\"\"\"" in prompt and "_call" not in prompt


def test_what_is_done_again_of_a_run_calls_the_functions_of_this_program(daemon: Daemon, tmp_path: Path) -> None:
    paid: list[int] = []

    def pay(cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    turns = [code("from tools import pay\nprint(pay(cents=5))"), done("paid 5"), done("paid 5"), code("print(pay(cents=7))"), done("paid 7")]
    server = {"api_url": daemon.url, "api_key": daemon.key}
    with scripted(tmp_path, turns) as url:
        model: dict[str, Any] = {"model": "openai:scripted", "base_url": url}
        run = pandastack.Agent(**model, tools=[pay], keep="keep", **server).run("Pay.")
        later = pandastack.Agent(**model, tools=[pay], **server)  # of this program when it was started again
        fork = later.get(run.id).fork(2, **model)
        assert (fork.answer, paid) == ("done", [5, 5])
        forked = next(e.data["forked"] for e in fork.transcript() if e.type == "forked")
        assert forked == {"of": run.id, "at": 2, "cells": 1, "outside": True}
        assert later.get(fork.id).replay().answer == "done" and paid == [5, 5, 5]
        assert later.run("Pay more.", follows=run.id).answer == "done" and paid == [5, 5, 5, 7]
        without = pandastack.Agent(**model, **server)
        for again in (lambda: without.get(run.id).fork(2, **model), without.get(run.id).replay, lambda: without.start("More.", follows=run.id)):
            with pytest.raises(ValueError, match=f"{run.id} calls functions of a program that are not here: pay"):
                again()
    refused = subprocess.run([BIN, "agent", "fork", run.id, "--at", "2"], env=daemon.env, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "functions of a program that are not here: pay" in refused.stderr, refused.stderr
    Sandbox.get(run.sandbox_id or "", **server).kill()


PROGRAM = """
import sys
import pandastack

def pay(cents: int) -> str:
    return f"first {cents}"

run = pandastack.Agent("openai:scripted", base_url=sys.argv[1], tools=[pay], limits={"cell_seconds": 60}).start("Pay.")
print(run.id, flush=True)
run.wait()
"""


def test_a_run_whose_program_was_started_again_calls_the_new_one(daemon: Daemon, tmp_path: Path) -> None:
    def pay(cents: int) -> str:
        return f"second {cents}"

    waits = "import os, time\nfrom tools import pay\nprint(pay(cents=1))\nopen('called', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint(pay(cents=2))"
    server = {"api_url": daemon.url, "api_key": daemon.key}
    with scripted(tmp_path, [code(waits), done(r"first 1\s+second 2")]) as url:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, url], env=daemon.env, stdout=subprocess.PIPE, text=True)
        assert program.stdout
        try:
            run = program.stdout.readline().strip()
            sb = Sandbox.get(wait_for(lambda: pandastack.Agent(**server).get(run).sandbox_id), **server)
            wait_for(lambda: sb.filesystem.exists("/workspace/called"))
        finally:
            program.kill()
            program.wait()
        again = pandastack.Agent(tools=[pay], **server).get(run)
        sb.filesystem.write("/workspace/go", "")
        assert again.wait() == "done", again.info


def test_a_run_calls_its_program_over_a_clean_restart_of_the_server(own_daemon: Daemon, tmp_path: Path) -> None:
    def pay(cents: int) -> str:
        return f"paid {cents}"

    waits = "import os, time\nfrom tools import pay\nprint(pay(cents=1))\nopen('called', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint(pay(cents=2))"
    server = {"api_url": own_daemon.url, "api_key": own_daemon.key}
    with scripted(tmp_path, [code(waits), done(r"paid 1\s+paid 2")]) as url:
        run = pandastack.Agent("openai:scripted", base_url=url, tools=[pay], limits={"cell_seconds": 120}, **server).start("Pay.")
        sb = Sandbox.get(wait_for(lambda: run.refresh().sandbox_id), **server)
        wait_for(lambda: sb.filesystem.exists("/workspace/called"))
        own_daemon.stop()
        own_daemon.start()
        wait_for(lambda: [t.connected for t in sb.tools.list()] == [True])  # this program has come back
        sb.filesystem.write("/workspace/go", "")
        assert run.wait() == "done", run.info


def test_no_token_in_the_address_of_a_tool_is_shown(daemon: Daemon, service: Service, tmp_path: Path) -> None:
    crm = pandastack.OpenAPI("crm", url=f"{service.url}/openapi.json?token={SECRET}")
    with scripted(tmp_path, [code("from tools import crm, ToolError\ntry: crm.find_customer(email='x')\nexcept ToolError as error: print(error)"), done("who are you")]) as url:
        run = pandastack.Agent("openai:scripted", base_url=url, tools=[crm], api_url=daemon.url, api_key=daemon.key).run("Look.")
        assert run.answer == "done", run.info
    shown = [subprocess.run([BIN, "agent", "show", run.id, "--format", how], env=daemon.env, capture_output=True, text=True, check=True, timeout=60).stdout
             for how in ("jsonl", "text", "html", "notebook")]
    shown += [run.report(), run.notebook().decode(), str(run.transcript()), daemon.log.read_text(errors="replace")]
    assert "token=[redacted]" in shown[0] and all(SECRET not in text for text in shown)
    with pytest.raises(pandastack.BadRequestError) as refused:
        make(daemon, [pandastack.OpenAPI("gone", url=f"{service.url}/nothing?token={SECRET}")])
    assert SECRET not in str(refused.value) and "token=[redacted]" in str(refused.value)


def test_stubs_take_no_more_of_a_prompt_than_they_may(daemon: Daemon, tmp_path: Path) -> None:
    def make_one(n: int) -> Any:
        def one(value: str) -> str: ...

        one.__name__, one.__doc__ = f"tool_{n}", f"Does thing number {n}. " + "It is long. " * 20
        return one

    with scripted(tmp_path, [code("import tools\nprint(tools.search('thing number 150')[0])"), done("tool_150")]) as url:
        agent = pandastack.Agent("openai:scripted", base_url=url, tools=[make_one(n) for n in range(200)], limits={"tool_tokens": 800}, api_url=daemon.url, api_key=daemon.key)
        seen: list[Any] = []
        assert agent.run("Look.", on_event=seen.append).answer == "done"
    prompt = next(e.data["text"] for e in seen if e.type == "prompt")
    stubs = prompt[prompt.index("# Tools") :]
    assert len(stubs) < 800 * 5 and "tools.search(" in stubs and "more." in stubs


def test_an_interrupted_cell_asks_no_longer(daemon: Daemon) -> None:
    calls: list[int] = []
    with asking(daemon, calls) as sb:
        join = in_background(sb, PAY, timeout_seconds=60)
        waiting = wait_for(sb.tools.approvals)[0]
        sb.context().interrupt()
        assert join().end == "interrupted"
        client = pandastack.Client(daemon.url, daemon.key)
        wait_for(lambda: client.approvals.get(waiting.id).status == "cancelled")
        with pytest.raises(pandastack.ConflictError):
            client.approvals.decide(waiting.id, True)
        assert calls == []


def test_what_waits_survives_the_daemon(own_daemon: Daemon) -> None:
    calls: list[int] = []
    sb = asking(own_daemon, calls)
    join = in_background(sb, PAY, timeout_seconds=60)
    waiting = wait_for(sb.tools.approvals)[0]
    own_daemon.kill9()
    own_daemon.start()
    client = pandastack.Client(own_daemon.url, own_daemon.key)
    assert [a.id for a in wait_for(client.approvals.list)] == [waiting.id]
    wait_for(lambda: [t.connected for t in sb.tools.list() if t.name == "pay"] == [True])  # this program has come back, too
    assert client.approvals.decide(waiting.id, True).status == "approved"
    done = join()
    assert done.stdout == "paid 5\n" and calls == [5], (done.stdout, done.error)
    sb.kill()


def test_functions_of_a_typescript_program(own_daemon: Daemon, tmp_path: Path) -> None:
    """They are called, wait for somebody over a kill of the daemon, and are there for an agent's run, its replay and its fork."""
    turns = [code("from tools import pay\nprint(pay(cents=7))"), done(r"paid 7"), done(r"paid 7")]
    subprocess.run(["make", "-s", "ts"], cwd=ROOT, check=True)
    with scripted(tmp_path, turns) as url:
        program = subprocess.Popen(["node", ROOT / "test" / "tools.mjs", url], env=own_daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert program.stdin and program.stdout
        try:
            waiting = json.loads(program.stdout.readline())
            assert waiting["paid"] == []
            own_daemon.kill9()
            own_daemon.start()
            program.stdin.write("\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline()) == {"stdout": "paid 5\n", "paid": [5]}
            assert json.loads(program.stdout.readline()) == {"answer": "done", "paid": [5, 7], "kinds": ["ok"]}
            assert json.loads(program.stdout.readline()) == {"again": "done", "paid": [5, 7, 7], "same": True}
            assert json.loads(program.stdout.readline()) == {"fork": "done", "paid": [5, 7, 7, 7]}
            program.stdin.close()
            assert program.wait(timeout=60) == 0
        finally:
            program.kill()
            program.wait()
