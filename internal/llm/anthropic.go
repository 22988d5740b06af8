package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// Anthropic speaks Anthropic's messages.
type Anthropic struct{ at Endpoint }

var _ Provider = (*Anthropic)(nil)

const anthropicVersion = "2023-06-01"

// NewAnthropic makes one. The base URL may end in /v1; default that of Anthropic.
func NewAnthropic(at Endpoint) *Anthropic {
	at = at.withDefaults("https://api.anthropic.com")
	at.BaseURL = strings.TrimSuffix(at.BaseURL, "/v1")
	return &Anthropic{at}
}

type (
	anthropicRequest struct {
		Model       string             `json:"model"`
		MaxTokens   int                `json:"max_tokens"`
		System      []anthropicBlock   `json:"system,omitempty"`
		Messages    []anthropicMessage `json:"messages"`
		Tools       []anthropicTool    `json:"tools,omitempty"`
		Temperature *float64           `json:"temperature,omitempty"`
		Stream      bool               `json:"stream"`
	}
	anthropicMessage struct {
		Role    string           `json:"role"`
		Content []anthropicBlock `json:"content"`
	}
	anthropicBlock struct {
		Type         string           `json:"type"`
		Text         string           `json:"text,omitempty"`
		Source       *anthropicSource `json:"source,omitempty"`
		ID           string           `json:"id,omitempty"`
		Name         string           `json:"name,omitempty"`
		Input        json.RawMessage  `json:"input,omitempty"`
		ToolUseID    string           `json:"tool_use_id,omitempty"`
		Content      []anthropicBlock `json:"content,omitempty"`
		CacheControl *cacheControl    `json:"cache_control,omitempty"`
	}
	anthropicSource struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	}
	cacheControl struct {
		Type string `json:"type"`
	}
	anthropicTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	anthropicUsage struct {
		Input      *int `json:"input_tokens"`
		Output     *int `json:"output_tokens"`
		CacheWrite *int `json:"cache_creation_input_tokens"`
		CacheRead  *int `json:"cache_read_input_tokens"`
	}
	anthropicEvent struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Message *struct {
			ID    string         `json:"id"`
			Model string         `json:"model"`
			Usage anthropicUsage `json:"usage"`
		} `json:"message"`
		ContentBlock *struct {
			Type string `json:"type"`
			ID   string `json:"id"`
			Name string `json:"name"`
			Text string `json:"text"`
		} `json:"content_block"`
		Delta *struct {
			Type        string `json:"type"`
			Text        string `json:"text"`
			Thinking    string `json:"thinking"`
			PartialJSON string `json:"partial_json"`
			StopReason  string `json:"stop_reason"`
		} `json:"delta"`
		Usage *anthropicUsage `json:"usage"`
		Error *struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
)

// Complete implements Provider. What is said again at each turn, system prompt
// and conversation so far, is marked for Anthropic's prompt cache.
func (p *Anthropic) Complete(ctx context.Context, req Request, tell func(Delta)) (Reply, error) {
	body := anthropicRequest{
		Model: req.Model, MaxTokens: maxTokens(req), Messages: anthropicMessages(req.Messages), Temperature: req.Temperature, Stream: true,
	}
	if req.System != "" {
		body.System = []anthropicBlock{{Type: "text", Text: req.System, CacheControl: &cacheControl{"ephemeral"}}}
	}
	for _, t := range req.Tools {
		body.Tools = append(body.Tools, anthropicTool{t.Name, t.Description, t.Parameters})
	}
	if n := len(body.Messages); n > 0 {
		last := body.Messages[n-1].Content
		last[len(last)-1].CacheControl = &cacheControl{"ephemeral"}
	}
	header := http.Header{"Anthropic-Version": {anthropicVersion}}
	if p.at.Key != "" {
		header.Set("X-Api-Key", p.at.Key)
	}
	r := anthropicReply{spoken: newSpoken(req, tell), at: map[int]int{}}
	err := p.at.stream(ctx, "/v1/messages", header, body, mostStream(maxTokens(req)), r.read)
	return r.whole(err)
}

type anthropicReply struct {
	*spoken
	at      map[int]int // number of a content block to that of the call
	usage   struct{ input, output, cacheRead, cacheWrite int }
	counted bool
}

func (r *anthropicReply) read(data []byte) (said, error) {
	var e anthropicEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return all, &Error{Kind: Unreadable, Message: "the model's provider sent what is no event of a message", Err: err}
	}
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			r.reply.ID, r.reply.Model = e.Message.ID, e.Message.Model
			r.count(e.Message.Usage)
		}
	case "content_block_start":
		if b := e.ContentBlock; b != nil && b.Type == "tool_use" {
			n, err := r.begin(b.ID, b.Name)
			if n >= 0 {
				r.at[e.Index] = n
			}
			return some, err
		}
	case "content_block_delta":
		if d := e.Delta; d != nil && d.Text+d.Thinking+d.PartialJSON != "" {
			err := r.say(d.Text, d.Thinking)
			if n, ok := r.at[e.Index]; ok && err == nil {
				err = r.argue(n, d.PartialJSON)
			}
			return some, err
		}
	case "message_delta":
		if e.Delta != nil && e.Delta.StopReason != "" {
			r.reply.Stop = anthropicStop(e.Delta.StopReason)
		}
		if e.Usage != nil {
			r.count(*e.Usage)
		}
	case "message_stop":
		return all, nil
	case "error":
		err := &Error{Kind: Broken, Message: "the model's provider broke off"}
		if e.Error != nil {
			err.Message += ": " + e.Error.Message
			if e.Error.Type == "invalid_request_error" {
				err.Kind = Refused
			}
		}
		return all, err
	}
	return nothing, nil
}

// count takes over what an event says; counts are sums, not steps.
func (r *anthropicReply) count(u anthropicUsage) {
	for to, from := range map[*int]*int{
		&r.usage.input: u.Input, &r.usage.output: u.Output, &r.usage.cacheRead: u.CacheRead, &r.usage.cacheWrite: u.CacheWrite,
	} {
		if from != nil {
			*to, r.counted = counted(*from), true
		}
	}
}

func (r *anthropicReply) whole(err error) (Reply, error) {
	u := r.usage
	r.reply.Usage = Usage{
		Input: u.input + u.cacheRead + u.cacheWrite, Output: u.output, CacheRead: u.cacheRead, CacheWrite: u.cacheWrite, Estimated: !r.counted,
	}
	reply, err := r.spoken.whole(err)
	for i, c := range reply.Calls {
		if c.Arguments == "" {
			reply.Calls[i].Arguments = "{}"
		}
	}
	return reply, err
}

func anthropicStop(reason string) Stop {
	switch reason {
	case "max_tokens", "model_context_window_exceeded":
		return StopLength
	case "tool_use":
		return StopTool
	case "refusal":
		return StopFilter
	}
	return StopEnd
}

// anthropicMessages writes the conversation: answers to calls are blocks of one
// user message, pictures included, and no block is empty.
func anthropicMessages(messages []Message) []anthropicMessage {
	var out []anthropicMessage
	for _, m := range messages {
		role, blocks := m.Role, anthropicContent(m.Text, m.Images)
		switch {
		case m.Role == ToolRole:
			role, blocks = User, []anthropicBlock{{Type: "tool_result", ToolUseID: m.CallID, Content: blocks}}
		case m.Role == Assistant:
			for _, c := range m.Calls {
				blocks = append(blocks, anthropicBlock{Type: "tool_use", ID: c.ID, Name: nameOf(c), Input: argumentsOf(c)})
			}
		}
		if len(blocks) == 0 {
			blocks = []anthropicBlock{{Type: "text", Text: "(nothing)"}}
		}
		if n := len(out); n > 0 && out[n-1].Role == role {
			out[n-1].Content = append(out[n-1].Content, blocks...)
		} else {
			out = append(out, anthropicMessage{role, blocks})
		}
	}
	return out
}

func anthropicContent(text string, images []Image) []anthropicBlock {
	var blocks []anthropicBlock
	if strings.TrimSpace(text) != "" {
		blocks = append(blocks, anthropicBlock{Type: "text", Text: text})
	}
	for _, im := range images {
		blocks = append(blocks, anthropicBlock{Type: "image", Source: &anthropicSource{"base64", im.MIME, base64.StdEncoding.EncodeToString(im.Data)}})
	}
	return blocks
}
