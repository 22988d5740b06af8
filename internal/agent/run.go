package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent/extract"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// The dialects.
const (
	dialectText = "text"
	dialectTool = "tool"
)

// The notes of messages that count.
const noteNoReply = "no_reply"

const (
	maxSilent     = 3
	maxBlocks     = 64       // of code in one reply
	maxTranscript = 64 << 20 // bytes
)

// Why a run's context is cancelled.
var (
	errCancelled = errors.New("the run was cancelled")
	errStopping  = errors.New("the server is stopping")
	errTimeUp    = errors.New("the run's time is over")
)

// end is the way in which a run comes to its end.
type end struct {
	reason string
	answer *string
	words  string
}

func (e *end) Error() string { return e.reason }

// runner works on one run.
type runner struct {
	s     *Service
	log   *slog.Logger
	hub   *hub
	t     *transcript
	state state
	key   string // of the request

	secrets api.Secrets // of the request, with their values; without, in the daemon that goes on with it

	model llm.Provider
	name  string // of the model

	live *live
	made string // sandbox of the run that no entry names yet

	before     []api.AgentEvent // of the run of which this one is a fork, once they were asked for
	unrestored string           // why that run's snapshot does not serve, where there was one

	approvals chan api.Approval // of calls that wait for decisions; nil: there are none
	detach    func()
	clock     *clock

	ready  bool        // the context was set up
	copies chan copied // the copy that is being made

	copyTook time.Duration  // the last one
	tried    int            // turn of the last one, made or not
	returns  map[int]bool   // of a replay: the turns before which the first run was set back to
	aside    sync.WaitGroup // contexts that are being closed

	filesSum  string // of the files that the last checkpoint holds, and its turn
	filesTurn int

	tight int // how often the conversation was too long for the model

	failures int // cells that could not be run at all
}

// put writes an entry, folds it in and tells it.
func (r *runner) put(e api.AgentEvent) error {
	e.Seq, e.Time = r.hub.next(), r.s.cfg.Now().UTC()
	clean, err := r.t.append(e)
	if err != nil {
		return err
	}
	r.state.fold(e)
	r.hub.add(clean)
	r.weigh()
	return nil
}

// tell says something that is not kept.
func (r *runner) tell(e api.AgentEvent) {
	e.Time = r.s.cfg.Now().UTC()
	e.Text, e.Reasoning, e.Note = r.t.redact.text(e.Text), r.t.redact.text(e.Reasoning), r.t.redact.text(e.Note)
	r.hub.tell(e)
}

// survive is work that a fault in one run does not end the server with: what a
// model said would be there again after the next start.
func (r *runner) survive(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("an agent's run failed", "panic", p, "stack", string(debug.Stack()))
			err = r.finish(context.WithoutCancel(ctx), &end{reason: api.AgentFailed, words: plainWords(errors.New("panic"))})
		}
	}()
	return r.work(ctx)
}

// work runs to the end. It returns an error only when the daemon stops, and
// then the run goes on with the next one.
func (r *runner) work(ctx context.Context) error {
	left := time.Duration(r.state.req.Limits.MaxSeconds*float64(time.Second)) - r.state.elapsed(r.s.cfg.Now())
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.clock = startClock(max(left, 0), func() { cancel(errTimeUp) })
	defer r.clock.stop()
	defer func() {
		if r.detach != nil {
			r.detach()
		}
	}()
	err := r.loop(limited)
	var e *end
	switch {
	case errors.As(err, &e):
	case errors.Is(context.Cause(ctx), errStopping):
		r.noMoreCopies()
		return errStopping
	case errors.Is(context.Cause(ctx), errCancelled):
		e = &end{reason: api.AgentCancelled, words: "the run was cancelled"}
	case errors.Is(context.Cause(limited), errTimeUp):
		e = &end{reason: api.AgentMaxSeconds, words: "the run's time is over (limits.max_seconds)"}
	case errors.Is(err, fault.NoSpace):
		r.log.Error("an agent's run failed", "error", err)
		e = &end{reason: api.AgentFailed, words: plainWords(err)}
		if ferr := r.t.useReserve(); ferr != nil {
			r.log.Error("an agent's run may have no end in its transcript", "error", ferr)
		}
	default:
		r.log.Error("an agent's run failed", "error", err)
		e = &end{reason: api.AgentFailed, words: plainWords(err)}
	}
	if r.s.cfg.Tools != nil {
		defer r.s.cfg.Tools.Ended(r.state.run.ID)
	}
	return r.finish(context.WithoutCancel(ctx), e)
}

// plainWords are those of an error that are meant for users.
func plainWords(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		if f.Hint != "" {
			return f.Message + " (" + f.Hint + ")"
		}
		return f.Message
	}
	return "a fault of the server; its log has it under the run's id"
}

// weigh notes how much memory the run holds: all of its transcript, and while the
// model is asked, the figures of the request, as they are, in base64 and in JSON.
func (r *runner) weigh(asked ...llm.Message) {
	if r.live == nil {
		return
	}
	n := r.t.size
	for _, m := range asked {
		for _, im := range m.Images {
			n += int64(len(im.Data)) * 4
		}
	}
	r.live.held.Store(n)
}

// crowded tells why the run must end for what it holds; "" when it need not.
func (r *runner) crowded() string {
	if r.t.size > maxTranscript {
		return fmt.Sprintf("the run's transcript has %d MB; at most %d are taken", r.t.size>>20, int64(maxTranscript)>>20)
	}
	runs, held := r.s.Held()
	if most := r.s.cfg.MostHeld; held > most && r.live.held.Load() >= held/int64(runs) {
		return fmt.Sprintf("all agents together hold %d MB of the server's memory, where %d are allowed (agents_memory_mb), and this one more than others", held>>20, most>>20)
	}
	return ""
}

func (r *runner) loop(ctx context.Context) error {
	r.copyTook = firstCopy
	if err := r.open(); err != nil {
		return err
	}
	if err := r.sandbox(ctx); err != nil {
		return err
	}
	if err := r.attach(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	for {
		if r.state.reply == nil {
			if err := r.turnBack(ctx); err != nil {
				return err
			}
			if err := r.branchOff(ctx); err != nil {
				return err
			}
			if words := r.crowded(); words != "" {
				return &end{reason: api.AgentTooLarge, words: words}
			}
			if reason, words := spent(&r.state.run, r.state.req.Limits, r.state.req.Price, r.state.elapsed(r.s.cfg.Now()), r.state.tokens()); reason != "" {
				return &end{reason: reason, words: words}
			}
			if err := r.ask(ctx); err != nil {
				return err
			}
		}
		if err := r.act(ctx); err != nil {
			return err
		}
	}
}

// open finds the model.
func (r *runner) open() error {
	if r.state.run.OwnKey && r.key == "" {
		return &end{reason: api.AgentNoKey, words: "the server was started again, and the model key that came with the request was never stored: start the run again"}
	}
	if of := r.state.req.ReplayOf; of != "" {
		model, returns, err := r.s.replay(r.state.run.Workspace, of, r.state.run.Turns)
		if err != nil {
			return &end{reason: api.AgentModelFailed, words: plainWords(err)}
		}
		r.model, r.returns, r.name = model, returns, r.state.run.Model
		return nil
	}
	provider, name, err := r.s.cfg.Models.Open(r.state.req.Model, r.state.req.BaseURL, r.key)
	if err != nil {
		return &end{reason: api.AgentModelFailed, words: plainWords(err)}
	}
	r.model, r.name = provider, name
	if f := r.state.req.Fork; f != nil && !r.state.branched {
		return r.branchFrom(f.Of, f.At)
	}
	return nil
}

// sandbox makes the sandbox, or takes the one that was named, with a context of
// the run's own in it, and writes the files.
func (r *runner) sandbox(ctx context.Context) error {
	run, req := &r.state.run, &r.state.req
	if run.SandboxID != "" {
		if _, err := r.s.cfg.Sandboxes.Get(ctx, run.Workspace, run.SandboxID); err != nil {
			return r.lost(ctx, err)
		}
		return nil
	}
	id := req.SandboxID
	if id == "" {
		if r.secrets == nil && lacksValues(req.Secrets) {
			return &end{reason: api.AgentNoSandbox, words: "the server was started again before the run had its sandbox, and the values of its secrets are not stored: start the run again"}
		}
		if done, err := r.restore(ctx); done || err != nil {
			return err
		}
		info, err := r.s.cfg.Sandboxes.Create(ctx, run.Workspace, r.wanted(run.ID))
		if err != nil {
			return r.noSandbox(ctx, err)
		}
		id, r.made = info.ID, info.ID
	}
	if req.SandboxID != "" && req.Tools != nil {
		if err := r.s.cfg.Tools.Give(ctx, run.Workspace, id, req.Tools); err != nil {
			return r.noSandbox(ctx, err)
		}
	}
	cid, err := r.context(ctx, id)
	if err != nil {
		return err
	}
	files, err := r.s.files(run.ID, req.Files)
	if err != nil {
		return err
	}
	for _, f := range files {
		name := f.Path
		if !path.IsAbs(name) {
			name = path.Join("/workspace", name)
		}
		if err := r.s.cfg.Files.Write(ctx, run.Workspace, id, name, f.Content); err != nil {
			return r.noSandbox(ctx, fmt.Errorf("writing %s: %w", name, err))
		}
	}
	if err := r.put(api.AgentEvent{Type: api.AgentEventSandbox, SandboxID: id, ContextID: cid, Note: r.unrestored}); err != nil {
		return err
	}
	r.made = ""
	return nil
}

// wanted is the sandbox that the run asks for. A daemon that died in between made the
// one with that key.
func (r *runner) wanted(key string) api.CreateSandboxRequest {
	create := newSandbox(&r.state.req)
	create.Metadata, create.IdempotencyKey = map[string]string{"agent": r.state.run.ID}, key
	create.Tools = r.state.req.Tools
	if r.secrets != nil {
		create.Secrets = r.secrets
	}
	return create
}

func (r *runner) noSandbox(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	return &end{reason: api.AgentNoSandbox, words: "the run has no sandbox: " + plainWords(err)}
}

// lost explains a sandbox that is gone.
func (r *runner) lost(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, fault.NotFound) {
		return &end{reason: api.AgentNoSandbox, words: "the run's sandbox " + r.state.run.SandboxID + " ended"}
	}
	return r.noSandbox(ctx, err)
}

// begin sets up the context and tells the task.
func (r *runner) begin(ctx context.Context) error {
	if r.state.system == "" {
		env, err := r.setUp(ctx)
		if err != nil {
			return err
		}
		network, err := r.s.cfg.Sandboxes.Network(ctx, r.state.run.Workspace, r.state.run.SandboxID)
		if err != nil {
			return r.lost(ctx, err)
		}
		env.reach(network)
		text, err := systemPrompt(r.state.run.Prompt, r.state.run.Dialect, *env, r.state.req.Limits, r.state.req.Instructions)
		if err != nil {
			return err
		}
		tools, err := r.toolPrompt(ctx)
		if err != nil {
			return r.noSandbox(ctx, err)
		}
		if tools != "" {
			text += "\n\n" + tools
		}
		given, err := r.given(ctx)
		if err != nil {
			return err
		}
		text += given
		if before := r.promptBefore(); before != "" {
			text = before
		}
		if err := r.put(api.AgentEvent{Type: api.AgentEventPrompt, Text: text}); err != nil {
			return err
		}
	}
	r.ready = r.ready || r.state.survived
	if len(r.state.said) == 0 {
		return r.put(api.AgentEvent{Type: api.AgentEventMessage, Messages: []api.AgentMessage{{Role: llm.User, Text: r.state.req.Task}}})
	}
	return nil
}

// ask asks the model for its next reply, and copies the context meanwhile.
func (r *runner) ask(ctx context.Context) error {
	if err := r.t.synced(); err != nil {
		return err
	}
	turn := r.state.run.Turns + 1
	if err := r.copyState(ctx, turn); err != nil {
		return err
	}
	for {
		req, err := r.request()
		if err != nil {
			return err
		}
		whole := r.state.system
		for _, m := range req.Messages {
			whole += "\x00" + m.Role + "\x00" + m.Text
		}
		if err := r.put(api.AgentEvent{Type: api.AgentEventAsked, Turn: turn, Asked: &api.AgentAsked{
			Messages: len(req.Messages), Tokens: llm.Guess(whole), SHA256: hash(whole), ReplyTokens: req.MaxTokens,
		}}); err != nil {
			return err
		}
		r.weigh(req.Messages...)
		reply, err := r.model.Complete(ctx, req, func(d llm.Delta) {
			if d.Again {
				r.tell(api.AgentEvent{Type: api.AgentEventAgain, Turn: turn, Note: d.Why})
				return
			}
			r.tell(api.AgentEvent{Type: api.AgentEventDelta, Turn: turn, Text: d.Text, Reasoning: d.Reasoning})
		})
		r.weigh()
		var le *llm.Error
		switch {
		case err == nil:
			return r.heard(turn, reply, llm.Guess(whole))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &le) && le.Kind == llm.TooLong && r.tight < 4:
			r.tight++ // with less of the past
			continue
		}
		return &end{reason: api.AgentModelFailed, words: err.Error()}
	}
}

// heard keeps a reply. It cost money, so it is written through, while its cells
// run.
func (r *runner) heard(turn int, reply llm.Reply, asked int) error {
	u := reply.Usage
	if u.Estimated {
		u.Input, u.Output = asked, llm.Guess(reply.Text+reply.Reasoning)
		for _, c := range reply.Calls {
			u.Output += llm.Guess(c.Arguments)
		}
	}
	out := &api.AgentReply{
		Text: reply.Text, Reasoning: reply.Reasoning, Stop: string(reply.Stop), Model: reply.Model, ID: reply.ID, Attempts: max(u.Attempts, 1),
		Usage: api.AgentUsage{
			InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead, CacheWriteTokens: u.CacheWrite, Estimated: u.Estimated,
			CostUSD: cost(u, r.state.req.Price),
		},
	}
	out.MoreCalls = reply.MoreCalls
	for i, c := range reply.Calls {
		for n := 1; r.state.called(c.ID); n++ { // by servers that count anew in each reply
			c.ID = fmt.Sprintf("call_%d_%d_%d", turn, i+1, n)
		}
		out.Calls = append(out.Calls, api.AgentCall(c))
	}
	if err := r.put(api.AgentEvent{Type: api.AgentEventReply, Turn: turn, Reply: out}); err != nil {
		return err
	}
	r.t.syncAside()
	return nil
}

// request writes the conversation for the model.
func (r *runner) request() (llm.Request, error) {
	limits := r.state.req.Limits
	req := llm.Request{Model: r.name, System: r.state.system, MaxTokens: room(&r.state.run, limits, r.state.req.Price, r.state.tokens())}
	if r.state.run.Dialect == dialectTool {
		req.Tools = []llm.Tool{runPython}
	}
	for _, m := range r.state.view(limits.ConversationTokens >> r.tight) {
		w := llm.Message{Role: m.role, Text: m.text, Calls: m.calls, CallID: m.callID}
		for i, f := range m.figures {
			if !r.sees() {
				w.Text += fmt.Sprintf("\n[figure %d is a picture of %d×%d pixels, which you cannot see: print the numbers behind it]", i+1, f.Width, f.Height)
				continue
			}
			data, err := readFigure(r.t.dir, f.File)
			if err != nil {
				return req, fmt.Errorf("reading a figure: %w", err)
			}
			w.Images = append(w.Images, llm.Image{MIME: f.MIME, Data: data})
		}
		req.Messages = append(req.Messages, w)
	}
	return req, nil
}

// sees tells whether the model is shown figures.
func (r *runner) sees() bool { return r.state.req.Vision == nil || *r.state.req.Vision }

// action is something that a reply wants done.
type action struct {
	code   string
	callID string
	refuse string // why it is not
}

// act does what the reply says, and tells the model what came of it.
func (r *runner) act(ctx context.Context) error {
	reply, turn := r.state.reply, r.state.turn
	length := reply.Stop == string(llm.StopLength)
	x := extract.Text(reply.Text, length)
	actions := r.actions(x)
	if !r.state.found {
		if err := r.put(api.AgentEvent{Type: api.AgentEventFound, Turn: turn, Found: found(x, reply, r.state.run.Dialect)}); err != nil {
			return err
		}
	}
	if len(actions) == 0 {
		return r.withoutCode(x, reply, length)
	}
	if err := r.checkpointed(ctx); err != nil {
		return err
	}
	if err := r.runAll(ctx, actions); err != nil {
		return err
	}
	return r.put(api.AgentEvent{Type: api.AgentEventMessage, Turn: turn, Messages: r.observation(actions, x, length)})
}

// actions are the cells of a reply.
func (r *runner) actions(x extract.Result) (out []action) {
	if r.state.run.Dialect == dialectText {
		for _, b := range x.Blocks[:min(len(x.Blocks), maxBlocks)] {
			out = append(out, action{code: b.Code})
		}
		return out
	}
	for _, c := range r.state.reply.Calls {
		a := action{callID: c.ID}
		var args struct {
			Code *string `json:"code"`
		}
		switch err := json.Unmarshal([]byte(c.Arguments), &args); {
		case c.Name != runPython.Name:
			a.refuse = fmt.Sprintf("There is no tool %q; there is run_python.", line(c.Name))
		case err != nil && r.state.reply.Stop == string(llm.StopLength):
			a.refuse = "Your reply was cut at its limit in the middle of this call. Write less at a time."
		case err != nil || args.Code == nil:
			a.refuse = `The arguments are not of the form {"code": "…"} in JSON.`
		case strings.TrimSpace(*args.Code) == "":
			a.refuse = "There was no code in it."
		default:
			a.code = *args.Code
		}
		out = append(out, a)
	}
	return out
}

func found(x extract.Result, reply *api.AgentReply, dialect string) *api.AgentFound {
	f := &api.AgentFound{Blocks: []api.AgentBlock{}, Answer: x.Answer}
	for _, d := range x.Discarded {
		f.Discarded = append(f.Discarded, api.AgentDiscarded{Why: d.Why, Start: d.Start, End: d.End})
	}
	if dialect == dialectTool {
		for _, c := range reply.Calls {
			f.Blocks = append(f.Blocks, api.AgentBlock{Form: "call", Marker: line(c.Name), Closed: json.Valid([]byte(c.Arguments))})
		}
		return f
	}
	for _, b := range x.Blocks {
		f.Blocks = append(f.Blocks, api.AgentBlock{
			Form: b.Form, Marker: b.Marker, Language: b.Language, Start: b.Start, End: b.End, Closed: b.Closed, Passed: b.Passed,
		})
	}
	return f
}

// withoutCode takes a reply without code for the answer, unless there is none
// in it.
func (r *runner) withoutCode(x extract.Result, reply *api.AgentReply, length bool) error {
	note, words := "", ""
	switch {
	case length:
		note = noteNoReply
		words = fmt.Sprintf("Your reply was cut at its limit of %d tokens, and nothing of it was run. Write less at a time: a few lines of code, then look at what they do.", r.state.room)
	case reply.Stop == string(llm.StopFilter) && x.Prose == "":
		return &end{reason: api.AgentModelFailed, words: "the provider withheld the model's reply"}
	case x.Answer != nil && *x.Answer != "":
		return &end{reason: api.AgentAnswered, answer: x.Answer}
	case r.state.run.Dialect == dialectTool && len(x.Blocks) > 0:
		note = noteNoReply
		words = "There is code in your reply, but you did not call run_python, so nothing was run. Call it with the code, or, if this is the answer, reply with FINAL ANSWER: and the answer."
	case x.Has(extract.NotPython) && x.Answer == nil:
		note = noteNoReply
		words = "There is code in your reply that was not run, because it is not marked as Python. Put Python between ```python and ```; a line !command runs a shell command. If this is the answer, reply with FINAL ANSWER: and the answer."
	case x.Prose == "":
		note = noteNoReply
		words = "Your reply was empty"
		if x.Has(extract.Thinking) || reply.Reasoning != "" {
			words += " but for your thinking"
		}
		words += ". Write code to go on, or FINAL ANSWER: and the answer."
	default:
		answer := x.Prose
		return &end{reason: api.AgentAnswered, answer: &answer}
	}
	if r.state.silent+1 >= maxSilent {
		return &end{reason: api.AgentNoReply, words: fmt.Sprintf("nothing could be done with %d replies in a row: %s", maxSilent, words)}
	}
	return r.put(api.AgentEvent{Type: api.AgentEventMessage, Turn: r.state.turn, Note: note, Messages: []api.AgentMessage{{Role: llm.User, Text: words}}})
}

// runAll runs the cells in order until one fails.
func (r *runner) runAll(ctx context.Context, actions []action) error {
	failed := 0
	for i, a := range actions {
		if i < len(r.state.outcomes) { // in the life of an earlier daemon
			if o := r.state.outcomes[i]; failed == 0 && o.End != string(api.EndOK) {
				failed = i + 1
			}
			continue
		}
		index, of := i+1, len(actions)
		var o api.AgentOutcome
		var err error
		switch {
		case a.refuse != "":
			o = refused(index, of, a.refuse)
		case failed > 0:
			o = refused(index, of, fmt.Sprintf("Cell %d failed.", failed))
		case r.state.run.Cells >= r.state.req.Limits.MaxCells && r.state.began(index) == nil:
			o = refused(index, of, "The run has had all its cells.")
		default:
			o, err = r.cell(ctx, index, of, a)
		}
		if err != nil {
			return err
		}
		if err := r.put(api.AgentEvent{Type: api.AgentEventOutcome, Turn: r.state.turn, Outcome: &o}); err != nil {
			return err
		}
		if o.Answer != nil {
			return &end{reason: api.AgentAnswered, answer: o.Answer}
		}
		if failed == 0 && o.End != string(api.EndOK) {
			failed = index
		}
	}
	for _, o := range r.state.outcomes {
		if o.Answer != nil {
			return &end{reason: api.AgentAnswered, answer: o.Answer}
		}
	}
	return nil
}

// observation is what the model is told of its cells.
func (r *runner) observation(actions []action, x extract.Result, length bool) []api.AgentMessage {
	var remarks []string
	if x.Has(extract.Fabricated) {
		remarks = append(remarks, "You wrote an observation yourself. It was cut off, with all that follows it: what is above is what really happened.")
	}
	if x.Has(extract.LateAnswer) || r.state.run.Dialect == dialectTool && x.Answer != nil {
		remarks = append(remarks, "Your answer was not taken: it was written before this code had run. If it still holds, give it in a reply without code.")
	}
	if x.Has(extract.NotPython) && r.state.run.Dialect == dialectText {
		remarks = append(remarks, "Code that is not marked as Python was not run.")
	}
	if x.Has(extract.Unfinished) || length {
		remarks = append(remarks, "Your reply was cut at its limit, and its unfinished end was not run.")
	}
	if n := len(x.Blocks); n > maxBlocks && r.state.run.Dialect == dialectText {
		remarks = append(remarks, fmt.Sprintf("Your reply had %d pieces of code. Only the first %d were looked at.", n, maxBlocks))
	}
	if n := r.state.reply.MoreCalls; n > 0 {
		remarks = append(remarks, fmt.Sprintf("Your reply had %d calls. Only the first %d were looked at.", len(r.state.reply.Calls)+n, len(r.state.reply.Calls)))
	}
	limits, run := r.state.req.Limits, r.state.run
	if left := limits.MaxTurns - run.Turns; left <= 2 && left > 0 {
		remarks = append(remarks, fmt.Sprintf("You have %s left. Give your answer in the last one at the latest.", count(left, "turn")))
	} else if left := limits.MaxCells - run.Cells; left <= 2 {
		remarks = append(remarks, fmt.Sprintf("You have %s left.", count(max(left, 0), "cell")))
	}
	if c := goingInCircles(append(r.state.steps[:len(r.state.steps):len(r.state.steps)], r.step())); c != nil && !c.back {
		remarks = append(remarks, c.words+" Think about why, and do something else.")
	}
	remark := strings.Join(remarks, "\n")
	if r.state.run.Dialect == dialectTool {
		var out []api.AgentMessage
		for i, o := range r.state.outcomes {
			m := api.AgentMessage{Role: llm.ToolRole, CallID: actions[i].callID, Text: o.Text, Figures: o.Figures}
			if i == len(r.state.outcomes)-1 && remark != "" {
				m.Text += "\n\n" + remark
			}
			out = append(out, m)
		}
		return out
	}
	m := api.AgentMessage{Role: llm.User}
	var texts []string
	for _, o := range r.state.outcomes {
		texts = append(texts, o.Text)
		m.Figures = append(m.Figures, o.Figures...)
	}
	if remark != "" {
		texts = append(texts, remark)
	}
	m.Text = strings.Join(texts, "\n\n")
	return []api.AgentMessage{m}
}

// step is the turn in progress as it will be compared.
func (r *runner) step() step {
	s := state{cells: r.state.cells, outcomes: r.state.outcomes, reply: r.state.reply, turn: r.state.turn, starts: map[int]int{}}
	s.told(api.AgentEvent{})
	if len(s.steps) == 0 {
		return step{turn: r.state.turn, action: fmt.Sprint("none ", r.state.turn)}
	}
	return s.steps[0]
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
