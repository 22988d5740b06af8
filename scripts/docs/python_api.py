"""The reference of the Python SDK: pages made of its signatures and docstrings, which are read and not imported.

Every public name of the package is on one of them, or the build ends.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, field

from pages import ROOT
from reference import escaped, table

SOURCE = ROOT / "sdk" / "python" / "src" / "pandastack"
# A page, and the modules whose public classes and functions it has. Of the two halves the one without asyncio is shown.
PAGES = {
    "sandbox": ("Sandboxes", ["_sync/sandbox.py", "_sync/network.py"]),
    "code": ("Code", ["_sync/context.py", "execution.py", "events.py"]),
    "files": ("Files", ["_sync/filesystem.py"]),
    "commands": ("Commands and terminals", ["_sync/commands.py", "_sync/pty.py"]),
    "agents": ("Agents and the analyst", ["_sync/agent.py", "_sync/analyst.py"]),
    "tools": ("Functions outside", ["_functions.py", "_sync/tools.py"]),
    "client": ("The server", ["_sync/client.py"]),
    "records": ("Records", ["records.py"]),
    "errors": ("Errors", ["errors.py"]),
}
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)$")


@dataclass
class Docstring:
    prose: str  # Markdown
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # Args, Attributes, Raises: name and words


def pages() -> dict[str, str]:
    """Name of a page to its Markdown.

    Raises:
        ValueError: a public name of the package is on no page, or has no docstring.
    """
    package = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    public = next(ast.literal_eval(node.value) for node in package.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
    made: dict[str, str] = {}
    index = [
        "# The Python SDK, call by call",
        "Made of the signatures and docstrings of the package. What calls have in common is in [the Python SDK](../../python.md). "
        "Each class with calls has a twin for asyncio, `AsyncSandbox` and so on, with the same names to be awaited.",
    ]
    missing = {name for name in public if not name.startswith(("Async", "__"))}
    for page, (title, modules) in PAGES.items():
        found = [node for module in modules for node in ast.parse((SOURCE / module).read_text(encoding="utf-8")).body
                 if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (node.name in public or node.name in _attributes_of(modules))]
        made[f"reference/python/{page}.md"] = "\n\n".join([f"# {title}", *(part for node in found for part in _object(node))]) + "\n"
        missing -= {node.name for node in found}
        rows = [[f"[{node.name}]({page}.md#{_anchor(made[f'reference/python/{page}.md'], node.name)})", _docstring(node).prose.split("\n\n")[0].replace("\n", " ")] for node in found]
        index += [f"## {title}", table(["", ""], rows)]
    if missing:
        raise ValueError(f"scripts/docs/python_api.py: no page has {', '.join(sorted(missing))} of the Python SDK")
    made["reference/python/index.md"] = "\n\n".join(index) + "\n"
    return made


def _anchor(page: str, name: str) -> str:
    """Of the heading of a class: AgentRun comes after Agent.run, of which the same is made."""
    headings = [line.lstrip("# ") for line in page.splitlines() if line.startswith("##")]
    same = [heading.replace(".", "").lower() for heading in headings[: headings.index(name)]].count(name.lower())
    return name.lower() + (f"_{same}" if same else "")


def _attributes_of(modules: list[str]) -> set[str]:
    """The classes that public ones have as attributes, such as Snapshots of `client.snapshots`."""
    text = "".join((SOURCE / module).read_text(encoding="utf-8") for module in [*modules, "_sync/sandbox.py", "_sync/client.py"])
    return set(re.findall(r"^ {8}self\.[a-z]\w* = ([A-Z]\w+)\(", text, re.MULTILINE)) | {"Approvals"}


def _object(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    said = _docstring(node)
    out = [f"## {node.name}"]
    if isinstance(node, ast.FunctionDef):
        return [*out, _signature(node, node.name), said.prose, *_tables(said)]
    bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) not in ("object", "Exception")]
    if bases:
        out.append(f"A `{bases[0]}`.")
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    made_by = next((each for each in methods if each.name == "__init__"), None)
    if made_by and "Args" in said.sections:  # others are not made by whoever uses them
        out.append(_signature(made_by, node.name))
    out += [said.prose, *_tables(said)]
    for method in methods:
        decorators = [ast.unparse(each) for each in method.decorator_list]
        if method.name.startswith("_") or method.name == "from_wire":
            continue
        if "property" in decorators and not ast.get_docstring(method):
            continue  # the class says what it is
        words = _docstring(method)
        if "property" in decorators:
            returns = f": `{_kind(method.returns)}`" if method.returns else ""
            out += [f"### {node.name}.{method.name}", f"A property{returns}. {words.prose}"]
        else:
            made_of = {"classmethod", "staticmethod"} & set(decorators)
            name = node.name if made_of else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower()
            out += [f"### {node.name}.{method.name}", _signature(method, f"{name}.{method.name}"), words.prose]
        out += _tables(words)
    return out


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> Docstring:
    text = ast.get_docstring(node)
    if not text:
        raise ValueError(f"{node.name} of the Python SDK has no docstring")
    said = Docstring("")
    prose: list[str] = []
    section = ""
    for line in inspect.cleandoc(text).splitlines():
        begins = SECTION.match(line)
        if begins:
            section = begins[1]
            said.sections[section] = []
        elif section and (line.startswith("    ") or not line):
            entry = ENTRY.match(line[4:])
            entries = said.sections[section]
            if entry:
                entries.append((entry[1], entry[2]))
            elif line.strip() and entries:
                entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
            elif line.strip():  # Returns and Yields have no names
                entries.append(("", line.strip()))
        else:
            section = ""
            prose.append(line)
    said.prose = _markdown("\n".join(prose).strip())
    return said


def _markdown(text: str) -> str:
    """Prose of a docstring: what is indented is code, and so is what stands in two backticks."""
    out = []
    for block in re.split(r"\n\n+(?! {4})|(?<=\n)\n(?= {4})", text):
        if block.startswith("    "):
            out.append("```python\n" + inspect.cleandoc(block) + "\n```")
        else:
            out.append(_inline(block.strip()))
    return "\n\n".join(part for part in out if part)


def _inline(text: str) -> str:
    return escaped(re.sub(r"``([^`]+)``", r"`\1`", text))


def _tables(said: Docstring) -> list[str]:
    out = []
    for section, entries in said.sections.items():
        if section in ("Returns", "Yields"):
            out.append(f"{section} " + " ".join(_inline(words) for _, words in entries))
        elif section == "Raises":
            out.append("Raises:\n\n" + "\n".join(f"- `{name}`: {_inline(words)}" for name, words in entries))
        else:
            head = {"Args": "argument", "Attributes": "attribute"}[section]
            out.append(table([head, ""], [[f"`{name}`", _inline(words)] for name, words in entries]))
    return out


def _kind(annotation: ast.expr) -> str:
    """A type as it is read: without quotes."""
    return re.sub(r"['\"]([\w.\[\], ]+)['\"]", r"\1", ast.unparse(annotation))


def _signature(function: ast.FunctionDef, name: str) -> str:
    """A call with its arguments, on one line where they have room."""
    given = function.args
    ordered = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(ordered) - len(given.defaults)) + [*given.defaults]
    arguments = [_argument(arg, default) for arg, default in zip(ordered, defaults) if arg.arg not in ("self", "cls")]
    if given.vararg:
        arguments.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        arguments.append("*")
    arguments += [_argument(arg, default) for arg, default in zip(given.kwonlyargs, given.kw_defaults)]
    if given.kwarg:
        arguments.append("**" + _argument(given.kwarg, None))
    returns = f" -> {_kind(function.returns)}" if function.returns and function.name != "__init__" else ""
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"
    return f"```python\n{line}\n```"


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_kind(arg.annotation)}" if arg.annotation else ""
    return f"{arg.arg}{kind}" + (f"{' = ' if kind else '='}{ast.unparse(default)}" if default is not None else "")
