package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// Code in a sandbox chooses the arguments that somebody is shown who decides.
func TestWhatASandboxSaysIsWhatItLooksLike(t *testing.T) {
	const said, want = "pay\x1b[2K\u009b2K\u202eyap\u2066\u200b \ufeffnaïve 👩\u200d🔬", "pay[2K2Kyap naïve 👩\u200d🔬"
	if got := plain(said); got != want {
		t.Errorf("%q", got)
	}
	var b bytes.Buffer
	(&app{Streams: Streams{Err: &b}, flags: &grammar{}}).report(errors.New("no file " + said))
	if !strings.HasPrefix(b.String(), "pandastack: no file "+want+"\n") {
		t.Errorf("%q", b.String())
	}
	got := argumentsOf(api.Approval{Arguments: json.RawMessage(`{"to":"` + said[len("pay\x1b[2K"):] + `"}`)})
	if got != `{"to":"`+want[len("pay[2K"):]+`"}` {
		t.Errorf("%q", got)
	}
}

// Remarks have errors in them; JSON on a terminal is seen by people, and says the same.
func TestRemarksAndJSONDriveNoTerminal(t *testing.T) {
	const said = "a\x1b[2K\u009b2K\u202eb\U000e0041\u007f"
	var out, remarks bytes.Buffer
	a := &app{Streams: Streams{Out: &out, Err: &remarks, Terminal: true}, flags: &grammar{}}
	a.say("%s: %v", "sb-1", errors.New("no file "+said))
	if want := "sb-1: no file a[2K2Kb\n"; remarks.String() != want {
		t.Errorf("%q", remarks.String())
	}
	if err := a.json(map[string]string{"said": said}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return hidden(r) && r != '\n' }) {
		t.Errorf("%q", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["said"] != said {
		t.Errorf("%q is read as %q, %v", out.String(), back["said"], err)
	}
}
