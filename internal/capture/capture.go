// Package capture keeps the beginning and the end of an output and counts what
// was left out between them. The services that put the outcome of a cell or a
// command together call it.
package capture

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Buffer is one stream of output.
type Buffer struct {
	head, tail       []byte // tail is a ring once it is full
	headMax, tailMax int
	start            int // of the ring
	sealed           bool
	dropped          int64
}

// New makes a Buffer that keeps so many bytes of the beginning and of the end.
func New(head, tail int) *Buffer { return &Buffer{headMax: head, tailMax: tail} }

// Add appends output.
func (b *Buffer) Add(p string) {
	if !b.sealed {
		n := min(len(p), b.headMax-len(b.head))
		b.head = append(b.head, p[:n]...)
		p = p[n:]
		b.sealed = len(b.head) == b.headMax
	}
	if over := len(p) - b.tailMax; over > 0 {
		b.lose(int64(len(b.tail) + over))
		b.tail, b.start, p = b.tail[:0], 0, p[over:]
	}
	if room := b.tailMax - len(b.tail); room > 0 {
		n := min(room, len(p))
		b.tail = append(b.tail, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 { // the ring is full: the oldest goes
		n := copy(b.tail[b.start:], p)
		b.start = (b.start + n) % b.tailMax
		b.lose(int64(n))
		p = p[n:]
	}
}

// Gap notes output that was lost on the way. What came after the head and
// before the gap is given up, so that there is one gap and not several.
// The number comes from the sandbox: one that cannot be counts as nothing.
func (b *Buffer) Gap(n int64) {
	b.sealed = true
	b.lose(max(n, 0))
	b.lose(int64(len(b.tail)))
	b.tail, b.start = b.tail[:0], 0
}

// lose counts what is left out, up to the largest number that every JSON
// reader holds exactly.
func (b *Buffer) lose(n int64) { b.dropped += min(n, maxDropped-b.dropped) }

const maxDropped = 1<<53 - 1 - 2*utf8.UTFMax // Text may add the characters that were cut in two

// Text gives the beginning, a line that says how much is missing and where the
// whole is ("" when nowhere), and the end. It is valid UTF-8.
func (b *Buffer) Text(whole string) (text string, dropped int64) {
	head := b.head
	tail := append(append([]byte(nil), b.tail[b.start:]...), b.tail[:b.start]...)
	if b.dropped == 0 {
		return strings.ToValidUTF8(string(append(head[:len(head):len(head)], tail...)), "�"), 0
	}
	dropped = b.dropped
	// The cuts may go through characters, which are left out too.
	for n := 0; n < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
		dropped++
	}
	for n := 1; n < utf8.UTFMax && n <= len(head); n++ {
		if last := head[len(head)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				head = head[:len(head)-n]
				dropped += int64(n)
			}
			break
		}
	}
	note := fmt.Sprintf("\n[... %d bytes left out ...]\n", dropped)
	if whole != "" {
		note = fmt.Sprintf("\n[... %d bytes left out; all of it is in %s ...]\n", dropped, whole)
	}
	return strings.ToValidUTF8(string(head), "�") + note + strings.ToValidUTF8(string(tail), "�"), dropped
}
