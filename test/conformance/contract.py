"""The contract as values: what api/openapi.yaml says of requests, answers and events."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Iterator

import yaml

DOCUMENT = yaml.safe_load((Path(__file__).resolve().parents[2] / "api" / "openapi.yaml").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """A node itself, or what it refers to."""
    if "$ref" not in node:
        return node
    found: Any = DOCUMENT
    for part in node["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


class Operation:
    """A method of a path."""

    def __init__(self, method: str, path: str, item: dict[str, Any], spec: dict[str, Any]) -> None:
        self.method, self.path, self.id = method.upper(), path, spec["operationId"]
        self.parameters = [resolved(p) for p in item.get("parameters", []) + spec.get("parameters", [])]
        self._spec = spec

    def named(self, where: str) -> set[str]:
        """Names of the parameters in "query" or "header"."""
        return {p["name"] for p in self.parameters if p["in"] == where}

    @property
    def body(self) -> str | None:
        """The schema of its JSON body."""
        content = self._spec.get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        return schema["$ref"].split("/")[-1] if "$ref" in schema else None

    @property
    def _success(self) -> tuple[str, dict[str, Any]]:
        answers = {s: resolved(r) for s, r in self._spec["responses"].items() if s.startswith("2") or s == "101"}
        usual = [s for s, r in answers.items() if "application/json" in r.get("content", {})]  # what is answered unless a stream is asked for
        status = (usual or list(answers))[0]
        return status, answers[status]

    @property
    def status(self) -> int:
        return int(self._success[0])

    @property
    def answer(self) -> dict[str, Any] | None:
        """The schema of its JSON answer."""
        return self._success[1].get("content", {}).get("application/json", {}).get("schema")

    @property
    def events(self) -> dict[str, dict[str, Any]]:
        """The schema of the data of each event of its stream."""
        return self._success[1].get("content", {}).get("text/event-stream", {}).get("x-events", {})


def operations() -> Iterator[Operation]:
    for path, item in DOCUMENT["paths"].items():
        for method, spec in item.items():
            if method != "parameters":
                yield Operation(method, path, item, spec)


OPERATIONS = {operation.id: operation for operation in operations()}
STATUS_OF = {
    spec["content"]["application/json"]["schema"]["properties"]["code"]["const"]: status
    for operation in DOCUMENT["paths"].values()
    for method, each in operation.items()
    if method != "parameters"
    for status, response in each["responses"].items()
    for spec in [resolved(response)]
    if "const" in spec.get("content", {}).get("application/json", {}).get("schema", {}).get("properties", {}).get("code", {})
}


def sample(schema: dict[str, Any], name: str = "value", without: frozenset[str] = frozenset()) -> Any:
    """A value of a schema with every field, none of them empty; fields are left out by "Schema.field"."""
    if "$ref" in schema:
        of = schema["$ref"].split("/")[-1]
        target = SCHEMAS[of]
        if "properties" in target:
            fields = {f: s for f, s in target["properties"].items() if f"{of}.{f}" not in without}
            return {field: sample(spec, field, without) for field, spec in fields.items()}
        return sample(target, name, without)
    if "enum" in schema:
        return schema["enum"][-1]
    if "oneOf" in schema:
        return sample(schema["oneOf"][-1], name, without)
    number = zlib.crc32(name.encode()) % 900 + 100
    match schema.get("type"):
        case "string" if schema.get("format") == "date-time":
            return f"2026-03-01T10:00:{number % 60:02}Z"
        case "string" if schema.get("format") == "byte" or schema.get("contentEncoding") == "base64":
            return "dGV4dA=="
        case "string" if name == "stream":
            return "stderr"
        case "string":
            return f"{name}-text"
        case "integer":
            return number
        case "number":
            return number + 0.5
        case "boolean":
            return True
        case "array":
            return [sample(schema.get("items", {}), name, without)]
        case "object" if "properties" in schema:
            return {field: sample(spec, field, without) for field, spec in schema["properties"].items()}
        case "object":
            return {"key": sample(schema.get("additionalProperties", {}), "value", without)}
    return "anything"
