package cli

import (
	"bytes"
	"testing"
)

func TestDetachKeys(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ctrl-p,ctrl-q": "\x10\x11", "ctrl-]": "\x1d", "ctrl-a,d": "\x01d", `ctrl-\`: "\x1c", "ctrl-@": "\x00",
	} {
		if got, err := parseKeys(text); err != nil || string(got) != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"ctrl-", "ctrl-1", "ctrl-P", "esc", ",", "ctrl-p,"} {
		if got, err := parseKeys(text); err == nil {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

func TestDetachKeysAreFoundInWhatIsTyped(t *testing.T) {
	for _, c := range []struct {
		keys   string
		typed  []string
		pass   string
		detach bool
	}{
		{"pq", []string{"abc"}, "abc", false},
		{"pq", []string{"apq!"}, "a", true},
		{"pq", []string{"ap", "qb"}, "a", true},
		{"pq", []string{"p"}, "", false}, // held back
		{"pq", []string{"p", "p", "x"}, "ppx", false},
		{"pq", []string{"pp", "q"}, "p", true},
		{"aab", []string{"aaab"}, "a", true},
		{"abac", []string{"ababac"}, "ab", true},
		{"abac", []string{"abab", "x"}, "ababx", false},
		{"", []string{"pq"}, "pq", false},
	} {
		w := keyWatch{keys: []byte(c.keys)}
		var pass []byte
		detach := false
		for _, piece := range c.typed {
			p, d := w.typed([]byte(piece))
			pass, detach = append(pass, p...), detach || d
		}
		if string(pass) != c.pass || detach != c.detach {
			t.Errorf("keys %q, typed %q: passed %q, %v", c.keys, c.typed, pass, detach)
		}
	}
}

func TestOldQuestionsAreLeftOut(t *testing.T) {
	const kept = "a\x1b[31mb\x1b[2J\x1b[?1049h\x1b[10;5Hc\x1b[u\x1b]0;title\x07\x1b[?25l\x1b[1;24r\x1b[2 q"
	asked := "\x1b[c\x1b[>c\x1b[0c\x1b[6n\x1b[5n\x1b[?6n\x1b[>0q\x1b[?u\x1b[?2026$p\x1b[14t\x1b[18t\x1b]10;?\x07\x1b]4;1;?\x1b\\\x1bP+q544e\x1b\\\x1bP$qm\x1b\\\x05"
	if got := questions.ReplaceAll([]byte(kept+asked+kept), nil); string(got) != kept+kept {
		t.Errorf("got %q", got)
	}
}

func TestModesAreUndone(t *testing.T) {
	for _, c := range []struct{ output, reset string }{
		{"plain \x1b[31m", ""},
		{"\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l\x1b[m\r\n"},
		{"\x1b[?1049h\x1b[?25l…\x1b[?25h\x1b[?1049l", ""},
		{"\x1b[?1002;1006h\x1b[?2004h\x1b[?2004l", "\x1b[?1006l\x1b[?1002l\x1b[m\r\n"},
		{"\x1b[?7h\x1b[?9999h", ""}, // not ours to undo
	} {
		for cut := range len(c.output) + 1 { // wherever it is cut in two
			var m modes
			m.see([]byte(c.output[:cut]))
			m.see([]byte(c.output[cut:]))
			var out bytes.Buffer
			if m.reset(&out); out.String() != c.reset {
				t.Errorf("%q, cut at %d: %q, want %q", c.output, cut, out.String(), c.reset)
			}
		}
	}
}
