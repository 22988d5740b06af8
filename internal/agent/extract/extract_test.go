package extract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// shape is a reply and what is to be found in it. Its file has the sections
// "reply" ("reply crlf": with such line ends), "code 1" …, "answer", "left" with
// a reason a line, and "cut" when the reply ended at its limit.
type shape struct {
	name, reply string
	cut         bool
	code        []string
	answer      *string
	left        []string
}

func corpus(t testing.TB) []shape {
	files, err := filepath.Glob("testdata/corpus/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	var all []shape
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := shape{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for _, f := range txtar.Parse(raw).Files {
			text := strings.TrimSuffix(string(f.Data), "\n")
			switch {
			case f.Name == "reply":
				s.reply = text
			case f.Name == "reply crlf":
				s.reply = strings.ReplaceAll(text, "\n", "\r\n")
			case f.Name == "cut":
				s.cut = true
			case f.Name == "answer":
				s.answer = &text
			case f.Name == "left":
				s.left = strings.Fields(text)
			case strings.HasPrefix(f.Name, "code "):
				s.code = append(s.code, text)
			default:
				t.Fatalf("%s has a section %q", file, f.Name)
			}
		}
		all = append(all, s)
	}
	return all
}

func reasons(r Result) (out []string) {
	for _, d := range r.Discarded {
		out = append(out, d.Why)
	}
	return out
}

func codes(r Result) (out []string) {
	for _, b := range r.Blocks {
		out = append(out, b.Code)
	}
	return out
}

func TestCorpus(t *testing.T) {
	shapes := corpus(t)
	right, plain := 0, 0
	for _, s := range shapes {
		ok := t.Run(s.name, func(t *testing.T) {
			r := Text(s.reply, s.cut)
			if diff := cmp.Diff(s.code, codes(r)); diff != "" {
				t.Errorf("code:\n%s", diff)
			}
			if diff := cmp.Diff(s.answer, r.Answer); diff != "" {
				t.Errorf("answer:\n%s", diff)
			}
			if diff := cmp.Diff(s.left, reasons(r)); diff != "" {
				t.Errorf("left out:\n%s", diff)
			}
		})
		if ok {
			right++
		}
		if slices.Equal(s.code, plainExpression(s.reply)) {
			plain++
		}
	}
	t.Logf("%d of %d replies are read right; a plain regular expression reads %d", right, len(shapes), plain)
	if len(shapes) < 60 {
		t.Errorf("the corpus has %d replies only", len(shapes))
	}
}

// plainExpression is how harnesses often look for code, taking all blocks. It
// is here to be compared with.
func plainExpression(reply string) (out []string) {
	for _, m := range regexp.MustCompile("(?s)```python(.*?)```").FindAllStringSubmatch(reply, -1) {
		out = append(out, strings.TrimSpace(m[1]))
	}
	return out
}

func TestSaysHowItFound(t *testing.T) {
	for _, tc := range []struct {
		reply string
		want  Block
	}{
		{"a\n```Python3 x\nx\n```", Block{Code: "x", Form: FormFence, Marker: "```", Language: "Python3", Start: 2, End: 4, Closed: true}},
		{"~~~~py\nx", Block{Code: "x", Form: FormFence, Marker: "~~~~", Language: "py", Start: 1, End: 2}},
		{"<execute>\nx\n</execute>", Block{Code: "x", Form: FormTag, Marker: "<execute>", Start: 1, End: 3, Closed: true}},
		{"```python\ns='''\n```\n'''\n```", Block{Code: "s='''\n```\n'''", Form: FormFence, Marker: "```", Language: "python", Start: 1, End: 5, Closed: true, Passed: 1}},
	} {
		r := Text(tc.reply, false)
		if diff := cmp.Diff([]Block{tc.want}, r.Blocks); diff != "" {
			t.Errorf("%q:\n%s", tc.reply, diff)
		}
	}
}

func TestProseAndWhatTheModelSeesOfItsReply(t *testing.T) {
	r := Text("<think>\nsecret\n</think>\nI look.\n```python\nx\n```\nObservation: 1\nmore", false)
	if r.Prose != "I look." || r.Kept != "I look.\n```python\nx\n```" {
		t.Errorf("prose %q, kept %q", r.Prose, r.Kept)
	}
}

// same fails when the reply in pieces gives another result than the whole.
func same(t *testing.T, reply string, cut bool, seed uint64) {
	t.Helper()
	whole := Text(reply, cut)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var s Scanner
	for rest := reply; rest != ""; {
		n := min(1+rnd.IntN(12), len(rest))
		s.Write(rest[:n])
		rest = rest[n:]
	}
	if diff := cmp.Diff(whole, s.End(cut)); diff != "" {
		t.Errorf("in pieces %q gives something else:\n%s", reply, diff)
	}
}

func TestStreamingEqualsBatch(t *testing.T) {
	for _, s := range corpus(t) {
		for seed := range uint64(8) {
			same(t, s.reply, s.cut, seed)
		}
	}
}

// FuzzText: whatever a model says, no panic, code is lines of the reply in
// their order, blocks do not overlap, and pieces give what the whole gives.
func FuzzText(f *testing.F) {
	for _, s := range corpus(f) {
		f.Add(s.reply, s.cut, uint64(1))
	}
	f.Fuzz(func(t *testing.T, reply string, cut bool, seed uint64) {
		if len(reply) > 1<<14 {
			return
		}
		r := Text(reply, cut)
		from := 0
		for _, b := range r.Blocks {
			if b.Start < 1 || b.End < b.Start || b.Start < from {
				t.Fatalf("%q: block %+v behind line %d", reply, b, from)
			}
			from = b.End
			if i, ok := subsequence(b.Code, reply); !ok {
				t.Fatalf("%q: line %d of the code is not from the reply: %q", reply, i, b.Code)
			}
		}
		if r.Answer != nil && len(r.Blocks) > 0 {
			t.Fatalf("%q: code and answer", reply)
		}
		same(t, reply, cut, seed)
	})
}

// subsequence tells whether each line of the code stands in a line of the
// reply, in order.
func subsequence(code, reply string) (int, bool) {
	lines := bytes.Split([]byte(reply), []byte("\n"))
	at := 0
	for i, l := range strings.Split(code, "\n") {
		for at < len(lines) && !bytes.Contains(lines[at], []byte(strings.TrimSpace(l))) {
			at++
		}
		if at == len(lines) {
			return i, false
		}
	}
	return 0, true
}

// Replies that make a reader go back again and again are read in a time that
// grows with their length and not with its square: some of these took
// minutes for a megabyte.
func TestHostileRepliesAreReadInTime(t *testing.T) {
	for name, piece := range map[string]string{
		"strings that nothing closes": "```python\nx=\\'''\n```\n",
		"tags in such strings":        "<execute>\nx=\\'''\n</execute>\n",
		"ends of thinking":            "</think>\n",
		"thinking":                    "<think>\n</think>x\n",
		"fences":                      "```\n",
		"backticks":                   "` `` ``` ````\n",
		"answers":                     "FINAL ANSWER: x\n",
		"observations":                "```python\nx\n```\nObservation: 1\n",
		"long fences":                 strings.Repeat("`", 200) + "python\nx\n",
		"a line":                      "`` ` ''' \"\"\" ( [ </think> <execute> ",
	} {
		t.Run(name, func(t *testing.T) {
			reply := strings.Repeat(piece, (1<<18)/len(piece))
			if r := Text(reply, false); len(r.Kept) > len(reply) {
				t.Errorf("%d bytes of %d", len(r.Kept), len(reply))
			}
		})
	}
}

func ExampleText() {
	r := Text("I look at the file.\n```python\nprint(open('a').read())\n```\nObservation: it is empty", false)
	fmt.Println(r.Blocks[0].Code, r.Discarded[0].Why)
	// Output: print(open('a').read()) fabricated
}
