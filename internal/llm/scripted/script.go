// Package scripted plays a language model from a script: as a Provider in the
// same process, and as a server that speaks what the real ones speak, over the
// real HTTP path. Tests use it, and `pandastack agent script`, which shows the
// agent loop without a model.
//
// It understands nothing: it says what the script has, whatever it is asked.
package scripted

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/internal/llm"
)

// Script is what the model says when.
type Script struct {
	Conversations []*Conversation `json:"conversations"`

	mu sync.Mutex
}

// Conversation is one sequence of replies. It serves the requests whose first
// user message matches Task; the first conversation that does is taken.
type Conversation struct {
	Task  string `json:"task"` // a regular expression; "" matches all
	Turns []Turn `json:"turns"`
	Loop  bool   `json:"loop,omitempty"` // the last turn is said again and again

	task *regexp.Regexp
	next int
}

// Turn is one reply. A turn counts as said when it was delivered whole.
type Turn struct {
	Say       string   `json:"say,omitempty"`
	Reasoning string   `json:"reasoning,omitempty"`
	Code      string   `json:"code,omitempty"` // a call of run_python, or a fence where no tools are offered
	Calls     []Call   `json:"calls,omitempty"`
	Stop      llm.Stop `json:"stop,omitempty"`  // default "end", "tool" with calls
	Usage     *Usage   `json:"usage,omitempty"` // default: a guess from lengths
	Faults    []Fault  `json:"faults,omitempty"`
	PauseMS   int      `json:"pause_ms,omitempty"` // before the server answers, as models need

	// Expect are regular expressions that the last message must match, Image
	// says that it must show a picture.
	Expect []string `json:"expect,omitempty"`
	Image  bool     `json:"image,omitempty"`
	// Deny must not match it.
	Deny []string `json:"deny,omitempty"`
}

// Call is a tool call.
type Call struct {
	ID        string          `json:"id,omitempty"` // default: made up
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // a string is sent as it is, malformed or not
}

// Usage is what the model claims to have counted; Silent: nothing.
type Usage struct {
	Input  int  `json:"input"`
	Output int  `json:"output"`
	Cached int  `json:"cached,omitempty"`
	Silent bool `json:"silent,omitempty"`
}

// Fault is one attempt that fails before the turn is said.
type Fault struct {
	Status     int    `json:"status,omitempty"` // answered instead
	Message    string `json:"message,omitempty"`
	RetryAfter string `json:"retry_after,omitempty"`
	BreakAfter int    `json:"break_after,omitempty"` // characters of the reply, then the connection breaks
	Error      bool   `json:"error,omitempty"`       // after BreakAfter an error event comes, and the stream ends in order
}

// Load reads a script.
func Load(r io.Reader) (*Script, error) {
	s := new(Script)
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("the script is not valid: %w", err)
	}
	return s, s.compile()
}

func (s *Script) compile() error {
	if len(s.Conversations) == 0 {
		return errors.New("the script has no conversations")
	}
	for i, c := range s.Conversations {
		var err error
		if c.task, err = regexp.Compile("(?is)" + c.Task); err != nil {
			return fmt.Errorf("conversations[%d].task: %w", i, err)
		}
		for j, t := range c.Turns {
			for _, e := range append(append([]string{}, t.Expect...), t.Deny...) {
				if _, err := regexp.Compile(e); err != nil {
					return fmt.Errorf("conversations[%d].turns[%d]: %w", i, j, err)
				}
			}
		}
	}
	return nil
}

// Of makes a script of one conversation that serves every request.
func Of(turns ...Turn) *Script {
	s := &Script{Conversations: []*Conversation{{Turns: turns}}}
	if err := s.compile(); err != nil {
		panic(err) // a test's own
	}
	return s
}

// Recorded makes a script of the replies in a transcript of an agent's run.
func Recorded(transcript io.Reader) (*Script, error) {
	c := new(Conversation)
	in := bufio.NewScanner(transcript)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e struct {
			Type  string `json:"type"`
			Reply *struct {
				Text      string     `json:"text"`
				Reasoning string     `json:"reasoning"`
				Calls     []llm.Call `json:"calls"`
				Stop      llm.Stop   `json:"stop"`
				Usage     llm.Usage  `json:"usage"`
			} `json:"reply"`
		}
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("the transcript is not valid: %w", err)
		}
		if e.Type != "reply" || e.Reply == nil {
			continue
		}
		t := Turn{Say: e.Reply.Text, Reasoning: e.Reply.Reasoning, Stop: e.Reply.Stop, Usage: &Usage{
			Input: e.Reply.Usage.Input, Output: e.Reply.Usage.Output, Cached: e.Reply.Usage.CacheRead, Silent: e.Reply.Usage.Estimated,
		}}
		for _, call := range e.Reply.Calls {
			raw, _ := json.Marshal(call.Arguments) // a string always is
			t.Calls = append(t.Calls, Call{ID: call.ID, Name: call.Name, Arguments: raw})
		}
		c.Turns = append(c.Turns, t)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("reading the transcript: %w", err)
	}
	s := &Script{Conversations: []*Conversation{c}}
	return s, s.compile()
}

// seen is what the script looks at in a request.
type seen struct {
	first string // user message
	last  string // all text since the last assistant message
	image bool   // there is a picture in it
	tools bool
}

// answer is the reply to a request, and done, which is called when it was
// delivered whole. A fault comes instead of the reply as often as the turn has
// them.
func (s *Script) answer(in seen) (turn *Turn, reply llm.Reply, fault *Fault, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var c *Conversation
	for _, each := range s.Conversations {
		if each.task.MatchString(in.first) {
			c = each
			break
		}
	}
	if c == nil {
		return nil, reply, nil, nil, fmt.Errorf("no conversation of the script begins with %.80q", in.first)
	}
	at := c.next
	if c.Loop {
		at = min(at, len(c.Turns)-1)
	}
	if at >= len(c.Turns) {
		return nil, reply, nil, nil, fmt.Errorf("the conversation %q has no turn %d", c.Task, at+1)
	}
	turn = &c.Turns[at]
	for _, e := range turn.Expect {
		if !regexp.MustCompile(e).MatchString(in.last) {
			return nil, reply, nil, nil, fmt.Errorf("turn %d of %q expects %q in %q", at+1, c.Task, e, in.last)
		}
	}
	for _, e := range turn.Deny {
		if regexp.MustCompile(e).MatchString(in.last) {
			return nil, reply, nil, nil, fmt.Errorf("turn %d of %q does not expect %q in %q", at+1, c.Task, e, in.last)
		}
	}
	if turn.Image && !in.image {
		return nil, reply, nil, nil, fmt.Errorf("turn %d of %q expects a picture", at+1, c.Task)
	}
	if len(turn.Faults) > 0 {
		f := turn.Faults[0]
		turn.Faults = turn.Faults[1:]
		fault = &f
	}
	said := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.next = at + 1
	})
	return turn, turn.reply(in, at), fault, said, nil
}

func (t *Turn) reply(in seen, at int) llm.Reply {
	r := llm.Reply{Text: t.Say, Reasoning: t.Reasoning, Stop: t.Stop, ID: fmt.Sprintf("scripted-%d", at+1), Model: "scripted"}
	calls := t.Calls
	switch {
	case t.Code != "" && in.tools:
		raw, _ := json.Marshal(map[string]string{"code": t.Code}) // a string always is
		calls = append([]Call{{Name: "run_python", Arguments: raw}}, calls...)
	case t.Code != "":
		r.Text = strings.TrimSpace(r.Text + "\n\n```python\n" + t.Code + "\n```")
	}
	for i, c := range calls {
		args := string(c.Arguments)
		var text string
		if json.Unmarshal(c.Arguments, &text) == nil {
			args = text
		}
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("call_%d_%d", at+1, i+1)
		}
		r.Calls = append(r.Calls, llm.Call{ID: id, Name: c.Name, Arguments: args})
	}
	if r.Stop == "" {
		r.Stop = llm.StopEnd
		if len(r.Calls) > 0 {
			r.Stop = llm.StopTool
		}
	}
	u := t.Usage
	if u == nil {
		u = &Usage{Input: llm.Guess(in.first+in.last) + 1, Output: llm.Guess(r.Text+r.Reasoning) + 1}
	}
	r.Usage = llm.Usage{Input: u.Input, Output: u.Output, CacheRead: u.Cached, Estimated: u.Silent}
	return r
}

// Left says how many turns of all conversations were never said.
func (s *Script) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.Conversations {
		n += max(len(c.Turns)-c.next, 0)
	}
	return n
}
