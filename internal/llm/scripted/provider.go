package scripted

import (
	"context"
	"net/http"
	"sync"

	"github.com/pandastack/pandastack/internal/llm"
)

// Provider plays a script in this process. It keeps the requests.
type Provider struct {
	Script *Script

	mu       sync.Mutex
	requests []llm.Request
}

var _ llm.Provider = (*Provider)(nil)

// Requests gives what was asked so far.
func (p *Provider) Requests() []llm.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]llm.Request{}, p.requests...)
}

// Complete implements llm.Provider. What the script does not expect is refused.
func (p *Provider) Complete(ctx context.Context, req llm.Request, tell func(llm.Delta)) (llm.Reply, error) {
	p.mu.Lock()
	p.requests = append(p.requests, req)
	p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return llm.Reply{}, context.Cause(ctx)
	}
	in := seen{tools: len(req.Tools) > 0}
	for _, m := range req.Messages {
		if m.Role == llm.User && in.first == "" {
			in.first = m.Text
		}
		if m.Role == llm.Assistant {
			in.last, in.image = "", false
			continue
		}
		in.last += m.Text + "\n"
		in.image = in.image || len(m.Images) > 0
	}
	_, reply, fault, done, err := p.Script.answer(in)
	switch {
	case err != nil:
		return llm.Reply{}, &llm.Error{Status: http.StatusBadRequest, Kind: llm.Refused, Message: err.Error()}
	case fault != nil && fault.Status != 0:
		return llm.Reply{}, &llm.Error{Status: fault.Status, Kind: llm.Overloaded, Message: fault.Message}
	case fault != nil:
		part := reply.Text[:min(fault.BreakAfter, len(reply.Text))]
		if tell != nil {
			tell(llm.Delta{Text: part})
		}
		return llm.Reply{Text: part}, &llm.Error{Kind: llm.Broken, Message: "the model's reply broke off"}
	}
	if tell != nil {
		tell(llm.Delta{Text: reply.Text, Reasoning: reply.Reasoning})
	}
	done()
	return reply, nil
}
