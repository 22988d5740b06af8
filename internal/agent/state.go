package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent/extract"
	"github.com/pandastack/pandastack/internal/llm"
)

// state is what a run knows. It is made of the entries of its transcript and of
// nothing else, so that a daemon that comes later knows the same.
type state struct {
	run     api.AgentRun
	req     api.AgentRequest
	system  string
	context string // the code context of the run
	loaded  *api.AgentLoaded
	said    []said

	starts      map[int]int // turn to the number of messages before its reply
	checkpoints []checkpoint
	copied      int           // turn of the last checkpoint since the run was set back
	asking      time.Time     // since when the model is asked
	thought     time.Duration // how long it was, the last time
	dropped     []string      // contexts that nothing is set back to any more, and which may still be open
	steps       []step
	room        int // tokens that the reply may have
	silent      int // replies in a row that nothing could be done with

	// Of the turn in progress.
	turn     int
	reply    *api.AgentReply
	found    bool
	cells    []api.AgentCell
	outcomes []api.AgentOutcome

	branched bool   // from the run of which this one is a fork
	restored string // the snapshot that has the state of that run before the turn

	survived bool // the variables of the last cell
	last     time.Time
	away     time.Duration // while no daemon worked on it, or a call waited for a decision

	waiting map[string]time.Time // approvals, since when
	asked   map[string]bool      // all that there were
	since   time.Time            // when the first of those that wait began to
}

// said is a message of the conversation.
type said struct {
	role    string
	text    string
	callID  string
	calls   []llm.Call
	figures []api.AgentFigure
	turn    int
}

// checkpoint is the state before a turn: a copy of the context with its
// variables, and the files of that time where they are few.
type checkpoint struct {
	turn    int
	context string // "" for a new one: no cell had run
	files   bool
}

func (s *state) fold(e api.AgentEvent) {
	switch e.Type {
	case api.AgentEventStarted:
		s.run, s.req, s.survived = *e.Run, *e.Request, true
		s.starts = map[int]int{}
	case api.AgentEventResumed:
		s.away += e.Time.Sub(s.last)
	case api.AgentEventSandbox:
		s.run.SandboxID, s.context, s.run.ContextID, s.restored = e.SandboxID, e.ContextID, e.ContextID, e.SnapshotID
	case api.AgentEventLoaded:
		s.loaded = e.Loaded
	case api.AgentEventPrompt:
		s.system = e.Text
	case api.AgentEventAsked:
		s.asking = e.Time
		s.room = e.Asked.ReplyTokens
		if s.room == 0 { // of an earlier version
			s.room = s.req.Limits.ReplyTokens
		}
	case api.AgentEventReply:
		s.replied(e)
	case api.AgentEventFound:
		s.found = true
	case api.AgentEventCell:
		s.cells = append(s.cells, *e.Cell)
		s.run.Cells++
	case api.AgentEventOutcome:
		s.outcomes = append(s.outcomes, *e.Outcome)
		s.survived = e.Outcome.StateSurvived
	case api.AgentEventMessage:
		s.told(e)
	case api.AgentEventCheckpoint:
		s.copied = e.Turn
		s.checkpoints = append(s.checkpoints, checkpoint{e.Turn, e.ContextID, e.Checkpoint != nil && e.Checkpoint.Files})
	case api.AgentEventRewound:
		s.rewound(e)
	case api.AgentEventForked:
		s.branched = true
		s.say(e.Messages, e.Turn)
	case api.AgentEventApproval:
		s.waits(e)
	case api.AgentEventEnded:
		s.run = *e.Run
	}
	s.last = e.Time
}

func (s *state) replied(e api.AgentEvent) {
	s.turn, s.reply, s.found, s.cells, s.outcomes = e.Turn, e.Reply, false, nil, nil
	s.run.Turns++
	s.thought = e.Time.Sub(s.asking)
	u := e.Reply.Usage
	s.run.Usage.InputTokens += u.InputTokens
	s.run.Usage.OutputTokens += u.OutputTokens
	s.run.Usage.CacheReadTokens += u.CacheReadTokens
	s.run.Usage.CacheWriteTokens += u.CacheWriteTokens
	s.run.Usage.CostUSD += u.CostUSD
	s.run.Usage.Estimated = s.run.Usage.Estimated || u.Estimated
	s.starts[e.Turn] = len(s.said)
	m := said{role: llm.Assistant, text: kept(e.Reply, s.run.Dialect), turn: e.Turn}
	if s.run.Dialect == dialectTool {
		for _, c := range e.Reply.Calls {
			m.calls = append(m.calls, llm.Call(c))
		}
	}
	if m.text != "" || len(m.calls) > 0 { // providers refuse an empty one
		s.said = append(s.said, m)
	}
}

// kept is what the model sees of its own reply: no thinking, and nothing that
// it made up after its code.
func kept(r *api.AgentReply, dialect string) string {
	x := extract.Text(r.Text, r.Stop == string(llm.StopLength))
	if dialect == dialectTool && len(x.Blocks) == 0 {
		return strings.TrimSpace(x.Kept)
	}
	return x.Kept
}

// told ends a turn: the model hears what came of its reply.
func (s *state) told(e api.AgentEvent) {
	if s.reply != nil && len(s.cells) > 0 {
		st := step{turn: s.turn}
		var codes, outcomes []string
		for _, c := range s.cells {
			codes = append(codes, strings.Join(strings.Fields(c.Code), " "))
		}
		for _, o := range s.outcomes {
			outcomes = append(outcomes, o.Digest)
			if o.ErrorName != "" {
				st.failure = strings.TrimSpace(o.ErrorName + ": " + line(o.ErrorValue))
			}
		}
		st.action, st.outcome = digest(codes...), digest(outcomes...)
		s.steps = append(s.steps, st)
		last, _ := s.lastBefore(mayHaveBegun(s.steps))
		s.keepCheckpoints(func(c checkpoint) bool { return c.turn >= last.turn })
	}
	if e.Note == noteNoReply {
		s.silent++
	} else {
		s.silent = 0
	}
	s.say(e.Messages, e.Turn)
	s.reply, s.found, s.cells, s.outcomes = nil, false, nil, nil
}

// called tells whether a call of the conversation has that id.
func (s *state) called(id string) bool {
	for _, m := range s.said {
		for _, c := range m.calls {
			if c.ID == id {
				return true
			}
		}
	}
	return false
}

// began gives the cell of the turn in progress with that number, nil when it
// has not begun. Cells that are refused never do.
func (s *state) began(index int) *api.AgentCell {
	for i := range s.cells {
		if s.cells[i].Index == index {
			return &s.cells[i]
		}
	}
	return nil
}

func (s *state) say(messages []api.AgentMessage, turn int) {
	for _, m := range messages {
		s.said = append(s.said, said{role: m.Role, text: m.Text, callID: m.CallID, figures: m.Figures, turn: turn})
	}
}

func (s *state) rewound(e api.AgentEvent) {
	to := e.Rewound.ToTurn
	if at, ok := s.starts[to]; ok {
		s.said = s.said[:at]
	}
	if e.ContextID != "" {
		s.dropped = append(s.dropped, s.context)
		s.checkpoints = slices.DeleteFunc(s.checkpoints, func(c checkpoint) bool { return c.context == e.ContextID })
		s.context, s.run.ContextID, s.survived = e.ContextID, e.ContextID, true
	}
	s.keepCheckpoints(func(checkpoint) bool { return false }) // no circle has begun yet
	s.steps, s.copied = nil, 0
	s.run.Rewinds++
	s.reply, s.found, s.cells, s.outcomes = nil, false, nil, nil
	s.say(e.Messages, e.Turn)
}

// keepCheckpoints drops all others.
func (s *state) keepCheckpoints(keep func(checkpoint) bool) {
	s.checkpoints = slices.DeleteFunc(s.checkpoints, func(c checkpoint) bool {
		if keep(c) {
			return false
		}
		if c.context != "" {
			s.dropped = append(s.dropped, c.context)
		}
		return true
	})
}

// before gives the checkpoint of the state before a turn.
func (s *state) before(turn int) (checkpoint, bool) {
	i := slices.IndexFunc(s.checkpoints, func(c checkpoint) bool { return c.turn == turn })
	if i < 0 {
		return checkpoint{}, false
	}
	return s.checkpoints[i], true
}

// lastBefore gives the last checkpoint of the state before a turn, or before one
// that came earlier.
func (s *state) lastBefore(turn int) (last checkpoint, there bool) {
	for _, c := range s.checkpoints {
		if c.turn <= turn && c.turn >= last.turn {
			last, there = c, true
		}
	}
	return last, there
}

// elapsed is how long the run has taken, without the time in which no daemon
// worked on it.
func (s *state) elapsed(now time.Time) time.Duration { return now.Sub(s.run.CreatedAt) - s.away }

// tokens guesses what asking the model takes.
func (s *state) tokens() int {
	n := llm.Guess(s.system)
	for _, m := range s.said {
		n += m.tokens()
	}
	return n
}

const figureTokens = 1200 // about, of one of 1024×768

func (m said) tokens() int {
	n := llm.Guess(m.text) + 4 + figureTokens*len(m.figures)
	for _, c := range m.calls {
		n += llm.Guess(c.Arguments)
	}
	return n
}

// view is the conversation as the model is shown it: when it grows beyond its
// tokens, old observations are shortened, the oldest first, and of figures the
// newest are shown.
func (s *state) view(limit int) []said {
	out := slices.Clone(s.said)
	total := s.tokens()
	for i := 1; i < len(out)-4 && total > limit; i++ {
		m := &out[i]
		if m.role == llm.Assistant || llm.Guess(m.text) < 150 && len(m.figures) == 0 {
			continue
		}
		before := m.tokens()
		m.text, _ = fit(m.text, 60, "", 0)
		m.text += "\n[shortened: this was long ago]"
		if len(m.figures) > 0 {
			m.text += "\n[its figures are no longer shown]"
		}
		m.figures = nil
		total += m.tokens() - before
	}
	shown := 0
	for i := len(out) - 1; i >= 0; i-- {
		shown += len(out[i].figures)
		if shown > maxShown && len(out[i].figures) > 0 {
			out[i].figures = nil
			out[i].text += "\n[its figures are no longer shown]"
		}
	}
	return out
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
