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
