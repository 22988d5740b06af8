"""Functions of this program as tools: their schema, made of type hints and docstrings, and their arguments and results."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import inspect
import json
import re
import sys
import typing
import uuid
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

__all__ = ["MCPServer", "OpenAPI", "Toolset", "tool"]


def tool(
    function: Optional[Callable[..., Any]] = None,
    *,
    name: Optional[str] = None,
    risky: bool = False,
    timeout_seconds: Optional[float] = None,
) -> Any:
    """Says more about a function that is given as a tool. Any function can be one without.

        @pandastack.tool(risky=True)
        def refund(order: int, cents: int) -> str: ...

    Args:
        name: what Python in the sandbox calls it, an identifier or "namespace.identifier". Default: its own name.
        risky: it changes what cannot be changed back: a policy that approves "risky" asks about it.
        timeout_seconds: how long a call may take. Default: the policy's, 60.
    """

    def mark(wrapped: Callable[..., Any]) -> Callable[..., Any]:
        setattr(wrapped, "__pandastack_tool__", {"name": name, "risky": risky, "timeout_seconds": timeout_seconds})
        return wrapped

    return mark if function is None else mark(function)


class OpenAPI:
    """An HTTP service with an OpenAPI 3 document; the server calls it.

    Args:
        name: the namespace, as in ``from tools import crm``.
        document: the document, as a mapping; or
        url: where it is, as the server reaches it.
        base_url: the service. Default: the document's first server.
        headers: added by the server: strings, or ``{"ref": "crm-key", "prefix": "Bearer "}`` for a secret that
            `client.secrets` keeps, of which nothing enters the sandbox.
        include: operations, with * for any letters. Default: all.
    """

    def __init__(
        self,
        name: str,
        document: Optional[Mapping[str, Any]] = None,
        *,
        url: Optional[str] = None,
        base_url: Optional[str] = None,
        headers: Optional[Mapping[str, Any]] = None,
        include: Optional[Sequence[str]] = None,
    ) -> None:
        self.name = name
        self.wire = _given(openapi=document, url=url, base_url=base_url, headers=_headers(headers), include=include)


class MCPServer:
    """A server of the Model Context Protocol over streamable HTTP; the PandaStack server is its client.

    Args:
        name: the namespace.
        url: where it is, as the server reaches it.
        headers, include: as for `OpenAPI`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        headers: Optional[Mapping[str, Any]] = None,
        include: Optional[Sequence[str]] = None,
    ) -> None:
        self.name = name
        self.wire = _given(url=url, headers=_headers(headers), include=include)


def _headers(headers: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    if headers is None:
        return None
    return {name: {"value": v} if isinstance(v, str) else dict(v) for name, v in headers.items()}


def _given(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class Function:
    """One function, as it is told to the server and called."""

    def __init__(self, function: Callable[..., Any], space: str = "") -> None:
        told = getattr(function, "__pandastack_tool__", {})
        own = str(told.get("name") or getattr(function, "__name__", ""))
        self.name: str = f"{space}.{own}" if space and "." not in own else own
        self.function = function
        self.waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError):
            raise TypeError(f"{function!r} has no signature; wrap it in a function of your own") from None
        self.hints = _hints(function)
        doc, notes = _docstring(inspect.getdoc(function) or "")
        self.wire = _given(
            name=self.name,
            description=doc or None,
            parameters=self._parameters(notes),
            returns=_schema(self.hints["return"]) if self.hints.get("return", None) not in (None, type(None)) else None,
            risky=told.get("risky") or None,
            timeout_seconds=told.get("timeout_seconds"),
        )

    def _parameters(self, notes: Mapping[str, str]) -> Dict[str, Any]:
        properties: Dict[str, Any] = {}
        required: List[str] = []
        more: Any = False
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL or parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(f"{self.name}: the parameter {name} has no name that a call could give; tools are called by name")
            hint = self.hints.get(name, Any)
            if parameter.kind is parameter.VAR_KEYWORD:
                more = _schema(hint)
                continue
            schema = dict(_schema(hint))
            if name in notes:
                schema.setdefault("description", notes[name])
            if parameter.default is parameter.empty:
                required.append(name)
            else:
                try:
                    schema["default"] = json.loads(dump(parameter.default))
                except (TypeError, ValueError):
                    pass
            properties[name] = schema
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}

    def bind(self, arguments: Mapping[str, Any]) -> Dict[str, Any]:
        """The arguments of a call as the function wants them: dataclasses, enumerations and models are made."""
        return {name: _made(self.hints.get(name, Any), value) for name, value in arguments.items()}


class Toolset:
    """What `tools=` of a create was given, sorted."""

    def __init__(self, given: Any, policy: Optional[Mapping[str, Any]] = None) -> None:
        self.functions: Dict[str, Function] = {}
        self.wire: Dict[str, Any] = {}
        if policy is not None:
            self.wire["policy"] = dict(policy)
        if isinstance(given, Mapping):
            given = [given]
        if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
            raise TypeError(f"tools must be a list of functions, OpenAPI, MCPServer and names, not {type(given).__name__}")
        for item in given:
            self._add(item)
        if self.functions:
            self.wire["functions"] = [function.wire for function in self.functions.values()]

    def _add(self, item: Any, space: str = "") -> None:
        if isinstance(item, str):
            self.wire.setdefault("use", []).append(item)
        elif isinstance(item, OpenAPI):
            self.wire.setdefault("http", {})[item.name] = item.wire
        elif isinstance(item, MCPServer):
            self.wire.setdefault("mcp", {})[item.name] = item.wire
        elif isinstance(item, Mapping):
            for name, members in item.items():
                for member in members if isinstance(members, (list, tuple)) else [members]:
                    self._add(member, str(name))
        elif callable(item):
            function = Function(item, space)
            if function.name in self.functions:
                raise ValueError(f"there are two tools {function.name}")
            self.functions[function.name] = function
        else:
            raise TypeError(f"a tool must be a function, OpenAPI, MCPServer, a name or a mapping, not {type(item).__name__}")


# --- schemas -------------------------------------------------------------------------------------------------------

_PLAIN: Dict[Any, Dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    Decimal: {"type": "number"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
}


def _hints(function: Callable[..., Any]) -> Dict[str, Any]:
    target = function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except Exception:  # of a name that is not there when the program runs
        return {n: Any for n in getattr(target, "__annotations__", {})}


def _schema(hint: Any, depth: int = 0) -> Dict[str, Any]:
    if hint is Any or depth > 8:
        return {}
    try:
        if hint in _PLAIN:
            return _PLAIN[hint]
    except TypeError:
        return {}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or (sys.version_info >= (3, 10) and isinstance(hint, _union())):
        options = [_schema(arg, depth + 1) for arg in args]
        return {} if {} in options else {"anyOf": options}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if str(origin) == "typing.Annotated" or hasattr(hint, "__metadata__"):
        note = next((m for m in hint.__metadata__ if isinstance(m, str)), None)
        inner = _schema(hint.__origin__, depth + 1)
        return {**inner, "description": note} if note else inner
    if origin in (list, set, frozenset, tuple) or str(origin).startswith("<class 'collections.abc."):
        if origin is tuple and args and args[-1] is not Ellipsis:
            return {"type": "array", "prefixItems": [_schema(a, depth + 1) for a in args], "minItems": len(args), "maxItems": len(args)}
        if len(args) == 2 and origin is not tuple:
            return {"type": "object", "additionalProperties": _schema(args[1], depth + 1)}
        return {"type": "array", "items": _schema(args[0], depth + 1)} if args else {"type": "array"}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(args[1], depth + 1) if len(args) > 1 else {}}
    if isinstance(hint, type):
        return _class_schema(hint, depth)
    if isinstance(hint, typing.NewType if isinstance(typing.NewType, type) else ()):
        return _schema(hint.__supertype__, depth + 1)
    return {}


def _union() -> Tuple[Any, ...]:
    import types

    return (getattr(types, "UnionType"),)


def _class_schema(hint: Any, depth: int) -> Dict[str, Any]:
    if issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if hasattr(hint, "model_json_schema"):
        return _inlined(hint.model_json_schema())
    if dataclasses.is_dataclass(hint):
        hints = _class_hints(hint)
        fields = dataclasses.fields(hint)
        free = (dataclasses.MISSING,)
        required = [f.name for f in fields if f.default in free and f.default_factory in free]
        return {"type": "object", "properties": {f.name: _schema(hints.get(f.name, Any), depth + 1) for f in fields}, "required": required}
    if issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
        hints = _class_hints(hint)
        return {
            "type": "object",
            "properties": {name: _schema(h, depth + 1) for name, h in hints.items()},
            "required": sorted(hint.__required_keys__),
        }
    if issubclass(hint, PurePath):
        return {"type": "string"}
    return {}


def _class_hints(hint: Any) -> Dict[str, Any]:
    try:
        return typing.get_type_hints(hint)
    except Exception:
        return {}


def _inlined(schema: Dict[str, Any]) -> Dict[str, Any]:
    """A schema with its own definitions put in their places, so that it can stand within another."""
    definitions = schema.pop("$defs", {})

    def walk(value: Any, depth: int = 0) -> Any:
        if isinstance(value, dict):
            name = value.get("$ref", "")
            if isinstance(name, str) and name.startswith("#/$defs/"):
                return walk(definitions.get(name[8:], {}), depth + 1) if depth < 6 else {}
            return {k: walk(v, depth) for k, v in value.items()}
        return [walk(v, depth) for v in value] if isinstance(value, list) else value

    return typing.cast(Dict[str, Any], walk(schema))


def _docstring(text: str) -> Tuple[str, Dict[str, str]]:
    """What a docstring says of the function and of each argument, in Google's, Sphinx's or NumPy's manner."""
    notes: Dict[str, str] = {}
    for match in re.finditer(r"^\s*:param\s+(?:\S+\s+)??(\w+):\s*(.*)$", text, re.M):
        notes[match[1]] = match[2].strip()
    section = re.search(r"^(?:Args|Arguments|Parameters):\s*\n((?:[ \t]+.*\n?|\s*\n)*)", text, re.M)
    if section:
        name = ""
        indent = 0
        for line in section[1].splitlines():
            start = re.match(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$", line)
            if start and (not name or len(start[1]) <= indent):
                name, indent = start[2], len(start[1])
                notes[name] = start[3].strip()
            elif name and line.strip():
                notes[name] += " " + line.strip()
        text = text[: section.start()] + text[section.end() :]
    text = re.sub(r"^\s*:(param|type|returns?|rtype|raises?)\b.*$", "", text, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text).strip(), notes


# --- arguments and results -----------------------------------------------------------------------------------------


def _made(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return None
    if args and (origin is typing.Union or type(None) in args):
        for option in args:
            if isinstance(option, type) and option in (str, int, float, bool) and isinstance(value, option):
                return value
        made = [option for option in args if option is not type(None)]
        return _made(made[0], value) if len(made) == 1 else value
    if origin in (list, List) and args and isinstance(value, list):
        return [_made(args[0], item) for item in value]
    if origin in (set, frozenset, tuple) and isinstance(value, list):
        return origin(value)
    if not isinstance(hint, type) or origin is not None:
        return value
    if issubclass(hint, enum.Enum):
        return hint(value)
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        hints = _class_hints(hint)
        return hint(**{name: _made(hints.get(name, Any), v) for name, v in value.items()})
    for parsed in (datetime.datetime, datetime.date, datetime.time):
        if hint is parsed and isinstance(value, str):
            return parsed.fromisoformat(value.replace("Z", "+00:00") if sys.version_info < (3, 11) else value)
    if hint in (set, frozenset, tuple) and isinstance(value, list):
        return hint(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is bytes and isinstance(value, str):
        import base64

        return base64.b64decode(value)
    if hint in (uuid.UUID, Decimal) or issubclass(hint, PurePath):
        return hint(str(value))
    return value


def dump(value: Any) -> str:
    """A value as JSON. Raises TypeError or ValueError when it has no such form."""
    return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (uuid.UUID, PurePath)):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict") and hasattr(value, "columns"):  # a table of pandas
        return value.to_dict("records")
    for name in ("tolist", "isoformat"):
        if callable(getattr(value, name, None)):
            return getattr(value, name)()
    raise TypeError(f"{type(value).__name__} is no JSON")
