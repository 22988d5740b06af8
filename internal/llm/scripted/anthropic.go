package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/internal/llm"
)

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Input     json.RawMessage `json:"input"`
	Content   []block         `json:"content"`
	Source    *struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"`
	} `json:"source"`
}

// readAnthropic holds a request against the protocol, as far as the real
// service would refuse it.
func readAnthropic(raw []byte) (seen, error) {
	var req struct {
		Model     string `json:"model"`
		MaxTokens int    `json:"max_tokens"`
		Stream    bool   `json:"stream"`
		Messages  []struct {
			Role    string  `json:"role"`
			Content []block `json:"content"`
		} `json:"messages"`
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return seen{}, err
	}
	if req.Model == "" || req.MaxTokens < 1 || !req.Stream || len(req.Messages) == 0 {
		return seen{}, errors.New("a request has a model, max_tokens, stream and messages")
	}
	in := seen{tools: len(req.Tools) > 0}
	waiting := map[string]bool{}
	for i, m := range req.Messages {
		if m.Role != "user" && m.Role != "assistant" || len(m.Content) == 0 {
			return in, fmt.Errorf("messages[%d] must be of user or assistant and not empty", i)
		}
		var words []string
		image := false
		for j, b := range m.Content {
			where := fmt.Sprintf("messages[%d].content[%d]", i, j)
			switch {
			case b.Type == "tool_result" && m.Role == "user":
				if !waiting[b.ToolUseID] {
					return in, fmt.Errorf("%s answers no tool_use", where)
				}
				delete(waiting, b.ToolUseID)
				for _, c := range b.Content {
					words, image = append(words, c.Text), image || c.Type == "image"
				}
			case b.Type == "tool_use" && m.Role == "assistant":
				var object map[string]any
				if b.ID == "" || json.Unmarshal(b.Input, &object) != nil {
					return in, fmt.Errorf("%s needs an id and an object as input", where)
				}
				waiting[b.ID] = true
			case b.Type == "text" && strings.TrimSpace(b.Text) != "":
				words = append(words, b.Text)
			case b.Type == "image" && m.Role == "user" && b.Source != nil && len(b.Source.Data) > 0:
				image = true
			default:
				return in, fmt.Errorf("%s: a block %q cannot stand here, or is empty", where, b.Type)
			}
		}
		if m.Role == "user" && len(waiting) > 0 {
			return in, fmt.Errorf("messages[%d]: tool_use without tool_result: %v", i, waiting)
		}
		in.add(m.Role, strings.Join(words, "\n"), image)
	}
	return in, nil
}

func writeAnthropic(o *out, r llm.Reply) {
	type object = map[string]any
	u := r.Usage
	usage := object{"input_tokens": u.Input - u.CacheRead, "output_tokens": 1, "cache_read_input_tokens": u.CacheRead, "cache_creation_input_tokens": 0}
	if u.Estimated {
		usage = object{}
	}
	o.event("message_start", object{"type": "message_start", "message": object{"id": r.ID, "type": "message", "role": "assistant", "model": r.Model, "content": []any{}, "usage": usage}})
	o.event("ping", object{"type": "ping"})
	n := 0
	content := func(start object, delta func(part string) object, text string) {
		o.event("content_block_start", object{"type": "content_block_start", "index": n, "content_block": start})
		o.pieces(text, func(part string) {
			o.event("content_block_delta", object{"type": "content_block_delta", "index": n, "delta": delta(part)})
		})
		o.event("content_block_stop", object{"type": "content_block_stop", "index": n})
		n++
	}
	if r.Reasoning != "" {
		content(object{"type": "thinking", "thinking": ""}, func(part string) object { return object{"type": "thinking_delta", "thinking": part} }, r.Reasoning)
	}
	if r.Text != "" {
		content(object{"type": "text", "text": ""}, func(part string) object { return object{"type": "text_delta", "text": part} }, r.Text)
	}
	for _, c := range r.Calls {
		content(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}},
			func(part string) object { return object{"type": "input_json_delta", "partial_json": part} }, c.Arguments)
	}
	reason := map[llm.Stop]string{llm.StopLength: "max_tokens", llm.StopTool: "tool_use", llm.StopFilter: "refusal"}[r.Stop]
	if reason == "" {
		reason = "end_turn"
	}
	last := object{"type": "message_delta", "delta": object{"stop_reason": reason}}
	if !u.Estimated {
		last["usage"] = object{"output_tokens": u.Output}
	}
	o.end(func() {
		o.event("message_delta", last)
		o.event("message_stop", object{"type": "message_stop"})
	})
}
