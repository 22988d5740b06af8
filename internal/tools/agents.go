package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// adviceTime is how long a call waits for what reading its cell says, where the
// policy asks about that.
const adviceTime = 2 * time.Second

// Attach says that a sandbox works for an agent's run: programs that are
// connected for the run have its functions, and approvals carry the run's id. What
// is asked and decided is sent to heard, as far as there is room. It ends with detach.
func (s *Service) Attach(run, sandbox string, heard chan api.Approval) (detach func()) {
	b := s.box(sandbox)
	b.mu.Lock()
	b.run, b.met = run, false // its program hears of it when it has begun
	b.mu.Unlock()
	s.mu.Lock()
	if s.runs[run] == nil {
		s.runs[run] = map[chan api.Approval]bool{}
	}
	s.runs[run][heard] = true
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		if delete(s.runs[run], heard); len(s.runs[run]) == 0 {
			delete(s.runs, run)
		}
		s.mu.Unlock()
		b.mu.Lock()
		if b.run == run {
			b.run, b.reading, b.advice = "", nil, nil
		}
		b.mu.Unlock()
	}
}

// Ended says that a run has ended, and not only the daemon that works on it: a program
// that is connected for it is not wanted any more.
func (s *Service) Ended(run string) {
	s.mu.Lock()
	c := s.conns[run]
	delete(s.conns, run)
	s.mu.Unlock()
	if c != nil {
		c.end(errRunEnded)
	}
}

var errRunEnded = fmt.Errorf("the agent's run has ended")

// Reading says that a cell of a run begins, of which it will be noticed what
// reading it says.
func (s *Service) Reading(sandbox string) {
	b := s.known(sandbox)
	if b == nil {
		return // it has ended
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reading != nil {
		select {
		case <-b.reading:
		default:
			close(b.reading)
		}
	}
	b.reading, b.advice = make(chan struct{}), nil
}

// Noticed says what reading the cell said.
func (s *Service) Noticed(sandbox string, advice []api.AgentAdvice) {
	b := s.known(sandbox)
	if b == nil {
		return // it has ended
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advice = advice
	if b.reading != nil {
		select {
		case <-b.reading:
		default:
			close(b.reading)
		}
	}
}

// read waits for what reading the cell says, and tells whether it is known.
func (b *box) read(ctx context.Context) bool {
	b.mu.Lock()
	reading := b.reading
	b.mu.Unlock()
	if reading == nil {
		return true // in no run of an agent is a cell read
	}
	late := time.NewTimer(adviceTime)
	defer late.Stop()
	select {
	case <-reading:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// Prompt describes the tools of a sandbox to a model, in at most so many tokens
// as count counts them: whole stubs as long as there is room, then a line each,
// then how many more there are. "" when it has none.
func (s *Service) Prompt(ctx context.Context, sb store.Sandbox, budget int, count func(string) int) (string, error) {
	if sb.Tools == nil {
		return "", nil
	}
	_, set, err := s.tools(ctx, sb)
	if err != nil || len(set.tools) == 0 {
		return "", err
	}
	var spaces, alone []string
	for _, t := range set.tools {
		space, _, in := strings.Cut(t.Name, ".")
		if !in {
			alone = append(alone, t.Name)
		} else if len(spaces) == 0 || spaces[len(spaces)-1] != space {
			spaces = append(spaces, space)
		}
	}
	names := append(spaces, alone...)
	shown := strings.Join(names[:min(len(names), 20)], ", ")
	var b strings.Builder
	fmt.Fprintf(&b, "# Tools\n\nThese functions run outside of the sandbox. `from tools import %s`", shown)
	if len(names) > 20 {
		fmt.Fprintf(&b, " and %d more", len(names)-20)
	}
	b.WriteString("; `tools.aio` has the same to be awaited, many at once with asyncio.gather. Arguments go by name, `= ...` may be left out. " +
		"Results are Python values: keep them in variables and print only what you need to see. A call that does not work raises `tools.ToolError` with a `.kind`. " +
		"Call freely in loops where the result's type is written; where it is `Any`, look at one result first.\n")
	left := budget - count(b.String()) - 60
	b.WriteString("\n```python\n")
	i, at := 0, ""
	for ; i < len(set.tools); i++ {
		t := set.tools[i]
		text := t.stub.shown()
		if space, _, in := strings.Cut(t.Name, "."); in && space != at {
			text = "# tools." + space + "\n" + text
			at = space
		}
		n := count(text)
		if n > left {
			break
		}
		left -= n
		b.WriteString(text)
	}
	b.WriteString("```\n")
	rest := set.tools[i:]
	listed := 0
	for _, t := range rest {
		line := "- `" + t.Name + cut(t.stub.Signature, 200) + "`: " + t.stub.Summary + "\n"
		n := count(line)
		if n > left {
			break
		}
		if left -= n; listed == 0 {
			b.WriteString("\nMore, with what `help()` has of them left out:\n\n")
		}
		b.WriteString(line)
		listed++
	}
	if more := len(rest) - listed; more > 0 {
		fmt.Fprintf(&b, "\nAnd %d more. `import tools; tools.search(\"what you want to do\")` finds them, `help(tools.NAMESPACE.FUNCTION)` shows one.\n", more)
	}
	return strings.TrimSpace(b.String()), nil
}
