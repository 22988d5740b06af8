package cli

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// said is what a verb says to programs, and to who asks for no more than the
// answer.
type said struct {
	line  string // behind "pandastack"; a shell reads it
	json  string // "object", "array", or "lines": objects, one a line
	quiet string // "names": words, one a line; "nothing"; "text": that is what was asked for
	save  string // the variable that gets the name from the answer
	fails bool   // and says so by its exit code
}

// verbs are tried in this order: each may need what those before have made.
var verbs = []said{
	{line: "version", json: "object", quiet: "text"},
	{line: "doctor --driver fake --data-dir $DATA", json: "array", quiet: "text", fails: true},
	{line: "sweep --driver fake --data-dir $DATA-other", json: "array", quiet: "nothing"},
	{line: "config show", json: "array", quiet: "names"},
	{line: "config sample", json: "object", quiet: "text"},
	{line: "completion bash", json: "object", quiet: "text"},
	{line: "run -c 1+1", json: "object", quiet: "text"},
	{line: "template ls", json: "array", quiet: "names"},
	{line: "sandbox create --template base", json: "object", quiet: "names", save: "SB"},
	{line: "sandbox ls", json: "array", quiet: "names"},
	{line: "sandbox get $SB", json: "object", quiet: "names"},
	{line: "sandbox top", json: "array", quiet: "names"},
	{line: "sandbox ttl $SB 500", json: "object", quiet: "text"},
	{line: "sandbox exec $SB 'echo hi'", json: "object", quiet: "text"},
	{line: "sandbox exec -d $SB 'echo hi'", json: "object", quiet: "names", save: "PID"},
	{line: "sandbox attach $SB $PID", json: "lines", quiet: "text"},
	{line: "sandbox cp words $SB:/workspace/words", json: "object", quiet: "nothing"},
	{line: "sandbox cp $SB:/workspace/words back", json: "object", quiet: "nothing"},
	{line: "sandbox link $SB /workspace/words", json: "object", quiet: "text"},
	{line: "sandbox events --tail 3 $SB", json: "lines", quiet: "text"},
	{line: "sandbox logs $SB", json: "lines", quiet: "text"},
	{line: "sandbox tools $SB", json: "array", quiet: "nothing"},
	{line: "sandbox tools $SB --calls", json: "array", quiet: "nothing"},
	{line: "sandbox ports $SB", json: "array", quiet: "nothing"},
	{line: "sandbox net $SB --close", json: "object", quiet: "nothing"},
	{line: "sandbox pause $SB", json: "object", quiet: "nothing"},
	{line: "sandbox resume $SB", json: "object", quiet: "nothing"},
	{line: "context create $SB", json: "object", quiet: "names", save: "CTX"},
	{line: "context ls $SB", json: "array", quiet: "names"},
	{line: "context run $SB -c 6+1", json: "object", quiet: "text"},
	{line: "context fork $SB $CTX", json: "object", quiet: "names"},
	{line: "context interrupt $SB $CTX", json: "object", quiet: "nothing"},
	{line: "context restart $SB $CTX", json: "object", quiet: "nothing"},
	{line: "context close $SB $CTX", json: "object", quiet: "nothing"},
	{line: "snapshot create $SB --name one", json: "object", quiet: "names", save: "SN"},
	{line: "snapshot ls", json: "array", quiet: "names"},
	{line: "snapshot get $SN", json: "object", quiet: "names"},
	{line: "snapshot rename $SN two", json: "object", quiet: "nothing"},
	{line: "snapshot export $SN one.tar.zst", json: "object", quiet: "names"},
	{line: "snapshot import one.tar.zst", json: "object", quiet: "names"},
	{line: "snapshot rm $SN", json: "array", quiet: "nothing"},
	{line: "sandbox fork $SB", json: "object", quiet: "names"},
	{line: "sandbox hibernate $SB", json: "object", quiet: "nothing"},
	{line: "sandbox wake $SB", json: "object", quiet: "nothing"},
	{line: "secret set one <words", json: "object", quiet: "nothing"},
	{line: "secret ls", json: "array", quiet: "names"},
	{line: "secret rm one", json: "object", quiet: "nothing"},
	{line: "agent run add --model openai:x --base-url http://127.0.0.1:9/v1 --max-time 1s", json: "object", quiet: "nothing", fails: true},
	{line: "agent ls", json: "array", quiet: "names", save: "RUN"},
	{line: "agent show $RUN", json: "object", quiet: "text"},
	{line: "agent cancel $RUN", json: "array", quiet: "nothing"},
	{line: "agent rm $RUN", json: "array", quiet: "nothing"},
	{line: "approval ls", json: "array", quiet: "nothing"},
	{line: "key create", json: "object", quiet: "names", save: "KEY"},
	{line: "key ls", json: "array", quiet: "names"},
	{line: "key revoke $KEY", json: "object", quiet: "nothing"},
	{line: "sandbox kill $SB", json: "array", quiet: "nothing"},
}

// untried are verbs that go on until they are told to end, or take minutes.
var untried = map[string]string{
	"serve":            "the daemon of this script",
	"sandbox forward":  "test/test_previews.py",
	"agent script":     "agent.txtar",
	"sandbox watch":    "test/test_watch.py",
	"mcp":              "test/test_mcp.py",
	"template build":   "a bake",
	"approval approve": "test/test_tools.py",
	"approval deny":    "test/test_tools.py",
	"template rm":      "no_daemon.txtar",
	"agent replay":     "test/test_agent.py",
	"agent fork":       "test/test_agent.py",
	"analyst":          "test/test_agent.py",
}

// everyVerb MODE runs each verb with --json or -q, and looks at what it says.
func everyVerb(ts *testscript.TestScript, neg bool, args []string) {
	flag := map[string]string{"json": "--json", "quiet": "-q"}[args[0]]
	tried := map[string]bool{}
	for _, v := range verbs {
		err := ts.Exec("sh", "-c", "pandastack "+flag+" "+v.line)
		out, remarks := ts.ReadFile("stdout"), ts.ReadFile("stderr")
		if (err != nil) != v.fails {
			ts.Fatalf("%s %s: %v", flag, v.line, err)
		}
		name := ""
		if args[0] == "json" {
			name = isJSON(ts, v, out)
		} else {
			name = isQuiet(ts, v, out, remarks)
		}
		if v.save != "" {
			ts.Setenv(v.save, name)
		}
		words := strings.Fields(v.line)
		tried[words[0]] = true
		tried[strings.Join(words[:min(2, len(words))], " ")] = true
	}
	var g grammar
	for _, n := range newParser(&g, Streams{}).Model.Leaves(true) {
		if name := verb(n); !tried[name] && untried[name] == "" {
			ts.Fatalf("%s is not tried: give it a line in verbs", name)
		}
	}
}

// isJSON holds an answer against its kind, and gives the name in it.
func isJSON(ts *testscript.TestScript, v said, out string) string {
	d := json.NewDecoder(strings.NewReader(out))
	var values []any
	for {
		var value any
		err := d.Decode(&value)
		if err == io.EOF {
			break
		}
		if err != nil {
			ts.Fatalf("%s: what it says is no JSON (%v):\n%s", v.line, err, out)
		}
		values = append(values, value)
	}
	list, isList := any(nil), false
	if len(values) == 1 {
		list, isList = values[0], v.json == "array"
	}
	if isList {
		items, ok := list.([]any)
		if !ok {
			ts.Fatalf("%s: it is no array: %s", v.line, out)
		}
		values = items
	}
	if v.json != "lines" && !isList && len(values) != 1 {
		ts.Fatalf("%s: it is no %s: %s", v.line, v.json, out)
	}
	for _, value := range values {
		object, ok := value.(map[string]any)
		if !ok && v.line != "sweep" {
			ts.Fatalf("%s: %v is no object", v.line, value)
		}
		for _, name := range []string{"id", "prefix"} {
			if id, ok := object[name].(string); ok {
				return id
			}
		}
		if pid, ok := object["pid"].(float64); ok {
			raw, _ := json.Marshal(pid) // of a number
			return string(raw)
		}
	}
	return ""
}

func isQuiet(ts *testscript.TestScript, v said, out, remarks string) string {
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	bare := !slices.ContainsFunc(lines, func(l string) bool { return l == "" || strings.ContainsAny(l, " \t") })
	switch {
	case v.quiet == "nothing" && out != "", v.quiet == "names" && !bare, v.quiet == "text" && out == "" && v.json != "lines":
		ts.Fatalf("-q %s: it says no %s but %q", v.line, v.quiet, out)
	case remarks != "":
		ts.Fatalf("-q %s: it remarks %q", v.line, remarks)
	}
	return lines[0]
}
