package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are shown in the help and the manual page of each verb. A test parses
// them.
var examples = map[string][]string{
	"serve":             {"pandastack serve --listen 127.0.0.1:8080"},
	"doctor":            {"pandastack doctor"},
	"sweep":             {"pandastack sweep --data-dir /var/lib/pandastack"},
	"version":           {"pandastack version"},
	"config show":       {"pandastack config show"},
	"config sample":     {"pandastack config sample"},
	"completion":        {"pandastack completion bash", "pandastack completion zsh", "pandastack completion fish"},
	"run":               {"pandastack run analysis.py --charts out", "pandastack run -c 1+1"},
	"mcp":               {"pandastack mcp"},
	"sandbox create":    {"pandastack sandbox create --template code-interpreter --ttl 3600 --metadata team=a"},
	"sandbox ls":        {"pandastack sandbox ls --status running", "pandastack -q sandbox ls --metadata team=a"},
	"sandbox get":       {"pandastack sandbox get sb-1"},
	"sandbox top":       {"pandastack sandbox top", "pandastack --json sandbox top sb-1"},
	"sandbox kill":      {"pandastack sandbox kill sb-1 sb-2", "pandastack sandbox kill --all"},
	"sandbox exec":      {"pandastack sandbox exec sb-1 make", "pandastack sandbox exec -it sb-1 -- bash -l", "pandastack sandbox exec -d sb-1 -- python3 server.py"},
	"sandbox attach":    {"pandastack sandbox attach sb-1", "pandastack sandbox attach sb-1 42"},
	"sandbox cp":        {"pandastack sandbox cp data.csv sb-1:/workspace/", "pandastack sandbox cp -r sb-1:/workspace/out results"},
	"sandbox watch":     {"pandastack sandbox watch sb-1 /workspace -r"},
	"sandbox link":      {"pandastack sandbox link sb-1 /workspace/report.pdf", "pandastack sandbox link sb-1 /workspace/data.csv --upload --ttl 600"},
	"sandbox events":    {"pandastack sandbox events --follow sb-1", "pandastack sandbox events"},
	"sandbox logs":      {"pandastack sandbox logs -f sb-1"},
	"sandbox ttl":       {"pandastack sandbox ttl sb-1", "pandastack sandbox ttl sb-1 3600"},
	"sandbox pause":     {"pandastack sandbox pause sb-1"},
	"sandbox resume":    {"pandastack sandbox resume sb-1"},
	"sandbox hibernate": {"pandastack sandbox hibernate sb-1"},
	"sandbox wake":      {"pandastack sandbox wake sb-1"},
	"sandbox fork":      {"pandastack sandbox fork sb-1 --count 3"},
	"sandbox net":       {"pandastack sandbox net sb-1 --follow", "pandastack sandbox net sb-1 --allow api.example.com --allow *.example.com", "pandastack sandbox net sb-1 --close"},
	"sandbox tools":     {"pandastack sandbox tools sb-1", "pandastack sandbox tools sb-1 --calls --limit 20"},
	"sandbox ports":     {"pandastack sandbox ports sb-1"},
	"sandbox forward":   {"pandastack sandbox forward sb-1 8000"},
	"approval ls":       {"pandastack approval ls", "pandastack approval ls --all --sandbox sb-1"},
	"approval approve":  {"pandastack approval approve ap-0123456789abcdef"},
	"approval deny":     {"pandastack approval deny ap-0123456789abcdef --reason Friday"},
	"context ls":        {"pandastack context ls sb-1"},
	"context create":    {"pandastack context create sb-1 --cwd /workspace"},
	"context run":       {"pandastack context run sb-1 -c 1+1"},
	"context fork":      {"pandastack context fork sb-1 default --count 2"},
	"context interrupt": {"pandastack context interrupt sb-1"},
	"context restart":   {"pandastack context restart sb-1"},
	"context close":     {"pandastack context close sb-1 default"},
	"snapshot create":   {"pandastack snapshot create sb-1 --name before"},
	"snapshot ls":       {"pandastack snapshot ls"},
	"snapshot get":      {"pandastack snapshot get sn-1"},
	"snapshot rename":   {"pandastack snapshot rename sn-1 after"},
	"snapshot rm":       {"pandastack snapshot rm sn-1"},
	"snapshot export":   {"pandastack snapshot export sn-1", "pandastack snapshot export sn-1 -"},
	"snapshot import":   {"pandastack snapshot import sn-1.tar.zst --name evening"},
	"template build":    {"pandastack template build code-interpreter"},
	"template rm":       {"pandastack template rm code-interpreter"},
	"template ls":       {"pandastack template ls"},
	"agent run":         {"pandastack agent run \"plot the first 20 primes\" --file data.csv"},
	"agent ls":          {"pandastack agent ls"},
	"agent show":        {"pandastack agent show ru-1 --format markdown"},
	"agent replay":      {"pandastack agent replay ru-1"},
	"agent fork":        {"pandastack agent fork ru-1 --at 4 --task \"use medians\"", "pandastack agent fork ru-1 --at 4 --model anthropic:claude-sonnet-4-5"},
	"agent cancel":      {"pandastack agent cancel ru-1"},
	"agent rm":          {"pandastack agent rm ru-1"},
	"agent script":      {"pandastack agent script replies.jsonl"},
	"secret set":        {"pandastack secret set github"},
	"secret ls":         {"pandastack secret ls"},
	"secret rm":         {"pandastack secret rm github"},
	"analyst":           {"pandastack analyst sales.csv \"Which region sold most?\" --report out.html", "pandastack analyst *.csv budget.xlsx \"Where are we above budget?\" --then \"By how much, by month?\" --notebook out.ipynb"},
	"key create":        {"pandastack key create --label ci"},
	"key ls":            {"pandastack key ls"},
	"key revoke":        {"pandastack key revoke pds_00112233"},
}

// explainVerbs puts the examples into the help.
func explainVerbs(k *kong.Kong) error {
	return kong.Visit(k.Model, func(v kong.Visitable, next kong.Next) error {
		if n, ok := v.(*kong.Node); ok {
			if lines := examples[verb(n)]; len(lines) > 0 {
				n.Detail = strings.TrimSpace(n.Detail + "\n\nExamples:\n\n    " + strings.Join(lines, "\n    "))
			}
		}
		return next(nil)
	})
}

// verb is how a command is called, without the program: "sandbox ls".
func verb(n *kong.Node) string {
	if n == nil || n.Type == kong.ApplicationNode {
		return ""
	}
	return strings.TrimSpace(verb(n.Parent) + " " + n.Name)
}
