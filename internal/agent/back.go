package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// mostAgain bounds how long cells took that are run again to get from the copy
// before a circle to the circle.
const mostAgain = 30 * time.Second

// goBack makes variables and files what they were before a turn, in a context
// whose id it gives: those of the last copy before it, and then the cells of the
// turns between once more. Where these may not run twice, or where something else
// comes of them, it is the turn of the copy to which the run goes back.
func (r *runner) goBack(ctx context.Context, p checkpoint, to *api.AgentRewound) (string, error) {
	since := to.ToTurn
	cells := r.between(ctx, p, since)
	if cells == nil {
		to.ToTurn = p.turn
	}
	for {
		cid, err := r.copyOf(ctx, p, len(cells) > 0)
		if err != nil {
			if ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			r.log.Warn("the variables of a run could not be set back", "turn", p.turn, "error", err)
			to.Variables, to.ToTurn = false, since
			return "", nil
		}
		to.Variables, to.Files = true, p.files && r.filesBack(ctx, p.turn)
		if len(cells) == 0 {
			return cid, nil
		}
		if to.Files && r.again(ctx, cid, cells) {
			to.Again = len(cells)
			return cid, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		r.state.dropped = append(r.state.dropped, cid)
		cells, to.ToTurn = nil, p.turn
	}
}

// copyOf gives the context of a copy: it itself, or, where it may be needed once
// more, another one of it.
func (r *runner) copyOf(ctx context.Context, p checkpoint, again bool) (string, error) {
	run := &r.state.run
	if p.context != "" && again {
		return r.fork(ctx, run.Workspace, run.SandboxID, p.context)
	}
	if p.context != "" {
		return p.context, nil
	}
	// Nothing had run yet.
	cid := fmt.Sprintf("%s-%d", run.ID, run.Rewinds+1)
	if !again {
		cid += "-start"
	}
	_, err := r.s.cfg.Kernels.CreateContext(ctx, run.Workspace, run.SandboxID, api.CreateContextRequest{ID: cid})
	if errors.Is(err, fault.Conflict) { // of a daemon that came to its end in the middle of this
		if err = r.s.cfg.Kernels.CloseContext(ctx, run.Workspace, run.SandboxID, cid); err == nil {
			_, err = r.s.cfg.Kernels.CreateContext(ctx, run.Workspace, run.SandboxID, api.CreateContextRequest{ID: cid})
		}
	}
	if err == nil {
		_, err = r.prepare(ctx, cid)
	}
	return cid, err
}

// past is a cell that ran.
type past struct {
	id, code string
	of       int // cells of its turn
	outcome  *api.AgentOutcome
}

// between gives the cells from a copy to a turn, nil when they may not run once
// more: where they reach something outside of the sandbox, where the files are not
// those of the copy, where they took long, or ended with their interpreter.
func (r *runner) between(ctx context.Context, p checkpoint, turn int) []past {
	out := []past{}
	if p.turn == turn {
		return out
	}
	if !p.files || !r.keepsToItself(ctx) {
		return nil
	}
	took := 0.0
	for _, e := range r.hub.all() {
		switch {
		case e.Turn < p.turn || e.Turn >= turn:
		case e.Type == api.AgentEventCell && hash(e.Cell.Code) != e.Cell.SHA256: // a secret was taken out of it
			return nil
		case e.Type == api.AgentEventCell:
			out = append(out, past{id: e.Cell.ExecutionID, code: e.Cell.Code, of: e.Cell.Of})
		case e.Type == api.AgentEventOutcome && len(out) > 0 && out[len(out)-1].outcome == nil:
			if took += e.Outcome.DurationMS; !e.Outcome.StateSurvived || took > float64(mostAgain.Milliseconds()) {
				return nil
			}
			out[len(out)-1].outcome = e.Outcome
		}
	}
	return out
}

// keepsToItself tells whether nothing that the run's cells do is seen outside of
// its own sandbox.
func (r *runner) keepsToItself(ctx context.Context) bool {
	run := &r.state.run
	if r.state.req.SandboxID != "" {
		return false
	}
	network, err := r.s.cfg.Sandboxes.Network(ctx, run.Workspace, run.SandboxID)
	if err != nil {
		return false
	}
	var env Environment
	env.reach(network)
	tools, err := r.toolPrompt(ctx)
	return err == nil && tools == "" && env.Network == noNetwork
}

// again runs cells once more, and tells whether the same came of each.
func (r *runner) again(ctx context.Context, cid string, cells []past) bool {
	run, limits := &r.state.run, r.state.req.Limits
	deadline := time.Duration(limits.CellSeconds * float64(time.Second))
	for _, c := range cells {
		if c.outcome == nil {
			return false
		}
		w := new(watched)
		id := c.id + "-" + newID() // never one that an earlier daemon ran in another copy
		for e, err := range r.s.cfg.Kernels.Stream(ctx, run.Workspace, run.SandboxID, cid, api.RunRequest{Code: c.code, TimeoutMS: deadline.Milliseconds(), ExecutionID: id}) {
			if err != nil {
				r.log.Warn("a cell could not be run once more", "execution", id, "error", err)
				return false
			}
			w.add(e)
		}
		if w.end == nil {
			return false
		}
		if c.outcome.OutputPath != "" { // it names the execution
			w.end.OutputPath = c.outcome.OutputPath
		}
		if o, _ := w.outcome(1, c.of, deadline, limits.ObservationTokens/c.of); o.Digest != c.outcome.Digest {
			r.log.Info("a cell that was run once more came out otherwise", "execution", id)
			return false
		}
	}
	return true
}

// filesBack makes the files what they were before a turn. Doing it twice does no
// harm: a daemon that dies in the middle leaves it to the next.
func (r *runner) filesBack(ctx context.Context, turn int) bool {
	f, err := os.Open(r.filesOf(turn))
	if err == nil {
		defer f.Close()
		err = r.s.cfg.Folders.Replace(ctx, r.state.run.Workspace, r.state.run.SandboxID, workspace, f)
	}
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the files of a run could not be set back", "turn", turn, "error", err)
	}
	r.filesSum = ""
	return err == nil
}
