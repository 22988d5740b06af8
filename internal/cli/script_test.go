package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pandastack": func() { os.Exit(Main(os.Args[1:], OS())) },
	})
}

// TestScripts runs the program end to end against the fake driver. Each script
// starts the daemons it needs, on ports that the system chooses.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("DATA", filepath.Join(e.WorkDir, "data"))
			return os.Mkdir(filepath.Join(e.WorkDir, "home"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ready":  ready,
			"status": status,
			"term":   stop,
			"verbs":  everyVerb,
		},
	})
}

// clientFile is the configuration that the script's daemon wrote.
func clientFile(ts *testscript.TestScript) (doc struct {
	APIURL   string `json:"api_url"`
	APIKey   string `json:"api_key"`
	Profiles map[string]struct {
		APIURL string `json:"api_url"`
	}
}) {
	raw, err := os.ReadFile(filepath.Join(ts.Getenv("HOME"), ".config", "pandastack", "config.json"))
	if err == nil {
		ts.Check(json.Unmarshal(raw, &doc))
	}
	return doc
}

// ready [PROFILE] waits until the daemon answers, and sets URL and KEY.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		doc := clientFile(ts)
		url := doc.APIURL
		if len(args) == 1 {
			url = doc.Profiles[args[0]].APIURL
		}
		if url == "" {
			continue
		}
		res, err := http.Get(url + "/readyz")
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			ts.Setenv("URL", url)
			ts.Setenv("KEY", doc.APIKey)
			return
		}
	}
	ts.Fatalf("the daemon does not answer")
}

// status WANT METHOD PATH [NAME:VALUE…] makes a request with the client's key.
func status(ts *testscript.TestScript, neg bool, args []string) {
	req, err := http.NewRequest(args[1], ts.Getenv("URL")+args[2], nil)
	ts.Check(err)
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("KEY"))
	for _, h := range args[3:] {
		name, value, _ := strings.Cut(h, ":")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	res.Body.Close()
	if got := res.Status[:3]; got != args[0] {
		ts.Fatalf("%s %s: %s, want %s", args[1], args[2], res.Status, args[0])
	}
}

// stop is the command term DATADIR: it tells the daemon of a data directory to
// stop.
func stop(ts *testscript.TestScript, neg bool, args []string) {
	for _, cmd := range ts.BackgroundCmds() {
		if slices.Contains(cmd.Args, args[0]) && cmd.ProcessState == nil {
			ts.Check(cmd.Process.Signal(syscall.SIGTERM))
		}
	}
}
