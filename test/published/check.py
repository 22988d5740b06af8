"""Drives the published Python client.

Each check has the name of one in check.mjs and of one in test_published_clients.py; what came of each goes to standard output as JSON.
"""

import base64
import json
import os
import re
import tempfile
import time
import traceback
import urllib.request
from pathlib import Path

import pandastack
from pandastack import (
    APIConnectionError,
    AuthError,
    BadRequestError,
    Client,
    CommandFailed,
    NotFoundError,
    Sandbox,
    SandboxTimeout,
    ServerError,
)

assert pandastack.__version__ == "0.10.0" and "/.cache/published/" in pandastack.__file__, "this must be the published client"

CHECKS = []


def check(name):
    def register(body):
        CHECKS.append((name, body))
        return body

    return register


def fails(kind, words, call):
    try:
        value = call()
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__}: {error}"
        assert re.search(words, str(error)), str(error)
        return error
    raise AssertionError(f"answered {value!r}, wanted {kind.__name__}")


client = Client()
sandbox = Sandbox.create(template="code-interpreter", ttl_seconds=300, metadata={"suite": "python"})
files = sandbox.filesystem
ctx = sandbox.create_code_context()


@check("create")
def _():
    assert (sandbox.template, sandbox.status, sandbox.metadata) == ("code-interpreter", "running", {"suite": "python"})
    assert sandbox.cpu > 0 and sandbox.memory_mb > 0 and sandbox.boot_ms > 0 and sandbox.boot_mode and sandbox.created_at
    assert sandbox.persistent is False


@check("list")
def _():
    (found,) = [s for s in Sandbox.list() if s.id == sandbox.id]
    assert (found.status, found.metadata) == ("running", {"suite": "python"})


@check("get")
def _():
    assert Sandbox.get(sandbox.id).template == "code-interpreter"
    assert sandbox.refresh() is sandbox and sandbox.status == "running"


@check("get unknown")
def _():
    fails(NotFoundError, "no sandbox", lambda: Sandbox.get("sb-nothing"))


@check("create of an unknown template")
def _():
    fails(NotFoundError, "nonsense", lambda: Sandbox.create(template="nonsense"))


@check("create with a bad field")
def _():
    fails(BadRequestError, "ttl_seconds", lambda: Sandbox.create(ttl_seconds=-1))


@check("create with a volume")
def _():
    fails(ServerError, "volumes", lambda: Sandbox.create(volumes=[{"name": "v"}]))


@check("files of text")
def _():
    text = "region,amount\nEMEA,1\nÜ\u2028\u0085,3\n"
    written = files.write("/workspace/in/sales.csv", text)
    assert written == {"path": "/workspace/in/sales.csv", "bytes": len(text.encode())}
    assert files.read("/workspace/in/sales.csv") == text.encode()


@check("files of bytes")
def _():
    content = bytes(i * 7 % 256 for i in range(5 << 20))
    assert files.write("/workspace/big.bin", content)["bytes"] == len(content)
    assert files.read("/workspace/big.bin") == content


@check("upload and download")
def _():
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder, "a"), Path(folder, "b")
        a.write_bytes(b"\x00\xff\n")
        files.upload(a, "/workspace/up/a")
        files.download("/workspace/up/a", b)
        assert b.read_bytes() == b"\x00\xff\n"


@check("list of a folder")
def _():
    files.write("/workspace/walk/a/b/c.txt", "x")
    assert [(e.name, e.path, e.is_dir, e.mode) for e in files.listdir("/workspace/walk")] == [("a", "/workspace/walk/a", True, "d")]
    seen = [(d, [f.name for f in names]) for d, _, names in files.walk("/workspace/walk")]
    assert seen == [("/workspace/walk", []), ("/workspace/walk/a", []), ("/workspace/walk/a/b", ["c.txt"])]


@check("stat")
def _():
    sandbox.exec("touch -d @1700000000.5 /workspace/old")
    info = files.stat("/workspace/old")
    assert (info.name, info.path, info.is_dir, info.size, info.mode, info.mtime) == ("old", "/workspace/old", False, 0, "f", 1700000000)
    assert files.exists("/workspace/old") and not files.exists("/workspace/none")


@check("file errors")
def _():
    fails(BadRequestError, "absolute", lambda: files.read("relative"))
    fails(NotFoundError, "none", lambda: files.read("/none"))
    fails(NotFoundError, "none", lambda: files.listdir("/none"))


@check("assignment")
def _():
    ex = ctx.run_code("\nimport pandas as pd\nimport matplotlib.pyplot as plt\ndf = pd.DataFrame({'region': ['EMEA', 'Ü'], 'amount': [1, 3]})\n")
    assert (ex.error, ex.results, ex.text, ex.stdout, ex.stderr, ex.exit_code) == (None, [], None, "", "", 0), ex
    assert ex.duration_ms >= 0


@check("table")
def _():
    ex = ctx.run_code("df")
    assert "<table" in ex.results[0].html and "EMEA" in ex.text and ex.png is None


@check("chart")
def _():
    ex = ctx.run_code("df.amount.plot.bar(); plt.show()", timeout_seconds=25)
    assert base64.b64decode(ex.png)[1:4] == b"PNG"
    (chart,) = [r for r in ex.results if r.png]
    assert chart.chart == ex.png


@check("table before chart")
def _():
    ex = ctx.run_code("df.amount.plot.bar(); plt.show()\ndf")
    assert "<table" in ex.results[0].html and ex.png and len(ex.results) == 2, [r.data.keys() for r in ex.results]


@check("kinds of results")
def _():
    ex = ctx.run_code(
        "from IPython.display import *\ndisplay(JSON({'a': [1, 'ü']}))\ndisplay(Markdown('*m*'))\n"
        "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n'last'"
    )
    assert ex.text == "'last'"
    one, two, three = ex.results[1:]
    assert one.json == {"a": [1, "ü"]} and two.markdown == "*m*" and three.svg.startswith("<svg") and three.chart == three.svg


@check("output")
def _():
    ex = ctx.run_code("import sys, os\nprint('hé\\u0085x')\nprint('err', file=sys.stderr)\nos.system('echo child')\n6 * 7")
    assert "hé\u0085x\n" in ex.stdout and "child\n" in ex.stdout and ex.stderr == "err\n" and ex.text == "42", ex


@check("error of a cell")
def _():
    ex = ctx.run_code("print('before')\n1/0")
    assert "ZeroDivisionError" in ex.error and ex.exit_code == 1 and ex.stdout == "before\n"


@check("deadline of a cell")
def _():
    ex = ctx.run_code("kept = 1\nimport time; time.sleep(60)", timeout_seconds=1)
    assert ex.error and ex.exit_code == 1, ex
    assert ctx.run_code("kept").text == "1"


@check("empty cell")
def _():
    fails(BadRequestError, "code is empty", lambda: ctx.run_code(""))


@check("two contexts")
def _():
    with sandbox.create_code_context("py") as other:
        ctx.run_code("mine = 1")
        assert "NameError" in other.run_code("mine").error
    other.close()
    fails(NotFoundError, "no context|closed", lambda: other.run_code("1"))


@check("context of another language")
def _():
    fails(BadRequestError, "python", lambda: sandbox.create_code_context("cobol"))


@check("exec")
def _():
    result = sandbox.exec("pwd; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "/workspace\n", "err\n")
    assert sandbox.commands.run("echo hé").stdout == "hé\n"


@check("exec with much output")
def _():
    assert len(sandbox.exec("head -c 1000000 /dev/zero | tr '\\0' x").stdout) == 1000000


@check("exec checked")
def _():
    error = fails(CommandFailed, "code 2", lambda: sandbox.exec("echo o; exit 2", check=True))
    assert (error.exit_code, error.stdout) == (2, "o\n")


@check("exec of nothing")
def _():
    fails(BadRequestError, "cmd", lambda: sandbox.exec(""))


@check("deadline of a command")
def _():
    fails(SandboxTimeout, "sleep", lambda: sandbox.exec("sleep 60", timeout_seconds=1))


@check("stream")
def _():
    out, err = [], []
    code = sandbox.exec_stream("printf 'hé\\302\\205\\342\\200\\250x\\n'; echo two >&2; exit 4", on_stdout=out.append, on_stderr=err.append)
    assert (code, "".join(out), "".join(err)) == (4, "hé\u0085\u2028x\n", "two\n"), (code, out, err)


@check("deadline of a stream")
def _():
    fails(SandboxTimeout, "timeout", lambda: sandbox.exec_stream("sleep 60", timeout_seconds=1))


@check("run code of a sandbox")
def _():
    assert sandbox.run_code("print(2+2)").stdout == "4\n"
    assert sandbox.run_code("echo $((2+2))", language="bash").stdout == "4\n"


@check("lifecycle")
def _():
    life = sandbox.lifecycle()
    assert (life["ttl_seconds"], life["persistent"]) == (300, False) and life["idle_seconds"] >= 0
    assert sandbox.set_ttl(500)["ttl_seconds"] == 500
    assert sandbox.set_persistent(False)["persistent"] is False


@check("pause")
def _():
    sandbox.pause()
    try:
        assert Sandbox.get(sandbox.id).status == "paused"
        fails(BadRequestError, "paused", lambda: sandbox.exec("true"))
    finally:
        sandbox.resume()
    assert ctx.run_code("kept").text == "1"


@check("hibernation")
def _():
    ctx.run_code("slept = 'sound'")
    sandbox.hibernate()
    assert Sandbox.get(sandbox.id).status == "hibernated"
    sandbox.wake()
    assert Sandbox.get(sandbox.id).status == "running"
    assert ctx.run_code("slept").text == "'sound'"
    sandbox.hibernate()
    assert ctx.run_code("slept").text == "'sound'"  # any call wakes it


@check("snapshot")
def _():
    ctx.run_code("before = 41")
    snapshot = sandbox.snapshot()
    with Sandbox.create(from_snapshot=snapshot, ttl_seconds=120) as copy:
        assert pandastack.CodeContext(copy, ctx.id).run_code("before + 1").text == "42"
        assert copy.filesystem.read("/workspace/in/sales.csv").startswith(b"region")
        assert copy.from_snapshot == snapshot
    assert [s["id"] for s in client.snapshots.list(sandbox_id=sandbox.id)] == [snapshot]
    assert client.snapshots.get(snapshot)["size_bytes"] > 0
    client.snapshots.delete(snapshot)
    fails(NotFoundError, "snapshot", lambda: client.snapshots.get(snapshot))
    fails(NotFoundError, "snapshot", lambda: Sandbox.create(from_snapshot=snapshot))


@check("fork")
def _():
    ctx.run_code("forked = 'from here'")
    with sandbox.fork(metadata={"child": "yes"}) as child:
        assert child.id != sandbox.id and (child.status, child.metadata["child"]) == ("running", "yes")
        assert pandastack.CodeContext(child, ctx.id).run_code("forked").text == "'from here'"
        child.exec("echo child > /workspace/only")
        assert not files.exists("/workspace/only")


@check("fork tree")
def _():
    children = sandbox.fork_tree(2, metadata={"a": "b"})
    one, two = children
    try:
        assert len({sandbox.id, one.id, two.id}) == 3
        assert one.metadata["fork_tree_id"] == two.metadata["fork_tree_id"]
        promoted = one.promote(cleanup_siblings=True)
        assert (promoted["winner"], promoted["deleted"], promoted["failures"]) == (one.id, [two.id], {})
        assert one.exec("echo $((2+2))").stdout == "4\n"
        fails(NotFoundError, ".", lambda: Sandbox.get(two.id))
    finally:
        for child in children:
            try:
                child.kill()
            except NotFoundError:
                pass  # one of them has ended


@check("explore")
def _():
    result = sandbox.explore(["exit 1", "echo PASS"], score_fn=lambda _, o: 1.0 if "PASS" in o.stdout_tail else 0.0)
    with result.winner as winner:
        assert result.winner_outcome.label == "echo PASS"
        assert (result.errors, len(result.reaped), len(result.outcomes)) == ([], 1, 2)
        assert winner.exec("pwd").stdout == "/workspace\n"


@check("logs")
def _():
    lines = list(sandbox.logs())
    assert lines and all(isinstance(line, str) and "\n" not in line for line in lines)
    assert next(sandbox.logs(follow=True)) == lines[0]


@check("templates")
def _():
    (mine,) = [t for t in client.templates.list() if t.name == "code-interpreter"]
    assert mine.size_bytes > 0 and mine.memory_mb > 0
    assert client.templates.get("code-interpreter").name == "code-interpreter"
    fails(NotFoundError, "nonsense", lambda: client.templates.get("nonsense"))


@check("from the client")
def _():
    other = client.sandboxes.create(template="code-interpreter", ttl_seconds=60)
    assert client.sandboxes.get(other.id).id == other.id
    assert other.id in [s.id for s in client.sandboxes.list()]
    other.kill()
    fails(NotFoundError, ".", lambda: Sandbox.get(other.id))


@check("me")
def _():
    me = client.me()
    assert me["id"] and me["workspace"], me


@check("tokens")
def _():
    token = client.tokens.create("published client", expires_in_days=7)
    assert re.fullmatch("pds_[0-9a-f]{32}", token.token)
    other = Client(api_key=token.token)
    assert other.me()["workspace"] == client.me()["workspace"] and other.me()["expires_at"]
    (listed,) = [t for t in client.tokens.list() if t.prefix == token.prefix]
    assert listed.name == "published client" and listed.token is None
    client.tokens.revoke(token.prefix)
    fails(AuthError, ".", other.me)
    fails(NotFoundError, ".", lambda: client.tokens.revoke(token.prefix))


@check("wrong key")
def _():
    fails(AuthError, "unauthorized", lambda: Client(api_key="pds_" + "0" * 32).sandboxes.list())


@check("nobody there")
def _():
    fails(APIConnectionError, "connect", lambda: Client(api_url="http://127.0.0.1:9").me())


@check("key of the file")
def _():
    kept = {name: os.environ.pop(name) for name in ("PANDASTACK_API_KEY", "PANDASTACK_API")}
    try:
        assert Client().me()["id"]  # the address, too, is in the file
    finally:
        os.environ.update(kept)


@check("preview url")
def _():
    assert sandbox.preview_url(80) == f"https://80-{sandbox.id}.127.0.0.1"
    fails(ValueError, "port", lambda: sandbox.preview_url(0))


@check("preview of a port")
def _():
    sandbox.exec("mkdir -p /tmp/site && echo seen > /tmp/site/index.html && (cd /tmp/site; setsid python3 -m http.server 8123 >/dev/null 2>&1 &)")
    for _ in range(200):
        urls = sandbox.preview_urls()
        if 8123 in urls:
            break
        time.sleep(0.05)
    assert urls[8123] == sandbox.preview_url(8123), urls
    # It has no signed links, and its own address is below the API's: the proxy with the key is what it can reach here.
    asked = urllib.request.Request(f"{os.environ['PANDASTACK_API']}/v1/sandboxes/{sandbox.id}/proxy/8123/",
                                   headers={"Authorization": f"Bearer {os.environ['PANDASTACK_API_KEY']}"})
    assert urllib.request.urlopen(asked, timeout=20).read() == b"seen\n"


@check("what is not here")
def _():
    for name, call in {
        "templates.build": lambda: client.templates.build("n", rootfs_tar=__file__),
        "templates.register": lambda: client.templates.register("n", "i"),
        "templates.build_from_dockerfile": lambda: client.templates.build_from_dockerfile("n", "FROM x\n"),
        "templates.delete": lambda: client.templates.delete("code-interpreter"),
        "templates.builds": client.templates.builds,
        "templates.get_build": lambda: client.templates.get_build("b"),
        "templates.build_logs": lambda: list(client.templates.build_logs("b")),
        "volumes.create": lambda: client.volumes.create("v", 1),
        "volumes.list": client.volumes.list,
        "volumes.get": lambda: client.volumes.get("v"),
        "volumes.delete": lambda: client.volumes.delete("v"),
        "functions.list": client.functions.list,
        "functions.delete": lambda: client.functions.delete("f"),
        "schedules.list": client.schedules.list,
        "databases.list": client.databases.list,
        "apps.list": client.apps.list,
        "apps.get": lambda: client.apps.get("a"),
    }.items():
        try:
            fails(ServerError, "this server does not have", call)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@check("kill")
def _():
    sandbox.kill()
    ctx.close()
    fails(NotFoundError, ".", lambda: Sandbox.get(sandbox.id))
    fails(NotFoundError, ".", lambda: ctx.run_code("1"))
    assert sandbox.id not in [s.id for s in Sandbox.list()]
    with Sandbox.create() as other:  # the client's default template, and a sandbox that its block ends
        assert other.exec("echo in").stdout == "in\n"
    fails(NotFoundError, ".", lambda: Sandbox.get(other.id))


outcome = {}
try:
    for name, body in CHECKS:
        try:
            body()
            outcome[name] = ""
        except Exception:
            outcome[name] = traceback.format_exc()
finally:
    try:
        sandbox.kill()
    except NotFoundError:
        pass  # ended already when all went well
print(json.dumps(outcome))
