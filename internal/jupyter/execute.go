package jupyter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// The contents of messages.
type (
	request struct {
		Code            string            `json:"code"`
		Silent          bool              `json:"silent"`
		StoreHistory    *bool             `json:"store_history"`
		UserExpressions map[string]string `json:"user_expressions"`
		AllowStdin      *bool             `json:"allow_stdin"`
		StopOnError     *bool             `json:"stop_on_error"`
	}
	input struct {
		Code  string `json:"code"`
		Count int    `json:"execution_count"`
	}
	stream struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	shown struct {
		Data     map[string]json.RawMessage `json:"data"`
		Metadata map[string]json.RawMessage `json:"metadata"`
		Count    *int                       `json:"execution_count,omitempty"` // of the last expression
	}
	raised struct {
		Name      string   `json:"ename"`
		Value     string   `json:"evalue"`
		Traceback []string `json:"traceback"`
	}
	asked struct {
		Prompt   string `json:"prompt"`
		Password bool   `json:"password"`
	}
)

func or(b *bool, def bool) bool {
	if b == nil {
		return def
	}
	return *b
}

var errUnfinished = errors.New("the sandbox did not say how this ended")

// execute runs a cell, tells all front ends what it does, and this one how it
// ended. It is true when the cells that wait are to be dropped.
func (c *client) execute(m *Message) (stop bool) {
	var req request
	if err := json.Unmarshal(m.Content, &req); err != nil {
		c.answer(m, failure("ValueError", "the request is malformed: "+err.Error()))
		return false
	}
	r := c.room
	run := guestapi.RunRequest{Code: req.Code, Notebook: &guestapi.Notebook{
		Silent: req.Silent, StoreHistory: or(req.StoreHistory, true) && !req.Silent, Stdin: or(req.AllowStdin, true), UserExpressions: req.UserExpressions,
	}}
	count := 0
	var end *api.Event
	for e, err := range r.server.kernels.Notebook(c.ctx, r.owner, r.sid, r.cid, run) {
		if err != nil {
			words := err.Error()
			r.publish(m, "error", raised{"SandboxError", words, []string{words}})
			content := failure("SandboxError", words)
			content["execution_count"] = count
			c.answer(m, content)
			return or(req.StopOnError, true)
		}
		switch e.Type {
		case api.EventStarted:
			count = e.ExecutionCount
			run.ExecutionID = e.ExecutionID
			if !req.Silent {
				r.publish(m, "execute_input", input{req.Code, count})
			}
		case api.EventInputRequest:
			c.mu.Lock()
			c.asking = run.ExecutionID
			c.mu.Unlock()
			c.put(answer(m, stdin, "input_request", r.session, asked{e.Prompt, e.Password}))
		case api.EventEnd:
			end = &e
		}
		r.show(m, e, count)
	}
	if end == nil {
		c.answer(m, failure("SandboxError", errUnfinished.Error()))
		return or(req.StopOnError, true)
	}
	x := end.Execution
	if !x.StateSurvived && x.End != api.EndOK {
		r.publish(nil, "status", state{"restarting"})
	}
	content := map[string]any{"status": "ok", "execution_count": count, "user_expressions": none, "payload": []any{}}
	var said map[string]json.RawMessage
	if json.Unmarshal(end.Reply, &said) == nil {
		for k, v := range said {
			content[k] = v
		}
	}
	if x.End != api.EndOK {
		e := raisedBy(x)
		content["status"], content["ename"], content["evalue"], content["traceback"] = "error", e.Name, e.Value, e.Traceback
	}
	c.answer(m, content)
	return x.End != api.EndOK && or(req.StopOnError, true)
}

// show publishes what an event of a cell means to front ends.
func (r *room) show(parent *Message, e api.Event, count int) {
	switch e.Type {
	case api.EventStdout, api.EventStderr:
		r.publish(parent, "stream", stream{e.Type, e.Text})
	case api.EventGap:
		r.publish(parent, "stream", stream{"stderr", fmt.Sprintf("\n[… %d bytes of %s left out …]\n", e.Dropped, e.Stream)})
	case api.EventResult:
		s := shown{Data: bundle(e.Data), Metadata: e.Metadata}
		if s.Metadata == nil {
			s.Metadata = map[string]json.RawMessage{}
		}
		if e.IsLastExpression {
			s.Count = &count
			r.publish(parent, "execute_result", s)
		} else {
			r.publish(parent, "display_data", s)
		}
	case api.EventMessage:
		m := answer(parent, iopub, e.Message.Type, r.session, e.Message.Content)
		m.Buffers = e.Message.Buffers
		if len(e.Message.Metadata) > 0 && string(e.Message.Metadata) != "null" {
			m.Metadata = e.Message.Metadata
		}
		r.mu.Lock()
		r.tell(m)
		r.mu.Unlock()
	case api.EventEnd:
		if e.Execution.End != api.EndOK {
			r.publish(parent, "error", raisedBy(e.Execution))
		}
	}
}

// bundle is a result as front ends want it: JSON as it is, all else as strings,
// and so JSON that is nested too deep to be put into a message.
func bundle(data api.Bundle) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for mime, value := range data {
		if isJSON := mime == "application/json" || strings.HasSuffix(mime, "+json"); isJSON && json.Valid([]byte(value)) && guestapi.Depth([]byte(value)) <= guestapi.MaxDepth {
			out[mime] = json.RawMessage(value)
			continue
		}
		out[mime] = encoded(value)
	}
	return out
}

// raisedBy is why a cell failed: its error, or what stopped it.
func raisedBy(x *api.Execution) raised {
	e := raised{Name: x.ErrorName, Value: x.ErrorValue, Traceback: []string{}}
	if e.Name == "" {
		e.Name = string(x.End)
	}
	if x.Error != nil {
		e.Traceback = strings.Split(strings.TrimRight(*x.Error, "\n"), "\n")
	}
	return e
}

// ask has a request answered that is no cell, and gives the content of the reply.
func (c *client) ask(m *Message) (json.RawMessage, error) {
	r := c.room
	run := guestapi.RunRequest{Ask: &guestapi.Ask{Type: m.Header.MsgType, Content: m.Content, Metadata: m.Metadata, Buffers: m.Buffers}}
	for e, err := range r.server.kernels.Notebook(c.ctx, r.owner, r.sid, r.cid, run) {
		if err != nil {
			return nil, err
		}
		r.show(m, e, 0)
		if e.Type == api.EventEnd {
			if e.Execution.End != api.EndOK {
				x := raisedBy(e.Execution)
				return nil, fmt.Errorf("%s: %s", x.Name, x.Value)
			}
			return e.Reply, nil
		}
	}
	return nil, errUnfinished
}
