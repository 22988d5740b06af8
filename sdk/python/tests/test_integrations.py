"""What models and programs are given of a cell, and what adapters do when their framework is missing. No server."""

from __future__ import annotations

import asyncio
import base64
import copy
import subprocess
import sys
from typing import Any

import pytest

from pandastack import APIConnectionError, Execution, NotFoundError, RateLimitError, Result
from pandastack.integrations.observation import MAX_OUTPUT, Figure, Interpreter, middle, observe, require

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
DRAWN = Result({"image/png": base64.b64encode(PNG).decode()})


class Session:
    """Answers with what it was given, or raises it."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.ran: "list[str]" = []

    def run_code(self, code: str, *, timeout_seconds: float) -> Execution:
        self.ran.append(code)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def test_output_values_and_figures_in_the_order_in_which_a_model_reads_them() -> None:
    table = Result({"text/plain": "   a\n0  1", "text/html": "<table/>"}, is_last_expression=True)
    seen = observe(Execution(stdout="hello\n", stderr="careful\n", results=[table, DRAWN, Result({"text/plain": "7"})]))
    assert str(seen) == "hello\n[stderr]\ncareful\n[figure 1: PNG, 640×480 pixels]\n[result]\n7\n[result]\n   a\n0  1"
    assert seen.ok and seen.figures == (Figure(PNG),) and seen.html == ("<table/>",)


def test_a_value_alone_has_no_label_and_nothing_is_said_to_be_nothing() -> None:
    assert observe(Execution(results=[Result({"text/plain": "42"})])).text == "42"
    assert "printed nothing" in observe(Execution()).text
    assert observe(Execution(results=[Result({"application/x": "1"})])).text == "a value of the types application/x, which has no text"


def test_an_error_is_told_with_what_was_printed_before() -> None:
    failed = Execution(stdout="before\n", error="Traceback …\nKeyError: 'x'", error_name="KeyError", end="error", exit_code=1)
    seen = observe(failed)
    assert not seen.ok and seen.text == "before\n[error]\nTraceback …\nKeyError: 'x'"


@pytest.mark.parametrize(
    "end, survived, words",
    [
        ("timeout", True, "interrupted at its deadline of 5 seconds. Variables, imports and functions are still there. Make it do less"),
        ("timeout", False, "did not react to an interrupt and was ended after its deadline of 5 seconds. All variables"),
        ("oom", False, "more memory than there is"),
        ("interrupted", True, "The cell was interrupted. Variables"),
        ("kernel_died", False, "The interpreter ended while the cell ran. All variables, imports and functions are lost"),
    ],
)
def test_other_ends_say_what_is_left_and_what_to_do(end: str, survived: bool, words: str) -> None:
    seen = observe(Execution(end=end, error="words", state_survived=survived), 5)
    assert words in seen.text and not seen.ok


def test_long_output_is_cut_in_the_middle_with_all_that_is_missing_counted() -> None:
    mark = "\n[... 5000 bytes left out; all of it is in /x ...]\n"
    text = "a" * 20_000 + mark + "é" * 20_000
    cut = middle(text, MAX_OUTPUT)
    head, _, rest = cut.partition("\n[... ")
    missing, _, tail = rest.partition(" bytes left out ...]\n")
    assert len(head) + len(tail.encode()) + int(missing) == 20_000 + 5000 + 40_000
    assert len(cut.encode()) < MAX_OUTPUT + 100
    seen = observe(Execution(stdout=text, truncated=True, output_path="/x"))
    assert seen.text.endswith("[the whole output is in /x of the sandbox]")


def test_figures_beyond_a_few_are_counted_and_kept() -> None:
    seen = observe(Execution(results=[DRAWN] * 10))
    assert len(seen.figures) == 10 and seen.text.endswith("[figure 8: PNG, 640×480 pixels]\n[2 more figures]")
    assert "can't be shown: it is not base64" in observe(Execution(results=[Result({"image/png": "!"})])).text


def test_figures_are_written_with_their_ending(tmp_path: Any) -> None:
    assert Figure(PNG).save(tmp_path / "chart").name == "chart.png"
    assert Figure(b"<svg/>", "image/svg+xml").save(tmp_path / "a.b").read_bytes() == b"<svg/>"
    assert Figure(b"<svg/>", "image/svg+xml").for_models is False
    assert Figure(PNG).data_url.startswith("data:image/png;base64,iVBOR")


@pytest.mark.parametrize(
    "error, words",
    [
        (NotFoundError("no sandbox sb_1", status_code=404), "its sandbox has ended, and variables and files are gone"),
        (APIConnectionError("reset"), "Whether the code ran is not known"),
        (APIConnectionError("refused", sent=False), "The code did not run: refused"),
        (RateLimitError("too many cells wait", status_code=429), "The code did not run: too many cells wait"),
    ],
)
def test_trouble_of_the_sandbox_is_told_and_not_raised(error: Exception, words: str) -> None:
    seen = Interpreter(Session(error)).run("1")
    assert words in seen.text and not seen.ok and seen.execution is None
    assert asyncio.run(Interpreter(Session(error)).arun("1")) == seen


def test_arguments_that_do_not_fit_are_told_and_nothing_runs() -> None:
    session = Session(Execution())
    for arguments in ('{"code": 1}', "[]", '{"co', '{"source": "1"}', "[" * 100_000, None):
        seen = Interpreter(session).run_json(arguments)
        assert "The arguments don't fit" in seen.text and not seen.ok, arguments
    assert session.ran == []
    Interpreter(session).run_json('{"code": "1"}')
    assert session.ran == ["1"]


def test_figures_are_handed_out() -> None:
    drawn: "list[Figure]" = []
    Interpreter(Session(Execution(results=[DRAWN])), on_figure=drawn.append).run("plot()")
    assert drawn == [Figure(PNG)]


def test_a_copy_of_an_agent_works_in_the_same_sandbox() -> None:
    session = Session(Execution())
    assert copy.deepcopy(Interpreter(session)).session is session


def test_what_is_no_session_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="session must be a Sandbox or a CodeContext, not str"):
        Interpreter("sb_1")


def test_a_cancelled_caller_interrupts_its_cell() -> None:
    import threading

    class Slow(Session):
        stopped = threading.Event()
        started = threading.Event()

        def run_code(self, code: str, *, timeout_seconds: float) -> Execution:
            self.started.set()
            assert self.stopped.wait(30)
            return Execution(end="interrupted")

        def interrupt(self) -> None:
            self.stopped.set()

    async def main() -> None:
        session = Slow(None)
        task = asyncio.create_task(Interpreter(session).arun("while True: pass"))
        assert await asyncio.to_thread(session.started.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.stopped.is_set()

    asyncio.run(main())


@pytest.mark.parametrize(
    "printed",
    ["[... 1 bytes left out" * 50_000, f"{'x' * 30_000}[... {'9' * 5000} bytes left out ...]\n{'x' * 30_000}"],
    ids=["beginnings of the server's line", "a number without end"],
)
def test_no_output_stops_the_program(printed: str) -> None:
    """In a process of its own: an expression that looks at the same text again and again takes minutes, and is not to be ended."""
    watch = subprocess.run(
        [sys.executable, "-c", "import sys\nfrom pandastack import Execution\nfrom pandastack.integrations.observation import observe\n"
         "print(len(observe(Execution(stdout=sys.stdin.read())).text))"],
        input=printed, capture_output=True, text=True, timeout=60,
    )
    assert watch.returncode == 0, watch.stderr
    assert 20_000 < int(watch.stdout) < MAX_OUTPUT + 100


class Waiting:
    """Cells that run one after the other, as in an interpreter, until they are interrupted."""

    def __init__(self) -> None:
        self.asked: "list[str]" = []
        self.ran: "list[str]" = []
        self.interrupted: "list[str]" = []
        self.turn = asyncio.Lock()
        self.stop = asyncio.Event()
        self.begun = asyncio.Event()

    async def run_code(self, code: str, *, timeout_seconds: float) -> Execution:
        self.asked.append(code)
        async with self.turn:
            self.ran.append(code)
            self.stop.clear()
            self.begun.set()
            await self.stop.wait()
            return Execution(end="interrupted")

    async def interrupt(self) -> None:
        await asyncio.sleep(0)  # a request takes its time
        self.interrupted.append(self.ran[-1])
        self.stop.set()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_is_cancelled_again_and_again_interrupts_its_cell_all_the_same() -> None:
    async def main() -> None:
        session = Waiting()
        task = asyncio.create_task(Interpreter(session).arun("while True: pass"))
        await session.begun.wait()
        while not task.done():  # as anyio cancels
            task.cancel()
            await asyncio.sleep(0)
        await settle()
        assert session.interrupted == ["while True: pass"]

    asyncio.run(main())


def test_a_cancelled_caller_stops_no_other_cell_and_its_own_is_never_run() -> None:
    async def main() -> None:
        session = Waiting()
        interpreter = Interpreter(session)
        first = asyncio.create_task(interpreter.arun("first"))
        await session.begun.wait()
        second = asyncio.create_task(interpreter.arun("second"))
        await settle()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await settle()
        assert session.interrupted == [] and not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await settle()
        assert session.interrupted == ["first"] and session.asked == ["first"], "the server keeps for a while what it was asked for"

    asyncio.run(main())


def test_nor_in_threads() -> None:
    import threading

    class Slow(Session):
        def __init__(self) -> None:
            super().__init__(None)
            self.begun, self.go, self.interrupts = threading.Event(), threading.Event(), 0

        def run_code(self, code: str, *, timeout_seconds: float) -> Execution:
            self.ran.append(code)
            self.begun.set()
            assert self.go.wait(30)
            return Execution(stdout=code)

        def interrupt(self) -> None:
            self.interrupts += 1

    async def main() -> None:
        session = Slow()
        interpreter = Interpreter(session)
        first = asyncio.create_task(interpreter.arun("first"))
        assert await asyncio.to_thread(session.begun.wait, 30)
        second = asyncio.create_task(interpreter.arun("second"))
        await settle()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        session.go.set()
        assert (await first).text == "first" and (await interpreter.arun("third")).text == "third"
        assert session.ran == ["first", "third"] and session.interrupts == 0

    asyncio.run(main())


def test_a_missing_or_old_framework_is_named_with_the_version_wanted() -> None:
    with pytest.raises(ImportError, match=r'needs no-such-thing 1.2 or newer, and it is not installed: pip install "pandastack\[x\]"'):
        require("x", "no-such-thing 1.2")
    with pytest.raises(ImportError, match=r"needs pytest 1000 or newer, and \d+\.\d+\.\d+ is installed"):
        require("x", "pytest 1000")
    require("x", "pytest 7.4")


def test_the_package_imports_no_framework() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, pandastack, pandastack.integrations, pandastack.integrations.openai\n"
         "print([n for n in sys.modules if n.split('.')[0] in ('openai', 'langchain', 'pydantic', 'aiohttp')])"],
        capture_output=True, text=True, check=True,
    )
    assert done.stdout.strip() == "[]"
