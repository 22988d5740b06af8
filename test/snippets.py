"""Runs the blocks of a page of the documentation, one after the other, as somebody would who reads it from the top.

Blocks of a page build on each other: Python's have one namespace, the shell's are one shell, those of TypeScript and Go are one function each, in
which a block sees the names of those before it, and may use them anew.
"""

from __future__ import annotations

import html.parser
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from daemon import BIN, ROOT

sys.path.insert(0, str(ROOT / "scripts" / "docs"))

from pages import Block  # noqa: E402

PAGE_SECONDS = 120  # for a page
MARK, LEFT = "\x1e", "\x1eleft"  # what programs print before each block, and a shell at its end
TYPESCRIPT = ROOT / "sdk" / "typescript"


class SnippetError(Exception):
    """A block that does not do what it is there for."""


def check(block: Block, said: str) -> None:
    """Holds what a block printed against what its page shows. `…` stands for anything.

    Raises:
        SnippetError: it is something else.
    """
    if block.output is None:
        return
    pattern = "".join(".*" if piece == "…" else re.escape(piece) for piece in re.split("(…)", trimmed(block.output)))
    if not re.fullmatch(pattern, trimmed(said), re.DOTALL):
        raise SnippetError(f"{block.place}: it printed\n{said}\nand the page shows\n{block.output}")


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


# Takes a line of JSON for each block: the file of its code, the page, the block's line in it, and a mark to print after it.
PYTHON = r'''
def main():
    import ast, asyncio, inspect, json, os, sys, traceback
    told, sys.stdin = os.fdopen(os.dup(0)), open(os.devnull)
    loop = asyncio.new_event_loop()
    for told_line in told:
        path, page, first, mark = json.loads(told_line)
        with open(path) as file:
            source = "\n" * (first - 1) + file.read()
        try:
            code = compile(source, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            done = eval(code, globals())
            if inspect.iscoroutine(done):
                loop.run_until_complete(done)
        except BaseException:
            traceback.print_exc()
            sys.stdout.flush()
            os._exit(1)  # threads of the page's may go on
        print(mark, flush=True)
main()
'''


class Session:
    """An interpreter that goes on from block to block: of Python, or a shell."""

    def __init__(self, language: str, folder: Path, env: dict[str, str]) -> None:
        self.language = language
        self.folder = folder
        self.errors = folder / f".{language}-errors"
        argv = {"python": [sys.executable, "-c", PYTHON], "sh": ["bash", "--norc", "--noprofile", "-euo", "pipefail"], "zsh": ["zsh", "-feo", "pipefail"]}[language]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)

    def run(self, code: str, page: str, line: int) -> str:
        """What the code prints to standard output.

        Raises:
            SnippetError: it failed; the message has what it said.
        """
        mark = uuid.uuid4().hex
        file = self.folder / f".{self.language}-block"
        assert self.process.stdin and self.process.stdout
        if self.language == "python":
            file.write_text(code)
            request = json.dumps([str(file), str(ROOT / page), line, mark])
        else:
            file.write_text("\n" * (line - 1) + code)  # so that the shell says the page's lines
            # What it left running may hold its output open.
            request = f"trap 'echo; echo {LEFT}' EXIT; source {file} </dev/null; echo; echo {mark}"
        said = ""
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            while not said.endswith(f"{mark}\n"):
                more = self.process.stdout.readline()
                if not more or more == f"{LEFT}\n":
                    raise BrokenPipeError
                said += more
        except BrokenPipeError:
            raise SnippetError(f"{page}:{line}: this block failed:\n{said}{self.errors.read_text(errors='replace')}") from None
        return said.removesuffix(f"{mark}\n")

    def kill(self) -> None:
        """Ends it, and all that it left running."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended, and left nothing

    def end(self) -> None:
        self.kill()
        self.process.communicate()


class Page:
    """A page's blocks, and where they run.

    Args:
        env: finds the daemon, and the programs that a reader has.
        folder: where they run; it has the files that they use.
        programs: folder of what `build_typescript` and `build_go` made.
        seconds: for all of them, after which what runs is killed.
    """

    def __init__(self, blocks: Iterable[Block], env: dict[str, str], folder: Path, programs: Path, seconds: float = PAGE_SECONDS) -> None:
        self.blocks = list(blocks)
        self.env = env
        self.folder = folder
        self.programs = programs
        self.seconds = seconds
        self.sessions: dict[str, Session] = {}
        self.late = False

    def run(self) -> None:
        """Raises SnippetError for the first block that does not do what it should."""
        timer = threading.Timer(self.seconds, self.give_up)
        timer.start()
        try:
            compiled = set()
            for block in self.blocks:
                language = {"py": "python", "bash": "sh", "console": "sh"}.get(block.language, block.language)
                if language in ("python", "sh", "zsh"):
                    check(block, self.say(language, block))
                elif language in ("ts", "go"):
                    if language not in compiled:  # all of them at once
                        compiled.add(language)
                        some = [b for b in self.blocks if b.language == language]
                        for one, said in zip(some, self.program(language, some)):
                            check(one, said)
                elif language in PARSERS:
                    PARSERS[language](block)
                elif language != "text":
                    raise SnippetError(f"{block.place}: nothing here runs {block.language!r}; `text` is for what is no code")
        except SnippetError as error:
            raise SnippetError(f"{error}\n(killed after {self.seconds} s)" if self.late else str(error)) from None
        finally:
            timer.cancel()
            for session in self.sessions.values():
                session.end()

    def give_up(self) -> None:
        self.late = True
        for session in self.sessions.values():
            session.kill()

    def say(self, language: str, block: Block) -> str:
        if language not in self.sessions:
            self.sessions[language] = Session(language, self.folder, self.env)
        session = self.sessions[language]
        if block.setup:
            session.run(block.setup, block.page, block.line)
        said = session.run(block.text, block.page, block.line)
        if block.then:
            session.run(block.then, block.page, block.line + block.text.count("\n"))
        return said

    def program(self, language: str, blocks: list[Block]) -> list[str]:
        """What each of the blocks of a compiled program printed."""
        name = program_name(blocks[0].page)
        argv = ["node", self.programs / "ts" / "out" / f"{name}.js"] if language == "ts" else [self.programs / "go" / "pages", name]
        try:
            done = subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            raise SnippetError(f"{blocks[0].page}: its {language} blocks did not end within {self.seconds} s") from None
        said = done.stdout.split(f"{MARK}\n")[1:]
        if done.returncode:
            at = blocks[min(len(said), len(blocks)) - 1] if said else blocks[0]
            raise SnippetError(f"{at.place}: this block failed:\n{done.stdout}{done.stderr}")
        return said




def program_name(page: str) -> str:
    return re.sub(r"\W+", "_", page.removesuffix(".md"))


def build_typescript(pages: dict[str, list[Block]], folder: Path) -> None:
    """A module for each page with blocks of TypeScript, checked against the types of the built SDK, in out/.

    Raises:
        SnippetError: the compiler refused something.
    """
    at = folder / "ts"
    (at / "node_modules" / "@pandastack").mkdir(parents=True)
    (at / "node_modules" / "@pandastack" / "sdk").symlink_to(TYPESCRIPT)
    (at / "package.json").write_text('{"type": "module"}')
    options = {"noEmit": False, "declaration": False, "rootDir": ".", "outDir": "out", "types": ["node"], "typeRoots": [str(TYPESCRIPT / "node_modules/@types")],
               "noUnusedLocals": False, "noUnusedParameters": False}
    (at / "tsconfig.json").write_text(json.dumps({"extends": str(TYPESCRIPT / "tsconfig.json"), "compilerOptions": options, "include": ["*.ts"]}))
    for page, blocks in pages.items():
        imports: list[str] = []
        body = ""
        for block in blocks:
            body += f"{{ console.log({MARK!r});\n"
            for code in (block.setup, block.text, block.then):
                for line in code.splitlines():
                    if line.startswith("import "):
                        imports.append(line)
                        line = ""
                    body += f"{line}\n"
        lines = [*dict.fromkeys(imports), body, "}" * len(blocks), "export {};"]
        (at / f"{program_name(page)}.ts").write_text("\n".join(lines) + "\n")
    done = subprocess.run([TYPESCRIPT / "node_modules/.bin/tsc", "-p", at], cwd=at, capture_output=True, text=True)
    if done.returncode:
        raise SnippetError(done.stdout + done.stderr)


PACKAGES = {"pandastack": "github.com/pandastack/pandastack/sdk/go", "api": "github.com/pandastack/pandastack/api",
            **{name: name for name in ("context", "errors", "fmt", "io", "log", "os", "strings", "time")}}


def build_go(pages: dict[str, list[Block]], folder: Path) -> None:
    """One program, which is told the page whose blocks it is to run. A block is a file of its own, from its `package` on, or statements that
    have ctx, client and sb; after each that gives an err comes a look at it, unless the block has one itself.

    Raises:
        SnippetError: the compiler, or vet, refused something.
    """
    at = folder / "go"
    at.mkdir()
    functions, cases = "", ""
    for page, blocks in pages.items():
        name = f"page_{program_name(page)}"
        calls, statements = "", ""
        for number, block in enumerate(blocks):
            if block.text.startswith("package "):
                functions += re.sub(r"\Apackage .*?^import \(.*?^\)$", "", block.text, flags=re.DOTALL | re.MULTILINE).replace("func main()", f"func {name}_{number}()") + "\n"
                calls += f"fmt.Println({json.dumps(MARK)})\n{name}_{number}()\n"
            else:
                statements += f"{{ fmt.Println({json.dumps(MARK)})\n{block.setup}{looked_at(block.text)}{block.then}"
        if statements:
            calls += f"ctx, client, sb := ready()\ndefer sb.Kill(ctx)\n_, _, _ = ctx, client, sb\n{statements}{'}' * statements.count(json.dumps(MARK))}\n"
        functions += f"func {name}() {{\n{calls}}}\n"
        cases += f"case {json.dumps(program_name(page))}: {name}()\n"
    code = f"""
func must(err error) {{
	if err != nil {{
		log.Fatal(err)
	}}
}}

func ready() (context.Context, *pandastack.Client, *pandastack.Sandbox) {{
	ctx := context.Background()
	client, err := pandastack.NewClient()
	must(err)
	sb, err := client.Create(ctx, pandastack.CreateOptions{{Template: "code-interpreter"}})
	must(err)
	return ctx, client, sb
}}

{functions}
func main() {{
	switch os.Args[1] {{
	{cases}
	}}
}}
"""
    used = [f'{name} "{path}"' for name, path in PACKAGES.items() if re.search(rf"\b{name}\.[A-Z]", code)]
    (at / "main.go").write_text("package main\n\nimport (\n" + "\n".join(used) + "\n)\n" + code)
    for argv in (["go", "vet", at / "main.go"], ["go", "build", "-o", at / "pages", at / "main.go"]):
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "CGO_ENABLED": "0"})
        if done.returncode:
            raise SnippetError(done.stdout + done.stderr)


def looked_at(code: str) -> str:
    """Statements of Go, with a look at each err that they get, and a use of each name that is new."""
    statements: list[str] = []
    depth = 0
    for line in code.splitlines(keepends=True):
        if depth == 0:
            statements.append("")
        statements[-1] += line
        plain = re.sub(r'"(\\.|[^"\\])*"|`[^`]*`|//.*', "", line)
        depth += sum(plain.count(c) for c in "([{") - sum(plain.count(c) for c in ")]}")
    out = ""
    new: list[str] = []
    for statement, after in zip(statements, [*statements[1:], ""]):
        out += statement
        given = re.match(r"(\w+(?:, \w+)*) (:?=) ", statement)
        names = given[1].split(", ") if given else []
        if given and given[2] == ":=":
            new += [name for name in names if name not in ("_", "err")]
        if "err" in names and not re.match(r"(if|switch)\b", after):
            out += "must(err)\n"
    return out + "".join(f"_ = {name}\n" for name in dict.fromkeys(new))


def parse_toml(block: Block) -> None:
    """The daemon's own reader of settings takes it."""
    tomllib.loads(block.text)
    file = Path(os.environ.get("TMPDIR", "/tmp")) / f"pst-settings-{uuid.uuid4().hex}.toml"
    file.write_text(block.text)
    try:
        done = subprocess.run([BIN, "config", "show", "--config", file], capture_output=True, text=True)
    finally:
        file.unlink()
    if done.returncode:
        raise SnippetError(f"{block.place}: the daemon does not take these settings:\n{done.stderr}")


def parsed_by(parser: Any) -> Any:
    def parse(block: Block) -> None:
        try:
            parser(block.text)
        except (ValueError, yaml.YAMLError) as error:
            raise SnippetError(f"{block.place}: {error}") from None

    return parse


class Html(html.parser.HTMLParser):
    """Takes a piece of a page whose elements are all closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(text)
        self.close()
        if self.open:
            raise ValueError(f"{self.open} are not closed")

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("input", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"</{tag}> closes nothing")


PARSERS = {"toml": parse_toml, "json": parsed_by(json.loads), "yaml": parsed_by(yaml.safe_load), "html": parsed_by(Html)}
