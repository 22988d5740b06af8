package extract

import (
	"regexp"
	"slices"
	"strings"
)

// machine reads lines. What it has decided it may take back once: when a fence
// was passed over as part of a string and that string is never closed, it goes
// back to that fence and lets it close the block.
type machine struct {
	at      int  // lines read
	over    bool // a fabricated observation was found; the rest is not read
	list    int  // where the text of the current list item begins; 0 outside
	open    *opened
	think   *thought
	answer  int // line of FINAL ANSWER: or of an answer tag, from 1; 0 without one
	found   []candidate
	left    []Discarded
	prose   []int          // lines of it, from 1
	hidden  []int          // lines of thinking, from 1
	hideTo  int            // all lines up to this one are thinking, too
	backs   int            // how often it went back
	shown   map[int]string // what is left of a line that thinking ends in
	endLine int            // the last line before the cut
}

// opened is a block that is not closed yet.
type opened struct {
	Block
	kind   language
	char   byte // of a fence
	length int
	indent int
	tag    string
	code   []string
	tokens tokens
	pass   int // line, from 1, of the first fence or tag that was passed over
	ahead  int // lines of code before it
}

type candidate struct {
	Block
	kind language
	code []string
}

type thought struct {
	tag   string
	start int
}

// language is what a block may hold.
type language int

const (
	foreign language = iota
	unnamed
	python
)

var (
	pythonName = regexp.MustCompile(`^([ic]?py(thon)?[0-9.]*|pycon|python-(repl|exec|console)|jupyter(-python)?|tool_code|repl)$`)
	fenceLine  = regexp.MustCompile("^(`{3,}|~{3,})(.*)$")
	listMark   = regexp.MustCompile(`^( {0,12})([-*+]|\d{1,9}[.)])( +)(\S.*)?$`)
	tagLine    = regexp.MustCompile(`(?i)^ {0,3}<(execute|execute_i?python|run_python|python|code|execute_bash|execute_shell|execute_browse|bash)>(.*)$`)
	thinkOpen  = regexp.MustCompile(`(?i)^\s*<(think|thinking|thought|reasoning|scratchpad)>`)
	thinkClose = regexp.MustCompile(`(?i)</(think|thinking|thought|reasoning|scratchpad)>`)
	answerLine = regexp.MustCompile(`(?i)^\s*(?:[*_#]+\s*)?final[ _]answer(?:\s*[*_]+)?\s*:`)
	answerTag  = regexp.MustCompile(`(?i)^\s*<(final_answer|solution|answer)>`)
	fabricated = regexp.MustCompile(`(?i)^\s*(?:[*_#]+\s*)?(?:observations?\b[^:=(]{0,40}:|\[observation|<observation>|\[stdout\]|\[stderr|(?:execution |cell )?output\s*:\s*(?:[*_]+)?\s*$|(?:execution )?results?\s*:\s*(?:[*_]+)?\s*$|<\|?(?:im_start|user|human)\b|\[/?inst\]|(?:user|human)\s*:)`)
)

// run reads the lines that were not read yet.
func (m *machine) run(lines []string) {
	for m.at < len(lines) {
		m.at++
		m.read(lines[m.at-1])
	}
}

func (m *machine) read(text string) {
	switch {
	case m.over:
	case m.think != nil:
		m.readThinking(text)
	case m.open != nil:
		m.readCode(text)
	default:
		m.readProse(text)
	}
}

func (m *machine) readThinking(text string) {
	m.hidden = append(m.hidden, m.at)
	where := thinkClose.FindStringIndex(text)
	if where == nil {
		return
	}
	m.left = append(m.left, Discarded{Why: Thinking, Start: m.think.start, End: m.at})
	m.think = nil
	m.behind(text[where[1]:])
}

// behind reads what follows thinking on the line that it ends in.
func (m *machine) behind(rest string) {
	if strings.TrimSpace(rest) == "" {
		return
	}
	if m.hideTo == m.at {
		m.hideTo--
	} else {
		m.hidden = m.hidden[:len(m.hidden)-1]
	}
	if m.shown == nil {
		m.shown = map[int]string{}
	}
	m.shown[m.at] = strings.TrimLeft(rest, " \t")
	m.readProse(m.shown[m.at])
}

// forget drops all there was: a reply whose thinking was opened by the prompt
// only closes it.
func (m *machine) forget() {
	m.open, m.found, m.prose, m.answer, m.list = nil, nil, nil, 0, 0
	m.left = []Discarded{{Why: Thinking, Start: 1, End: m.at}}
	m.hidden, m.hideTo = nil, m.at
}

func (m *machine) readProse(text string) {
	if strings.TrimSpace(text) == "" {
		m.prose = append(m.prose, m.at)
		return
	}
	if where := thinkOpen.FindStringIndex(text); where != nil {
		m.think = &thought{start: m.at}
		m.readThinking(text[where[1]:])
		return
	}
	if all := thinkClose.FindAllStringIndex(withoutSpans(text), -1); all != nil {
		m.forget()
		m.behind(text[all[len(all)-1][1]:])
		return
	}
	if len(m.found) > 0 && fabricated.MatchString(text) || m.answer > 0 && turnOfOther.MatchString(text) {
		m.cut()
		return
	}
	if m.openFence(text) || m.openTag(text) {
		return
	}
	if m.answer == 0 && (answerLine.MatchString(text) || answerTag.MatchString(text)) {
		m.answer = m.at
	}
	m.prose = append(m.prose, m.at)
}

// turnOfOther begins what somebody else would say after an answer.
var turnOfOther = regexp.MustCompile(`(?i)^\s*(?:observation\s*:|<\|?(?:im_start|user|human)\b|\[/?inst\]|(?:user|human)\s*:)`)

// debris is no code, whatever is open.
var debris = regexp.MustCompile(`^(?:Observation\s*:|<\|im_(?:start|end)\||\[/?INST\])`)

// cut ends the reply before this line.
func (m *machine) cut() {
	m.over, m.endLine = true, m.at-1
}

// withoutSpans blanks what stands between backticks.
func withoutSpans(text string) string {
	b := []byte(text)
	for i := 0; i < len(b); i++ {
		if b[i] != '`' {
			continue
		}
		n := 1
		for i+n < len(b) && b[i+n] == '`' {
			n++
		}
		mark := text[i : i+n]
		end := strings.Index(text[i+n:], mark)
		if end < 0 {
			i += n - 1
			continue
		}
		for j := i; j < i+n+end+n; j++ {
			b[j] = ' '
		}
		i += n + end + n - 1
	}
	return string(b)
}

// indentOf counts the columns before the text, a tab going to the next fourth.
func indentOf(text string) (columns, bytes int) {
	for bytes < len(text) {
		switch text[bytes] {
		case ' ':
			columns++
		case '\t':
			columns += 4 - columns%4
		default:
			return columns, bytes
		}
		bytes++
	}
	return columns, bytes
}

// openFence opens a block when the line is a fence, and keeps account of lists,
// in which fences may be indented.
func (m *machine) openFence(text string) bool {
	indent, skip := indentOf(text)
	rest := text[skip:]
	if mark := listMark.FindStringSubmatch(text); mark != nil {
		m.list = len(mark[1]) + len(mark[2]) + 1
		if len(mark[3]) <= 4 {
			m.list += len(mark[3]) - 1
		}
		indent, rest = m.list, mark[4]
	} else if indent == 0 && fenceLine.FindString(rest) == "" {
		m.list = 0
	}
	if indent > 3 && (m.list == 0 || indent > m.list+3) {
		return false
	}
	fence := fenceLine.FindStringSubmatch(rest)
	if fence == nil || fence[1][0] == '`' && strings.Contains(fence[2], "`") {
		return false
	}
	name := languageName(fence[2])
	m.open = &opened{
		Block: Block{Form: FormFence, Marker: fence[1], Language: name, Start: m.at},
		char:  fence[1][0], length: len(fence[1]), indent: indent, kind: kindOf(name),
	}
	return true
}

// languageName is the first word of an info string: "python" of
// `{.python title="a"}`.
func languageName(info string) string {
	name := strings.TrimLeft(strings.TrimSpace(info), "{. ")
	if i := strings.IndexAny(name, " \t,{}:;(="); i >= 0 {
		name = name[:i]
	}
	return name
}

func kindOf(name string) language {
	switch {
	case name == "":
		return unnamed
	case pythonName.MatchString(strings.ToLower(name)):
		return python
	}
	return foreign
}

func (m *machine) openTag(text string) bool {
	tag := tagLine.FindStringSubmatch(text)
	if tag == nil {
		return false
	}
	name := strings.ToLower(tag[1])
	o := &opened{Block: Block{Form: FormTag, Marker: "<" + name + ">", Start: m.at}, tag: name, kind: python}
	if strings.Contains(name, "bash") || strings.Contains(name, "shell") || strings.Contains(name, "browse") {
		o.kind = foreign
	}
	if i := strings.Index(strings.ToLower(tag[2]), "</"+name+">"); i >= 0 && strings.TrimSpace(tag[2][i+len(name)+3:]) != "" {
		return false // prose that names the tag
	}
	m.open = o
	if strings.TrimSpace(tag[2]) != "" {
		m.readCode(strings.TrimLeft(tag[2], " \t"))
	}
	return true
}

func (m *machine) readCode(text string) {
	o := m.open
	inString := o.kind != foreign && o.tokens.inString() && m.backs < maxBacks
	if !inString && o.kind != foreign {
		if thinkClose.MatchString(text) && strings.HasPrefix(strings.TrimSpace(text), "</") {
			m.forget()
			m.behind(text[thinkClose.FindStringIndex(text)[1]:])
			return
		}
		if o.tokens.depth == 0 && debris.MatchString(text) && len(o.code) > 0 {
			m.close(false, m.at-1)
			m.cut()
			return
		}
	}
	if o.Form == FormTag {
		m.readTagged(text)
		return
	}
	indent, skip := indentOf(text)
	if fence := fenceLine.FindStringSubmatch(text[skip:]); fence != nil && fence[1][0] == o.char && indent <= o.indent+3 {
		bare := strings.TrimSpace(fence[2]) == ""
		switch {
		case bare && len(fence[1]) >= o.length:
			if inString {
				m.pass()
				m.add(text)
				return
			}
			if o.pass > 0 && !o.tokens.complete() {
				m.back()
				return
			}
			m.close(true, m.at)
			return
		case !bare && !inString && o.kind == python && len(fence[1]) >= o.length && kindOf(languageName(fence[2])) == python:
			// The next block: nobody closed this one, and in Python a fence
			// stands in strings only.
			m.close(false, m.at-1)
			m.openFence(text)
			return
		}
	}
	// A fence at the end of the last line of code.
	if mark := strings.Repeat(string(o.char), o.length); !inString && o.kind == python && strings.HasSuffix(strings.TrimRight(text, " \t"), mark) {
		before := strings.TrimSuffix(strings.TrimRight(text, " \t"), mark)
		t := o.tokens
		if comment := t.part(before); strings.TrimSpace(before) != "" && !comment && t.quote == "" && !t.broken {
			m.add(before)
			m.close(true, m.at)
			return
		}
	}
	m.add(text)
}

func (m *machine) readTagged(text string) {
	o := m.open
	i := strings.Index(strings.ToLower(text), "</"+o.tag+">")
	if i < 0 {
		m.add(text)
		return
	}
	t := o.tokens
	if t.part(text[:i]); o.kind != foreign && t.quote != "" && m.backs < maxBacks {
		m.pass()
		m.add(text)
		return
	}
	if strings.TrimSpace(text[:i]) != "" {
		m.add(text[:i])
	}
	if o.pass > 0 && !o.tokens.complete() {
		m.back()
		return
	}
	m.close(true, m.at)
}

func (m *machine) add(text string) {
	o := m.open
	columns, bytes := indentOf(text)
	switch {
	case o.Form == FormTag || o.indent == 0:
	case columns <= o.indent:
		text = text[bytes:]
	default:
		text = strings.Repeat(" ", columns-o.indent) + text[bytes:]
	}
	o.code = append(o.code, text)
	if o.kind != foreign {
		o.tokens.line(text)
	}
}

// pass goes past a fence that lies in a string.
func (m *machine) pass() {
	o := m.open
	o.Passed++
	if o.pass == 0 {
		o.pass, o.ahead = m.at, len(o.code)
	}
}

// maxBacks bounds how often a reply is read again from somewhere. In one that
// opens more strings which nothing closes, every fence closes a block.
const maxBacks = 8

// back lets the first fence that was passed over close the block after all,
// and goes on behind it.
func (m *machine) back() {
	o := m.open
	m.backs++
	m.at = o.pass
	o.code = o.code[:o.ahead]
	o.Passed, o.pass = 0, 0
	m.close(true, m.at)
}

func (m *machine) close(closed bool, end int) {
	o := m.open
	m.open = nil
	o.Closed, o.End = closed, end
	m.found = append(m.found, candidate{o.Block, o.kind, o.code})
}

// finish decides what is only clear at the end.
func (m *machine) finish(lines []string, cut bool) Result {
	for m.open != nil && m.open.pass > 0 {
		m.back()
		m.run(lines)
	}
	if m.open != nil {
		m.close(false, len(lines))
	}
	if m.think != nil {
		m.left = append(m.left, Discarded{Why: Thinking, Start: m.think.start, End: len(lines)})
	}
	said := slices.Clone(lines)
	for n, rest := range m.shown {
		said[n-1] = rest
	}
	end := len(lines)
	if m.over {
		end = m.endLine
		m.left = append(m.left, Discarded{Why: Fabricated, Start: end + 1, End: len(lines)})
	}
	r := Result{Discarded: m.left, Prose: pick(said, m.prose), Kept: strings.TrimSpace(strings.Join(without(said[:end], m.hideTo, m.hidden), "\n"))}
	m.sort(&r, cut)
	m.settle(&r, said[:end])
	slices.SortStableFunc(r.Discarded, func(a, b Discarded) int { return a.Start - b.Start })
	for i, d := range r.Discarded {
		r.Discarded[i].Text = strings.Join(lines[max(d.Start-1, 0):min(d.End, len(lines))], "\n")
	}
	return r
}

// sort keeps the Python among what was found. Code without a language counts
// where none has one.
func (m *machine) sort(r *Result, cut bool) {
	named := slices.ContainsFunc(m.found, func(c candidate) bool { return c.kind == python })
	for i, c := range m.found {
		why := ""
		c.Code = source(c)
		switch {
		case c.kind == foreign, c.kind == unnamed && (named || !looksLikePython(c.code)):
			why = NotPython
		case strings.TrimSpace(c.Code) == "":
			why = Superfluous
		case cut && !c.Closed && i == len(m.found)-1 && !m.over:
			why = Unfinished
		}
		if why != "" {
			r.Discarded = append(r.Discarded, Discarded{Why: why, Start: c.Start, End: c.End})
			continue
		}
		r.Blocks = append(r.Blocks, c.Block)
	}
}

// settle says which of code and answer holds when there are both: what comes
// first.
func (m *machine) settle(r *Result, lines []string) {
	switch {
	case m.answer == 0:
	case len(r.Blocks) > 0 && r.Blocks[0].Start < m.answer:
		r.Discarded = append(r.Discarded, Discarded{Why: LateAnswer, Start: m.answer, End: len(lines)})
	default:
		for _, b := range r.Blocks {
			r.Discarded = append(r.Discarded, Discarded{Why: InAnswer, Start: b.Start, End: b.End})
		}
		r.Blocks = nil
		text := answerText(strings.Join(without(lines, max(m.hideTo, m.answer-1), m.hidden), "\n"))
		r.Answer = &text
	}
}

func answerText(text string) string {
	if where := answerLine.FindStringIndex(text); where != nil && where[0] == 0 {
		return strings.Trim(strings.TrimSpace(strings.TrimLeft(text[where[1]:], "*_")), "\n")
	}
	if tag := answerTag.FindStringSubmatchIndex(text); tag != nil {
		name := strings.ToLower(text[tag[2]:tag[3]])
		text = text[tag[1]:]
		if i := strings.Index(strings.ToLower(text), "</"+name+">"); i >= 0 {
			text = text[:i]
		}
	}
	return strings.TrimSpace(text)
}

// source is the code of a block: without a fence inside a tag, and without the
// prompts of a console.
func source(c candidate) string {
	lines := c.code
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if c.Form == FormTag && len(lines) > 1 {
		first, last := fenceLine.FindStringSubmatch(strings.TrimSpace(lines[0])), fenceLine.FindStringSubmatch(strings.TrimSpace(lines[len(lines)-1]))
		if first != nil && last != nil && last[2] == "" && kindOf(languageName(first[2])) != foreign {
			lines = lines[1 : len(lines)-1]
		}
	}
	if len(lines) > 0 && strings.HasPrefix(lines[0], ">>> ") {
		var typed []string
		for _, l := range lines {
			if code, ok := strings.CutPrefix(l, ">>> "); ok {
				typed = append(typed, code)
			} else if code, ok := strings.CutPrefix(l, "..."); ok {
				typed = append(typed, strings.TrimPrefix(code, " "))
			}
		}
		lines = typed
	}
	return strings.Join(lines, "\n")
}

func pick(lines []string, numbers []int) string {
	var out []string
	for _, n := range numbers {
		out = append(out, lines[n-1])
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// without leaves out the lines up to a number, and some more.
func without(lines []string, upTo int, numbers []int) []string {
	gone := make([]bool, len(lines)+1)
	for n := range min(upTo, len(lines)) {
		gone[n+1] = true
	}
	for _, n := range numbers {
		if n <= len(lines) {
			gone[n] = true
		}
	}
	var out []string
	for i, l := range lines {
		if !gone[i+1] {
			out = append(out, l)
		}
	}
	return out
}
