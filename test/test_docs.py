"""The documentation: every block of its pages does what it is there for, and the site is built of them and works from files."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from html.parser import HTMLParser
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import openpyxl
import pytest
import sites
import snippets
from daemon import BIN, ROOT, TEMPLATES, Daemon
from names import Names

import pandastack

sys.path.insert(0, str(ROOT / "examples"))

from pages import Block, PageError, blocks  # noqa: E402
from scripted_model import Script, ScriptedModel  # noqa: E402

PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts),
    *sorted((ROOT / "sdk").glob("*/README.md")),
    *sorted(page for page in (ROOT / "examples").rglob("README.md") if "node_modules" not in page.parts),
]

HERE = Path(__file__).parent


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def found() -> dict[str, list[Block]]:
    """The blocks of each page that has some."""
    return {named(page): some for page in PAGES if (some := blocks(page))}


def test_the_tests_that_run_blocks_are_there(found: dict[str, list[Block]]) -> None:
    for block in (block for some in found.values() for block in some if block.by):
        file, _, name = block.by.partition("::")
        assert re.search(rf"^(async )?(def|func) {name}\(|^test\(\"{name}", (ROOT / file).read_text(), re.MULTILINE), f"{block.place}: there is no test {block.by}"


@pytest.mark.parametrize(("text", "words"), [
    ("```\nx\n```\n", "no language"),
    ("Words:\n\n    indented\n", "is indented"),
    ("```python\nx\n", "has no end"),
    ("<!-- not run: because -->\n```sh\nx\n```\n", "comments of pages"),
    ("<!-- run by a::b -->\nWords.\n", "is of no block"),
    ("Words.\n\n<!-- then\nx\n-->\n", "is after no block"),
])
def test_what_would_hide_a_block_is_refused(text: str, words: str) -> None:
    page = ROOT / ".cache" / "docs" / "refused.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)
    with pytest.raises(PageError, match=f"refused.md:[1-3]: .*{words}"):
        blocks(page)


class Shop(sites.JSONHandler):
    """The service of the page about tools. It wants a key."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        orders = [{"id": 1, "open": True}, {"id": 2, "open": False}]
        if self.path == "/openapi.json":
            return self.answer(200, self.document())
        if self.headers.get("Authorization") != "Bearer shop-secret":
            return self.answer(401, {"error": "who are you?"})
        self.answer(200, orders if "?" in self.path else orders[0])

    def document(self) -> object:
        def operation(name: str, argument: str, place: str) -> object:
            kind = {"type": "string" if place == "query" else "integer"}
            return {"get": {"operationId": name, "parameters": [{"name": argument, "in": place, "required": True, "schema": kind}], "responses": {"200": {}}}}

        return {"openapi": "3.1.0", "servers": [{"url": "https://shop.example.com"}],
                "paths": {"/orders": operation("list_orders", "customer", "query"), "/orders/{id}": operation("get_order", "id", "path")}}


@dataclass
class World:
    """What the pages take for granted."""

    daemon: Daemon
    env: dict[str, str]
    folder: Path  # of the built programs


@pytest.fixture(scope="module")
def world(found: dict[str, list[Block]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("docs")
    snippets.build_typescript({page: some for page, all in found.items() if (some := [b for b in all if b.language == "ts" and not b.by])}, folder)
    snippets.build_go({page: some for page, all in found.items() if (some := [b for b in all if b.language == "go" and not b.by])}, folder)
    # Hosts of the pages, on addresses of loopback that nobody else listens on.
    shop, notes = (f"127.83.{os.getpid() >> 8 & 255}.{os.getpid() & 255}", f"127.84.{os.getpid() >> 8 & 255}.{os.getpid() & 255}")
    with ExitStack() as stack:
        certificate = sites.certificate(folder, "shop.example.com", "notes.example.com")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, f"{certificate}.key")
        server = ThreadingHTTPServer((shop, 443), Shop)
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        program = stack.enter_context(subprocess.Popen([sys.executable, HERE / "mcp_server.py", "https", notes, certificate]))
        stack.callback(program.kill)
        names = Names({"shop.example.com": shop, "notes.example.com": notes})
        stack.callback(names.close)
        # Models that follow a script: the server's own, and that of programs with a loop of their own.
        model = stack.enter_context(subprocess.Popen([BIN, "agent", "script", HERE / "docs_model.json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        stack.callback(model.send_signal, signal.SIGINT)
        assert model.stdout
        base_url = model.stdout.readline().strip()
        scripts = [json.loads(file.read_text())["conversations"] for file in sorted((ROOT / "examples").glob("*/script.json")) if file.parent.name != "analyst"]
        scripts.append(json.loads((HERE / "docs_programs.json").read_text())["conversations"])
        programs_model = stack.enter_context(ScriptedModel(Script([talk for script in scripts for talk in script])))

        declared = {"mcp": {"warehouse": {"command": [sys.executable, str(HERE / "mcp_server.py"), "stdio"]}}}
        daemon = Daemon(under=names.under, tools=json.dumps(declared), agent_model="openai:gpt-4o", openai_base_url=base_url, openai_api_key="scripted",
                        anthropic_base_url=base_url, anthropic_api_key="scripted")
        with pytest.MonkeyPatch.context() as env:
            env.setenv("SSL_CERT_FILE", str(certificate))
            daemon.start()
        listens(notes, program)
        env = {**daemon.env, "PATH": f"{BIN.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}", "OPENAI_BASE_URL": programs_model.base_url, "OPENAI_API_KEY": "scripted"}
        yield World(daemon, env, folder)
        code, tail = daemon.stop(), daemon.tail()
        daemon.remove()
        assert code == 0, f"the daemon did not end cleanly:\n{tail}"


def listens(address: str, program: subprocess.Popen[bytes]) -> None:
    """Waits until a program that has been started does."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((address, 443), timeout=5).close()
        except ConnectionRefusedError:
            assert program.poll() is None and time.monotonic() < deadline, f"nothing listens on {address}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, found: dict[str, list[Block]], world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    """What becomes of each page that is asked for. They wait more than they compute, so two run at a time."""

    def run(page: str) -> None:
        folder = tmp_path_factory.mktemp("page")
        # What a reader has at hand.
        shutil.copy(ROOT / "examples" / "data-analyst" / "sales.csv", folder)
        book = openpyxl.Workbook()
        for row in [("region", "budget"), ("North", 1000), ("South", 2000)]:
            book.active.append(row)
        book.save(folder / "budget.xlsx")
        (folder / "bin").symlink_to(BIN.parent)
        snippets.Page([block for block in found[page] if not block.by], world.env, folder, world.folder).run()

    wanted = [item.callspec.params["page"] for item in request.session.items if getattr(item, "originalname", "") == test_the_blocks_of.__name__]
    with ThreadPoolExecutor(2) as pool:
        yield {page: pool.submit(run, page) for page in wanted}
    for sandbox in pandastack.Sandbox.list(api_url=world.daemon.url, api_key=world.daemon.key):
        sandbox.kill()


@pytest.mark.parametrize("page", [named(page) for page in PAGES if "```" in page.read_text()])
def test_the_blocks_of(page: str, ran: dict[str, Future[None]]) -> None:
    ran[page].result()


SERVES = "test/test_docs.py::test_a_server_that_a_reader_starts"
# Where the address and the data folder are those of the pages, and nobody else's.
APART = """
ip link set lo up
cd "$data" && for d in templates programs; do mkdir $d; mount --bind "$there/$d" $d; done
mount --rbind "$data" "$there"
cd "$tree"
make() { MAKEFLAGS= command make --dry-run "$@" >/dev/null; }      # what it makes is what the tests run with
"""


@pytest.mark.parametrize("page", ["README.md", "docs/first-steps.md", "docs/typescript.md"])
def test_a_server_that_a_reader_starts(page: str, found: dict[str, list[Block]], tmp_path: Path) -> None:
    at = next(number for number, block in enumerate(found[page]) if block.by == SERVES)
    data = Path(tempfile.mkdtemp(prefix="pst-", dir="/var/tmp"))
    data.chmod(0o711)  # sandboxes are nobody on this host, and pass through
    settings = {k: v for k, v in os.environ.items() if not k.startswith("PANDASTACK_") or k == "PANDASTACK_DATA_DIR"}
    env = {**settings, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config"), "PATH": f"{BIN.parent}:{os.environ['PATH']}",
           "data": str(data), "there": str(TEMPLATES.parent), "tree": str(ROOT)}
    apart = ["unshare", "--net", "--mount", "--propagation", "private"]
    # The page's own lines; the last of them starts the server, and stays.
    server = subprocess.Popen([*apart, "bash", "-euo", "pipefail", "-c", APART + found[page][at].text], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    late = threading.Timer(snippets.PAGE_SECONDS, os.killpg, (server.pid, signal.SIGKILL))
    late.start()
    mounts = os.open(f"/proc/{server.pid}/ns/mnt", os.O_RDONLY)
    try:
        assert server.stdout and "listens on http://127.0.0.1:8080" in server.stdout.readline()
        assert "try: pandastack run" in server.stdout.readline() + server.stdout.readline()

        def elsewhere(line: str) -> str:
            """In another terminal."""
            return subprocess.run(["nsenter", f"--net=/proc/{server.pid}/ns/net", "bash", "-euc", line], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout

        if page == "docs/typescript.md":
            said = elsewhere("curl -si -H 'Origin: https://app.example.com' http://127.0.0.1:8080/healthz")
            assert "access-control-allow-origin: https://app.example.com" in said.lower()
        else:
            assert elsewhere(found[page][at + 1].text) == "hello from a sandbox\n"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate()
        late.cancel()
        # Those sandboxes that waited to be used.
        subprocess.run(["nsenter", f"--mount=/proc/self/fd/{mounts}", BIN, "sweep", "--data-dir", TEMPLATES.parent], env=settings, pass_fds=[mounts], check=True, stdout=subprocess.DEVNULL)
        os.close(mounts)
        shutil.rmtree(data)


INSTALLS = "test/test_docs.py::test_what_is_installed_as_a_page_says"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["sdk/python/README.md", "sdk/typescript/README.md"])
def test_what_is_installed_as_a_page_says(page: str, found: dict[str, list[Block]], tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(BIN.parent)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    snippets.Page([block for block in found[page] if block.by == INSTALLS], env, tmp_path, tmp_path, seconds=900).run()


class Links(HTMLParser):
    """What a page of the site refers to, and the places in it that can be referred to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []  # by a browser that shows it
        self.followed: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag in ("script", "img", "iframe", "source", "video") and "src" in found:
            self.fetched.append(found["src"])
        if tag == "link" and found.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.fetched.append(found.get("href", ""))
        if tag == "a" and "href" in found:
            self.followed.append(found["href"])


@pytest.fixture(scope="module")
def site() -> Path:
    folder = ROOT / "dist" / "docs"
    assert (folder / "index.html").exists(), "the site is not built: make docs"
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}  # which is for servers


def test_the_site_is_whole_and_fetches_nothing(site: Path, pages: dict[Path, Links]) -> None:
    assert len(pages) > 80
    wrong = []
    for page, links in pages.items():
        for link in links.fetched + links.followed:
            if re.match(r"(data|mailto|javascript):|#", link) or link in links.followed and re.match(r"https?://", link):
                continue
            target, _, anchor = link.partition("#")
            there = (page.parent / unquote(target.partition("?")[0])).resolve() if target else page
            if there.is_dir():
                there /= "index.html"
            if ":" in target or target.startswith("/") or not there.exists():
                wrong.append(f"{page.relative_to(site)}: {link}")
            elif anchor and there in pages and unquote(anchor) not in pages[there].ids:
                wrong.append(f"{page.relative_to(site)}: {link} is no place there")
    for sheet in site.rglob("*.css"):
        wrong += [f"{sheet.relative_to(site)}: {url}" for url in re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\") ]+)", sheet.read_text())]
    assert wrong == []


def test_each_recipe_is_two_clicks_from_home(site: Path, pages: dict[Path, Links]) -> None:
    def below(page: Path) -> set[Path]:
        return {(page.parent / link.partition("#")[0]).resolve() for link in pages[page].followed if "://" not in link} & pages.keys()

    once = below(site / "index.html")
    twice = once.union(*map(below, once))
    assert {page for page in pages if page.parent in (site / "recipes", site / "frameworks")} <= twice


def test_the_site_is_searched_and_dark_without_a_server(site: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    asked: list[str] = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        page = browser.new_page(color_scheme="dark")
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
        page.keyboard.press("/")
        page.keyboard.type("langgraph")
        expect(page.get_by_role("option", name=re.compile("A LangGraph agent")).first).to_be_visible(timeout=20_000)
        browser.close()
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
