package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// OpenAI speaks chat completions.
type OpenAI struct{ at Endpoint }

var _ Provider = (*OpenAI)(nil)

// NewOpenAI makes one. The base URL is with /v1; default that of OpenAI.
func NewOpenAI(at Endpoint) *OpenAI { return &OpenAI{at.withDefaults("https://api.openai.com/v1")} }

type (
	openaiRequest struct {
		Model               string          `json:"model"`
		Messages            []openaiMessage `json:"messages"`
		Tools               []openaiTool    `json:"tools,omitempty"`
		MaxTokens           int             `json:"max_tokens,omitempty"`
		MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
		Temperature         *float64        `json:"temperature,omitempty"`
		Stream              bool            `json:"stream"`
		StreamOptions       streamOptions   `json:"stream_options"`
	}
	streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	openaiMessage struct {
		Role       string       `json:"role"`
		Content    any          `json:"content"` // a string, parts, or null
		ToolCalls  []openaiCall `json:"tool_calls,omitempty"`
		ToolCallID string       `json:"tool_call_id,omitempty"`
	}
	openaiPart struct {
		Type     string    `json:"type"`
		Text     string    `json:"text,omitempty"`
		ImageURL *imageURL `json:"image_url,omitempty"`
	}
	imageURL struct {
		URL string `json:"url"`
	}
	openaiCall struct {
		Index    int            `json:"index,omitempty"`
		ID       string         `json:"id,omitempty"`
		Type     string         `json:"type,omitempty"`
		Function openaiFunction `json:"function"`
	}
	openaiFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	openaiTool struct {
		Type     string `json:"type"`
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	openaiChunk struct {
		ID      string `json:"id"`
		Model   string `json:"model"`
		Choices []struct {
			Delta struct {
				Content          string       `json:"content"`
				ReasoningContent string       `json:"reasoning_content"` // vLLM, llama.cpp
				Reasoning        string       `json:"reasoning"`         // Ollama and others
				ToolCalls        []openaiCall `json:"tool_calls"`
			} `json:"delta"`
			FinishReason string `json:"finish_reason"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
)

// Complete implements Provider.
func (p *OpenAI) Complete(ctx context.Context, req Request, tell func(Delta)) (Reply, error) {
	body := openaiRequest{
		Model: req.Model, Messages: openaiMessages(req), Temperature: req.Temperature,
		Stream: true, StreamOptions: streamOptions{IncludeUsage: true},
	}
	if u, err := url.Parse(p.at.BaseURL); err == nil && strings.HasSuffix(u.Hostname(), "openai.com") {
		body.MaxCompletionTokens = maxTokens(req) // its reasoning models know no other name
	} else {
		body.MaxTokens = maxTokens(req)
	}
	for _, t := range req.Tools {
		var tool openaiTool
		tool.Type, tool.Function.Name, tool.Function.Description, tool.Function.Parameters = "function", t.Name, t.Description, t.Parameters
		body.Tools = append(body.Tools, tool)
	}
	header := http.Header{}
	if p.at.Key != "" {
		header.Set("Authorization", "Bearer "+p.at.Key)
	}
	r := openaiReply{spoken: newSpoken(req, tell), at: map[int]int{}}
	r.reply.Usage.Estimated = true
	err := p.at.stream(ctx, "/chat/completions", header, body, mostStream(maxTokens(req)), r.read)
	if err != nil && r.finished && ctx.Err() == nil {
		err = nil // some servers end without [DONE]
	}
	return r.whole(err)
}

// openaiReply puts a reply together from chunks.
type openaiReply struct {
	*spoken
	finished bool
	at       map[int]int // index of a call to its latest number
}

func (r *openaiReply) read(data []byte) (said, error) {
	if string(data) == "[DONE]" {
		if !r.finished {
			return all, &Error{Kind: Broken, Message: "the model's reply ended without a reason"}
		}
		return all, nil
	}
	var c openaiChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return all, &Error{Kind: Unreadable, Message: "the model's provider sent what is no chunk of a chat completion", Err: err}
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return all, &Error{Kind: Broken, Message: "the model's provider broke off: " + wordsOf(data)}
	}
	if c.ID != "" {
		r.reply.ID = c.ID
	}
	if c.Model != "" {
		r.reply.Model = c.Model
	}
	if u := c.Usage; u != nil {
		r.reply.Usage = Usage{Input: counted(u.Prompt), Output: counted(u.Completion)}
		if u.Details != nil {
			r.reply.Usage.CacheRead = min(counted(u.Details.Cached), r.reply.Usage.Input)
		}
	}
	heard := nothing
	for _, choice := range c.Choices {
		d := choice.Delta
		reasoning := d.ReasoningContent + d.Reasoning
		if d.Content+reasoning != "" || len(d.ToolCalls) > 0 {
			heard = some
		}
		if err := r.say(d.Content, reasoning); err != nil {
			return all, err
		}
		for _, call := range d.ToolCalls {
			if err := r.call(call); err != nil {
				return all, err
			}
		}
		if choice.FinishReason != "" {
			r.finished = true
			r.reply.Stop = openaiStop(choice.FinishReason)
		}
	}
	return heard, nil
}

// call adds a piece of a call. Some servers give every call the index 0 and
// tell them apart by their id.
func (r *openaiReply) call(c openaiCall) error {
	n, known := r.at[c.Index]
	if known && n < 0 {
		return r.spend(len(c.Function.Arguments))
	}
	other := known && c.ID != "" && r.reply.Calls[n].ID != "" && r.reply.Calls[n].ID != c.ID
	if !known || other {
		var err error
		if n, err = r.begin(c.ID, c.Function.Name); err != nil {
			return err
		}
		if len(r.at) < 10_000 {
			r.at[c.Index] = n
		}
		if n < 0 {
			return nil
		}
		return r.argue(n, c.Function.Arguments)
	}
	if c.ID != "" {
		r.reply.Calls[n].ID = c.ID
	}
	r.reply.Calls[n].Name += c.Function.Name
	if err := r.spend(len(c.Function.Name)); err != nil {
		return err
	}
	return r.argue(n, c.Function.Arguments)
}

func openaiStop(reason string) Stop {
	switch reason {
	case "length":
		return StopLength
	case "tool_calls", "function_call":
		return StopTool
	case "content_filter":
		return StopFilter
	}
	return StopEnd
}

func maxTokens(req Request) int {
	if req.MaxTokens > 0 {
		return req.MaxTokens
	}
	return DefaultMaxTokens
}

// openaiMessages writes the conversation. A tool message holds no pictures
// there, so they follow in a user message, behind all answers to calls.
func openaiMessages(req Request) []openaiMessage {
	var out []openaiMessage
	if req.System != "" {
		out = append(out, openaiMessage{Role: "system", Content: req.System})
	}
	var figures []Image
	show := func() {
		if len(figures) > 0 {
			out = append(out, openaiMessage{Role: User, Content: openaiParts("The figures of the cells above:", figures)})
			figures = nil
		}
	}
	for _, m := range req.Messages {
		if m.Role != ToolRole {
			show()
		}
		w := openaiMessage{Role: m.Role, Content: m.Text, ToolCallID: m.CallID}
		switch {
		case m.Role == ToolRole:
			figures = append(figures, m.Images...)
		case len(m.Images) > 0:
			w.Content = openaiParts(m.Text, m.Images)
		case m.Role == Assistant && len(m.Calls) > 0 && m.Text == "":
			w.Content = nil
		}
		for _, c := range m.Calls {
			w.ToolCalls = append(w.ToolCalls, openaiCall{ID: c.ID, Type: "function", Function: openaiFunction{Name: nameOf(c), Arguments: string(argumentsOf(c))}})
		}
		out = append(out, w)
	}
	show()
	return out
}

func openaiParts(text string, images []Image) []openaiPart {
	parts := []openaiPart{{Type: "text", Text: text}}
	for _, im := range images {
		parts = append(parts, openaiPart{Type: "image_url", ImageURL: &imageURL{"data:" + im.MIME + ";base64," + base64.StdEncoding.EncodeToString(im.Data)}})
	}
	return parts
}

// nameOf gives a call's name as providers take it back.
func nameOf(c Call) string {
	if name := fit(c.Name); name != "" {
		return name
	}
	return "unnamed"
}

// argumentsOf gives a call's arguments as a JSON object, which providers demand
// of what they said themselves, whatever the model made of it.
func argumentsOf(c Call) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Arguments), &object) == nil && object != nil {
		return json.RawMessage(c.Arguments)
	}
	raw, _ := json.Marshal(map[string]string{"malformed": c.Arguments}) // a string always is
	return raw
}
