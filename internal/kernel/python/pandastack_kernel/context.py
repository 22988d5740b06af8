"""A context: a fork of the zygote that runs one user's cells, one after the other."""

from __future__ import annotations

import base64
import ctypes
import faulthandler
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import carrying, interrupts, libraries, openmp, randomness, toolbox, warmup
from .display import Outbox, describe, note
from .link import Link, encode, high_descriptor
from .memory_limit import MemoryLimit
from .notebook import Notebook
from .renderer import Renderer
from .shell import Shell, make_shell
from .spawning import Spawning
from .streams import Streams
from .tracebacks import describe_failure


class Context:
    """Made and prepared once in the zygote; :meth:`live` is the life of each fork."""

    def __init__(self) -> None:
        self._link = Link()
        self._streams = Streams(self._link)
        self._limit = MemoryLimit()
        self._spawning = Spawning(self._link, self._streams, self._limit)
        self._notebook = Notebook(self._link, self._streams)
        self._outbox = Outbox(self._link, self._streams, self._notebook)
        self._spawning.install()
        _unbuffer_c()
        self._shell: Shell = make_shell(self._outbox)
        self._renderer = Renderer()
        libraries.set_up(self._shell, self._renderer)
        self._notebook.set_up(self._shell)

    def prepare(self) -> None:
        """In the zygote, once everything is imported: the first cell of all, with its lazy imports."""
        kept = sys.stdout, sys.stderr
        self._streams.restore()  # mute until a context is live
        with self._forgetting():
            for code in warmup.FIRST_CELLS:
                error = self._cell(code)
                if error is not None:
                    describe_failure(error)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = kept

    def live(self, control: int, sync: int, out: int, err: int, *, rehearse: bool) -> int:
        """Run as a context on these descriptors until the agent closes control. Returns the exit status.

        Args:
            rehearse: for a spare, which has the time: a context that somebody waits for would only be later.
        """
        os.setsid()
        self._take(control, sync, out, err)
        self._limit.open()
        self._put_back()
        if rehearse:
            self._rehearse()
        self._link.mute = False
        while True:
            try:
                frame = self._link.receive()
            except Exception as error:  # a signal handler of the user's raised between cells
                note(f"between cells a signal handler raised {describe(error)}")
                continue
            if frame is None:
                self._end()
                return 0
            if frame["op"] == "init":
                self._init(frame)
            elif frame["op"] == "run":
                self._run(frame["id"], frame["code"], frame.get("notebook"))
            elif frame["op"] == "ask":
                self._ask(frame)
            elif frame["op"] == "rehearse":
                self._link.mute = True
                self._rehearse()
                self._link.mute = False
                self._link.send({"op": "rehearsed"})
            elif frame["op"] == "interrupt":
                self._link.interrupted = frame["id"]  # of a cell that is on its way, or has ended
            elif frame["op"] == "input":
                pass  # to a cell that has ended meanwhile
            elif frame["op"] == "fork":
                self._fork(frame["id"], int(frame["count"]))
            elif frame["op"] == "reseed":
                randomness.reseed(base64.b64decode(frame["entropy"]))

    def _take(self, control: int, sync: int, out: int, err: int) -> None:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._standard = [high_descriptor(fd) for fd in (null, os.dup(out), os.dup(err))]
        self._link.connect(
            socket.socket(fileno=high_descriptor(os.dup(control))),
            socket.socket(fileno=high_descriptor(os.dup(sync))),
        )
        for fd in (control, sync, out, err):
            if fd > 2:
                os.close(fd)
        self._restore_descriptors()
        faulthandler.enable(file=self._standard[2])

    def _fork(self, token: str, count: int) -> None:
        """Make copies of this context, with all it holds. In each of them this returns, too, as that copy.

        A process in between makes them and ends, so that they are the agent's children, not the user's.
        """
        descriptors = self._link.take_descriptors()
        refused, warnings = carrying.survey(self._link.own_sockets().union(descriptors, toolbox.own_sockets()))
        if len(descriptors) != 4 * count:
            refused = f"{len(descriptors)} descriptors came for {count} copies"
        if refused:
            self._link.send({"op": "fork_failed", "id": token, "error": refused})
        else:
            self._spawning.awake = False  # its hooks are for forks of the user's
            openmp.end_threads()
            between = os.fork()
            if not between:
                for copy in range(count):
                    if not os.fork():
                        own = descriptors[4 * copy : 4 * copy + 4]
                        _close([fd for fd in descriptors if fd not in own])
                        self._become(*own)
                        return
                os._exit(0)
            self._spawning.awake = True
            status = _wait(between)
            answer = {"op": "forked", "id": token, "warnings": warnings}
            if status:  # some were made, the others' lines are closed
                answer["warnings"] = [*warnings, f"not all copies could be made: status {status}"]
            self._link.send(answer)
        _close(descriptors)

    def _become(self, control: int, sync: int, out: int, err: int) -> None:
        """In a fresh fork of this context: be a context of its own, on these descriptors."""
        try:
            os.setsid()
            gc.freeze()  # a collection would write to all that is shared
            self._link.disconnect()
            _close(self._standard)
            self._take(control, sync, out, err)
            self._limit.open()
            self._renderer.forget()
            carrying.leave_event_loop()
            self._put_back()
            self._spawning.awake = True
            self._link.send({"op": "forked", "pid": os.getpid()})
        except BaseException:
            faulthandler.dump_traceback()
            os._exit(70)

    def _restore_descriptors(self) -> None:
        for fd, kept in enumerate(self._standard):
            os.dup2(kept, fd)

    def _init(self, frame: dict[str, Any]) -> None:
        warnings = []
        envs = frame.get("envs") or {}
        os.environ.update(envs)
        if "TZ" in envs:
            time.tzset()
        for folder in reversed(envs.get("PYTHONPATH", "").split(os.pathsep)):
            if folder and folder not in sys.path:
                sys.path.insert(1, folder)
        if cwd := frame.get("cwd"):  # a fork of a context stays where it is
            try:
                _enter(cwd)
                os.environ["PWD"] = cwd
            except OSError as error:
                warnings.append(f"cwd {cwd}: {error.strerror}")
                os.chdir("/")
        if frame.get("reseed"):
            randomness.reseed(base64.b64decode(frame.get("entropy") or ""))
        self._limit.set(int(frame.get("memory_limit") or 0))
        self._spawning.awake = True
        ready = {"op": "ready", "next": self._shell.execution_count}
        self._link.send({**ready, **({"warnings": warnings} if warnings else {})})

    def _run(self, run: str, code: str, notebook: dict[str, Any] | None = None) -> None:
        """Run a cell, for a notebook as it wants it."""
        count = self._shell.execution_count
        if notebook is None:
            self._work(run, lambda: self._cell(code), lambda: {"count": count, "next": self._shell.execution_count})
            return
        self._notebook.stdin = bool(notebook.get("stdin"))
        self._shell.payload.clear()
        reply: dict[str, Any] = {}

        def cell() -> BaseException | None:
            silent = bool(notebook.get("silent"))
            store = bool(notebook.get("store_history", True)) and not silent
            error = self._cell(code, store_history=store, silent=silent)
            if error is None:
                reply["user_expressions"] = self._shell.user_expressions(notebook.get("user_expressions") or {})
            reply["payload"] = self._shell.payload
            return error

        self._notebook.run = run
        self._work(run, cell, lambda: {"count": count, "next": self._shell.execution_count, "reply": reply})

    def _ask(self, frame: dict[str, Any]) -> None:
        """Answer what a notebook asks. Code of the user's may run, as in a cell."""
        reply: dict[str, Any] = {}

        def answer() -> None:
            self._shell.shown_error = None
            reply.update(self._notebook.answer(frame["type"], frame["content"], frame.get("metadata"), frame.get("buffers") or []))

        self._notebook.stdin = False
        self._notebook.run = frame["id"]
        self._work(frame["id"], answer, lambda: {"reply": reply})

    def _work(self, run: str, work: Callable[[], BaseException | None], more: Callable[[], dict[str, Any]]) -> None:
        """Do what the agent asked for and send its end, with ``more`` about it.

        A system call is dear here: what can wait until the agent has its answer comes after the end.
        """
        self._link.new_cell()
        self._outbox.begin(run)

        def cell() -> BaseException | None:
            if self._link.interrupts(run):  # asked for before there was anything that SIGINT could stop
                raise KeyboardInterrupt
            return work()

        try:
            error = interrupts.during(cell)
        except BaseException as raised:  # an interrupt between the user's code and ours
            error = raised
        if not self._link.connected:
            self._end_fork(error)
        if error is not None:
            self._limit.lift()  # to tell about a MemoryError takes memory
            self._streams.flush()
            self._restore_descriptors()  # and there may be a note
        self._streams.restore()
        self._outbox.send_updates()
        frame = self._end_frame(run, error)
        self._streams.flush()
        _flush_c()
        self._link.send({**frame, **more()})
        self._notebook.run = ""
        self._put_back()
        self._limit.apply()

    def _put_back(self) -> None:
        """Make descriptors, streams and SIGINT what the next cell expects, whatever the last one did to them."""
        self._restore_descriptors()
        self._streams.restore()
        interrupts.install()

    def _cell(self, code: str, *, store_history: bool = True, silent: bool = False) -> BaseException | None:
        shell = self._shell
        shell.shown_error = None
        result = shell.run_cell(code, store_history=store_history, silent=silent)
        return result.error_before_exec or result.error_in_exec or shell.shown_error

    def _end_frame(self, run: str, error: BaseException | None) -> dict[str, Any]:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            note("exit() ends the cell, not the kernel: variables are kept. Restart the context for a fresh one.")
            error = None
        if error is None:
            return {"op": "end", "id": run, "status": "ok"}
        failure = interrupts.during(lambda: describe_failure(error))  # it calls the user's code
        # `%tb` and `%debug` look here.
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        return {
            "op": "end",
            "id": run,
            "status": "error",
            "error_name": failure.name,
            "error_value": failure.value,
            "traceback": failure.traceback,
        }

    def _end_fork(self, error: BaseException | None) -> None:
        """A child that user code forked has come to the end of the cell: it must not become a second kernel."""
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            print(describe_failure(error).traceback, file=sys.stderr)
            status = 1
        self._streams.flush()
        os._exit(status)

    def _end(self) -> None:
        """The agent has closed the line: give atexit functions a moment, then go."""
        import atexit
        import signal

        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(2)
        self._limit.lift()
        atexit._run_exitfuncs()
        self._streams.flush()

    def _rehearse(self) -> None:
        """Act a first message and first cells for nobody, so that the real ones find their pages touched."""
        frame = {"op": "init", "cwd": os.getcwd(), "envs": {}, "reseed": True, "entropy": "AAAA", "memory_limit": 0}
        with self._forgetting(), randomness.kept():
            self._init(json.loads(encode(frame)))
            for code in warmup.REHEARSAL:
                self._run("rehearsal", code)
        self._spawning.awake = False

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Leave no trace of the cells that run in the block."""
        shell = self._shell
        before = dict(shell.user_ns), dict(shell.user_ns_hidden)
        yield
        for namespace, old in zip((shell.user_ns, shell.user_ns_hidden), before, strict=True):
            namespace.clear()
            namespace.update(old)
        history = shell.history_manager
        history.reset(new_session=False)
        history.output_hist_reprs.clear()
        history.input_hist_parsed[:] = history.input_hist_raw[:] = [""]
        history._i = history._ii = history._iii = history._i00 = ""
        hook = shell.displayhook
        hook._ = hook.__ = hook.___ = ""
        shell.execution_count = 1
        shell.last_execution_result = None
        shell.last_execution_succeeded = True
        shell.compile._filename_map.clear()
        shell.shown_error = None


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def _wait(pid: int) -> int:
    """The exit status of a child, 0 if the user's code has it reaped by itself."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 0


def _enter(folder: str) -> None:
    """Change to a folder, which is made if it is missing."""
    try:
        os.chdir(folder)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)


_libc = ctypes.CDLL(None)
_IONBF = 2


def _unbuffer_c() -> None:
    """Let what C code prints reach the pipe at once, between the lines that Python prints."""
    _libc.setvbuf(ctypes.c_void_p.in_dll(_libc, "stdout"), None, _IONBF, ctypes.c_size_t(0))


def _flush_c() -> None:
    """What C code printed without a newline."""
    _libc.fflush(None)
