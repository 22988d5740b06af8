package process_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/process"
)

// rig is the link to one fake guest.
type rig struct {
	*process.Service
	link  *guest.Listener
	host  *fake.Host
	guest *fake.Guest
}

func newRig(t *testing.T, cfg process.Config) *rig {
	t.Helper()
	dir := t.TempDir()
	link, err := guest.Listen(guest.Options{Dir: dir, SandboxID: "sb", Generation: 1})
	if err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost()
	d := fake.New(host)
	p, err := d.Prepare(context.Background(), driver.Spec{ID: "sb", Snapshot: t.TempDir(), LinkDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Restore(context.Background(), driver.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		link.Close()
		if err := inst.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r := &rig{link: link, host: host, guest: host.Guest("sb")}
	r.Service = process.New(r, cfg)
	return r
}

func (r *rig) Guest(ctx context.Context, _, _ string) (*guest.Client, func(), error) {
	c, err := r.link.Client(ctx)
	return c, func() {}, err
}

func (r *rig) exec(t *testing.T, req api.ExecRequest) api.ExecResult {
	t.Helper()
	x, err := r.Exec(context.Background(), "", "sb", req)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func shell(s string) api.Command { return api.Command{Shell: s} }

func TestExec(t *testing.T) {
	r := newRig(t, process.Config{})
	in := "from stdin"
	for _, tc := range []struct {
		req      api.ExecRequest
		out, err string
		code     int
	}{
		{api.ExecRequest{Cmd: shell("echo a; warn b")}, "a\n", "b\n", 0},
		{api.ExecRequest{Cmd: shell("echo a; exit 3")}, "a\n", "", 3},
		{api.ExecRequest{Cmd: shell("nothing")}, "", "nothing: command not found\n", 127},
		{api.ExecRequest{Cmd: shell("cat"), Stdin: &in}, in, "", 0},
		{api.ExecRequest{Cmd: shell("cat")}, "", "", 0},
		{api.ExecRequest{Cmd: api.Command{Argv: []string{"x", "echo list"}}}, "list\n", "", 0},
	} {
		x := r.exec(t, tc.req)
		if x.Stdout != tc.out || x.Stderr != tc.err || x.ExitCode != tc.code || x.TimedOut || x.Truncated {
			t.Errorf("%+v: %+v", tc.req, x)
		}
	}
}

func TestDeadlineIsAnOutcome(t *testing.T) {
	r := newRig(t, process.Config{})
	x := r.exec(t, api.ExecRequest{Cmd: shell("echo so far; wait never"), TimeoutSeconds: 0.05})
	if !x.TimedOut || x.Stdout != "so far\n" || x.ExitCode == 0 {
		t.Errorf("%+v", x)
	}
}

func TestOutputIsNotLostWhenSomethingFails(t *testing.T) {
	r := newRig(t, process.Config{})
	x, err := r.Exec(context.Background(), "", "sb", api.ExecRequest{Cmd: shell("echo so far; warn and this; babble")})
	if err == nil || x.Stdout != "so far\n" || x.Stderr != "and this\n" {
		t.Errorf("%+v, %v", x, err)
	}
}

// A caller that goes away may come back to its command by its id, and it never
// runs twice.
func TestCommandIsAttachedToByItsID(t *testing.T) {
	r := newRig(t, process.Config{DisconnectWait: time.Hour})
	req := api.ExecRequest{Cmd: shell("echo once; wait go; echo more; exit 3"), ExecutionID: "e-1"}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for e, err := range r.ExecStream(ctx, "", "sb", req) {
		if err != nil {
			break
		}
		if e.Type == api.EventStdout {
			cancel()
		}
	}
	r.guest.Signal("go")
	req.Attach = true
	for range 2 { // while it runs, and when it has ended
		if x := r.exec(t, req); x.Stdout != "once\nmore\n" || x.ExitCode != 3 {
			t.Errorf("%+v", x)
		}
	}
	req.Cmd = shell("echo other")
	if _, err := r.Exec(context.Background(), "", "sb", req); !errors.Is(err, fault.Conflict) {
		t.Errorf("another command under the same id: %v", err)
	}
	// What was not started is.
	if x := r.exec(t, api.ExecRequest{Cmd: shell("echo new"), ExecutionID: "e-2", Attach: true}); x.Stdout != "new\n" {
		t.Errorf("%+v", x)
	}
	c, _, err := r.Guest(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := c.Processes(context.Background()); err != nil || len(list) != 2 {
		t.Errorf("%d processes, %v", len(list), err)
	}
}

func TestCommandThatNobodyComesBackToIsKilled(t *testing.T) {
	r := newRig(t, process.Config{DisconnectWait: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for e := range r.ExecStream(ctx, "", "sb", api.ExecRequest{Cmd: shell("echo up; wait never"), ExecutionID: "e"}) {
		if e.Type == api.EventStdout {
			cancel()
		}
	}
	c, _, err := r.Guest(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	var list []api.Process
	for len(list) == 0 || list[0].Running { // else the test runs into its deadline
		if list, err = c.Processes(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if list[0].Exit.Reason != api.ReasonKilled {
		t.Errorf("%+v", list[0].Exit)
	}
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, process.Config{MaxTimeout: time.Hour})
	for field, req := range map[string]api.ExecRequest{
		"cmd":             {},
		"timeout_seconds": {Cmd: shell("x"), TimeoutSeconds: -1},
		"cwd":             {Cmd: shell("x"), CWD: "relative"},
		"envs":            {Cmd: shell("x"), Envs: map[string]string{"": "x"}},
		"execution_id":    {Cmd: shell("x"), Attach: true},
	} {
		var f *fault.Error
		if _, err := r.Exec(context.Background(), "", "sb", req); !errors.As(err, &f) || f.Field != field || f.Code != api.CodeInvalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
	for name, req := range map[string]api.ExecRequest{
		"empty argv": {Cmd: api.Command{Argv: []string{}}}, "empty program": {Cmd: api.Command{Argv: []string{""}}},
		"NUL": {Cmd: shell("a\x00b")}, "too long": {Cmd: shell("x"), TimeoutSeconds: 3601}, "NUL in cwd": {Cmd: shell("x"), CWD: "/a\x00"},
	} {
		if _, err := r.Exec(context.Background(), "", "sb", req); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinkBreaksInTheMiddle(t *testing.T) {
	r := newRig(t, process.Config{})
	var out strings.Builder
	for e, err := range r.ExecStream(context.Background(), "", "sb", api.ExecRequest{Cmd: shell("echo 1; wait a; echo 2; wait b; echo 3")}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EventStdout {
			out.WriteString(e.Text)
			r.guest.BreakLink()
			r.guest.Signal(string('a' + rune(out.Len()/2-1)))
		}
	}
	if out.String() != "1\n2\n3\n" {
		t.Errorf("the output is %q", out.String())
	}
}

// The answer to the start is lost, and the command is not started again.
func TestLostAnswerStartsNothingTwice(t *testing.T) {
	r := newRig(t, process.Config{})
	var starts atomic.Int32
	r.host.Break(fake.Faults{Cut: func(method, path string) bool {
		return method == "POST" && path == "/processes" && starts.Add(1) == 1
	}})
	if x := r.exec(t, api.ExecRequest{Cmd: shell("echo a")}); x.Stdout != "a\n" {
		t.Errorf("%+v", x)
	}
	c, _, err := r.Guest(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := c.Processes(context.Background()); err != nil || len(list) != 1 || starts.Load() != 1 {
		t.Errorf("%d starts, processes %+v, %v", starts.Load(), list, err)
	}
}

func TestCommandOfAClientThatIsGoneIsKilled(t *testing.T) {
	r := newRig(t, process.Config{})
	for _, closed := range []bool{false, true} {
		if closed {
			r.Close() // the daemon ends: nobody has left
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		began := make(chan struct{})
		wg.Go(func() {
			for e := range r.ExecStream(ctx, "", "sb", api.ExecRequest{Cmd: shell("echo a; wait never")}) {
				if e.Type == api.EventStdout {
					close(began)
				}
			}
		})
		<-began
		cancel()
		wg.Wait()
		c, _, err := r.Guest(context.Background(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.Processes(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		last := list[len(list)-1]
		if closed && !last.Running {
			t.Errorf("killed at the end of the daemon: %+v", last)
		}
		if !closed {
			for last.Running { // the kill was answered before the process had ended
				if last, err = c.Process(context.Background(), last.PID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A command whose caller names no deadline ends at the default one.
func TestDefaultDeadlineIsKept(t *testing.T) {
	r := newRig(t, process.Config{DefaultTimeout: 50 * time.Millisecond})
	if x := r.exec(t, api.ExecRequest{Cmd: shell("echo so far; wait never")}); !x.TimedOut || x.Stdout != "so far\n" {
		t.Errorf("%+v", x)
	}
}
