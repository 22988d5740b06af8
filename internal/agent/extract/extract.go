// Package extract finds the Python in what a model says. The agent loop calls
// it with each reply.
//
// It reads lines as CommonMark does, with the ways around it that models have,
// and says of every piece how it was found and of everything it left out why.
// It never guesses on prose, and never runs or checks code beyond asking whether
// a string is still open.
package extract

import "strings"

// The forms in which code is found.
const (
	FormFence = "fence" // between ``` or ~~~
	FormTag   = "tag"   // between <execute> and the like
)

// The kinds of Discarded.
const (
	Thinking    = "thinking"    // <think> … </think>
	Fabricated  = "fabricated"  // an observation or the next turn, written by the model itself
	NotPython   = "not_python"  // code in another language, or output
	Unfinished  = "unfinished"  // code that was not closed in a reply that was cut
	LateAnswer  = "late_answer" // an answer that stands behind code which has not run yet
	InAnswer    = "in_answer"   // code inside the final answer
	Superfluous = "empty"       // a block without code
)

// Block is a piece of Python. Lines count from 1.
type Block struct {
	Code     string `json:"code"`
	Form     string `json:"form"`               // FormFence or FormTag
	Marker   string `json:"marker"`             // as it opens: "```", "~~~~", "<execute>"
	Language string `json:"language,omitempty"` // as written
	Start    int    `json:"start"`              // line that opens it
	End      int    `json:"end"`                // line that closes it, the last one where nothing does
	Closed   bool   `json:"closed"`
	Passed   int    `json:"passed,omitempty"` // fences inside strings that did not close it
}

// Discarded is a stretch of a reply that is not acted on.
type Discarded struct {
	Why   string `json:"why"`
	Start int    `json:"start"`
	End   int    `json:"end"`
	Text  string `json:"-"`
}

// Result is what was found in a reply.
type Result struct {
	Blocks    []Block     `json:"blocks"`
	Answer    *string     `json:"answer,omitempty"` // what follows FINAL ANSWER:, or stands in an answer tag
	Discarded []Discarded `json:"discarded,omitempty"`

	// Prose is the reply without code and without what was discarded: what a
	// reply without code and without FINAL ANSWER: answers.
	Prose string `json:"-"`
	// Kept is the reply up to a fabricated observation, without thinking: what
	// the model should see of it later.
	Kept string `json:"-"`
}

// Has tells whether something was discarded for that reason.
func (r Result) Has(why string) bool {
	for _, d := range r.Discarded {
		if d.Why == why {
			return true
		}
	}
	return false
}

// Text extracts from a whole reply. cut says that the reply ended at a limit
// and not by itself; then a block that nothing closes is left out.
func Text(reply string, cut bool) Result {
	var s Scanner
	s.Write(reply)
	return s.End(cut)
}

// Scanner extracts from a reply that comes in pieces. The zero value is ready.
type Scanner struct {
	rest  strings.Builder // a line that is not complete
	lines []string
	m     machine
}

// Write takes the next piece, which may begin and end anywhere.
func (s *Scanner) Write(piece string) {
	for {
		i := strings.IndexByte(piece, '\n')
		if i < 0 {
			s.rest.WriteString(piece)
			return
		}
		s.rest.WriteString(piece[:i])
		s.line(s.rest.String())
		s.rest.Reset()
		piece = piece[i+1:]
	}
}

func (s *Scanner) line(text string) {
	s.lines = append(s.lines, strings.TrimSuffix(text, "\r"))
	s.m.run(s.lines)
}

// Open tells whether the reply is inside code right now.
func (s *Scanner) Open() bool { return s.m.open != nil }

// End says that the reply is over and gives what was found. The Scanner must
// not be used after it.
func (s *Scanner) End(cut bool) Result {
	if s.rest.Len() > 0 {
		s.line(s.rest.String())
	}
	return s.m.finish(s.lines, cut)
}
