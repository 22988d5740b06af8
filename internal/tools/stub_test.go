package tools

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestStubsAreWhatAPersonWouldWrite(t *testing.T) {
	got := newStub(Tool{
		Name: "crm.find_customer", Description: "Find a customer.\n\nBy mail address, or by name.",
		Parameters: json.RawMessage(`{"type":"object","required":["email"],"properties":{
			"limit":{"type":"integer","description":"At most so many.","default":10},
			"email":{"type":"string","description":"Mail address."},
			"kind":{"enum":["person","firm"]},
			"tags":{"type":"array","items":{"type":"string"}},
			"where":{"$ref":"#/$defs/Place"}},
			"$defs":{"Place":{"type":"object","required":["city"],"properties":{"city":{"type":"string"},"near":{"$ref":"#/$defs/Place"}}}}}`),
		Returns: json.RawMessage(`{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"name":{"type":["string","null"]}}}`),
	})
	const want = `class Place(TypedDict):
    city: str
    near: NotRequired[Place]

class Find_customer_result(TypedDict):
    id: int
    name: NotRequired[str | None]

def find_customer(email: str, limit: int = ..., kind: Literal["person", "firm"] = ..., tags: list[str] = ..., where: Place = ...) -> Find_customer_result:
    """Find a customer.

    By mail address, or by name.

    Args:
        email: Mail address.
        limit: At most so many. Default: 10.
    """
    return _call("crm.find_customer", {"email": email, "limit": limit, "kind": kind, "tags": tags, "where": where})
`
	if have := got.Types + "\n" + got.Source; have != want {
		t.Errorf("it is\n%s\nand should be\n%s", have, want)
	}
	if got.Summary != "Find a customer." {
		t.Errorf("summary %q", got.Summary)
	}
}

// Whatever a stranger's document holds, it stays text: the source compiles, and
// running it does nothing but define.
func TestWhatStrangersWriteStaysText(t *testing.T) {
	evil := []string{
		`""" + __import__("os").system("id") + """`, "\\", `\"""`, "ends with a quote \"", "a\x00b\r\nc", "\n    import os\n", "'''", "日本語 \U0001F600", `\N{DIGIT ONE}`, `\x`, "return _call(",
		strings.Repeat("\"", 7), "]]}", "class", "None", "__class__", "a b-c", "9", "", "x: int = evil()",
	}
	var sources []string
	for _, word := range evil {
		props := map[string]any{}
		for _, other := range evil {
			props[other+word] = map[string]any{"type": "string", "description": word, "default": other, "enum": []any{other, word}}
		}
		params, err := json.Marshal(map[string]any{"type": "object", "properties": props, "required": []string{word}})
		if err != nil {
			t.Fatal(err)
		}
		returns, err := json.Marshal(map[string]any{"type": "object", "title": word, "properties": props, "description": word})
		if err != nil {
			t.Fatal(err)
		}
		s := newStub(Tool{Name: "ns." + pyName(word), Description: word, Parameters: params, Returns: returns})
		sources = append(sources, "from typing import *\n"+s.Types+"\n"+s.Source)
	}
	raw, err := json.Marshal(sources)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-c", `
import ast, json, sys
for source in json.load(sys.stdin):
    tree = ast.parse(source)
    for node in tree.body:
        assert isinstance(node, (ast.ImportFrom, ast.ClassDef, ast.FunctionDef)) or isinstance(node, ast.Assign) and node.value.func.id == "TypedDict", ast.unparse(node)
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    body = function.body
    assert len(body) == 2 or len(body) == 1, ast.unparse(function)
    assert isinstance(body[-1], ast.Return) and body[-1].value.func.id == "_call"
    if len(body) == 2:
        assert isinstance(body[0].value, ast.Constant)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    assert all(n.func.id in ("_call", "TypedDict") for n in calls), source
print("well")
`)
	cmd.Stdin = strings.NewReader(string(raw))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "well\n" {
		t.Fatalf("%v: %s", err, out)
	}
}
