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

// What copies may cost. One of a context takes some 150 ms, and the cell behind it
// 50 ms more than it would, for the memory that it writes to is shared then.
const (
	firstCopy = 200 * time.Millisecond // until one was timed
	slower    = 50 * time.Millisecond
	allowance = 10 * time.Millisecond // a turn, on average
)

// gap is how many turns lie between two copies, five at least. What is copied while
// the model thinks costs nothing.
func gap(took, thought time.Duration) int {
	onPath := max(took-thought, 0) + slower
	return int((onPath + allowance - 1) / allowance)
}

// copied is the state before a turn as it was copied while the model was asked.
type copied struct {
	turn    int
	context string // "" for a new one: nothing has run yet
	sum     string // of the files; "" when they are not in it
	bytes   int64
	took    time.Duration
	err     error
}

// copyDue tells whether the state before a turn is to be copied. Of a replay only
// those are to which the first run was set back.
func (r *runner) copyDue(turn int) bool {
	last := max(r.state.copied, r.tried)
	if r.returns != nil {
		return r.returns[turn]
	}
	return last == 0 || turn-last >= gap(r.copyTook, r.state.thought)
}

// copyState begins to copy the state before a turn when that is due, so that the
// run can be set back to it. The model is asked meanwhile; no cell runs before it
// is done.
func (r *runner) copyState(ctx context.Context, turn int) error {
	r.closeAside()
	if r.copies != nil || !r.copyDue(turn) {
		return nil
	}
	if !r.ready { // the interpreter that the next cell gets
		if err := r.setUpAgain(ctx); err != nil {
			return err
		}
	}
	r.copies, r.tried = make(chan copied, 1), turn
	owner, sid, cid := r.state.run.Workspace, r.state.run.SandboxID, r.state.context
	files := fileCopy{r.s.cfg.Folders, owner, sid, r.state.req.SandboxID == "", turn, r.filesTurn, r.filesSum, r.filesOf}
	fresh := r.state.run.Cells == 0 && !r.hasTables()
	go func(to chan<- copied) {
		c, began := copied{turn: turn}, r.s.cfg.Now()
		defer func() {
			c.took = r.s.cfg.Now().Sub(began)
			to <- c
		}()
		if !fresh {
			if c.context, c.err = r.fork(ctx, owner, sid, cid); c.err != nil {
				return
			}
		}
		var err error
		if c.sum, c.bytes, err = files.make(ctx); err != nil && ctx.Err() == nil {
			r.log.Debug("a checkpoint has no files", "turn", turn, "error", err)
		}
	}(r.copies)
	return nil
}

// fork copies a context and gives the id of the copy.
func (r *runner) fork(ctx context.Context, owner, sid, cid string) (string, error) {
	out, err := r.s.cfg.Kernels.ForkContext(ctx, owner, sid, cid, 1)
	if err != nil {
		return "", err
	}
	if len(out.Children) != 1 {
		return "", errors.New("the copy has no id")
	}
	return out.Children[0].ID, nil
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

// checkpointed waits for the copy of the state before this turn, if there is to be
// one. One that cannot be made is missing: a run is then set back further.
func (r *runner) checkpointed(ctx context.Context) error {
	if r.copies == nil && len(r.state.cells) == 0 {
		if _, there := r.state.before(r.state.turn); !there { // the daemon that asked the model may be gone
			if err := r.copyState(ctx, r.state.turn); err != nil {
				return err
			}
		}
	}
	if r.copies == nil {
		return nil
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
	if c.context != "" {
		r.copyTook = c.took
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

// noMoreCopies waits for a copy that nothing will need, and for contexts to close.
func (r *runner) noMoreCopies() {
	r.aside.Wait()
	if r.copies == nil {
		return
	}
	if c := <-r.copies; c.err == nil && c.context != "" {
		r.state.dropped = append(r.state.dropped, c.context)
	}
	r.copies = nil
}

// closeAside ends the contexts that nothing is set back to any more, while other
// things happen.
func (r *runner) closeAside() {
	dropped, owner, sid := r.state.dropped, r.state.run.Workspace, r.state.run.SandboxID
	if r.state.dropped = nil; len(dropped) == 0 {
		return
	}
	r.aside.Go(func() {
		for _, cid := range dropped {
			r.closeContext(owner, sid, cid)
		}
	})
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
	to := api.AgentRewound{ToTurn: c.since, Why: c.words}
	cid, err := "", error(nil)
	if p, there := r.state.lastBefore(c.since); there {
		if cid, err = r.goBack(ctx, p, &to); err != nil {
			return err
		}
	}
	state := "Variables and files stay as they are now."
	switch {
	case to.Variables && to.Files:
		state = "Variables, and the files below /workspace, are as they were then."
	case to.Files:
		state = "The files below /workspace are as they were then; variables stay as they are now."
	case to.Variables:
		state = "Variables are as they were then; files stay as they are now."
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tried := ""
	if n := len(r.state.said); n >= 2 {
		tried = fmt.Sprintf("\n\nWhat you did last was:\n\n%s\n\nand what came of it:\n\n%s", first(r.state.said[n-2].text, r.callText(n-2), 800), short(r.state.said[n-1].text, 800))
	}
	e := api.AgentEvent{Type: api.AgentEventRewound, Turn: r.state.turn, ContextID: cid, Rewound: &to}
	e.Messages = []api.AgentMessage{{Role: llm.User, Text: c.words + " So the conversation was set back to before turn " + fmt.Sprint(to.ToTurn) + ". " + state +
		" Find another way: look at the data again, check what you take for granted, or answer with what you know." + tried}}
	if err := r.put(e); err != nil {
		return err
	}
	r.ready = r.ready || cid != "" // it was set up
	r.tried = 0                    // the next turn begins in a state that no copy has
	r.removeFiles()
	return nil
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
