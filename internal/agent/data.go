package agent

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

//go:embed python/load_tables.py
var loadSource string

//go:embed python/tables/*.py
var tablesPackage embed.FS

// tablesSources is the text of each module of python/tables, by its file's name.
var tablesSources = func() map[string]string {
	sources := map[string]string{}
	files, err := tablesPackage.ReadDir("python/tables")
	for _, f := range files {
		text, failed := tablesPackage.ReadFile("python/tables/" + f.Name())
		sources[f.Name()], err = string(text), errors.Join(err, failed)
	}
	if err != nil { // of what is compiled in
		panic(err)
	}
	return sources
}()

// tablesType is what python/tables says of the tables it made.
const tablesType = "application/vnd.pandastack.tables+json"

const (
	maxData        = 32               // files of a run
	loadTime       = 30 * time.Minute // for all of them
	maxTables      = 200
	maxColumns     = 200
	maxTableNotes  = 50
	maxLoadCode    = 1 << 20  // bytes; names of tens of thousands of columns
	shownTables    = 12 << 10 // bytes of the prompt; beyond it, tables are named without their columns
	beforeTokens   = 6000     // of the prompt, for what was asked before
	mostFollowed   = 200      // runs in a row
	maxTold        = 500      // bytes of a word of the loader's
	maxBeforeCode  = 4 << 10  // bytes of a question's code
	maxBeforeWords = 2 << 10  // bytes of a question, or of an answer
)

func checkData(names []string) error {
	if len(names) > maxData {
		return fault.InvalidField("data", "there are %d files of data; at most %d are taken", len(names), maxData)
	}
	for i, name := range names {
		if name == "" || strings.ContainsRune(name, 0) || !path.IsAbs(name) && !filepath.IsLocal(name) {
			return fault.InvalidField(fmt.Sprintf("data[%d]", i), "data[%d] must be the path of a file, absolute or below /workspace", i)
		}
	}
	return nil
}

func inWorkspace(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(workspace, name)
}

// following fills a request with where the run is that it goes on from.
func (s *Service) following(owner string, req *api.AgentRequest) error {
	switch {
	case req.SandboxID != "":
		return fault.InvalidField("sandbox_id", "a run that follows another works in its sandbox").WithHint("leave sandbox_id out")
	case len(req.Data) > 0:
		return fault.InvalidField("data", "a run that follows another has its tables").WithHint("load files with the first run")
	}
	entries, err := s.entries(owner, req.Follows)
	if err != nil {
		return err
	}
	before := describe(entries)
	switch {
	case before.Status != api.AgentEnded:
		return fault.New(api.CodeConflict, "the run %s has not ended", before.ID).WithHint("wait for its end")
	case before.ContextID == "":
		return fault.New(api.CodeConflict, "the run %s never had a sandbox", before.ID).WithHint("start anew, without follows")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	req.SandboxID = before.SandboxID
	return s.followed(req.Follows)
}

// followed refuses a second run that goes on from one. The lock is held.
func (s *Service) followed(by string) error {
	for id, l := range s.live {
		if by != "" && l.follows == by {
			return fault.New(api.CodeConflict, "the run %s goes on from %s already", id, by).WithHint("wait for its end, and follow it")
		}
	}
	return nil
}

// repeatable refuses to do a run once more whose data a new sandbox would lack.
func repeatable(field string, of api.AgentRequest) error {
	if of.Follows != "" {
		return fault.InvalidField(field, "the run goes on from %s, whose variables a new sandbox has not", of.Follows).WithHint("run its notebook beside the files")
	}
	hint := "run its notebook beside the files"
	if field == "replay_of" {
		hint = "name a sandbox in sandbox_id that has its files; or " + hint
	}
	for _, name := range of.Data {
		if !slices.ContainsFunc(of.Files, func(f api.AgentFile) bool { return inWorkspace(f.Path) == inWorkspace(name) }) {
			return fault.InvalidField(field, "the run's data lay in a sandbox, and is not kept with it").WithHint("%s", hint)
		}
	}
	return nil
}

// context makes the code context of the run, or gives that of the run before.
func (r *runner) context(ctx context.Context, sandbox string) (string, error) {
	run := &r.state.run
	if run.Follows != "" {
		before, err := r.s.Get(ctx, run.Workspace, run.Follows)
		if err != nil {
			return "", r.noSandbox(ctx, err)
		}
		return before.ContextID, nil
	}
	if _, err := r.s.cfg.Kernels.CreateContext(ctx, run.Workspace, sandbox, api.CreateContextRequest{ID: run.ID}); err != nil && !errors.Is(err, fault.Conflict) {
		return "", r.noSandbox(ctx, err)
	}
	return run.ID, nil
}

// given is what a prompt says of the tables that there are, and of what was
// asked before.
func (r *runner) given(ctx context.Context) (string, error) {
	run := &r.state.run
	if run.Follows != "" {
		chain, err := r.s.chain(run.Workspace, run.Follows)
		if err != nil {
			return "", err
		}
		out := ""
		for _, t := range chain {
			if t.loaded != nil {
				out += dataPrompt(t.loaded)
			}
		}
		return out + beforePrompt(chain), nil
	}
	if len(r.state.req.Data) == 0 {
		return "", nil
	}
	if r.state.loaded == nil {
		if err := r.load(ctx); err != nil {
			return "", err
		}
	}
	if failed := r.state.loaded.Failed; len(failed) > 0 {
		var words []string
		for _, f := range failed {
			words = append(words, f.Error)
		}
		return "", &end{reason: api.AgentNoData, words: strings.Join(words, "; ")}
	}
	return dataPrompt(r.state.loaded), nil
}

// loadCell puts python/tables into a context and has it load files.
func loadCell(names []string) string {
	sources, _ := json.Marshal(tablesSources) // JSON is Python here
	files, _ := json.Marshal(names)
	return loadSource + `
try:
    _load_tables(` + string(sources) + `, ` + string(files) + `)
finally:
    del _load_tables`
}

// load makes tables of the files, once, and writes down what came of it.
func (r *runner) load(ctx context.Context) error {
	w := new(watched)
	for e, err := range r.s.cfg.Kernels.Stream(ctx, r.state.run.Workspace, r.state.run.SandboxID, r.state.context, api.RunRequest{
		Code: loadCell(r.state.req.Data), TimeoutMS: loadTime.Milliseconds(), ExecutionID: r.state.run.ID + "-load",
	}) {
		if err != nil {
			return r.lost(ctx, err)
		}
		w.add(e)
		if e.Type == api.EventStdout {
			r.tell(api.AgentEvent{Type: api.AgentEventOutput, Stream: e.Type, Text: e.Text})
		}
	}
	if w.end == nil || w.end.End != api.EndOK || w.tables == nil {
		return &end{reason: api.AgentNoData, words: noTables(w.end)}
	}
	return r.put(api.AgentEvent{Type: api.AgentEventLoaded, Loaded: w.tables})
}

// hasTables tells whether the run's context has tables that were loaded, or what
// an earlier run left in it.
func (r *runner) hasTables() bool { return len(r.state.req.Data) > 0 || r.state.run.Follows != "" }

// setUpAgain prepares an interpreter that took the place of a lost one, and makes
// the tables of the files anew. Variables of earlier runs are gone.
func (r *runner) setUpAgain(ctx context.Context) error {
	if _, err := r.setUp(ctx); err != nil || !r.hasTables() {
		return err
	}
	chain, err := r.s.chain(r.state.run.Workspace, r.state.run.ID)
	if err != nil {
		return err
	}
	for _, f := range chain {
		if f.loaded == nil {
			continue
		}
		w := new(watched)
		for e, err := range r.s.cfg.Kernels.Stream(ctx, r.state.run.Workspace, r.state.run.SandboxID, r.state.context, api.RunRequest{
			Code: f.loaded.Code, TimeoutMS: loadTime.Milliseconds(),
		}) {
			if err != nil {
				return r.lost(ctx, err)
			}
			w.add(e)
		}
		if w.end == nil || w.end.End != api.EndOK {
			return &end{reason: api.AgentNoData, words: "after its interpreter was lost, " + noTables(w.end)}
		}
	}
	return nil
}

func noTables(x *api.Execution) string {
	words := "the data could not be loaded"
	switch {
	case x == nil:
		return words
	case x.End == api.EndOOM:
		return words + ": it takes more memory than the sandbox has (give it more, with memory_mb)"
	case x.End == api.EndKernelDied: // a library that got no memory may end it
		return words + ": the interpreter died (if the file is large, give the sandbox more memory, with memory_mb)"
	case x.End == api.EndTimeout:
		return fmt.Sprintf("%s in %.0f minutes", words, loadTime.Minutes())
	case x.Error != nil:
		return words + ": " + short(*x.Error, 1000)
	}
	return words + ": " + strings.ReplaceAll(string(x.End), "_", " ")
}

// tablesIn reads what the loader says, which comes from the sandbox; nil when it
// says nothing of use.
func tablesIn(raw string) *api.AgentLoaded {
	var said api.AgentLoaded
	if json.Unmarshal([]byte(raw), &said) != nil || len(said.Tables)+len(said.Failed) == 0 {
		return nil
	}
	if n := len(said.Code); n > maxLoadCode { // half of it would be worse
		said.Code = fmt.Sprintf("raise RuntimeError(\"the code that loaded the files has %d KB, and at most %d are kept: load them here\")", n>>10, maxLoadCode>>10)
	}
	said.Tables, said.Failed = append([]api.AgentTable{}, said.Tables[:min(len(said.Tables), maxTables)]...), said.Failed[:min(len(said.Failed), maxData)]
	for i := range said.Failed {
		said.Failed[i] = api.AgentUnread{File: line(said.Failed[i].File), Error: short(strings.Join(strings.Fields(said.Failed[i].Error), " "), maxTold)}
	}
	for i := range said.Tables {
		t := &said.Tables[i]
		t.Name, t.File = line(t.Name), line(t.File)
		t.Columns = append([]api.AgentColumn{}, t.Columns[:min(len(t.Columns), maxColumns)]...)
		for j, c := range t.Columns {
			t.Columns[j] = api.AgentColumn{Name: line(c.Name), Type: line(c.Type), Missing: c.Missing, About: line(c.About)}
		}
		t.Notes = append([]string{}, t.Notes[:min(len(t.Notes), maxTableNotes)]...)
		for j, n := range t.Notes {
			t.Notes[j] = short(strings.Join(strings.Fields(n), " "), maxTold)
		}
	}
	return &said
}

const analystPrompt = `

# The data

You are a data analyst. These tables are loaded already, as variables, each from its file; do not read the files again.

%s
State no number that you have not computed from them. Where a picture says it better, draw it with matplotlib, with a title and named axes, and end with plt.show(). Say in your answer what in the notes matters for it, such as rows that were left out.`

// dataPrompt tells a model what is loaded.
func dataPrompt(loaded *api.AgentLoaded) string {
	var b strings.Builder
	for _, t := range loaded.Tables {
		kind := "DataFrame"
		if t.OnDisk {
			kind = "too large for a DataFrame, on disk: ask it with sql(\"SELECT … FROM " + t.Name + "\"), in DuckDB's SQL, which gives a DataFrame;"
		}
		fmt.Fprintf(&b, "- `%s`: %s of %s, %d rows, %d columns\n", t.Name, kind, t.File, t.Rows, len(t.Columns))
		if b.Len() > shownTables {
			continue
		}
		for _, c := range t.Columns {
			fmt.Fprintf(&b, "  - %q %s, %s", c.Name, c.Type, c.About)
			if c.Missing > 0 {
				fmt.Fprintf(&b, ", %d missing", c.Missing)
			}
			b.WriteByte('\n')
		}
		for _, n := range t.Notes {
			fmt.Fprintf(&b, "  - note: %s\n", n)
		}
	}
	return fmt.Sprintf(analystPrompt, b.String())
}

// followed is a run of a chain, as those that come after it see it.
type followed struct {
	run    api.AgentRun
	loaded *api.AgentLoaded
	cells  []ranCell
}

// ranCell is a cell that ran, but for those that the run was set back behind.
type ranCell struct {
	turn    int
	cell    api.AgentCell
	outcome api.AgentOutcome
}

// chain gives the runs that lead to one, the first first, itself last.
func (s *Service) chain(owner, id string) ([]followed, error) {
	var out []followed
	for id != "" {
		if len(out) == mostFollowed {
			return nil, fault.New(api.CodeInvalid, "more than %d runs follow each other", mostFollowed).WithHint("start anew, without follows")
		}
		entries, err := s.entries(owner, id)
		if err != nil {
			return nil, err
		}
		f := followed{run: describe(entries)}
		for _, e := range entries {
			switch e.Type {
			case api.AgentEventLoaded:
				f.loaded = e.Loaded
			case api.AgentEventCell:
				f.cells = append(f.cells, ranCell{turn: e.Turn, cell: *e.Cell})
			case api.AgentEventOutcome:
				if n := len(f.cells) - 1; n >= 0 && f.cells[n].turn == e.Turn && f.cells[n].cell.Index == e.Outcome.Index {
					f.cells[n].outcome = *e.Outcome
				}
			case api.AgentEventRewound:
				f.cells = slices.DeleteFunc(f.cells, func(c ranCell) bool { return c.turn >= e.Rewound.ToTurn })
			}
		}
		out = append(out, f)
		id = f.run.Follows
	}
	slices.Reverse(out)
	return out, nil
}

// beforePrompt tells a model what was asked before, with the code that ran as
// far as there is room, the newest first.
func beforePrompt(chain []followed) string {
	var parts []string
	left := beforeTokens
	for i := len(chain) - 1; i >= 0; i-- {
		f := chain[i]
		answer := "(no answer)"
		if f.run.Answer != nil {
			answer = *f.run.Answer
		}
		code := ""
		for _, c := range f.cells {
			if c.outcome.End == string(api.EndOK) {
				code += strings.TrimRight(c.cell.Code, "\n") + "\n"
			}
		}
		code = short(code, maxBeforeCode)
		part := "Question: " + short(f.run.Task, maxBeforeWords) + "\n"
		whole := part
		if code != "" {
			whole += "Code that ran:\n```python\n" + code + "```\n"
		}
		answer = "Answer: " + short(answer, maxBeforeWords)
		if used := llm.Guess(whole + answer); used <= left {
			left -= used
			parts = append(parts, whole+answer)
		} else if used := llm.Guess(part + answer); used <= left {
			left -= used
			parts = append(parts, part+answer)
		} else {
			parts = append(parts, fmt.Sprintf("(%d questions before that)", i+1))
			break
		}
	}
	slices.Reverse(parts)
	return "\n\n# What was asked before\n\nIn this session, whose variables are all still there:\n\n" + strings.Join(parts, "\n\n")
}
