package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/internal/llm"
)

// readOpenAI holds a request against the protocol, as far as the real service
// would refuse it.
func readOpenAI(raw []byte) (seen, error) {
	var req struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Type     string `json:"type"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(raw, &req); err != nil {
		return seen{}, err
	}
	if req.Model == "" || !req.Stream || len(req.Messages) == 0 {
		return seen{}, errors.New("a request has a model, stream and messages")
	}
	in := seen{tools: len(req.Tools) > 0}
	waiting := map[string]bool{}
	for i, m := range req.Messages {
		text, image, err := openaiContent(m.Content, m.Role, len(m.ToolCalls) > 0)
		if err != nil {
			return in, fmt.Errorf("messages[%d]: %w", i, err)
		}
		if m.Role == "tool" {
			if !waiting[m.ToolCallID] {
				return in, fmt.Errorf("messages[%d] answers no tool call", i)
			}
			delete(waiting, m.ToolCallID)
		} else if len(waiting) > 0 {
			return in, fmt.Errorf("messages[%d]: tool calls had no answer: %v", i, waiting)
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || c.Type != "function" || c.Function.Name == "" || !json.Valid([]byte(c.Function.Arguments)) {
				return in, fmt.Errorf("messages[%d]: a tool call needs id, type, name and arguments in JSON", i)
			}
			waiting[c.ID] = true
		}
		in.add(m.Role, text, image)
	}
	if len(waiting) > 0 {
		return in, fmt.Errorf("tool calls had no answer: %v", waiting)
	}
	return in, nil
}

func (in *seen) add(role, text string, image bool) {
	if role == "user" && in.first == "" {
		in.first = text
	}
	switch role {
	case "assistant":
		in.last, in.image = "", false
	case "user", "tool":
		in.last += text + "\n"
		in.image = in.image || image
	}
}

func openaiContent(raw json.RawMessage, role string, calls bool) (text string, image bool, err error) {
	if json.Unmarshal(raw, &text) == nil && string(raw) != "null" {
		return text, false, nil
	}
	if string(raw) == "null" && role == "assistant" && calls {
		return "", false, nil
	}
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return "", false, errors.New("content must be a string or an array of parts")
	}
	var words []string
	for _, p := range parts {
		switch {
		case p.Type == "text":
			words = append(words, p.Text)
		case p.Type == "image_url" && role == "user" && strings.HasPrefix(p.ImageURL.URL, "data:image/"):
			image = true
		default:
			return "", false, fmt.Errorf("a %s message cannot hold a part %q", role, p.Type)
		}
	}
	return strings.Join(words, "\n"), image, nil
}

func writeOpenAI(o *out, r llm.Reply) {
	chunk := func(delta map[string]any, reason any) {
		o.event("", map[string]any{
			"id": r.ID, "object": "chat.completion.chunk", "created": 0, "model": r.Model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}},
		})
	}
	chunk(map[string]any{"role": "assistant", "content": ""}, nil)
	o.pieces(r.Reasoning, func(part string) { chunk(map[string]any{"reasoning_content": part}, nil) })
	o.pieces(r.Text, func(part string) { chunk(map[string]any{"content": part}, nil) })
	for i, c := range r.Calls {
		chunk(map[string]any{"tool_calls": []any{map[string]any{
			"index": i, "id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": ""},
		}}}, nil)
		o.pieces(c.Arguments, func(part string) {
			chunk(map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": part}}}}, nil)
		})
	}
	reason := map[llm.Stop]string{llm.StopLength: "length", llm.StopTool: "tool_calls", llm.StopFilter: "content_filter"}[r.Stop]
	if reason == "" {
		reason = "stop"
	}
	o.end(func() {
		chunk(map[string]any{}, reason)
		if u := r.Usage; !u.Estimated {
			o.event("", map[string]any{"id": r.ID, "choices": []any{}, "usage": map[string]any{
				"prompt_tokens": u.Input, "completion_tokens": u.Output, "prompt_tokens_details": map[string]int{"cached_tokens": u.CacheRead},
			}})
		}
		if o.err == nil {
			_, o.err = o.w.Write([]byte("data: [DONE]\n\n"))
		}
	})
}
