package agent

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

//go:embed python/agent_setup.py
var setupSource string

const (
	setupTime     = 60 * time.Second
	answerGrace   = 2 * time.Second // for a cell that goes on after its final answer
	toldOutput    = 64 << 10        // bytes of a cell that are told as they come
	maxNotRunning = 3               // cells in a row that could not be run at all
)

// setupCell puts python/agent_setup.py into a context, and what is imported
// already. Doing it twice does no harm.
func setupCell() string {
	source, _ := json.Marshal(setupSource) // a JSON string is one of Python
	return `def _set_up():
    import sys, types
    known = sys.modules.get("pandastack_agent")
    if known is None:
        known = types.ModuleType("pandastack_agent")
        known.get_ipython = get_ipython
        exec(compile(` + string(source) + `, "<pandastack_agent>", "exec"), known.__dict__)
        sys.modules["pandastack_agent"] = known
    known.install(get_ipython())
_set_up()
del _set_up
import ` + preImported
}

// setUp prepares the run's context and gives what the sandbox says of itself.
func (r *runner) setUp(ctx context.Context) (*Environment, error) {
	env, err := r.prepare(ctx, r.state.context)
	r.ready = r.ready || err == nil
	return env, err
}

// prepare sets a context up for an agent.
func (r *runner) prepare(ctx context.Context, cid string) (*Environment, error) {
	w := new(watched)
	for e, err := range r.s.cfg.Kernels.Stream(ctx, r.state.run.Workspace, r.state.run.SandboxID, cid,
		api.RunRequest{Code: setupCell(), TimeoutMS: setupTime.Milliseconds()}) {
		if err != nil {
			return nil, r.lost(ctx, err)
		}
		w.add(e)
	}
	if w.end == nil || w.end.End != api.EndOK || w.environment == nil {
		why := "it said nothing of itself"
		if w.end != nil && w.end.Error != nil {
			why = *w.end.Error
		}
		return nil, &end{reason: api.AgentNoSandbox, words: "the sandbox could not be set up for an agent: " + short(why, 1000)}
	}
	return w.environment, nil
}

// cell runs one, or attaches to it when an earlier daemon began it.
func (r *runner) cell(ctx context.Context, index, of int, a action) (api.AgentOutcome, error) {
	run, limits := &r.state.run, r.state.req.Limits
	if r.restoring() {
		return r.asBefore(index)
	}
	if !r.ready {
		if err := r.setUpAgain(ctx); err != nil {
			return api.AgentOutcome{}, err
		}
	}
	id := fmt.Sprintf("%s-%d-%d", run.ID, r.state.turn, index)
	sum := hash(a.code)
	if began := r.state.began(index); began == nil {
		if err := r.put(api.AgentEvent{Type: api.AgentEventCell, Turn: r.state.turn, ContextID: r.state.context, Cell: &api.AgentCell{
			Index: index, Of: of, ExecutionID: id, CallID: a.callID, Code: a.code, SHA256: sum,
		}}); err != nil {
			return api.AgentOutcome{}, err
		}
	} else if began.SHA256 != sum {
		// A secret was taken out of the code: what is left is not what was written.
		return refused(index, of, "The server was started again, and this code held a secret, which is not stored. Write it again."), nil
	}
	w := new(watched)
	told := 0
	deadline := time.Duration(limits.CellSeconds * float64(time.Second))
	var leave *time.Timer
	defer func() {
		if leave != nil {
			leave.Stop()
		}
	}()
	for e, err := range r.stream(ctx, api.RunRequest{Code: a.code, TimeoutMS: max(deadline.Milliseconds(), 1), ExecutionID: id}) {
		if err != nil && ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStopping) {
			return r.cutShort(ctx, w, index, of, deadline)
		}
		if err != nil {
			return r.notRun(ctx, index, of, err)
		}
		w.add(e)
		if (e.Type == api.EventStdout || e.Type == api.EventStderr) && told < toldOutput {
			told += len(e.Text)
			r.tell(api.AgentEvent{Type: api.AgentEventOutput, Turn: r.state.turn, Stream: e.Type, Text: e.Text})
		}
		if w.answer != nil && leave == nil {
			leave = time.AfterFunc(answerGrace, func() { r.interrupt(ctx) })
		}
	}
	if w.end == nil {
		return r.notRun(ctx, index, of, errors.New("the cell ended without saying how"))
	}
	if !w.end.StateSurvived {
		r.ready = false
	}
	o, full := w.outcome(index, of, deadline, limits.ObservationTokens/of)
	if err := r.t.outputs(r.state.turn, index, w.outputs); err != nil {
		return o, err
	}
	if o.Cut && o.OutputPath == "" {
		o = r.keepWhole(ctx, w, o, full, deadline, limits.ObservationTokens/of)
	}
	if !w.end.StateSurvived && r.hasTables() {
		o.Text += "\nThe tables of the files are made anew before the next cell."
	}
	for i, d := range w.figures {
		name := fmt.Sprintf("%d-%d-%d.%s", r.state.turn, index, i+1, strings.TrimPrefix(d.mime, "image/"))
		if err := r.t.figure(name, d.data); err != nil {
			return o, err
		}
		o.Figures = append(o.Figures, api.AgentFigure{File: name, MIME: d.mime, Width: d.width, Height: d.height})
	}
	return o, nil
}

// cutShort is the end of a cell whose run ends before it: it is interrupted, and
// what it wrote until then is in the transcript.
func (r *runner) cutShort(ctx context.Context, w *watched, index, of int, deadline time.Duration) (api.AgentOutcome, error) {
	quick, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	r.interrupt(quick)
	w.end = &api.Execution{End: api.EndInterrupted}
	o, _ := w.outcome(index, of, deadline, r.state.req.Limits.ObservationTokens/of)
	o.Text += "\nThe run ended while it ran."
	if err := r.put(api.AgentEvent{Type: api.AgentEventOutcome, Turn: r.state.turn, Outcome: &o}); err != nil {
		return o, err
	}
	return o, context.Cause(ctx)
}

// keepWhole writes what was too long for the model into the sandbox, and tells
// where.
func (r *runner) keepWhole(ctx context.Context, w *watched, o api.AgentOutcome, full string, deadline time.Duration, budget int) api.AgentOutcome {
	name := fmt.Sprintf("/tmp/cells/%d-%d.txt", r.state.turn, o.Index)
	if err := r.s.cfg.Files.Write(ctx, r.state.run.Workspace, r.state.run.SandboxID, name, []byte(full)); err != nil {
		r.log.Warn("the whole output of a cell could not be kept in its sandbox", "error", err)
		return o
	}
	w.end.OutputPath = name
	o, _ = w.outcome(o.Index, r.of(o), deadline, budget)
	return o
}

func (r *runner) of(o api.AgentOutcome) int {
	return r.state.cells[len(r.state.cells)-1].Of
}

func (r *runner) interrupt(ctx context.Context) {
	if err := r.s.cfg.Kernels.Interrupt(ctx, r.state.run.Workspace, r.state.run.SandboxID, r.state.context); err != nil && ctx.Err() == nil {
		r.log.Warn("a cell that goes on after its answer could not be interrupted", "error", err)
	}
}

// notRun explains a cell that could not be run: with the sandbox gone the run
// ends; otherwise there is a new context, and the model is told what is lost.
func (r *runner) notRun(ctx context.Context, index, of int, err error) (api.AgentOutcome, error) {
	if ctx.Err() != nil {
		return api.AgentOutcome{}, context.Cause(ctx)
	}
	run := &r.state.run
	if _, gerr := r.s.cfg.Sandboxes.Get(ctx, run.Workspace, run.SandboxID); gerr != nil {
		return api.AgentOutcome{}, r.lost(ctx, gerr)
	}
	if r.failures++; r.failures >= maxNotRunning {
		return api.AgentOutcome{}, err
	}
	r.log.Warn("a cell of an agent could not be run", "error", err)
	_, cerr := r.s.cfg.Kernels.CreateContext(ctx, run.Workspace, run.SandboxID, api.CreateContextRequest{ID: r.state.context})
	o := refused(index, of, plainWords(err)+".")
	if cerr == nil {
		r.ready, o.StateSurvived = false, false
		o.Text += " All variables, imports and functions are lost; files are still there."
	} else if !errors.Is(cerr, fault.Conflict) {
		return o, r.lost(ctx, cerr)
	}
	return o, nil
}

// finish ends the run: what becomes of its sandbox, and the last entry.
func (r *runner) finish(ctx context.Context, e *end) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	r.noMoreCopies()
	run := r.state.run
	if run.SandboxID == "" && r.made != "" { // it was cut before that was written down
		if err := r.s.cfg.Sandboxes.Kill(ctx, run.Workspace, r.made); err != nil && !errors.Is(err, fault.NotFound) {
			r.log.Warn("the sandbox of a run that ended stays, until its time is over", "sandbox", r.made, "error", err)
		}
	}
	now := r.s.cfg.Now().UTC()
	run.Status, run.Reason, run.Answer, run.Error, run.EndedAt = api.AgentEnded, e.reason, e.answer, e.words, &now
	if run.SandboxID != "" && e.reason != api.AgentNoSandbox {
		if err := r.leave(ctx, &run); err != nil {
			r.log.Warn("what was to become of a run's sandbox failed", "error", err)
			run.Error = strings.TrimSpace(run.Error + " (its sandbox " + run.SandboxID + ": " + plainWords(err) + ")")
		}
	}
	if err := os.RemoveAll(filepath.Join(r.t.dir, checkpointsDir)); err != nil {
		r.log.Warn("files of checkpoints stay", "error", err)
	}
	if err := r.put(api.AgentEvent{Type: api.AgentEventEnded, Run: &run}); err != nil {
		return err
	}
	return errors.Join(r.t.sync(), os.RemoveAll(filepath.Join(r.t.dir, reserveName)))
}

func (r *runner) leave(ctx context.Context, run *api.AgentRun) error {
	given := r.state.req.SandboxID != ""
	if given || r.state.req.Keep != keepKill {
		r.state.keepCheckpoints(func(checkpoint) bool { return false })
		r.closeAside()
		r.aside.Wait()
	}
	switch {
	case given || r.state.req.Keep == keepKeep:
		return nil
	case r.state.req.Keep == keepSnapshot:
		sn, err := r.s.cfg.Sandboxes.Snapshot(ctx, run.Workspace, run.SandboxID, api.SnapshotRequest{Name: "agent " + run.ID, Metadata: map[string]string{"agent": run.ID}})
		if err != nil {
			return err // and the sandbox stays, until its time is over
		}
		run.SnapshotID = sn.ID
	}
	if err := r.s.cfg.Sandboxes.Kill(ctx, run.Workspace, run.SandboxID); err != nil && !errors.Is(err, fault.NotFound) {
		return err
	}
	return nil
}
