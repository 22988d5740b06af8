// Package eventlog keeps the numbered events of one execution or process, so
// that whoever connects can read them from any number on.
//
// Memory is bounded: of each output stream the start and the end are kept, and
// when something in the middle has to go, the whole goes to a file. Readers
// that were too slow find a gap event that says how much they missed. A writer
// never waits for a reader.
package eventlog

import (
	"math"
	"sort"
	"sync"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
)

const (
	// maxChunk is how much output one event carries at most.
	maxChunk = 32 << 10
	// segmentCost is what an event costs beside its bytes. It keeps a stream
	// of many tiny writes from taking much more memory than its bytes.
	segmentCost = 16
)

// The output streams.
const (
	Stdout = 0
	Stderr = 1
)

var streamNames = [2]string{api.EventStdout, api.EventStderr}

// Options bound a log.
type Options struct {
	Head, Tail int    // bytes of each stream kept from its start and its end
	Text       bool   // make output valid UTF-8, with U+FFFD for other bytes; else such bytes travel as Raw
	Spill      *Spill // where the whole goes when something is dropped, nil for nowhere
	MaxOther   int    // bytes of the other events, results above all
}

// segment is an event of output, or another event when ev is set.
type segment struct {
	seq  int64
	off  int64 // of b in the stream
	b    []byte
	ev   *api.Event
	name uint8 // of the stream
}

type stream struct {
	total    int64 // bytes so far
	headSize int   // with costs
	tailSize int
	headFull bool
	tail     []segment
	dropped  int64 // bytes between head and tail
	dropSeq  int64 // number of the last event that was dropped
	headEnd  int64 // offset at which the head ends
	partial  []byte
}

// Log is the events of one execution or process.
type Log struct {
	mu      sync.Mutex
	opts    Options
	seq     int64
	read    int64     // highest number that any reader was given
	fixed   []segment // heads and other events, by number
	other   int
	refused int
	streams [2]stream
	ended   bool
	more    chan struct{} // closed and replaced when something is added
}

// New makes an empty log.
func New(opts Options) *Log {
	return &Log{opts: opts, more: make(chan struct{})}
}

// Add appends an event that is not output. It reports false, and keeps
// nothing, when the log holds too many bytes of such events already.
func (l *Log) Add(ev api.Event, size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.opts.MaxOther > 0 && l.other+size > l.opts.MaxOther {
		l.refused++
		return false
	}
	l.other += size
	l.add(ev)
	return true
}

func (l *Log) add(ev api.Event) {
	l.seq++
	ev.Seq = l.seq
	l.fixed = append(l.fixed, segment{seq: l.seq, ev: &ev})
	l.wake()
}

func (l *Log) wake() {
	close(l.more)
	l.more = make(chan struct{})
}

// Output appends what was written to a stream. It does not keep b.
func (l *Log) Output(name int, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(b) == 0 {
		return
	}
	s := &l.streams[name]
	if len(s.partial) > 0 {
		b = append(s.partial, b...)
		s.partial = nil
	}
	if n := incomplete(b); n > 0 {
		s.partial = append([]byte(nil), b[len(b)-n:]...)
		b = b[:len(b)-n]
	}
	l.output(name, b)
}

func (l *Log) output(name int, b []byte) {
	if len(b) == 0 {
		return
	}
	if l.opts.Text && !utf8.Valid(b) {
		b = toValid(b)
	}
	for len(b) > 0 {
		n := min(len(b), maxChunk)
		if n < len(b) {
			n = runeStart(b, n)
		}
		l.segment(name, b[:n])
		b = b[n:]
	}
	l.wake()
}

// segment files one chunk under the head or the tail of its stream.
func (l *Log) segment(name int, b []byte) {
	s := &l.streams[name]
	if l.opts.Spill != nil {
		l.opts.Spill.write(b)
	}
	if !s.headFull {
		room := l.opts.Head - s.headSize - segmentCost
		n := len(b)
		if n > room {
			n = runeStart(b, max(room, 0))
			s.headFull = true
		}
		if n > 0 {
			s.headSize += n + l.put(&l.fixed, name, b[:n])
			s.headEnd = s.total
			b = b[n:]
		}
		if len(b) == 0 {
			return
		}
	}
	s.tailSize += len(b) + l.put(&s.tail, name, b)
	drop := 0
	for s.tailSize > l.opts.Tail && drop < len(s.tail)-1 {
		if drop == 0 && s.dropped == 0 {
			l.startSpill()
		}
		t := &s.tail[drop]
		s.tailSize -= len(t.b) + segmentCost
		s.dropped += int64(len(t.b))
		s.dropSeq = t.seq
		t.b = nil
		drop++
	}
	s.tail = s.tail[drop:] // append moves what is left when the array is full
}

// put appends a chunk to a list, or to the list's last event when nobody has
// seen that one yet. It returns what the event costs beside its bytes.
func (l *Log) put(list *[]segment, name int, b []byte) (cost int) {
	s := &l.streams[name]
	off := s.total
	s.total += int64(len(b))
	if n := len(*list); n > 0 {
		last := &(*list)[n-1]
		if last.ev == nil && last.seq == l.seq && int(last.name) == name && last.seq > l.read && len(last.b)+len(b) <= maxChunk {
			last.b = append(last.b, b...)
			return 0
		}
	}
	l.seq++
	*list = append(*list, segment{seq: l.seq, off: off, b: append([]byte(nil), b...), name: uint8(name)})
	return segmentCost
}

// startSpill writes what was kept so far, in order, to the file that will have
// the whole.
func (l *Log) startSpill() {
	if l.opts.Spill == nil || !l.opts.Spill.open() {
		return
	}
	for _, seg := range l.merged(0, math.MaxInt) {
		if seg.ev == nil {
			l.opts.Spill.write(seg.b)
		}
	}
}

// merged returns up to max events after a number in order, without gaps.
func (l *Log) merged(after int64, max int) []segment {
	lists := [3][]segment{from(l.fixed, after), from(l.streams[0].tail, after), from(l.streams[1].tail, after)}
	if len(lists[1]) == 0 && len(lists[2]) == 0 {
		return lists[0][:min(len(lists[0]), max)]
	}
	out := make([]segment, 0, min(len(lists[0])+len(lists[1])+len(lists[2]), max))
	for {
		best := -1
		for i, list := range lists {
			if len(list) > 0 && (best < 0 || list[0].seq < lists[best][0].seq) {
				best = i
			}
		}
		if best < 0 || len(out) >= max {
			return out
		}
		out = append(out, lists[best][0])
		lists[best] = lists[best][1:]
	}
}

func from(list []segment, after int64) []segment {
	return list[sort.Search(len(list), func(i int) bool { return list[i].seq > after }):]
}

// Flush appends what is left of characters that were never completed.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *Log) flush() {
	for name := range l.streams {
		if p := l.streams[name].partial; len(p) > 0 {
			l.streams[name].partial = nil
			l.output(name, p)
		}
	}
}

// Outcome is what the log knows of its own completeness.
type Outcome struct {
	Dropped [2]int64 // bytes of each stream that were not kept
	Path    string   // file with the whole, if anything was dropped
	Refused int      // other events that were not kept
}

// End appends the last event, which finish makes from what was kept and
// dropped. Later output is ignored.
func (l *Log) End(finish func(Outcome) api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.flush()
	out := Outcome{Refused: l.refused}
	for i := range l.streams {
		out.Dropped[i] = l.streams[i].dropped
	}
	if l.opts.Spill != nil {
		out.Path = l.opts.Spill.close()
	}
	l.add(finish(out))
	l.ended = true
	l.wake()
}

// Waiting tells whether the log has ended, and if not, gives a channel that is
// closed at the next change.
func (l *Log) Waiting() (more <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.more, l.ended
}

// Last is the number of the newest event, 0 before the first, and whether none
// will come again.
func (l *Log) Last() (seq int64, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, l.ended
}

// Size is about how much memory the log holds.
func (l *Log) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.other + len(l.fixed)*64
	for i := range l.streams {
		s := &l.streams[i]
		n += s.headSize + s.tailSize + len(s.tail)*64
	}
	return n
}

// Cursor reads a log from a number on.
type Cursor struct {
	log   *Log
	after int64
	seen  [2]int64 // offset in each stream up to which this reader has it
}

// Cursor starts to read after an event.
func (l *Log) Cursor(after int64) *Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Cursor{log: l, after: after}
	for name := range l.streams {
		s := &l.streams[name]
		for _, seg := range l.fixed {
			if seg.seq > after {
				break
			}
			if seg.ev == nil && int(seg.name) == name {
				c.seen[name] = seg.off + int64(len(seg.b))
			}
		}
		for _, seg := range s.tail {
			if seg.seq <= after {
				c.seen[name] = seg.off + int64(len(seg.b))
			}
		}
	}
	return c
}

// Next returns up to limit events, and gaps, that have come since. Without any, more is
// closed when there are; end is set when none will come again.
func (c *Cursor) Next(limit int) (events []api.Event, more <-chan struct{}, end bool) {
	l := c.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seg := range l.merged(c.after, limit) {
		events = c.gaps(events, seg.seq)
		events = append(events, c.event(seg))
		c.after = seg.seq
	}
	if c.after > l.read {
		l.read = c.after
	}
	return events, l.more, l.ended && c.after >= l.seq
}

// gaps appends the gaps that lie before an event. A gap stands where its last
// dropped event was.
func (c *Cursor) gaps(events []api.Event, before int64) []api.Event {
	order := [2]int{Stdout, Stderr}
	if c.log.streams[Stderr].dropSeq < c.log.streams[Stdout].dropSeq {
		order = [2]int{Stderr, Stdout}
	}
	for _, name := range order {
		s := &c.log.streams[name]
		end := s.headEnd + s.dropped
		if s.dropped == 0 || s.dropSeq <= c.after || s.dropSeq >= before || c.seen[name] >= end {
			continue
		}
		missed := end - max(c.seen[name], s.headEnd)
		c.seen[name] = end
		events = append(events, api.Event{Seq: s.dropSeq, Type: api.EventGap, Stream: streamNames[name], Dropped: missed})
	}
	return events
}

func (c *Cursor) event(seg segment) api.Event {
	if seg.ev != nil {
		return *seg.ev
	}
	c.seen[seg.name] = seg.off + int64(len(seg.b))
	ev := api.Event{Seq: seg.seq, Type: streamNames[seg.name]}
	if c.log.opts.Text || utf8.Valid(seg.b) {
		ev.Text = string(seg.b)
	} else {
		ev.Raw = append([]byte(nil), seg.b...)
	}
	return ev
}
