package llm

import (
	"errors"
	"fmt"
	"strings"
)

const (
	maxCalls    = 128 // of one reply
	mostCounted = 1e9 // tokens that a provider may claim for one request or reply
)

// spoken puts a reply together from its pieces.
type spoken struct {
	reply     Reply
	text      strings.Builder
	reasoning strings.Builder
	arguments []*strings.Builder // of the calls
	left      int                // bytes that it may still have
	tell      func(Delta)
}

func newSpoken(req Request, tell func(Delta)) *spoken {
	return &spoken{left: mostText(maxTokens(req)), tell: tell}
}

// say adds to the text and the reasoning.
func (s *spoken) say(text, reasoning string) error {
	if text+reasoning == "" {
		return nil
	}
	s.text.WriteString(text)
	s.reasoning.WriteString(reasoning)
	if s.tell != nil {
		s.tell(Delta{Text: text, Reasoning: reasoning})
	}
	return s.spend(len(text) + len(reasoning))
}

// begin begins a call and gives its number; -1 when there are too many.
func (s *spoken) begin(id, name string) (int, error) {
	if len(s.reply.Calls) == maxCalls {
		s.reply.MoreCalls++
		return -1, s.spend(1)
	}
	s.reply.Calls = append(s.reply.Calls, Call{ID: id, Name: name})
	s.arguments = append(s.arguments, new(strings.Builder))
	return len(s.reply.Calls) - 1, s.spend(len(id) + len(name))
}

// argue adds to the arguments of a call.
func (s *spoken) argue(call int, piece string) error {
	s.arguments[call].WriteString(piece)
	return s.spend(len(piece))
}

func (s *spoken) spend(n int) error {
	if s.left -= n; s.left < 0 {
		return errLong
	}
	return nil
}

// whole is the reply as far as it was heard. One that is too long is cut, as at
// its limit.
func (s *spoken) whole(err error) (Reply, error) {
	s.reply.Text, s.reply.Reasoning = s.text.String(), s.reasoning.String()
	for i, b := range s.arguments {
		s.reply.Calls[i].Arguments = b.String()
	}
	s.reply.Calls = unique(s.reply.Calls)
	if errors.Is(err, errLong) {
		s.reply.Stop, s.reply.Usage.Estimated, err = StopLength, true, nil
	}
	return s.reply, err
}

// counted is a number of tokens that can be added up, whatever was claimed.
func counted(n int) int { return min(max(n, 0), mostCounted) }

// unique gives calls ids that differ and that providers take back.
func unique(calls []Call) []Call {
	seen := map[string]bool{}
	for i := range calls {
		id := fit(calls[i].ID)
		for n := 1; id == "" || seen[id]; n++ {
			id = fit(fmt.Sprintf("call_%d_%d_%s", i+1, n, calls[i].ID))
		}
		seen[id] = true
		calls[i].ID = id
	}
	return calls
}

// fit makes what a model's server calls something into what it takes back: at
// most 64 letters, digits, _ and -.
func fit(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 64)]
}
