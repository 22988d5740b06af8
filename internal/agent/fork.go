package agent

import (
	"context"
	"fmt"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// forking fills a request with what the run had that it branches off from. What
// its sandbox was made of, and how its model writes code, stay as they were.
func (s *Service) forking(owner string, req *api.AgentRequest) error {
	fork := *req.Fork
	entries, err := s.entries(owner, fork.Of)
	if err != nil {
		return err
	}
	if req.Task != "" || req.ReplayOf != "" || req.Dialect != "" || req.SandboxID != "" || len(req.Files) > 0 || req.Tools != nil || req.Network != nil || len(req.Data) > 0 || req.Follows != "" ||
		ofNew(&api.AgentRequest{Template: req.Template, FromSnapshot: req.FromSnapshot, CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB, PIDs: req.PIDs, Envs: req.Envs}) != "" {
		return fault.InvalidField("fork", "a fork has the task, the sandbox and the dialect of its run").
			WithHint("what the model is to do from there is said in fork.task; model, instructions, vision, limits, price, keep, metadata and secrets may be given, too")
	}
	turns := 0
	for _, e := range entries {
		if e.Type == api.AgentEventReply {
			turns++
		}
	}
	if fork.At < 1 || fork.At > turns {
		return fault.InvalidField("fork.at", "fork.at must lie between 1 and %d, the turns of that run, not %d", turns, fork.At)
	}
	of := *entries[0].Request
	if err := repeatable("fork", of); err != nil {
		return err
	}
	if of.BaseURL != "" && req.BaseURL == "" && req.Model == "" {
		return fault.InvalidField("base_url", "the model of that run was at %s", of.BaseURL).WithHint("give base_url again, or another model")
	}
	if lacksValues(of.Secrets) && req.Secrets == nil {
		return fault.InvalidField("secrets", "the run had secrets whose values are not stored").WithHint("give them again, as secrets")
	}
	req.Task, req.Dialect, req.Tools, req.Network, req.Data = of.Task, of.Dialect, of.Tools, of.Network, of.Data
	req.Template, req.FromSnapshot, req.CPU, req.MemoryMB, req.DiskMB, req.PIDs, req.Envs = of.Template, of.FromSnapshot, of.CPU, of.MemoryMB, of.DiskMB, of.PIDs, of.Envs
	if req.Model == "" {
		req.Model = of.Model
	}
	if req.Instructions == "" {
		req.Instructions = of.Instructions
	}
	if req.Vision == nil {
		req.Vision = of.Vision
	}
	if req.Price == nil && req.Model == of.Model {
		req.Price = of.Price
	}
	if req.Secrets == nil {
		req.Secrets = of.Secrets
	}
	req.Limits = limitsOr(req.Limits, of.Limits)
	if req.Limits.MaxTurns > 0 && fork.At > req.Limits.MaxTurns {
		return fault.InvalidField("limits.max_turns", "limits.max_turns is %d, and turn %d would be beyond it: the turns before count", req.Limits.MaxTurns, fork.At)
	}
	if req.Files, err = s.files(fork.Of, of.Files); err != nil {
		return err
	}
	return nil
}

// limitsOr gives limits with what is left open from others.
func limitsOr(l, or api.AgentLimits) api.AgentLimits {
	for to, from := range map[*int]int{
		&l.MaxTurns: or.MaxTurns, &l.MaxCells: or.MaxCells, &l.MaxTokens: or.MaxTokens, &l.ObservationTokens: or.ObservationTokens, &l.ReplyTokens: or.ReplyTokens,
		&l.ToolTokens: or.ToolTokens, &l.ConversationTokens: or.ConversationTokens,
	} {
		if *to == 0 {
			*to = from
		}
	}
	for to, from := range map[*float64]float64{&l.MaxSeconds: or.MaxSeconds, &l.MaxCostUSD: or.MaxCostUSD, &l.CellSeconds: or.CellSeconds} {
		if *to == 0 {
			*to = from
		}
	}
	return l
}

// branching is the model of a fork: the replies of its run up to a turn, which
// cost nothing, and then the model itself.
type branching struct {
	past recorded
	llm.Provider
}

// Complete implements llm.Provider.
func (b *branching) Complete(ctx context.Context, req llm.Request, tell func(llm.Delta)) (llm.Reply, error) {
	if len(b.past.replies) == 0 {
		return b.Provider.Complete(ctx, req, tell)
	}
	reply, err := b.past.Complete(ctx, req, tell)
	reply.Usage = llm.Usage{}
	return reply, err
}

// branchFrom has the model repeat what the run said of which this one is a fork.
func (r *runner) branchFrom(of string, at int) error {
	past, returns, err := r.s.replay(r.state.run.Workspace, of, r.state.run.Turns)
	if err != nil {
		return &end{reason: api.AgentModelFailed, words: plainWords(err)}
	}
	past.replies = past.replies[:min(len(past.replies), at-1-r.state.run.Turns)]
	r.model, r.returns = &branching{*past, r.model}, returns
	return nil
}

// branchOff is the moment in which a fork goes on by itself: it says where what its
// cells showed differs from what those of its run did, and tells the model what it
// is to do from here.
func (r *runner) branchOff(ctx context.Context) error {
	fork := r.state.req.Fork
	if fork == nil || r.state.branched {
		return nil
	}
	if turn := r.state.run.Turns + 1; turn < fork.At {
		return r.tellAsBefore(turn)
	}
	e := api.AgentEvent{Type: api.AgentEventForked, Turn: fork.At, Forked: &api.AgentForked{Of: fork.Of, At: fork.At}}
	if e.Forked.SnapshotID = r.state.restored; fork.At > 1 && e.Forked.SnapshotID == "" {
		entries, err := r.s.entries(r.state.run.Workspace, fork.Of)
		if err != nil {
			return &end{reason: api.AgentModelFailed, words: plainWords(err)}
		}
		e.Forked.Cells, e.Forked.Differ = beside(entries, r.hub.all(), fork.At)
		e.Forked.Outside = e.Forked.Cells > 0 && !r.keepsToItself(ctx)
	}
	if fork.Task != "" {
		e.Messages = []api.AgentMessage{{Role: llm.User, Text: fork.Task}}
	}
	r.returns = nil
	return r.put(e)
}

// tellAsBefore tells the model what the run of which this one is a fork was told before
// a turn besides observations: that was a fork itself, which began to go another way there.
func (r *runner) tellAsBefore(turn int) error {
	entries, err := r.entriesBefore()
	if err != nil {
		return &end{reason: api.AgentModelFailed, words: plainWords(err)}
	}
	var words []api.AgentMessage
	for _, e := range entries {
		if e.Turn == turn && e.Type == api.AgentEventReply {
			break
		}
		if e.Turn == turn && (e.Type == api.AgentEventForked || e.Type == api.AgentEventMessage) {
			words = append(words, e.Messages...)
		}
	}
	if n := len(r.state.said); len(words) == 0 || n > 0 && r.state.said[n-1].turn == turn { // in the life of an earlier daemon
		return nil
	}
	return r.put(api.AgentEvent{Type: api.AgentEventMessage, Turn: turn, Messages: words})
}

// beside counts the cells of a run before a turn and names those of which something
// else came in another run.
func beside(first, second []api.AgentEvent, turn int) (cells int, differ []string) {
	name := func(e api.AgentEvent) string { return fmt.Sprintf("turn %d, cell %d", e.Turn, e.Outcome.Index) }
	again := map[string]*api.AgentOutcome{}
	for _, e := range second {
		if e.Type == api.AgentEventOutcome {
			again[name(e)] = e.Outcome
		}
	}
	for _, e := range first {
		if e.Type != api.AgentEventOutcome || e.Turn >= turn {
			continue
		}
		cells++
		if o := again[name(e)]; o == nil || o.Digest != e.Outcome.Digest || len(o.Figures) != len(e.Outcome.Figures) {
			differ = append(differ, name(e))
		}
	}
	return cells, differ
}
