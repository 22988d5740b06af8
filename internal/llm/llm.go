// Package llm speaks to language models: chat completions as OpenAI has them
// (and vLLM, Ollama, llama.cpp and others after it), and Anthropic's messages.
// Package agent calls it; package scripted plays a model in tests.
//
// It never keeps a conversation, never runs anything, and never sends a key
// anywhere but to the address it was made with.
package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The roles of a Message.
const (
	User      = "user"
	Assistant = "assistant"
	ToolRole  = "tool" // the outcome of a Call
)

// Message is one entry of a conversation.
type Message struct {
	Role   string
	Text   string
	Images []Image // of a user or tool message
	Calls  []Call  // of an assistant message
	CallID string  // of a tool message: which call it answers
}

// Image is a picture that a model is shown.
type Image struct {
	MIME string // "image/png", "image/jpeg"
	Data []byte
}

// Call is a tool call of the model. Arguments are as it wrote them: JSON, if
// all went well.
type Call struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON schema
}

// Request asks for the next message.
type Request struct {
	Model       string
	System      string
	Messages    []Message
	Tools       []Tool
	MaxTokens   int      // of the reply; 0: 8192
	Temperature *float64 // nil: the provider's own
}

// DefaultMaxTokens bounds a reply whose request does not.
const DefaultMaxTokens = 8192

// Stop says why a reply ended.
type Stop string

// The reasons. Others of a provider are StopEnd.
const (
	StopEnd    Stop = "end"
	StopLength Stop = "length" // at MaxTokens, the model's own limit, or far beyond MaxTokens, where nobody listens any more
	StopTool   Stop = "tool"
	StopFilter Stop = "filter" // the provider withheld it
)

// Usage counts tokens as the provider did.
type Usage struct {
	Input      int  `json:"input_tokens"`            // all of the prompt, cached or not
	Output     int  `json:"output_tokens"`           // reasoning included
	CacheRead  int  `json:"cache_read_tokens"`       // part of Input
	CacheWrite int  `json:"cache_write_tokens"`      // part of Input
	Estimated  bool `json:"estimated,omitempty"`     // the provider said nothing, this is a guess
	Attempts   int  `json:"model_attempts,omitzero"` // requests that it took
}

// Add adds up. A sum of which a part was guessed is a guess.
func (u *Usage) Add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
	u.Attempts += v.Attempts
	u.Estimated = u.Estimated || v.Estimated
}

// Reply is what the model said.
type Reply struct {
	Text      string
	Reasoning string // of models that show it apart
	Calls     []Call
	MoreCalls int // beyond 128, which are not in Calls
	Stop      Stop
	Usage     Usage
	Model     string // as the provider names it
	ID        string // of the provider
}

// Delta is a piece of a reply that is being said. Again means that what came so
// far is void, because the request is made once more; Why says why.
type Delta struct {
	Text      string
	Reasoning string
	Again     bool
	Why       string
}

// Provider is a model somewhere. Complete blocks until the reply is whole; tell,
// which may be nil, hears the pieces. A reply that breaks off is an error.
type Provider interface {
	Complete(ctx context.Context, req Request, tell func(Delta)) (Reply, error)
}

// Error is a failure of a provider. Its words may come from there.
type Error struct {
	Status     int    // of HTTP; 0 when there was no answer
	Kind       string // one of the kinds below
	Message    string
	RetryAfter time.Duration // that the provider asked for; 0 when it did not
	Err        error
}

// The kinds of Error.
const (
	Refused    = "refused"    // the request is wrong; the same again is refused again
	BadKey     = "bad_key"    // no key, a wrong one, or one that may not do this
	TooLong    = "too_long"   // the conversation does not fit into the model's context
	Overloaded = "overloaded" // too many requests, or the provider has trouble; later it works
	Broken     = "broken"     // the connection failed, or the stream ended in the middle
	Unreadable = "unreadable" // the answer is not of the protocol
	NoMoney    = "no_credit"  // the account has no credit left
	NotFound   = "not_found"  // no such model, or no such address
)

// Error gives the words.
func (e *Error) Error() string {
	switch {
	case e.Status != 0:
		return fmt.Sprintf("the model's provider answered %d: %s", e.Status, e.Message)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Temporary tells whether the same request may work a little later.
func Temporary(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Kind == Overloaded || e.Kind == Broken)
}

// Guess estimates the tokens of a text for when nobody counted: four bytes each
// in ASCII, one for each other character.
func Guess(text string) int {
	ascii, others := 0, 0
	for _, r := range text {
		if r < 0x80 {
			ascii++
		} else {
			others++
		}
	}
	return (ascii+3)/4 + others
}
