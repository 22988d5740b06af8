"""The reference: pages made of the document that the daemon has of its own API, and of the sample of its settings.

`go test ./api` and the tests of internal/httpapi hold that document against what the daemon does, those of internal/config the sample.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from pages import ROOT

METHODS = ("get", "post", "put", "patch", "delete")
TITLES = {"mcp": "MCP"}


def pages() -> dict[str, str]:
    """Name of a page to its Markdown."""
    document = yaml.safe_load((ROOT / "api" / "openapi.yaml").read_text(encoding="utf-8"))
    made = {"reference/index.md": _overview(document), "reference/errors.md": _errors(document), "reference/types.md": _types(document)}
    for tag in document["tags"]:
        made[f"reference/{tag['name']}.md"] = _routes(document, tag)
    made["reference/settings.md"] = _settings((ROOT / "packaging" / "pandastack.toml").read_text(encoding="utf-8"))
    return made


def _overview(document: dict[str, Any]) -> str:
    info = document["info"]
    out = ["# The HTTP API, route by route", _prose(info["description"])]
    out += ["What it has in common, and why, is in [the HTTP API](../http-api.md)."]
    for tag in document["tags"]:
        out.append(f"## {tag['name']}\n\n{_prose(tag.get('description', ''))}")
        rows = [[f"[`{method.upper()} {path}`]({tag['name']}.md#{_slug(method, path)})", op["summary"]] for method, path, op, _ in _operations(document, tag)]
        out.append(table(["route", ""], rows))
    return "\n\n".join(out) + "\n"


def _routes(document: dict[str, Any], tag: dict[str, Any]) -> str:
    out = [f"# {TITLES.get(tag['name'], tag['name'].capitalize())}", _prose(tag.get("description", ""))]
    for method, path, op, shared in _operations(document, tag):
        out.append(f"## {method.upper()} {path}")
        out.append(_prose(f"{op['summary']} {op.get('description', '')}"))
        parameters = [_resolved(document, p) for p in [*shared, *op.get("parameters", [])]]
        if parameters:
            rows = [[f"`{p['name']}`", p["in"] + (", required" if p.get("required") else ""), _kind(p["schema"]), _cell(p)] for p in parameters]
            out.append(table(["parameter", "in", "type", ""], rows))
        for kind, media in op.get("requestBody", {}).get("content", {}).items():
            out.append(f"Body: `{kind}`, {_kind(media.get('schema', {}))}")
        rows, failures = [], []
        for status, response in sorted(op["responses"].items()):
            if "$ref" in response:
                failures.append(f"[{status} `{_name(response)}`](errors.md)")
            else:
                rows.append([status, _cell(response), "<br>".join(_answer(kind, media) for kind, media in response.get("content", {}).items())])
        out.append(table(["answer", "", "type"], rows))
        if failures:
            out.append("Failures: " + ", ".join(failures))
    return "\n\n".join(part for part in out if part) + "\n"


def _errors(document: dict[str, Any]) -> str:
    responses = document["components"]["responses"]
    codes = document["components"]["schemas"]["Code"]["enum"]
    status: dict[str, set[str]] = {code: set() for code in codes}
    for path in document["paths"].values():
        for method in METHODS:
            for number, response in path.get(method, {}).get("responses", {}).items():
                code = _name(response) if "$ref" in response else response.get("x-code")
                if code in status:
                    status[code].add(number)
    rows = [[f"`{code}`", ", ".join(sorted(status[code])), _cell(responses.get(code, {}))] for code in codes]
    return "\n\n".join([
        "# Error codes",
        "The body of a failure is an [Error](types.md#error) with this `code`, which is stable. The words in `error` are for people, and `hint` says what to do.",
        table(["code", "status", ""], rows),
        "What the SDKs make of them: [Python](../python.md#errors), [TypeScript](../typescript.md#errors), [Go](../go.md#errors).",
    ]) + "\n"


def _types(document: dict[str, Any]) -> str:
    out = ["# Types", "What is not required may be left out; `null` is the same."]
    for name, schema in document["components"]["schemas"].items():
        out.append(f"## {name}")
        out.append(_prose(schema.get("description", "")))
        if "enum" in schema:
            out.append(", ".join(f"`{value}`" for value in schema["enum"]))
        elif "properties" in schema:
            required = schema.get("required", [])
            out.append(table(["field", "type", "", ""], [
                [f"`{field}`", _kind(p), "required" if field in required else "", _cell(p)] for field, p in schema["properties"].items()]))
        else:
            out.append(_kind(schema))
    return "\n\n".join(part for part in out if part) + "\n"


def _settings(sample: str) -> str:
    """The sample has a sentence and a line `# NAME = DEFAULT` for each setting, behind some words about all."""
    found = re.findall(r"((?:^# .*\n)+)^# (\w+) = (.*)$", sample, re.MULTILINE)
    if not found:
        raise ValueError("packaging/pandastack.toml has no settings as they are looked for here")
    rows = [[f"`{name}`", f"`{default}`", escaped(" ".join(line.removeprefix("# ") for line in words.splitlines()))] for words, name, default in found]
    return "\n\n".join([
        "# Settings of the daemon",
        "A setting stands in the configuration file, in the environment as `PANDASTACK_` and its name in upper case, or is a flag of `pandastack serve`; "
        "the later of these counts. `pandastack config show` says what is in force, and why. See [operating](../operations.md#settings).",
        table(["setting", "default", ""], rows),
    ]) + "\n"


def _operations(document: dict[str, Any], tag: dict[str, Any]) -> list[tuple[str, str, dict[str, Any], list[Any]]]:
    """Method, path, operation and the path's own parameters, of a tag."""
    return [(method, path, item[method], item.get("parameters", [])) for path, item in document["paths"].items() for method in METHODS
            if method in item and tag["name"] in item[method]["tags"]]


def _resolved(document: dict[str, Any], parameter: dict[str, Any]) -> dict[str, Any]:
    return document["components"]["parameters"][_name(parameter)] if "$ref" in parameter else parameter


def _name(reference: dict[str, Any]) -> str:
    return reference["$ref"].rpartition("/")[2]


def _answer(kind: str, media: dict[str, Any]) -> str:
    if "x-events" in media:
        return "events " + ", ".join(f"`{event}` {_kind(schema)}" for event, schema in media["x-events"].items())
    return _kind(media.get("schema", {})) if kind == "application/json" else f"`{kind}`"


def _kind(schema: dict[str, Any]) -> str:
    """What a schema takes, with a link to a type that has a name."""
    if "$ref" in schema:
        return f"[{_name(schema)}](types.md#{_name(schema).lower()})"
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " or ".join(map(_kind, schema[several]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        kind = " or ".join(kind)
    if kind == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    words = str(schema.get("format", kind))
    if "enum" in schema:
        words = ", ".join(f"`{value}`" for value in schema["enum"] if value != "")
    if "minimum" in schema:
        words += f", from {schema['minimum']}"
    if "exclusiveMinimum" in schema:
        words += f", more than {schema['exclusiveMinimum']}"
    if "maximum" in schema:
        words += f" to {schema['maximum']}" if "minimum" in schema else f", at most {schema['maximum']}"
    if "default" in schema:
        words += f", default `{str(schema['default']).lower() if isinstance(schema['default'], bool) else schema['default']}`"
    return words


def escaped(text: str) -> str:
    """Words as Markdown: what stands in backticks is code, and the rest is neither markup nor HTML."""
    pieces = re.split("(`[^`]*`)", text)
    pieces[::2] = [re.sub(r"([*_\[\]])", r"\\\1", piece.replace("<", "&lt;").replace(">", "&gt;")) for piece in pieces[::2]]
    return "".join(pieces).replace("|", "\\|")


def _prose(text: str) -> str:
    return "\n\n".join(escaped(line) for line in text.strip().splitlines())


def _cell(described: dict[str, Any]) -> str:
    return escaped(" ".join(described.get("description", "").split()))


def table(head: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def _slug(method: str, path: str) -> str:
    """The anchor of a route's heading: what a forge makes of it, too."""
    return re.sub(r"[^\w\- ]", "", f"{method} {path}".lower()).replace(" ", "-")
