package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
)

// keptState gives the snapshot that has the state of a run before a turn, and the code
// context in it; "" where there is none. A run that kept its sandbox as a snapshot has
// it as it was at its end, which is that before each turn from which on no cell ran.
func keptState(entries []api.AgentEvent, turn int) (snapshot, cid string) {
	run := describe(entries)
	if run.SnapshotID == "" || run.Rewinds > 0 || len(entries[0].Request.Data) > 0 { // tables would be loaded once more
		return "", ""
	}
	for _, e := range entries {
		if e.Type == api.AgentEventCell && e.Turn >= turn || e.Type == api.AgentEventOutcome && !e.Outcome.StateSurvived {
			return "", ""
		}
	}
	return run.SnapshotID, run.ContextID
}

// restore makes the sandbox of a fork from the snapshot that has its state, and tells
// whether there was one. Otherwise the cells before its turn run again.
func (r *runner) restore(ctx context.Context) (bool, error) {
	run, fork := &r.state.run, r.state.req.Fork
	if fork == nil {
		return false, nil
	}
	entries, err := r.s.entries(run.Workspace, fork.Of)
	if err != nil {
		return false, &end{reason: api.AgentModelFailed, words: plainWords(err)}
	}
	snapshot, cid := keptState(entries, fork.At)
	if snapshot == "" {
		return false, nil
	}
	create := r.wanted(run.ID + "-restored")
	create.Template, create.FromSnapshot = "", snapshot
	info, err := r.s.cfg.Sandboxes.Create(ctx, run.Workspace, create)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the snapshot of a run cannot be restored, and its cells run again", "snapshot", snapshot, "error", err)
		r.unrestored = fmt.Sprintf("the snapshot %s, which has the state of %s, cannot be restored: %s", snapshot, fork.Of, plainWords(err))
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.made = info.ID
	if err := r.put(api.AgentEvent{Type: api.AgentEventSandbox, SandboxID: info.ID, ContextID: cid, SnapshotID: snapshot}); err != nil {
		return false, err
	}
	r.made = ""
	return true, nil
}

// restoring tells whether the turns before those of a fork are told again, whose
// cells need not run.
func (r *runner) restoring() bool { return r.state.restored != "" && !r.state.branched }

// entriesBefore are those of the run of which this one is a fork.
func (r *runner) entriesBefore() (_ []api.AgentEvent, err error) {
	if r.before == nil {
		r.before, err = r.s.entries(r.state.run.Workspace, r.state.req.Fork.Of)
	}
	return r.before, err
}

// promptBefore is what the model was told of a sandbox whose state a fork has: now
// there are files in it of which it hears later. "" where it is told something else.
func (r *runner) promptBefore() string {
	if !r.restoring() {
		return ""
	}
	entries, err := r.entriesBefore()
	if err != nil || entries[0].Request.Instructions != r.state.req.Instructions {
		return ""
	}
	for _, e := range entries {
		if e.Type == api.AgentEventPrompt {
			return e.Text
		}
	}
	return ""
}

// asBefore gives the outcome that a cell had in the run whose state a fork has.
func (r *runner) asBefore(index int) (api.AgentOutcome, error) {
	entries, err := r.entriesBefore()
	if err != nil {
		return api.AgentOutcome{}, err
	}
	var cell *api.AgentCell
	for _, e := range entries {
		switch {
		case e.Turn != r.state.turn:
		case e.Type == api.AgentEventCell && e.Cell.Index == index:
			cell = e.Cell
		case e.Type == api.AgentEventOutcome && e.Outcome.Index == index && cell != nil:
			if r.state.began(index) == nil {
				if err := r.put(api.AgentEvent{Type: api.AgentEventCell, Turn: r.state.turn, ContextID: r.state.context, Cell: cell}); err != nil {
					return api.AgentOutcome{}, err
				}
			}
			return *e.Outcome, r.copyShown(index, e.Outcome)
		}
	}
	return api.AgentOutcome{}, fmt.Errorf("the run %s has no outcome of cell %d in turn %d", r.state.req.Fork.Of, index, r.state.turn)
}

// copyShown copies the figures of a cell, and its output as it came.
func (r *runner) copyShown(index int, o *api.AgentOutcome) error {
	names := []string{outputsName(r.state.turn, index)}
	for _, f := range o.Figures {
		names = append(names, f.File)
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(r.s.dir(r.state.req.Fork.Of), figuresDir, name))
		if errors.Is(err, fs.ErrNotExist) && name == names[0] { // it printed nothing
			continue
		}
		if err == nil {
			err = r.t.figure(name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
