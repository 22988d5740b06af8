package kernel_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/kernel"
)

func TestExecutionIsPutTogether(t *testing.T) {
	r := newRig(t, kernel.Config{})
	x := r.run(api.RunRequest{Code: "x = 40\nprint('out')\nwarn('err')\npng()\nx + 2", ExecutionID: "e-1"})
	x.DurationMS = 0
	want := api.Execution{
		ExecutionID: "e-1", ExecutionCount: 1, End: api.EndOK, StateSurvived: true, Stdout: "out\n", Stderr: "err\n",
		Results:     []api.Bundle{{"text/plain": "42"}, {"image/png": "iVBORw0KGgo="}},
		ResultsMeta: []api.ResultMeta{{IsLastExpression: true}, {}},
	}
	if diff := cmp.Diff(want, x); diff != "" {
		t.Errorf("the display came before the last expression:\n%s", diff)
	}
	y := r.run(api.RunRequest{Code: "x"})
	if y.Results[0]["text/plain"] != "40" || y.ExecutionCount != 2 || y.ExecutionID == "" {
		t.Errorf("the next cell: %+v", y)
	}
	if z := r.run(api.RunRequest{Code: "y = 1"}); z.Results == nil || z.ResultsMeta == nil || len(z.Results) != 0 {
		t.Errorf("without results: %+v", z)
	}
}

func TestEnds(t *testing.T) {
	r := newRig(t, kernel.Config{})
	for _, tc := range []struct {
		code     string
		end      api.End
		survived bool
	}{
		{"print('a')\nraise('KeyError','k')", api.EndError, true},
		{"print('a')\nwait('never')", api.EndTimeout, true},
		{"print('a')\ndie()", api.EndKernelDied, false},
		{"print('a')\noom()", api.EndOOM, false},
	} {
		x := r.run(api.RunRequest{Code: tc.code, TimeoutMS: 50})
		if x.End != tc.end || x.StateSurvived != tc.survived || x.Exit != 1 || x.ExitCode != 1 || x.Error == nil || x.Stdout != "a\n" {
			t.Errorf("%q: %+v", tc.code, x)
		}
	}
	if x := r.run(api.RunRequest{Code: "raise('KeyError','k')"}); x.ErrorName != "KeyError" || x.ErrorValue != "k" {
		t.Errorf("the exception: %+v", x)
	}
}

func TestHugeOutputKeepsHeadAndTail(t *testing.T) {
	r := newRig(t, kernel.Config{})
	x := r.run(api.RunRequest{Code: "print('first')\nspam(5000000)\nprint('last')", TimeoutMS: 60_000})
	if !x.Truncated || !strings.HasPrefix(x.Stdout, "first\n") || !strings.HasSuffix(x.Stdout, "last\n") || !strings.Contains(x.Stdout, "bytes left out") {
		t.Errorf("truncated %v, %d bytes", x.Truncated, len(x.Stdout))
	}
	if kept := int64(5_000_000+11) - x.StdoutDropped; kept != 1<<20 {
		t.Errorf("%d bytes kept, %d dropped", kept, x.StdoutDropped)
	}
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, kernel.Config{MaxTimeout: time.Minute})
	ctx := context.Background()
	for _, tc := range []struct {
		cid  string
		req  api.RunRequest
		code api.Code
		says string
	}{
		{"default", api.RunRequest{}, api.CodeInvalid, "code"},
		{"default", api.RunRequest{Code: strings.Repeat("x", 9<<20)}, api.CodeTooLarge, "code"},
		{"default", api.RunRequest{Code: "1", TimeoutMS: -1}, api.CodeInvalid, "timeout_ms"},
		{"default", api.RunRequest{Code: "1", TimeoutMS: 60_001}, api.CodeInvalid, "timeout_ms"},
		{"default", api.RunRequest{Code: "1", ExecutionID: "../x"}, api.CodeInvalid, "execution_id"},
		{"nobody", api.RunRequest{Code: "1"}, api.CodeNotFound, ""},
		{"../../files", api.RunRequest{Code: "1"}, api.CodeNotFound, ""},
		{"", api.RunRequest{Code: "1"}, api.CodeNotFound, ""},
	} {
		_, err := r.Run(ctx, owner, r.sid, tc.cid, tc.req)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != tc.code || f.Field != tc.says {
			t.Errorf("%q %.40q: %v", tc.cid, tc.req.Code, err)
		}
	}
	if _, err := r.Run(ctx, owner, "sb-0000000000000000", "default", api.RunRequest{Code: "1"}); !errors.Is(err, fault.NotFound) {
		t.Errorf("in a sandbox that is not: %v", err)
	}
	if _, err := r.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{Language: "cobol"}); !errors.Is(err, fault.Invalid) {
		t.Errorf("a context in cobol: %v", err)
	}
	if _, err := r.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{ID: "analysis"}); err != nil {
		t.Fatal(err)
	}
	var f *fault.Error
	if _, err := r.Context(ctx, owner, r.sid, "analysys"); !errors.As(err, &f) || !strings.Contains(f.Hint, "analysis") {
		t.Errorf("the nearest name is not given: %v", err)
	}
}

func TestContexts(t *testing.T) {
	r := newRig(t, kernel.Config{})
	ctx := context.Background()
	c, err := r.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{Language: "py"})
	if err != nil || c.ID == "" || c.Language != "python" || c.CWD != "/workspace" || c.SandboxID != r.sid {
		t.Fatalf("created %+v, %v", c, err)
	}
	if _, err := r.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{ID: c.ID}); !errors.Is(err, fault.Conflict) {
		t.Errorf("the same id again: %v", err)
	}
	if d, err := r.Context(ctx, owner, r.sid, "default"); err != nil || d.ID != "default" {
		t.Errorf("the default context: %+v, %v", d, err)
	}
	if list, err := r.Contexts(ctx, owner, r.sid); err != nil || len(list) != 2 {
		t.Errorf("listed %+v, %v", list, err)
	}
	r.run(api.RunRequest{Code: "x = 1"})
	if x, err := r.Run(ctx, owner, r.sid, "default", api.RunRequest{Code: "kept = 7"}); err != nil || x.End != api.EndOK {
		t.Fatalf("%+v, %v", x, err)
	}
	copies, err := r.ForkContext(ctx, owner, r.sid, "default", 2)
	if err != nil || len(copies.Children) != 2 {
		t.Fatalf("forked: %+v, %v", copies, err)
	}
	for _, c := range copies.Children {
		if x, err := r.Run(ctx, owner, r.sid, c.ID, api.RunRequest{Code: "kept"}); err != nil || c.ForkedFrom != "default" || x.Results[0]["text/plain"] != "7" {
			t.Errorf("copy %+v: %+v, %v", c, x, err)
		}
		if err := r.CloseContext(ctx, owner, r.sid, c.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.ForkContext(ctx, owner, r.sid, "default", 33); !errors.Is(err, fault.Invalid) {
		t.Errorf("too many copies: %v", err)
	}
	if d, err := r.Restart(ctx, owner, r.sid, "default"); err != nil || d.Incarnation != 2 {
		t.Errorf("restarted: %+v, %v", d, err)
	}
	if x := r.run(api.RunRequest{Code: "x"}); x.ErrorName != "NameError" {
		t.Errorf("after the restart: %+v", x)
	}
	for range 2 {
		if err := r.CloseContext(ctx, owner, r.sid, c.ID); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
}

func TestDefaultIsMadeByManyAtOnce(t *testing.T) {
	r := newRig(t, kernel.Config{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { r.run(api.RunRequest{Code: "append('/n', 'x')"}) })
	}
	wg.Wait()
	if got := r.guest().File("/n"); len(got) != 20 {
		t.Errorf("%d of 20 cells ran", len(got))
	}
}

func TestOneIDRunsOnce(t *testing.T) {
	r := newRig(t, kernel.Config{})
	const code = "append('/once', 'x')\nwait('go')\nprint('done')"
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if x := r.run(api.RunRequest{Code: code, ExecutionID: "same"}); x.Stdout != "done\n" {
				t.Errorf("%+v", x)
			}
		})
	}
	r.running("same")
	if _, err := r.Run(context.Background(), owner, r.sid, "default", api.RunRequest{Code: "other", ExecutionID: "same"}); !errors.Is(err, fault.Conflict) {
		t.Errorf("the id with other code: %v", err)
	}
	r.guest().Signal("go")
	wg.Wait()
	if x := r.run(api.RunRequest{Code: code, ExecutionID: "same"}); x.Stdout != "done\n" {
		t.Errorf("after the end: %+v", x)
	}
	if got := r.guest().File("/once"); got != "x" {
		t.Errorf("it ran %d times", len(got))
	}
}

// The link breaks again and again, and the caller does not notice.
func TestLinkBreaksInTheMiddle(t *testing.T) {
	r := newRig(t, kernel.Config{})
	var posts atomic.Int32
	r.host.Break(fake.Faults{Cut: func(method, path string) bool { // the first answer is lost
		return method == "POST" && strings.HasSuffix(path, "/executions") && posts.Add(1) == 1
	}})
	var got []string
	for e, err := range r.Stream(context.Background(), owner, r.sid, "default", api.RunRequest{
		Code: "append('/once', 'x')\nprint('1')\nwait('a')\nprint('2')\nwait('b')\nprint('3')", ExecutionID: "e",
	}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EventStdout {
			got = append(got, e.Text)
			r.guest().BreakLink()
			r.guest().Signal(string('a' + rune(len(got)-1)))
		}
	}
	if s := strings.Join(got, ""); s != "1\n2\n3\n" {
		t.Errorf("the output is %q", s)
	}
	if got := r.guest().File("/once"); got != "x" {
		t.Errorf("it ran %d times", len(got))
	}
	if posts.Load() < 2 {
		t.Error("no answer was lost, so this proves nothing")
	}
}

// A sandbox that is put to sleep breaks its link. Calls about contexts that were
// under way are made again, or are such that the sleep waits for them.
func TestContextCallsSurviveABrokenLink(t *testing.T) {
	r := newRig(t, kernel.Config{})
	ctx := context.Background()
	marks := &marking{Guests: r.manager}
	s := kernel.New(marks, r.cfg)
	defer s.Close()
	lost := func(f func()) {
		t.Helper()
		var calls atomic.Int32
		r.host.Break(fake.Faults{Cut: func(string, string) bool { return calls.Add(1) == 1 }})
		defer r.host.Break(fake.Faults{})
		f()
		if calls.Load() == 0 {
			t.Error("no answer was lost, so this proves nothing")
		}
	}
	once := func(what string, want bool, f func() error) {
		t.Helper()
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if marks.once != want {
			t.Errorf("%s: to be waited for: %t", what, marks.once)
		}
	}
	create := func() error {
		_, err := s.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{ID: "c"})
		return err
	}
	fork := func() error { _, err := s.ForkContext(ctx, owner, r.sid, "c", 1); return err }
	restart := func() error { _, err := s.Restart(ctx, owner, r.sid, "c"); return err }
	once("create", true, create)
	once("fork", true, fork)
	once("restart", true, restart)
	lost(func() {
		once("list", false, func() error { _, err := s.Contexts(ctx, owner, r.sid); return err })
	})
	lost(func() {
		once("get", false, func() error { _, err := s.Context(ctx, owner, r.sid, "c"); return err })
	})
	lost(func() { once("interrupt", false, func() error { return s.Interrupt(ctx, owner, r.sid, "c") }) })
	lost(func() {
		if err := fork(); !errors.Is(err, guest.ErrLinkLost) {
			t.Errorf("a fork whose answer was lost: %v", err)
		}
	})
	if list, err := s.Contexts(ctx, owner, r.sid); err != nil || len(list) != 3 { // the lost one was made, once
		t.Errorf("contexts: %v, %v", list, err)
	}
	lost(func() { once("close", false, func() error { return s.CloseContext(ctx, owner, r.sid, "c") }) })
}

// marking remembers whether the last call was one that is waited for.
type marking struct {
	kernel.Guests
	once bool
}

func (m *marking) Guest(ctx context.Context, owner, id string) (*guest.Client, func(), error) {
	m.once = guest.IsUnrepeatable(ctx)
	return m.Guests.Guest(ctx, owner, id)
}

func TestDaemonDiesInTheMiddle(t *testing.T) {
	r := newRig(t, kernel.Config{DisconnectWait: time.Nanosecond})
	ctx, cut := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() {
		_, err := r.Run(ctx, owner, r.sid, "default", api.RunRequest{Code: "append('/once', 'x')\nprint('1')\nwait('go')\nprint('2')", ExecutionID: "e"})
		waiting <- err
	}()
	r.running("e")
	r.Close() // a daemon that ends is nobody's leaving
	cut()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	r.stop()
	r.start()
	go func() {
		r.running("e")
		r.guest().Signal("go")
	}()
	x, err := r.Run(context.Background(), owner, r.sid, "default", api.RunRequest{Code: "append('/once', 'x')\nprint('1')\nwait('go')\nprint('2')", ExecutionID: "e"})
	if err != nil || x.End != api.EndOK || x.Stdout != "1\n2\n" {
		t.Errorf("after the restart: %+v, %v", x, err)
	}
	if y, err := r.Wait(context.Background(), owner, r.sid, "default", "e"); err != nil || !cmp.Equal(x, y) {
		t.Errorf("Wait: %s, %v", cmp.Diff(x, y), err)
	}
	if got := r.guest().File("/once"); got != "x" {
		t.Errorf("it ran %d times", len(got))
	}
}

// leave starts a cell that waits and goes away from it.
func leave(r *rig, cid, eid string, detach bool) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for e, err := range r.Stream(ctx, owner, r.sid, cid, api.RunRequest{Code: "wait('" + eid + "')\nprint('done')", ExecutionID: eid, Detach: detach, TimeoutMS: 60_000}) {
		if err != nil || e.Type != api.EventStarted {
			r.t.Fatalf("%+v, %v", e, err)
		}
		break
	}
}

// idle waits until a context runs nothing.
func idle(r *rig, cid string) {
	r.t.Helper()
	eventually(r.t, cid+" is idle", func() bool {
		c, err := r.Context(context.Background(), owner, r.sid, cid)
		return err == nil && c.RunningID == "" && c.ExecutionCount > 0
	})
}

func TestCellOfAClientThatIsGoneIsInterrupted(t *testing.T) {
	r := newRig(t, kernel.Config{DisconnectWait: 20 * time.Millisecond})
	leave(r, "default", "e", false)
	idle(r, "default")
	x, err := r.Wait(context.Background(), owner, r.sid, "default", "e")
	if err != nil || x.End != api.EndInterrupted || !x.StateSurvived {
		t.Errorf("it ended as %+v, %v", x, err)
	}
}

func TestSomebodyWhoComesBackKeepsTheCell(t *testing.T) {
	r := newRig(t, kernel.Config{DisconnectWait: 300 * time.Millisecond})
	ctx := context.Background()
	if _, err := r.CreateContext(ctx, owner, r.sid, api.CreateContextRequest{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	leave(r, "default", "e", false)
	attached := make(chan api.Execution, 1)
	go func() {
		var x api.Execution
		for e, err := range r.Attach(ctx, owner, r.sid, "default", "e", 0, true) {
			if err != nil {
				t.Error(err)
			}
			if e.Execution != nil {
				x = *e.Execution
			}
		}
		attached <- x
	}()
	// One that is left later, and that nobody comes back to, tells when the time
	// is over.
	leave(r, "other", "f", false)
	idle(r, "other")
	r.guest().Signal("e")
	if x := <-attached; x.End != api.EndOK {
		t.Errorf("it ended as %+v", x)
	}
}

func TestDetachedCellGoesOn(t *testing.T) {
	r := newRig(t, kernel.Config{DisconnectWait: time.Millisecond})
	if _, err := r.CreateContext(context.Background(), owner, r.sid, api.CreateContextRequest{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	leave(r, "default", "e", true)
	// Somebody looks and leaves again: it is still detached.
	ctx, cancel := context.WithCancel(context.Background())
	for e, err := range r.Attach(ctx, owner, r.sid, "default", "e", 0, true) {
		if err != nil || e.Type != api.EventStarted {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	cancel()
	leave(r, "other", "f", false)
	idle(r, "other") // one that was left later is interrupted already
	r.guest().Signal("e")
	if x, err := r.Wait(context.Background(), owner, r.sid, "default", "e"); err != nil || x.End != api.EndOK {
		t.Errorf("it ended as %+v, %v", x, err)
	}
}

func TestSandboxEndsInTheMiddle(t *testing.T) {
	for name, tc := range map[string]struct {
		cause func(r *rig) error
		end   api.End
		says  string
	}{
		"memory": {func(r *rig) error { r.host.End(r.sid, driver.Exit{Reason: "oom"}); return nil }, api.EndOOM, "memory"},
		"crash":  {func(r *rig) error { r.host.End(r.sid, driver.Exit{Reason: "crashed"}); return nil }, api.EndKernelDied, "crashed"},
		"ttl": {func(r *rig) error {
			r.ahead.Store(int64(time.Hour))
			return r.manager.Sweep(context.Background())
		}, api.EndKernelDied, "its time to live was over"},
		"kill": {func(r *rig) error { return r.manager.Kill(context.Background(), owner, r.sid) }, api.EndKernelDied, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, kernel.Config{})
			var last api.Event
			for e, err := range r.Stream(context.Background(), owner, r.sid, "default", api.RunRequest{Code: "print('1')\nwait('never')", ExecutionID: "e"}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type == api.EventStdout {
					if err := tc.cause(r); err != nil {
						t.Error(err)
					}
				}
				last = e
			}
			x := last.Execution
			if x == nil || x.End != tc.end || x.StateSurvived || x.Error == nil || !strings.Contains(*x.Error, tc.says) || x.ExecutionID != "e" || x.ExitCode != 1 {
				t.Errorf("%+v", x)
			}
			if last.Seq != 3 {
				t.Errorf("the end has number %d", last.Seq)
			}
		})
	}
}

func TestAttachFromANumber(t *testing.T) {
	r := newRig(t, kernel.Config{})
	r.run(api.RunRequest{Code: "print('1')\nprint('2')\nprint('3')", ExecutionID: "e"})
	for _, follow := range []bool{false, true} {
		var got []int64
		for e, err := range r.Attach(context.Background(), owner, r.sid, "default", "e", 2, follow) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Seq)
		}
		if !cmp.Equal(got, []int64{3, 4, 5}) {
			t.Errorf("events %v", got)
		}
	}
	for _, err := range r.Attach(context.Background(), owner, r.sid, "default", "unknown", 0, true) {
		if !errors.Is(err, fault.NotFound) {
			t.Errorf("an unknown execution: %v", err)
		}
	}
}

func TestOneShot(t *testing.T) {
	r := newRig(t, kernel.Config{})
	ctx := context.Background()
	for _, tc := range []struct {
		language, code string
		want           string
		out            string
		exit           int
	}{
		{"", "print('p')", "python", "p\n", 0},
		{"python3", "raise('E','v')", "python", "", 1},
		{"bash", "echo b", "bash", "b\n", 0},
		{"sh", "exit 3", "sh", "", 3},
		{"JavaScript", "echo js", "node", "js\n", 0},
	} {
		x, err := r.OneShot(ctx, owner, r.sid, tc.language, tc.code, 0)
		if err != nil || x.Language != tc.want || x.Stdout != tc.out || x.ExitCode != tc.exit {
			t.Errorf("%s %q: %+v, %v", tc.language, tc.code, x, err)
		}
	}
	if x, err := r.OneShot(ctx, owner, r.sid, "bash", "echo a; wait never", 20*time.Millisecond); err != nil || x.End != api.EndTimeout || x.Stdout != "a\n" {
		t.Errorf("at the deadline: %+v, %v", x, err)
	}
	if list, err := r.Contexts(ctx, owner, r.sid); err != nil || len(list) != 0 {
		t.Errorf("contexts stay: %+v, %v", list, err)
	}
	var f *fault.Error
	if _, err := r.OneShot(ctx, owner, r.sid, "pyton", "1", 0); !errors.As(err, &f) || f.Field != "language" || !strings.Contains(f.Hint, "python") {
		t.Errorf("an unknown language: %v", err)
	}
}

// A cell that was left to itself keeps its sandbox from being idle, and nothing
// else does.
func TestDetachedCellIsNotIdle(t *testing.T) {
	r := newRig(t, kernel.Config{})
	ctx := context.Background()
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	for e, err := range r.Stream(leaving, owner, r.sid, "default", api.RunRequest{Code: "wait('end')", ExecutionID: "detached", Detach: true}) {
		if e.Type == api.EventStarted {
			leave()
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if life, err := r.manager.Lifecycle(ctx, owner, r.sid); err != nil || life.IdleSeconds != 0 {
		t.Errorf("idle for %v s while a cell runs, %v", life.IdleSeconds, err)
	}
	r.host.Guest(r.sid).Signal("end")
	if _, err := r.Wait(ctx, owner, r.sid, "default", "detached"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is idle again", func() bool {
		life, err := r.manager.Lifecycle(ctx, owner, r.sid)
		if err != nil {
			t.Fatal(err)
		}
		return life.IdleSeconds > 0
	})
}

// A cell whose caller names no deadline ends at the default one, in a context
// and once, and what it had written is there.
func TestDefaultDeadlineIsKept(t *testing.T) {
	r := newRig(t, kernel.Config{DefaultTimeout: 50 * time.Millisecond})
	if x := r.run(api.RunRequest{Code: "print('so far')\nwait('never')"}); x.End != api.EndTimeout || x.Stdout != "so far\n" {
		t.Errorf("%+v", x)
	}
	for _, language := range []string{"python", "bash"} {
		code := map[string]string{"python": "wait('never')", "bash": "wait never"}[language]
		if x, err := r.OneShot(context.Background(), owner, r.sid, language, code, 0); err != nil || x.End != api.EndTimeout {
			t.Errorf("%s: %+v, %v", language, x, err)
		}
	}
}
