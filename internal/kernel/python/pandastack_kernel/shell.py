"""The IPython shell of a context: a notebook's manners without a notebook's threads."""

from __future__ import annotations

import builtins
import getpass
import os
import subprocess
import sys
from typing import Any

from IPython.core import async_helpers
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import StdinNotImplementedError
from IPython.core.events import EventManager
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets import Type
from traitlets.config import Config

from . import awaiting, display, figures, interrupts, scripts
from .display import BoundedFormatter, Outbox, ResultHook, ResultPublisher
from .notebook import Notebook

#: What `input()` raises for clients that are no notebooks.
_NO_INPUT = (
    "input() was called, but nobody can answer here: no terminal is attached to this kernel. "
    "Put the value into the code, or read it from a file or an environment variable."
)


# An interrupt in the midst of IPython's own steps would leave them half done.
for _function in (
    async_helpers._curio_runner,
    async_helpers._trio_runner,
    EventManager.trigger,
    InteractiveShell.transform_ast,
    InteractiveShell.transform_cell,
    InteractiveShell.user_expressions,
):
    interrupts.exposing(_function)

async_helpers._AsyncIORunner.__call__ = awaiting.run  # type: ignore[method-assign]


class CellCompiler(CachingCompiler):
    """Names the code of a cell so that warnings and tracebacks point to it."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        return f"Cell In[{number}]"


class Shell(InteractiveShell):
    """Runs cells. Results go to ``outbox``; what a cell raised is kept for the `end` frame, not printed."""

    compiler_class = Type(CellCompiler)
    displayhook_class = Type(ResultHook)
    display_pub_class = Type(ResultPublisher)

    outbox: Outbox

    def __init__(self, **kwargs: Any) -> None:
        self.shown_error: BaseException | None = None
        self.payload: list[dict[str, Any]] = []  # for the front end, of the cell that runs
        super().__init__(**kwargs)
        self.events.register("post_execute", self._flush_figures)
        self.set_hook("show_in_pager", _print_page)
        scripts.install(self)

    # --- what a cell raises ---------------------------------------------------------------------------------------

    @interrupts.exposing
    async def run_code(self, code_obj: Any, result: ExecutionResult | None = None, *, async_: bool = False) -> bool:
        """Run compiled code; true when it raised. SystemExit is an exception like any other here."""
        try:
            interrupts.raise_pending()
            if async_:
                await eval(code_obj, self.user_global_ns, self.user_ns)
            else:
                exec(code_obj, self.user_global_ns, self.user_ns)
        except BaseException as error:
            if result is not None:
                result.error_in_exec = error
            self.shown_error = error
            return True
        finally:
            for name in ("stdout", "stderr"):
                if not hasattr(sys, name):  # IPython's own code looks at them
                    setattr(sys, name, getattr(sys, f"__{name}__"))
        return False

    runcode = run_code

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """IPython calls it where a terminal would show a traceback."""
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if error is None:
            print("No traceback available to show.", file=sys.stderr)
        elif _in_formatter():
            self.display_formatter.failed(error)
        else:
            self.shown_error = error

    def showsyntaxerror(self, filename: str | None = None, running_compiled_code: bool = False) -> None:
        self.shown_error = sys.exc_info()[1]

    def showindentationerror(self) -> None:
        self.shown_error = sys.exc_info()[1]

    def _format_exception_for_storage(self, exception: BaseException, *_: Any, **__: Any) -> dict[str, Any]:
        # IPython formats every exception a second time for saving notebooks, at up to a second each.
        return {"ename": type(exception).__name__, "evalue": "", "traceback": []}

    # --- starting up ----------------------------------------------------------------------------------------------

    def init_display_formatter(self) -> None:
        self.display_formatter = BoundedFormatter(parent=self)
        self.configurables.extend((self.display_formatter, figures.InlineBackend(parent=self)))

    def init_virtualenv(self) -> None:
        pass  # the interpreter is the environment's own

    def init_sys_modules(self) -> None:
        sys.modules["__main__"] = self.user_module

    def init_builtins(self) -> None:
        super().init_builtins()
        leave = _Leave()
        self.builtin_trap.auto_builtins.update(exit=leave, quit=leave)

    # --- the world outside ----------------------------------------------------------------------------------------

    def system(self, cmd: str) -> None:
        """``!cmd``: the shell writes to the cell's own streams, so that the order is kept."""
        self.user_ns["_exit_code"] = run_program(self.var_expand(cmd, depth=1), shell=True)

    system_piped = system_raw = system

    def enable_matplotlib(self, gui: str | None = None) -> tuple[str, str]:
        """``%matplotlib``: figures are shown as pictures whatever is asked for."""
        import matplotlib

        if gui not in (None, "inline", "agg", "auto"):
            display.note(f"%matplotlib {gui} needs a window; figures are shown as pictures")
        matplotlib.use(figures.BACKEND)
        return "inline", figures.BACKEND

    def enable_gui(self, gui: str | None = None) -> None:
        pass

    def ask_exit(self) -> None:
        raise SystemExit(0)

    def set_next_input(self, text: str, replace: bool = False) -> None:
        """``%load``: a notebook puts the text into a cell."""
        self.payload.append({"source": "set_next_input", "text": text, "replace": replace})

    def _flush_figures(self) -> None:
        try:
            figures.flush()
        except (Exception, KeyboardInterrupt) as error:
            if self.shown_error is None:
                self.shown_error = error


def make_shell(outbox: Outbox) -> Shell:
    """The one shell of this process, with history off: IPython's would bring SQLite and a thread."""
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.separate_in = ""
    config.InteractiveShell.show_rewritten_input = False
    config.PlainTextFormatter.max_width = 100
    Shell.outbox = outbox
    shell = Shell.instance(config=config, user_ns=None)
    shell.magics_manager.load_all_lazy_magics()  # loading is not for a cell, where an interrupt would leave half of it
    builtins.input = _Input(outbox.notebook, password=False)
    getpass.getpass = _Input(outbox.notebook, password=True)
    return shell


def run_program(command: Any, *, shell: bool = False, stdin: bytes | None = None, **streams: Any) -> int:
    """Run a program to its end on the cell's own descriptors. An interrupt reaches it too and is then raised.

    Returns:
        The exit status, negative for a signal, as ``subprocess`` has it.
    """
    executable = ("/bin/bash" if os.path.exists("/bin/bash") else None) if shell else None
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with subprocess.Popen(command, shell=shell, executable=executable, stdin=source, **streams) as process:
        try:
            process.communicate(stdin)
        except BaseException:
            try:
                process.wait(0.5)  # the interrupt went to the whole group; give it a moment to end by itself
            except BaseException:
                process.kill()
            raise
        return process.returncode


class _Leave:
    """``exit`` and ``quit``: end the cell."""

    def __call__(self, code: int | str | None = None) -> None:
        raise SystemExit(code)

    def __repr__(self) -> str:
        return "exit() ends the cell; the kernel goes on"


class _Input:
    """``input`` and ``getpass.getpass``: asks the notebook that runs the cell."""

    def __init__(self, notebook: Notebook, *, password: bool) -> None:
        self._notebook, self._password = notebook, password

    def __call__(self, prompt: object = "", *_: Any, **__: Any) -> str:
        if not self._notebook.may_ask():
            raise StdinNotImplementedError(_NO_INPUT)
        return self._notebook.ask(str(prompt), password=self._password)


def _print_page(shell: Any, data: Any, start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
    print(data["text/plain"] if isinstance(data, dict) else data)


def _in_formatter() -> bool:
    """Whether IPython's `catch_format_error` is who asks to show a traceback."""
    frame = sys._getframe(2)
    return frame.f_globals.get("__name__") == "IPython.core.formatters"
