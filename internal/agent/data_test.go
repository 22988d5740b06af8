package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// loads has the loader say that it made these tables of the files.
func (d *desk) loads(files []string, said api.AgentLoaded) {
	raw, _ := json.Marshal(said)
	d.knows[loadCell(files)] = []api.Event{result(tablesType, string(raw)), ok()}
}

var sales = api.AgentLoaded{
	Code:   "sales = 1",
	Tables: []api.AgentTable{{Name: "sales", File: "sales.csv", Rows: 3, Columns: []api.AgentColumn{{Name: "n", Type: "int64"}}, Notes: []string{"separator ;"}}},
}

func TestARunIsToldWhatWasLoadedAndTheNextWhatWasAsked(t *testing.T) {
	d := newDesk(
		scripted.Turn{Say: fence("one")}, scripted.Turn{Say: "FINAL ANSWER: first"},
		scripted.Turn{Say: fence("two")}, scripted.Turn{Say: "FINAL ANSWER: second"},
	)
	d.loads([]string{"sales.csv"}, sales)
	d.knows["one"] = []api.Event{printed("1\n"), result("text/html", "<table><tr><td onclick=x>1<script>alert(1)</script></td></tr></table>"), ok()}
	d.knows["two"] = []api.Event{raised("KeyError", "'x'")}
	s := d.service(t, t.TempDir())
	first, _ := follow(t, s, api.AgentRequest{Task: "How much?", SandboxID: "sb-9", Data: []string{"sales.csv"}})
	second, events := follow(t, s, api.AgentRequest{Task: "And <b>more</b>?", Follows: first.ID})
	if second.Reason != api.AgentAnswered || second.SandboxID != "sb-9" || second.ContextID != first.ContextID || second.Follows != first.ID {
		t.Fatalf("%+v", second)
	}
	if len(d.contexts) == 0 || !d.contexts[first.ID] || d.contexts[second.ID] {
		t.Errorf("contexts: %v", d.contexts)
	}
	prompt := ""
	for _, e := range events {
		if e.Type == api.AgentEventPrompt {
			prompt = e.Text
		}
	}
	for _, want := range []string{"`sales`: DataFrame of sales.csv, 3 rows", "note: separator ;", "Question: How much?", "```python\none\n```", "Answer: first"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt lacks %q:\n%s", want, prompt)
		}
	}
	raw, err := s.Notebook(context.Background(), owner, second.ID)
	if err != nil {
		t.Fatal(err)
	}
	var book struct {
		Cells []struct {
			Type     string `json:"cell_type"`
			Source   string
			Metadata struct{ Tags []string }
			Outputs  []map[string]any
		}
	}
	if err := json.Unmarshal(raw, &book); err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, c := range book.Cells {
		if c.Type == "code" {
			codes = append(codes, c.Source)
		}
	}
	if len(codes) != 4 || strings.Join(codes[1:], "|") != "sales = 1|one|two" {
		t.Errorf("the notebook has the cells %q", codes)
	}
	if last := book.Cells[len(book.Cells)-2]; len(last.Metadata.Tags) != 1 || last.Outputs[0]["ename"] != "KeyError" {
		t.Errorf("the cell that fails: %+v", last)
	}
	page, err := s.Report(context.Background(), owner, second.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"<script", "onclick", "<b>more"} {
		if bytes.Contains(page, []byte(not)) {
			t.Errorf("the page has %q", not)
		}
	}
	for _, want := range []string{"How much?", "And &lt;b&gt;more", "<td>1alert(1)</td>", "separator ;"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if _, err := s.Report(context.Background(), "somebody else", second.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("somebody else's report: %v", err)
	}
}

func TestWhatCannotFollow(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: 1"}, scripted.Turn{Say: "FINAL ANSWER: 2"})
	s := d.service(t, t.TempDir())
	ctx := context.Background()
	run, _ := follow(t, s, api.AgentRequest{Task: "x", Keep: keepKeep})
	for _, tc := range []struct {
		req   api.AgentRequest
		field string
	}{
		{api.AgentRequest{Follows: run.ID, SandboxID: "sb-1"}, "sandbox_id"},
		{api.AgentRequest{Follows: run.ID, Data: []string{"a.csv"}}, "data"},
		{api.AgentRequest{Follows: run.ID, MemoryMB: new(int)}, "memory_mb"},
		{api.AgentRequest{Data: []string{"../a"}}, "data[0]"},
		{api.AgentRequest{Data: make([]string, maxData+1)}, "data"},
	} {
		tc.req.Task = "x"
		_, err := s.Start(ctx, owner, tc.req, "")
		var f *fault.Error
		if !errors.As(err, &f) || f.Field != tc.field {
			t.Errorf("%+v: %v", tc.req, err)
		}
	}
	// One goes on already.
	d.haltAt = "ask"
	if _, err := s.Start(ctx, owner, api.AgentRequest{Task: "y", Follows: run.ID}, ""); err != nil {
		t.Fatal(err)
	}
	<-d.halted
	if _, err := s.Start(ctx, owner, api.AgentRequest{Task: "z", Follows: run.ID}, ""); !errors.Is(err, fault.Conflict) {
		t.Errorf("a second one: %v", err)
	}
	// It is replayed behind a replay of the one before alone.
	first, _ := s.List(ctx, owner, 1)
	for _, req := range []api.AgentRequest{{ReplayOf: first[0].ID}, {ReplayOf: first[0].ID, Follows: run.ID}, {ReplayOf: run.ID, Follows: run.ID}} {
		_, err := s.Start(ctx, owner, req, "")
		var f *fault.Error
		if !errors.As(err, &f) || f.Field != "follows" {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := s.Start(ctx, owner, api.AgentRequest{ReplayOf: run.ID, SandboxID: "sb-1"}, ""); err == nil {
		t.Error("a run with a sandbox of its own is replayed in another's")
	}
}

// An analyst's runs are done again in another sandbox that has the files: the
// first one, and then those that follow it, behind its replay.
func TestAnAnalystsRunsAreReplayed(t *testing.T) {
	d := newDesk(
		scripted.Turn{Say: fence("one")}, scripted.Turn{Say: "FINAL ANSWER: first"},
		scripted.Turn{Say: fence("two")}, scripted.Turn{Say: "FINAL ANSWER: second"},
	)
	d.loads([]string{"sales.csv"}, sales)
	d.knows["one"] = []api.Event{printed("1\n"), ok()}
	d.knows["two"] = []api.Event{printed("2\n"), ok()}
	s := d.service(t, t.TempDir())
	first, _ := follow(t, s, api.AgentRequest{Task: "How much?", SandboxID: "sb-8", Data: []string{"sales.csv"}})
	second, before := follow(t, s, api.AgentRequest{Task: "And more?", Follows: first.ID})
	d.model.Script = nil // nobody is asked
	_, err := s.Start(t.Context(), owner, api.AgentRequest{ReplayOf: first.ID}, "")
	var f *fault.Error
	if !errors.As(err, &f) || !strings.Contains(f.Hint, "sandbox_id") {
		t.Errorf("without its files: %v", err)
	}
	again, _ := follow(t, s, api.AgentRequest{ReplayOf: first.ID, SandboxID: "sb-9"})
	last, after := follow(t, s, api.AgentRequest{ReplayOf: second.ID, Follows: again.ID})
	if again.SandboxID != "sb-9" || *again.Answer != "first" || last.SandboxID != "sb-9" || last.ContextID != again.ID || *last.Answer != "second" {
		t.Errorf("%+v, %+v", again, last)
	}
	if b, a := told(before), told(after); !slices.Equal(b, a) {
		t.Errorf("told %q, then %q", b, a)
	}
}

func TestFilesThatCannotBeLoaded(t *testing.T) {
	for name, tc := range map[string]struct {
		events []api.Event
		words  string
	}{
		"one is refused":    {nil, "a.csv is empty"},
		"too much memory":   {[]api.Event{died(api.EndOOM)}, "more memory than the sandbox has"},
		"a fault of ours":   {[]api.Event{raised("ValueError", "no")}, "ValueError"},
		"it says nothing":   {[]api.Event{ok()}, "the data could not be loaded"},
		"it says nonsense":  {[]api.Event{result(tablesType, `{"tables": 3}`), ok()}, "the data could not be loaded"},
		"it says no tables": {[]api.Event{result(tablesType, `{}`), ok()}, "the data could not be loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk()
			d.loads([]string{"a.csv"}, api.AgentLoaded{Failed: []api.AgentUnread{{File: "a.csv", Error: "a.csv is\nempty"}}})
			if tc.events != nil {
				d.knows[loadCell([]string{"a.csv"})] = tc.events
			}
			run, _ := d.do(t, api.AgentRequest{Data: []string{"a.csv"}})
			if run.Reason != api.AgentNoData || !strings.Contains(run.Error, tc.words) {
				t.Errorf("%s: %s", run.Reason, run.Error)
			}
		})
	}
}

// What the loader says comes from the sandbox.
func TestALoaderThatSaysTooMuch(t *testing.T) {
	var said api.AgentLoaded
	long := strings.Repeat("x", 10_000)
	for range 300 {
		table := api.AgentTable{Name: long, File: long}
		for i := range 300 {
			table.Columns = append(table.Columns, api.AgentColumn{Name: fmt.Sprint(i), Type: "a\nb", About: "c"})
			table.Notes = append(table.Notes, "a\x1b[2J\nb")
		}
		said.Tables = append(said.Tables, table)
	}
	said.Code = strings.Repeat(long, 100)
	raw, _ := json.Marshal(said)
	got := tablesIn(string(raw))
	if len(got.Tables) != maxTables || len(got.Code) > maxLoadCode {
		t.Errorf("%d tables, %d bytes of code", len(got.Tables), len(got.Code))
	}
	for _, table := range got.Tables {
		if len(table.Name) > 210 || len(table.Columns) != maxColumns || len(table.Notes) != maxTableNotes || strings.Contains(table.Columns[0].Type, "\n") || strings.Contains(table.Notes[0], "\n") {
			t.Fatalf("%d bytes of name, %d columns, %d notes: %q", len(table.Name), len(table.Columns), len(table.Notes), table.Notes[0])
		}
	}
	if n := len(dataPrompt(got)); n > 3*shownTables+maxTables*500 {
		t.Errorf("the prompt has %d bytes of tables", n)
	}
}

func TestOutputsAreBounded(t *testing.T) {
	var o outputs
	for range 3000 {
		o.add(printed(strings.Repeat("x", 1000)), false, 0)
		o.add(result("text/plain", strings.Repeat("y", 1000)), false, 0)
	}
	size := 0
	for _, out := range o.list {
		size += len(out.Text) + len(out.Data["text/plain"])
	}
	if size > maxOutputs || !o.list[len(o.list)-1].Lost {
		t.Errorf("%d bytes are kept, and the end says %+v", size, o.list[len(o.list)-1])
	}
}

// A run with data that is cut after any entry of its transcript goes on, and its
// files are loaded once.
func TestALoadIsNotRepeatedAfterACrash(t *testing.T) {
	files := []string{"sales.csv"}
	fresh := func(turns ...scripted.Turn) *desk {
		d := newDesk(turns...)
		d.loads(files, sales)
		d.knows["one"] = []api.Event{printed("1\n"), ok()}
		return d
	}
	turns := []scripted.Turn{{Say: fence("one")}, {Say: "FINAL ANSWER: done"}}
	dir := t.TempDir()
	s := fresh(turns...).service(t, dir)
	first, _ := follow(t, s, api.AgentRequest{Data: files})
	s.Close()
	lines := linesOf(t, dir, first.ID)
	for n := 1; n < len(lines); n++ {
		replies, past := 0, map[string]bool{}
		left, entries := crashed(t, first.ID, lines[:n], "")
		for _, e := range entries {
			switch e.Type {
			case api.AgentEventReply:
				replies++
			case api.AgentEventCell:
				past[e.Cell.ExecutionID] = true
			case api.AgentEventSandbox: // it had begun when the crash came
				past[first.ID+"-load"] = true
			}
		}
		d := fresh(turns[replies:]...)
		d.made[first.ID], d.contexts[first.ID] = "sb-1", true
		for id := range past {
			d.ran[id]++
			d.past[id] = d.knows[map[bool]string{true: loadCell(files), false: "one"}[strings.HasSuffix(id, "-load")]]
		}
		s := d.service(t, left)
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		run, events := wait(t, s, first.ID)
		if run.Reason != api.AgentAnswered || *run.Answer != "done" {
			t.Errorf("cut after entry %d: %+v", n, run)
		}
		if d.ran[first.ID+"-load"] != 1 {
			t.Errorf("cut after entry %d: the files were loaded %d times", n, d.ran[first.ID+"-load"])
		}
		if !strings.Contains(promptOf(events), "`sales`: DataFrame of sales.csv") {
			t.Errorf("cut after entry %d: the prompt does not name the table", n)
		}
		s.Close()
	}
}

func promptOf(events []api.AgentEvent) string {
	for _, e := range events {
		if e.Type == api.AgentEventPrompt {
			return e.Text
		}
	}
	return ""
}

func TestCodeThatIsTooLongIsNotCut(t *testing.T) {
	for n, want := range map[int]string{maxLoadCode: "x", maxLoadCode + 1: "raise RuntimeError(\"the code that loaded the files has 1024 KB"} {
		raw, err := json.Marshal(api.AgentLoaded{Tables: []api.AgentTable{{Name: "t"}}, Code: strings.Repeat("x", n)})
		if err != nil {
			t.Fatal(err)
		}
		if got := tablesIn(string(raw)).Code; !strings.HasPrefix(got, want) || n > maxLoadCode && len(got) > 200 {
			t.Errorf("of %d bytes: %.120s", n, got)
		}
	}
}

// A run needs those that it goes on from, so they are kept as long as it is, and go with it.
func TestRunsThatOthersGoOnFromAreKept(t *testing.T) {
	d := newDesk(slices.Repeat([]scripted.Turn{{Say: "FINAL ANSWER: 1"}}, 4)...)
	d.loads([]string{"sales.csv"}, sales)
	s := d.service(t, t.TempDir())
	first, _ := follow(t, s, api.AgentRequest{Task: "a", SandboxID: "sb-9", Data: []string{"sales.csv"}})
	second, _ := follow(t, s, api.AgentRequest{Task: "b", Follows: first.ID})
	s.work.Wait()
	if err := s.Delete(t.Context(), owner, first.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("the run that another goes on from was deleted: %v", err)
	}
	s.cfg.MostKept = 1
	if err := s.forgetOld(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Notebook(t.Context(), owner, second.ID); err != nil {
		t.Errorf("the notebook of the newest: %v", err)
	}
	alone, _ := follow(t, s, api.AgentRequest{Task: "c"})
	s.work.Wait()
	for _, id := range []string{first.ID, second.ID} {
		if _, err := s.Get(t.Context(), owner, id); !errors.Is(err, fault.NotFound) {
			t.Errorf("an older one is kept: %v", err)
		}
	}
	if _, err := s.Get(t.Context(), owner, alone.ID); err != nil {
		t.Error(err)
	}
}

// Whoever opens a notebook loads nothing because of what a file is called or says.
func TestWordsOfFilesAreNoMarkdownInNotebooks(t *testing.T) {
	words := loadedWords(&api.AgentLoaded{Tables: []api.AgentTable{{
		Name: "t", File: "![x](http:__evil)<img src=x>.csv", Notes: []string{"1 line above the table left out: ![x](http://evil/p.png) `<b>` _a_ [l](x)\n# big"},
	}}})
	for _, bad := range []string{"![", "](", "<", "`", "\n#", "://"} {
		if i := strings.Index(strings.NewReplacer(`\\`, "", `\!`, "", `\[`, "", `\]`, "", `\(`, "", `\<`, "", "\\`", "", `\#`, "").Replace(words), bad); i >= 0 {
			t.Errorf("%q is Markdown in:\n%s", bad, words)
		}
	}
	if got := fencedWords("x = \"```\""); !strings.HasPrefix(got, "````python\n") || !strings.HasSuffix(got, "\n````") {
		t.Errorf("a fence within: %s", got)
	}
}

// Nor because of what a model says or its code shows: an address can carry what was read.
func TestOpeningANotebookLoadsNothing(t *testing.T) {
	for words, want := range map[string]string{
		"2 < 3, x[0]! and <b>so</b>":               "2 < 3, x[0]! and &lt;b>so&lt;/b>",
		"![x](http://evil/?d=1) ![x][ref]":         "!&#91;x](http://evil/?d=1) !&#91;x][ref]",
		`\![x](y) \\![x](y) \<img src=x>`:          `\!&#91;x](y) \\!&#91;x](y) \&lt;img src=x>`,
		"<!-- <img src=x> -->\n<IMG\nsrc=x><?x ?>": "&lt;!-- &lt;img src=x> -->\n&lt;IMG\nsrc=x>&lt;?x ?>",
	} {
		if got := withoutPictures(words); got != want {
			t.Errorf("%q is shown as %q", words, got)
		}
	}
	const frame = "<div>\n<style scoped>\n    .dataframe tbody tr th {\n        vertical-align: top;\n    }\n</style>\n" +
		`<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th><th>a &lt; b</th></tr></thead></table>` + "\n<p>1 row</p></div>"
	if got := harmless(map[string]string{"text/html": frame, "text/plain": "x"}); got["text/html"] != frame || got["text/plain"] != "x" {
		t.Errorf("a data frame is shown as %q", got)
	}
	if got := harmless(map[string]string{"text/markdown": "![x](http://evil)"}); len(got) != 1 || got["text/plain"] != "![x](http://evil)" {
		t.Errorf("Markdown is shown as %q", got)
	}
	if got := harmless(map[string]string{"text/markdown": "![x](http://evil)", "text/plain": "x"}); len(got) != 1 || got["text/plain"] != "x" {
		t.Errorf("Markdown is shown as %q", got)
	}
	if got := harmless(map[string]string{"text/html": `<p>x</p><table><tr><td><img src="http://evil">1</td></tr></table>`}); got["text/html"] != "<table><tr><td>1</td></tr></table>" {
		t.Errorf("a table with a picture is shown as %q", got)
	}
	for _, bad := range []string{
		`<img src="http://evil">`, `<p style="background: url(//evil)">x</p>`, `<style>@import "//evil"</style>`, `<style>p { background: \75rl(//evil) }</style>`,
		`<p onclick="x()">x</p>`, `<td background="//evil">x</td>`, `<svg><image href="//evil"/></svg>`, `<!--><img src="//evil">-->`, `<link rel=stylesheet href="//evil">`,
		`<p title="x" src=//evil>`, `<img src="//evil"`, `<style><!--</style><img src=//evil>`, "<iframe src=//evil>", `<p title="x`,
	} {
		if got := harmless(map[string]string{"text/html": bad, "text/plain": "x"}); len(got) != 1 {
			t.Errorf("%q is shown as %q", bad, got)
		}
	}
}

// Of many that would go on from a run at the same moment one does.
func TestOneOfManyFollows(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: 1"}, scripted.Turn{Say: "FINAL ANSWER: 2"})
	s := d.service(t, t.TempDir())
	run, _ := follow(t, s, api.AgentRequest{Task: "x", Keep: keepKeep})
	d.haltAt = "ask"
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			_, err := s.Start(context.Background(), owner, api.AgentRequest{Task: "y", Follows: run.ID}, "")
			errs <- err
		}()
	}
	begun := 0
	for range cap(errs) {
		switch err := <-errs; {
		case err == nil:
			begun++
		case !errors.Is(err, fault.Conflict):
			t.Error(err)
		}
	}
	if begun != 1 {
		t.Errorf("%d were begun", begun)
	}
}
