"""The Responses protocol, in terms of chat completions: a script knows one kind of conversation.

Whole answers only, and nothing is kept: a request has to bring all of its conversation, as with ``store=False``.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Dict, List

from .protocol import ProtocolError, check_tool
from .script import Reply

PARTS = {"input_text": "text", "output_text": "text", "input_image": "image_url"}


def as_chat(request: Any) -> Dict[str, Any]:
    """The request as it would be for chat completions, with pictures also in tool messages, which may hold them here.

    Raises ProtocolError for a request that the protocol forbids, or that needs what is not here.
    """
    if not isinstance(request, dict):
        raise ProtocolError("the body must be a JSON object")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise ProtocolError("you must provide a model parameter")
    for name in ("stream", "previous_response_id", "conversation", "prompt", "background"):
        if request.get(name):
            raise ProtocolError(f"{name}: the scripted model has no such thing")
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ProtocolError("'input' must be a string or an array of at least one item")
    messages: List[Dict[str, Any]] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    waiting: List[str] = []  # calls that have had no answer yet
    for index, item in enumerate(items):
        _add(messages, waiting, f"input[{index}]", item)
    if waiting:
        raise ProtocolError(f"No tool output found for the calls {waiting}")
    tools = [_tool(f"tools[{index}]", tool) for index, tool in enumerate(request.get("tools") or [])]
    return {"model": request["model"], "messages": messages, "tools": tools}


def _add(messages: List[Dict[str, Any]], waiting: List[str], where: str, item: Any) -> None:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        role = item.get("role")
        if role not in ("system", "developer", "user", "assistant"):
            raise ProtocolError(f"{where}.role {role!r} is none of ours")
        content = _content(where, item.get("content"), role)
        if role == "assistant":
            _assistant(messages)["content"] = content
        else:
            messages.append({"role": role, "content": content})
    elif kind in ("function_call", "custom_tool_call"):
        words = item.get("arguments" if kind == "function_call" else "input")
        if not item.get("call_id") or not item.get("name") or not isinstance(words, str):
            raise ProtocolError(f"{where} must have a call_id, a name and its arguments or input")
        if kind == "function_call":
            try:
                json.loads(words)
            except ValueError:
                raise ProtocolError(f"{where}: arguments must be a string of JSON") from None
        waiting.append(item["call_id"])
        call = {"id": item["call_id"], "type": "function", "function": {"name": item["name"], "arguments": words}}
        _assistant(messages).setdefault("tool_calls", []).append(call)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        if item.get("call_id") not in waiting:
            raise ProtocolError(f"{where}: No tool call found for the output with call_id {item.get('call_id')!r}")
        waiting.remove(item["call_id"])
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _content(where, item.get("output"), "tool")})
    elif kind != "reasoning":
        raise ProtocolError(f"{where}.type {kind!r} is none that the scripted model knows")


def _assistant(messages: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The assistant's message that is going on: one answer is several items."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _content(where: str, content: Any, role: str) -> Any:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise ProtocolError(f"{where} must have a string or an array of parts")
    parts: List[Dict[str, Any]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in PARTS or (kind == "output_text") != (role == "assistant"):
            raise ProtocolError(f"{where} has a part of type {kind!r}, which the {role}'s can't hold")
        if kind == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": str(part.get("image_url"))}})
        else:
            parts.append({"type": "text", "text": str(part.get("text"))})
    return parts


def _tool(where: str, tool: Any) -> Dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") not in ("function", "custom") or not tool.get("name"):
        raise ProtocolError(f"{where} must be a function or a custom tool with a name")
    made = {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
    check_tool(where, made)
    return made


def whole(request: Dict[str, Any], reply: Reply) -> Dict[str, Any]:
    """The answer as one object. A call whose arguments are a string is that of a custom tool."""
    output: List[Dict[str, Any]] = []
    if reply.text or not reply.calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": _id("msg"), "role": "assistant", "status": "completed", "content": [text]})
    for call in reply.calls:
        named = {"call_id": _id("call"), "name": call["name"], "status": "completed"}
        if isinstance(call["arguments"], str):
            output.append({"type": "custom_tool_call", "id": _id("ctc"), **named, "input": call["arguments"]})
        else:
            output.append({"type": "function_call", "id": _id("fc"), **named, "arguments": json.dumps(call["arguments"])})
    # Four bytes a token: a guess, so that whoever adds them up has something to add.
    shown, said = len(json.dumps(request["messages"])) // 4 + 1, len(json.dumps(output)) // 4 + 1
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": request["model"],
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": {
            "input_tokens": shown,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": shown + said,
        },
    }


def _id(kind: str) -> str:
    return f"{kind}_{uuid.uuid4().hex[:24]}"
