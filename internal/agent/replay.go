package agent

import (
	"context"
	"maps"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// recorded is a model that says again what it said in a run.
type recorded struct{ replies []api.AgentReply }

var _ llm.Provider = (*recorded)(nil)

// Complete implements llm.Provider.
func (r *recorded) Complete(_ context.Context, _ llm.Request, tell func(llm.Delta)) (llm.Reply, error) {
	if len(r.replies) == 0 {
		return llm.Reply{}, &llm.Error{Kind: llm.Refused, Message: "the run that is replayed had no more replies"}
	}
	said := r.replies[0]
	r.replies = r.replies[1:]
	out := llm.Reply{
		Text: said.Text, Reasoning: said.Reasoning, MoreCalls: said.MoreCalls, Stop: llm.Stop(said.Stop), Model: said.Model, ID: said.ID,
		Usage: llm.Usage{
			Input: said.Usage.InputTokens, Output: said.Usage.OutputTokens, CacheRead: said.Usage.CacheReadTokens, CacheWrite: said.Usage.CacheWriteTokens,
		},
	}
	for _, c := range said.Calls {
		out.Calls = append(out.Calls, llm.Call(c))
	}
	if tell != nil {
		tell(llm.Delta{Text: out.Text, Reasoning: out.Reasoning})
	}
	return out, nil
}

// replay gives the model of a run that replays another, as it goes on after so
// many replies, and the turns before which the first one was set back to.
func (s *Service) replay(owner, id string, after int) (model *recorded, returns map[int]bool, err error) {
	entries, err := s.entries(owner, id)
	if err != nil {
		return nil, nil, err
	}
	var replies []api.AgentReply
	returns = map[int]bool{}
	for _, e := range entries {
		switch e.Type {
		case api.AgentEventReply:
			replies = append(replies, *e.Reply)
		case api.AgentEventRewound:
			returns[e.Rewound.ToTurn] = true
		}
	}
	return &recorded{replies[min(after, len(replies)):]}, returns, nil
}

// replaying fills a request with what the run had that it replays.
func (s *Service) replaying(owner string, req *api.AgentRequest) error {
	entries, err := s.entries(owner, req.ReplayOf)
	if err != nil {
		return err
	}
	if req.Fork != nil || req.Task != "" || req.Model != "" || req.BaseURL != "" || req.Dialect != "" || req.Instructions != "" || len(req.Files) > 0 ||
		req.Limits != (api.AgentLimits{}) || req.Network != nil || len(req.Data) > 0 || ofNew(&api.AgentRequest{Template: req.Template, FromSnapshot: req.FromSnapshot, CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB, PIDs: req.PIDs, Envs: req.Envs}) != "" {
		return fault.InvalidField("replay_of", "a replay has all that its run had").WithHint("only keep, metadata, secrets, and sandbox_id or follows where the run had them, may be given with replay_of")
	}
	of := *entries[0].Request
	if err := s.again(owner, req, of); err != nil {
		return err
	}
	of.ReplayOf, of.Keep, of.Metadata, of.BaseURL, of.SandboxID, of.Follows, of.Fork = req.ReplayOf, req.Keep, maps.Clone(req.Metadata), "", req.SandboxID, req.Follows, nil
	if req.Secrets != nil {
		of.Secrets = req.Secrets
	} else if lacksValues(of.Secrets) {
		return fault.InvalidField("secrets", "the run had secrets whose values are not stored").WithHint("give them again, as secrets")
	}
	if of.Files, err = s.files(req.ReplayOf, of.Files); err != nil {
		return err
	}
	*req = of
	return nil
}

// again checks where a run is to be done again that worked in a sandbox of its
// caller's, or in that of a run before: what lay there is not kept with it.
func (s *Service) again(owner string, req *api.AgentRequest, of api.AgentRequest) error {
	switch {
	case of.Follows != "" && req.Follows == "":
		return fault.InvalidField("follows", "the run goes on from %s, whose variables a new sandbox has not", of.Follows).
			WithHint("replay that one first, and name its replay in follows; or run its notebook beside the files")
	case of.Follows != "":
		before, err := s.entries(owner, req.Follows)
		if err != nil {
			return err
		}
		if first := describe(before); first.ReplayOf != of.Follows {
			return fault.InvalidField("follows", "%s is no replay of %s, from which the run goes on", req.Follows, of.Follows)
		}
	case req.Follows != "":
		return fault.InvalidField("follows", "the run goes on from no other one").WithHint("leave follows out")
	case req.SandboxID != "" && of.SandboxID == "":
		return fault.InvalidField("sandbox_id", "the run had a sandbox of its own, and so has its replay").WithHint("leave sandbox_id out")
	case req.SandboxID == "":
		return repeatable("replay_of", of)
	}
	return nil
}
