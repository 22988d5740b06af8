package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// Folders are what is in folders of sandboxes.
type Folders interface {
	// Sum is the same for a folder in which nothing changed, as far as names, kinds,
	// sizes and times tell. A folder that holds more than so many bytes or files is
	// fault.TooLarge.
	Sum(ctx context.Context, owner, sid, dir string, mostBytes int64, mostFiles int) (sum string, bytes int64, err error)
	// Pack gives what is in a folder, as a tar stream.
	Pack(ctx context.Context, owner, sid, dir string) (io.ReadCloser, error)
	// Replace makes a folder hold what is in a stream of Pack's, and nothing else.
	Replace(ctx context.Context, owner, sid, dir string, r io.ReadSeeker) error
}

const (
	workspace      = "/workspace"
	checkpointsDir = "checkpoints"
	keptBytes      = 8 << 20 // of files that are in a checkpoint
	keptFiles      = 2000
)

// copied is the state before a turn as it was copied while the model was asked.
type copied struct {
	turn    int
	context string
	sum     string // of the files; "" when they are not in it
	bytes   int64
	err     error
}

// copyState begins to copy the state before a turn, so that the run can be set
// back to it. It takes some ten milliseconds, in which the model is asked; no
// cell runs before it is done.
func (r *runner) copyState(ctx context.Context, turn int) error {
	if r.copies != nil {
		return nil
	}
	if !r.ready { // the interpreter that the next cell gets
		if _, err := r.setUp(ctx); err != nil {
			return err
		}
	}
	r.copies = make(chan copied, 1)
	owner, sid, cid := r.state.run.Workspace, r.state.run.SandboxID, r.state.context
	files := fileCopy{r.s.cfg.Folders, owner, sid, r.state.req.SandboxID == "", turn, r.filesTurn, r.filesSum, r.filesOf}
	dropped := r.state.dropped
	r.state.dropped = nil
	go func(to chan<- copied) {
		c := copied{turn: turn}
		defer func() { // behind the copy: nothing waits for it while the model thinks
			for _, old := range dropped {
				r.closeContext(owner, sid, old)
			}
			to <- c
		}()
		out, err := r.s.cfg.Kernels.ForkContext(ctx, owner, sid, cid, 1)
		if err == nil && len(out.Children) != 1 {
			err = errors.New("the copy has no id")
		}
		if err != nil {
			c.err = err
			return
		}
		c.context = out.Children[0].ID
		if c.sum, c.bytes, err = files.make(ctx); err != nil && ctx.Err() == nil {
			r.log.Debug("a checkpoint has no files", "turn", turn, "error", err)
		}
	}(r.copies)
	return nil
}

func (r *runner) filesOf(turn int) string {
	return filepath.Join(r.t.dir, checkpointsDir, fmt.Sprintf("%d.tar", turn))
}

// fileCopy is a copy of a run's files that is to be made.
type fileCopy struct {
	folders    Folders
	owner, sid string
	own        bool // the sandbox is the run's own
	turn       int
	lastTurn   int // of the copy before, and its sum
	lastSum    string
	name       func(turn int) string
}

// make keeps the files below /workspace when they are few, unless somebody else
// works with them, too.
func (f fileCopy) make(ctx context.Context) (sum string, bytes int64, err error) {
	if !f.own {
		return "", 0, errors.New("the sandbox is not the run's own")
	}
	sum, bytes, err = f.folders.Sum(ctx, f.owner, f.sid, workspace, keptBytes, keptFiles)
	if err != nil {
		return "", 0, err
	}
	name := f.name(f.turn)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", 0, err
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) { // of a daemon before this one
		return "", 0, err
	}
	if sum == f.lastSum && os.Link(f.name(f.lastTurn), name) == nil {
		return sum, bytes, nil
	}
	in, err := f.folders.Pack(ctx, f.owner, f.sid, workspace)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", 0, err
	}
	// A tar stream has a kilobyte or two beside each file.
	n, err := io.Copy(out, io.LimitReader(in, keptBytes+keptFiles*4096))
	if err == nil && n == keptBytes+keptFiles*4096 {
		err = fault.New(api.CodeTooLarge, "the files became more while they were read")
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return "", 0, errors.Join(err, os.Remove(name))
	}
	return sum, bytes, nil
}

// checkpointed waits for the copy of the state before this turn. One that cannot
// be made is missing: a run is then set back without it.
func (r *runner) checkpointed(ctx context.Context) error {
	if r.copies == nil {
		if _, there := r.state.before(r.state.turn); there || len(r.state.cells) > 0 {
			return nil
		}
		if err := r.copyState(ctx, r.state.turn); err != nil { // the daemon that asked the model is gone
			return err
		}
	}
	c := <-r.copies
	r.copies = nil
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.err != nil {
		r.log.Debug("no checkpoint", "turn", c.turn, "error", c.err)
		return nil
	}
	if c.sum != "" {
		r.filesSum, r.filesTurn = c.sum, c.turn
	}
	if err := r.put(api.AgentEvent{Type: api.AgentEventCheckpoint, Turn: c.turn, ContextID: c.context, Checkpoint: &api.AgentCheckpoint{Files: c.sum != "", Bytes: c.bytes}}); err != nil {
		return err
	}
	r.removeFiles()
	return nil
}

// noMoreCopies waits for a copy that nothing will need.
func (r *runner) noMoreCopies() {
	if r.copies == nil {
		return
	}
	if c := <-r.copies; c.err == nil {
		r.state.dropped = append(r.state.dropped, c.context)
	}
	r.copies = nil
}

// closeDropped ends the contexts that nothing is set back to any more.
func (r *runner) closeDropped() {
	for _, cid := range r.state.dropped {
		r.closeContext(r.state.run.Workspace, r.state.run.SandboxID, cid)
	}
	r.state.dropped = nil
}

// removeFiles removes those of checkpoints that are not there any more.
func (r *runner) removeFiles() {
	kept, _ := os.ReadDir(filepath.Join(r.t.dir, checkpointsDir)) // none is there
	for _, f := range kept {
		var turn int
		if _, err := fmt.Sscanf(f.Name(), "%d.tar", &turn); err != nil {
			continue
		}
		if _, needed := r.state.before(turn); needed || turn == r.filesTurn || turn > r.state.run.Turns {
			continue
		}
		if err := os.Remove(r.filesOf(turn)); err != nil {
			r.log.Warn("files of a checkpoint stay", "turn", turn, "error", err)
		}
	}
}

func (r *runner) closeContext(owner, sid, cid string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.s.cfg.Kernels.CloseContext(ctx, owner, sid, cid); err != nil {
		r.log.Warn("a checkpoint stays open", "context", cid, "error", err)
	}
}

// turnBack sets a run back that goes in circles although it was told, and ends
// one that does so again and again.
func (r *runner) turnBack(ctx context.Context) error {
	c := goingInCircles(r.state.steps)
	if c == nil || !c.back {
		return nil
	}
	if r.state.run.Rewinds >= maxBacks {
		return &end{reason: api.AgentStuck, words: "the run went in circles, and setting it back did not help: " + c.words}
	}
	e := api.AgentEvent{Type: api.AgentEventRewound, Turn: r.state.turn, Rewound: &api.AgentRewound{ToTurn: c.since, Why: c.words}}
	state := "Variables and files stay as they are now."
	if p, there := r.state.before(c.since); there {
		e.ContextID, e.Rewound.Variables = p.context, true
		e.Rewound.Files = p.files && r.filesBack(ctx, c.since)
		state = "Variables are as they were then; files stay as they are now."
		if e.Rewound.Files {
			state = "Variables, and the files below /workspace, are as they were then."
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tried := ""
	if n := len(r.state.said); n >= 2 {
		tried = fmt.Sprintf("\n\nWhat you did last was:\n\n%s\n\nand what came of it:\n\n%s", first(r.state.said[n-2].text, r.callText(n-2), 800), short(r.state.said[n-1].text, 800))
	}
	e.Messages = []api.AgentMessage{{Role: llm.User, Text: c.words + " So the conversation was set back to before turn " + fmt.Sprint(c.since) + ". " + state +
		" Find another way: look at the data again, check what you take for granted, or answer with what you know." + tried}}
	if err := r.put(e); err != nil {
		return err
	}
	r.ready = r.ready || e.ContextID != "" // the copy is of one that was set up
	r.removeFiles()
	return nil
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

// callText is the code that a message calls for.
func (r *runner) callText(i int) string {
	var out []string
	for _, c := range r.state.said[i].calls {
		out = append(out, c.Arguments)
	}
	return strings.Join(out, "\n")
}

func first(a, b string, n int) string {
	if strings.TrimSpace(b) != "" {
		return short(b, n)
	}
	return short(a, n)
}
