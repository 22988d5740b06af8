package pandastack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// Candidate is a command for Explore.
type Candidate struct {
	Cmd            api.Command
	Label          string  // its number when empty
	TimeoutSeconds float64 // that of the options when 0
}

// Outcome is what became of one candidate.
type Outcome struct {
	Index      int
	Label      string
	Cmd        api.Command
	SandboxID  string // the branch it ran in
	ExitCode   int    // -1 when it did not end: see Err
	Stdout     string // the last 4096 bytes
	Stderr     string
	DurationMS float64
	Files      []string // that it wrote under /workspace, /app, /work, /root and /home, 200 at most
	Score      float64  // by which it was chosen; NaN when it was not scored
	Err        error    // why it did not end
}

// ExploreOptions say how Explore chooses. The zero value takes the quickest
// command that ended with 0, keeps its branch and ends the others.
type ExploreOptions struct {
	// Score gives an outcome a number, of which the highest is chosen; NaN is
	// not. Nil is 1 for an exit code of 0, else 0.
	Score          func(*Outcome) float64
	Lowest         bool    // choose the lowest score instead
	MaxConcurrency int     // how many run at once; 0: 4
	AllowFailures  bool    // score and choose those that ended with another code than 0 too
	KeepLosers     bool    // don't end the other branches
	NoPromote      bool    // don't mark the chosen branch
	NoFiles        bool    // don't look at which files each wrote
	TimeoutSeconds float64 // the deadline of each; 0: 60
	Metadata       map[string]string
}

// Exploration is what Explore found.
type Exploration struct {
	Winner        *Sandbox // the branch that was chosen
	WinnerOutcome *Outcome
	Outcomes      []Outcome // in the order of the candidates
	TreeID        string
	Reaped        []string         // ids of the branches that were ended
	ReapFailures  map[string]error // why others could not be, by id
	Errors        []string         // candidates that got no branch
}

// ExploreError is an Explore that could choose nothing. Its branches are gone.
type ExploreError struct{ Exploration Exploration }

func (e *ExploreError) Error() string {
	return fmt.Sprintf("pandastack: none of %d candidates succeeded", len(e.Exploration.Outcomes)+len(e.Exploration.Errors))
}

const (
	mostCandidates = 16
	outcomeTail    = 4096
	exploreMarker  = "/tmp/.pandastack-explore"
	exploreFiles   = "find /workspace /app /work /root /home -type f -newer " + exploreMarker + " 2>/dev/null | head -n 200"
)

// Explore tries 1 to 16 commands side by side, each in a copy of the sandbox,
// and keeps the best. What could be chosen by nobody is an *ExploreError.
func (s *Sandbox) Explore(ctx context.Context, candidates []Candidate, o ExploreOptions) (*Exploration, error) {
	if len(candidates) == 0 || len(candidates) > mostCandidates {
		return nil, fmt.Errorf("pandastack: candidates must be 1 to %d commands, not %d", mostCandidates, len(candidates))
	}
	count := len(candidates)
	metadata := map[string]string{"explore": "1"}
	maps.Copy(metadata, o.Metadata)
	tree, err := s.ForkTree(ctx, api.ForkRequest{Count: &count, Metadata: metadata})
	if err != nil {
		return nil, err
	}
	branches := tree.Sandboxes
	x := &Exploration{TreeID: tree.TreeID, Outcomes: make([]Outcome, len(branches)), ReapFailures: map[string]error{}}
	for i := len(branches); i < count; i++ { // those that could not be made leave the last without one
		x.Errors = append(x.Errors, fmt.Sprintf("candidate %d got no branch", i))
	}
	atOnce(o.MaxConcurrency, len(branches), func(i int) { x.Outcomes[i] = attempt(ctx, branches[i], i, candidates[i], o) })
	if err := ctx.Err(); err != nil {
		x.reap(context.WithoutCancel(ctx), branches)
		return nil, fmt.Errorf("pandastack: %w", err)
	}
	for i := range x.Outcomes {
		x.consider(&x.Outcomes[i], o)
	}
	if x.WinnerOutcome != nil {
		x.Winner = branches[x.WinnerOutcome.Index]
		if !o.NoPromote {
			if _, err := x.Winner.Promote(ctx, api.PromoteRequest{}); err != nil {
				x.reap(context.WithoutCancel(ctx), branches)
				return nil, err
			}
		}
	}
	if !o.KeepLosers || x.Winner == nil {
		x.reap(ctx, branches)
	}
	if x.Winner == nil {
		return nil, &ExploreError{*x}
	}
	return x, nil
}

// consider scores an outcome, and takes it when it is the best so far; of
// equals the quickest.
func (x *Exploration) consider(out *Outcome, o ExploreOptions) {
	switch {
	case out.Err != nil || out.ExitCode != 0 && !o.AllowFailures:
		if out.Err == nil && o.Score == nil {
			out.Score = 0
		}
		return
	case o.Score != nil:
		out.Score = o.Score(out)
	case out.ExitCode == 0:
		out.Score = 1
	default:
		out.Score = 0
	}
	if math.IsNaN(out.Score) {
		return
	}
	best := x.WinnerOutcome
	better := best == nil || (out.Score > best.Score) != o.Lowest && out.Score != best.Score ||
		out.Score == best.Score && out.DurationMS < best.DurationMS
	if better {
		x.WinnerOutcome = out
	}
}

// attempt runs one candidate in its branch.
func attempt(ctx context.Context, branch *Sandbox, i int, c Candidate, o ExploreOptions) Outcome {
	out := Outcome{Index: i, Label: first(c.Label, strconv.Itoa(i)), Cmd: c.Cmd, SandboxID: branch.ID, ExitCode: -1, Score: math.NaN()}
	if !o.NoFiles {
		if _, out.Err = branch.Exec(ctx, Argv("touch", exploreMarker), ExecOptions{}); out.Err != nil {
			return out
		}
	}
	timeout := c.TimeoutSeconds
	if timeout == 0 {
		timeout = o.TimeoutSeconds
	}
	res, err := branch.Exec(ctx, c.Cmd, ExecOptions{TimeoutSeconds: timeout})
	out.Stdout, out.Stderr = tail(res.Stdout), tail(res.Stderr)
	if out.Err = err; err != nil {
		return out
	}
	out.ExitCode, out.DurationMS = res.ExitCode, res.DurationMS
	if !o.NoFiles {
		if res, out.Err = branch.Exec(ctx, Shell(exploreFiles), ExecOptions{}); out.Err == nil {
			out.Files = strings.FieldsFunc(res.Stdout, func(r rune) bool { return r == '\n' })
		}
	}
	return out
}

func tail(s string) string { return s[max(0, len(s)-outcomeTail):] }

// reap ends the branches but the winner.
func (x *Exploration) reap(ctx context.Context, branches []*Sandbox) {
	var mu sync.Mutex
	atOnce(0, len(branches), func(i int) {
		b := branches[i]
		if b == x.Winner {
			return
		}
		err := b.Kill(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err != nil && !errors.Is(err, ErrNotFound) {
			x.ReapFailures[b.ID] = err
			return
		}
		x.Reaped = append(x.Reaped, b.ID)
	})
}

// atOnce calls do for 0 to n-1, so many at a time, and returns when all have
// ended.
func atOnce(limit, n int, do func(i int)) {
	if limit <= 0 {
		limit = 4
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, limit)
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			do(i)
			<-turns
		})
	}
	wg.Wait()
}
