package extract

import (
	"regexp"
	"strings"
)

// tokens is how far a tokenizer of Python got: enough to know whether the end
// of some lines lies inside a string or a bracket. Prefixes do not matter for
// that: in a raw string, too, a quote behind a backslash does not end it.
type tokens struct {
	quote  string // that the open string ends with: one or three of ' or "; "" outside
	depth  int    // of open brackets
	broken bool   // no Python: a bracket too many, a string that ends with its line
	joined bool   // the last line ended with a backslash
	magic  bool   // %%cell magic: the rest is no Python
	begun  bool
}

// inString tells whether a line that comes now would be inside a string.
func (t *tokens) inString() bool { return len(t.quote) == 3 || t.quote != "" && t.joined }

// complete tells whether the code may end here.
func (t *tokens) complete() bool {
	return t.magic || !t.broken && t.quote == "" && t.depth == 0 && !t.joined
}

// line reads one line, without its end.
func (t *tokens) line(text string) {
	if t.magic {
		return
	}
	if t.quote == "" && t.depth == 0 && !t.joined {
		first := strings.TrimSpace(text)
		if !t.begun && strings.HasPrefix(first, "%%") {
			t.magic = true
			return
		}
		if strings.HasPrefix(first, "!") || strings.HasPrefix(first, "%") {
			t.begun = true
			return // IPython's own
		}
		t.begun = t.begun || first != ""
	}
	t.part(text)
	if len(t.quote) == 1 && !t.joined {
		t.quote, t.broken = "", true
	}
}

// part reads the beginning of a line and tells whether it ends in a comment.
func (t *tokens) part(text string) (comment bool) {
	t.joined = false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '\\' {
			if i == len(text)-1 {
				t.joined = true
			} else if t.quote != "" {
				i++
			}
			continue
		}
		if t.quote != "" {
			if strings.HasPrefix(text[i:], t.quote) {
				i += len(t.quote) - 1
				t.quote = ""
			}
			continue
		}
		switch c {
		case '#':
			return true
		case '\'', '"':
			t.quote = text[i : i+1]
			if triple := strings.Repeat(t.quote, 3); strings.HasPrefix(text[i:], triple) {
				t.quote = triple
				i += 2
			}
		case '(', '[', '{':
			t.depth++
		case ')', ']', '}':
			if t.depth--; t.depth < 0 {
				t.depth, t.broken = 0, true
			}
		}
	}
	return false
}

// read tokenizes lines from the start.
func read(lines []string) *tokens {
	t := new(tokens)
	for _, l := range lines {
		t.line(l)
	}
	return t
}

var (
	statement = regexp.MustCompile(`^\s*(import\s+\w|from\s+[\w.]+\s+import\b|(async\s+)?def\s+\w+\s*\(|class\s+\w+.*:|(async\s+)?for\s+.+\s+in\s+.+:|while\s+.+:|if\s+.+:|(async\s+)?with\s+.+:|try\s*:|@\w|del\s+\w|assert\s|raise\s+\w|global\s+\w|[%!]\S|%%\w)`)
	call      = regexp.MustCompile(`^\s*(await\s+)?[A-Za-z_][\w.]*\(.*$`)
	assigned  = regexp.MustCompile(`^\s*[A-Za-z_][\w.]*(\[[^\]]*\])*(\s*,\s*[A-Za-z_]\w*)*\s*(:\s*[\w\[\], .|]+)?([-+*/|&^%]|//|\*\*)?=[^=]`)
	words     = regexp.MustCompile(`^\s*[A-Za-z']+( [A-Za-z',]+){3,}[.:!?]?\s*$`)
)

// looksLikePython tells whether code without a language can be taken for
// Python: it ends where code may, something in it is a statement, and nothing
// is a sentence.
func looksLikePython(lines []string) bool {
	if !read(lines).complete() {
		return false
	}
	found := false
	t := new(tokens)
	for _, l := range lines {
		inside := t.inString() || t.depth > 0
		t.line(l)
		trimmed := strings.TrimSpace(l)
		if inside || trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if words.MatchString(l) && !statement.MatchString(l) {
			return false
		}
		if statement.MatchString(l) || call.MatchString(l) || assigned.MatchString(l) {
			found = true
		}
	}
	return found
}
