"""What an agent's run puts into its code context: final_answer, advice about cells, a description of the environment.

It runs inside the sandbox, within reach of the code it looks at. So it advises and describes; it holds nothing back.
"""

import ast
import builtins
import json
import os
import re
import sys

ANSWER = "application/vnd.pandastack.final-answer+json"
ADVICE = "application/vnd.pandastack.advice+json"
ENVIRONMENT = "application/vnd.pandastack.environment+json"

ADVICE_LIMIT = 50
ANSWER_LIMIT = 1 << 20  # characters


class FinalAnswer(BaseException):
    """Ends the cell. Not an Exception, so that a model's `except Exception` lets it through."""


def final_answer(answer=None):
    """Give the final answer and end the run. The cell ends here."""
    shell = get_ipython()  # noqa: F821
    text = answer if isinstance(answer, str) else _shown(answer)
    value = None
    try:
        if len(encoded := json.dumps(answer)) <= ANSWER_LIMIT:
            value = json.loads(encoded)
    except (TypeError, ValueError, RecursionError):
        pass
    # Sent before it is raised: a bare `except:` catches what is raised, and cannot take back what was sent.
    shell.display_pub.publish({ANSWER: {"text": text[:ANSWER_LIMIT], "value": value}}, {})
    raise FinalAnswer(text[:200])


def _shown(value):
    to_string = getattr(value, "to_string", None)
    try:
        return str(to_string()) if callable(to_string) else str(value)
    except Exception as error:
        return f"<the answer's str() raised {type(error).__name__}>"


# --- advice --------------------------------------------------------------------------------------------------------

NETWORK = {"socket", "ssl", "requests", "urllib", "urllib3", "http", "httpx", "aiohttp", "ftplib", "smtplib", "paramiko", "websockets"}
PROCESS = {"subprocess", "pty", "multiprocessing"}
CALLS = {
    "process": re.compile(r"^(os\.(system|popen|fork|exec\w*|spawn\w*|posix_spawn\w*|kill)|get_ipython\(\)\.(system|getoutput))$"),
    "file_delete": re.compile(r"^(os\.(remove|unlink|rmdir|removedirs|truncate)|shutil\.(rmtree|move))$|\.(unlink|rmdir)$"),
    "eval": re.compile(r"^(eval|exec|compile|__import__|importlib\.import_module)$"),
}
ORDINARY = {"__init__", "__name__", "__doc__", "__file__", "__main__", "__version__", "__all__", "__len__", "__str__", "__repr__", "__annotations__"}


def advise(code):
    """What a reader would notice in a cell, as dicts with kind, line and what. Nothing for code that is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []

    def note(kind, node, what):
        entry = {"kind": kind, "line": getattr(node, "lineno", 0), "what": what[:100]}
        if entry not in found and len(found) < ADVICE_LIMIT:
            found.append(entry)

    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                if top in NETWORK:
                    note("network", node, f"import {name}")
                if top in PROCESS:
                    note("process", node, f"import {name}")
        elif isinstance(node, ast.Call):
            name = _dotted(node.func)
            for kind, pattern in CALLS.items():
                if name and pattern.search(name):
                    note(kind, node, name)
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"__\w+__", node.attr) and node.attr not in ORDINARY:
            note("dunder", node, node.attr)
        elif isinstance(node, ast.While) and _always(node.test) and not _leaves(node.body):
            note("endless_loop", node, f"while {ast.unparse(node.test)}")
    return sorted(found, key=lambda entry: entry["line"])


def _dotted(node):
    try:
        return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    except (ValueError, RecursionError):
        return ""


def _always(test):
    return isinstance(test, ast.Constant) and bool(test.value)


def _leaves(body):
    """Whether something in a loop's body may leave it: break of its own, return, raise, yield, or an exit."""
    for node in body:
        if isinstance(node, (ast.Break, ast.Return, ast.Raise)):
            return True
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
            inner = [n for n in ast.walk(node) if isinstance(n, (ast.Return, ast.Raise))]
            if inner or _leaves(node.orelse):
                return True
            continue
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            if _leaves(getattr(node, field, []) or []):
                return True
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            return True
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _dotted(node.value.func) in ("sys.exit", "exit", "quit", "final_answer"):
            return True
    return False


# --- the environment -----------------------------------------------------------------------------------------------

FILES_LIMIT = 50
WELL_KNOWN = (
    "numpy pandas scipy matplotlib seaborn scikit-learn statsmodels sympy plotly altair bokeh networkx polars pyarrow openpyxl xlsxwriter "
    "pillow opencv-python-headless requests httpx beautifulsoup4 lxml pydantic sqlalchemy duckdb tabulate nltk spacy torch tensorflow"
).split()


def lasting(version):
    """The part of a version that what a library can do hangs on."""
    return re.match(r"0\.\d+|\d+|", version)[0]


def describe():
    """Python, packages, files and limits, as the system prompt tells them."""
    installed = {}
    for folder in sys.path:
        if folder.endswith(("site-packages", "dist-packages")) and os.path.isdir(folder):
            for entry in os.listdir(folder):
                name, _, version = entry.removesuffix(".dist-info").rpartition("-")
                if entry.endswith(".dist-info") and name:
                    installed.setdefault(name.lower().replace("_", "-"), version)
    shown = [name for name in WELL_KNOWN if name in installed]
    files = []
    for folder, folders, names in os.walk("/workspace"):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = os.path.join(folder, name)
            try:
                files.append({"path": path, "bytes": os.path.getsize(path)})
            except OSError:
                continue
            if len(files) > FILES_LIMIT:
                break
        if len(files) > FILES_LIMIT:
            break
    memory = 0
    try:
        with open("/proc/meminfo") as info:
            memory = int(info.readline().split()[1]) // 1024
    except (OSError, ValueError, IndexError):
        pass
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "cwd": os.getcwd(),
        "packages": [f"{name} {lasting(installed[name])}" for name in shown],
        "more_packages": len(installed) - len(shown),
        "files": files[:FILES_LIMIT],
        "more_files": len(files) > FILES_LIMIT,
        "memory_mb": memory,
        "cpus": os.cpu_count() or 1,
    }


def install(shell):
    """Make final_answer a builtin, look at each cell before it runs, keep tables short, and say where we are."""
    builtins.final_answer = final_answer
    if getattr(shell, "pandastack_looks", False):  # a run that follows another in its context
        shell.display_pub.publish({ENVIRONMENT: describe()}, {})
        return
    shell.pandastack_looks = True

    def look(info):
        try:
            code = shell.transform_cell(info.raw_cell) if info.raw_cell else ""
            shell.display_pub.publish({ADVICE: advise(code)}, {})
        except Exception:
            pass  # it is advice: a cell must not fail for it

    shell.events.register("pre_run_cell", look)
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        pandas.set_option("display.max_rows", 20, "display.max_columns", 20, "display.width", 120)
    shell.display_pub.publish({ENVIRONMENT: describe()}, {})
