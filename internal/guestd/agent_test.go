package guestd_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

// There is one reaper per process, and it inherits orphans as pid 1 does.
var reaper = func() *child.Reaper {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	return child.NewReaper()
}()

// sandbox is an agent with the host's end of its link.
type sandbox struct {
	*testing.T
	dir    string
	cfg    guestd.Config
	host   *host
	client *http.Client
}

// host is the other end of links: it accepts them and is the HTTP client.
type host struct {
	ln      net.Listener
	mu      sync.Mutex
	conn    net.Conn // the newest, until it is in use
	all     []net.Conn
	hello   guestapi.Hello
	linked  int
	changed chan struct{}
	refuse  string
	only    int // the one version that it speaks; 0: as the agent
}

func newHost(t *testing.T, path string) *host {
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{ln: ln, changed: make(chan struct{})}
	t.Cleanup(func() { ln.Close() })
	go h.serve(ln)
	return h
}

func (h *host) serve(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		r := bufio.NewReader(conn)
		line, err := r.ReadBytes('\n')
		if err != nil {
			conn.Close()
			continue
		}
		h.mu.Lock()
		_ = json.Unmarshal(line, &h.hello)
		h.linked++
		welcome := guestapi.Welcome{Protocol: guestapi.Protocol, Generation: h.linked, Error: h.refuse}
		if h.only > 0 { // a host that knows one version
			welcome.Protocol = h.only
			if h.hello.Protocol != h.only {
				welcome.Error = "another version"
			}
		}
		b, _ := json.Marshal(welcome)
		conn.Write(append(b, '\n'))
		if welcome.Error == "" {
			h.conn = conn
			h.all = append(h.all, conn)
		}
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

// wait waits until ok holds.
func (h *host) wait(ok func() bool) {
	for {
		h.mu.Lock()
		done, changed := ok(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		<-changed
	}
}

// dial hands the newest link to an HTTP client.
func (h *host) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.wait(func() bool { return h.conn != nil })
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conn
	h.conn = nil
	return c, nil
}

func start(t *testing.T, change ...func(*guestd.Config)) *sandbox {
	t.Helper()
	dir := t.TempDir()
	fake, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(etc, "passwd"), "root:x:0:0:root:/root:/bin/bash\npanda:x:1234:1234:Panda:/tmp:/bin/sh\n")
	write(t, filepath.Join(etc, "group"), "root:x:0:\npanda:x:1234:\nbamboo:x:555:panda\n")
	cfg := guestd.Config{
		Link:           filepath.Join(dir, "link.sock"),
		Programs:       fake,
		Workspace:      filepath.Join(dir, "workspace"),
		OutputDir:      filepath.Join(dir, "log"),
		GenerationFile: filepath.Join(dir, "generation"),
		HookDir:        filepath.Join(dir, "hooks"),
		Etc:            etc,
		Root:           filepath.Join(dir, "root"),
		ProcNet:        "/proc/net",
		Console:        guestd.NewConsole(devNull(t)),
		Log:            slog.New(slog.DiscardHandler),
		Reaper:         reaper,
		Memory:         func() (int64, int64, error) { return 0, 1 << 40, nil },
		Tasks:          func() int { return 20 }, // the host's own would be counted
	}
	for _, f := range change {
		f(&cfg)
	}
	h := newHost(t, cfg.Link)
	agent, err := guestd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	transport := &http.Transport{DialContext: h.dial, Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		<-ended
	})
	return &sandbox{T: t, dir: dir, cfg: cfg, host: h, client: &http.Client{Transport: transport}}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// request sends a request and returns the answer, whatever it is.
func (s *sandbox) request(method, path string, body any) *http.Response {
	s.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		r = b
	case string:
		r = strings.NewReader(b)
	default:
		j, err := json.Marshal(b)
		if err != nil {
			s.Fatal(err)
		}
		r = bytes.NewReader(j)
	}
	req, err := http.NewRequest(method, "http://guest"+path, r)
	if err != nil {
		s.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// do sends a request that must succeed and reads the answer into out.
func (s *sandbox) do(method, path string, body, out any) {
	s.Helper()
	resp := s.request(method, path, body)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		s.Fatalf("%s %s: %s: %s", method, path, resp.Status, b)
	}
	switch out := out.(type) {
	case nil:
	case *[]byte:
		*out = b
	default:
		if err := json.Unmarshal(b, out); err != nil {
			s.Fatalf("%s %s: %v: %s", method, path, err, b)
		}
	}
}

// fails sends a request that must fail with a code, and returns the error.
func (s *sandbox) fails(method, path string, body any, status int, code api.Code) api.Error {
	s.Helper()
	resp := s.request(method, path, body)
	defer resp.Body.Close()
	var e api.Error
	b, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(b, &e); err != nil || resp.StatusCode != status || e.Code != code {
		s.Errorf("%s %s: got %s %.300s, want %d %s", method, path, resp.Status, b, status, code)
	}
	return e
}

// events reads a stream of events to its end.
func (s *sandbox) events(resp *http.Response) []api.Event {
	s.Helper()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		s.Fatalf("%s: %s", resp.Status, b)
	}
	var list []api.Event
	r := bufio.NewReader(resp.Body)
	for {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var ev api.Event
			if err := json.Unmarshal(line, &ev); err != nil {
				s.Fatalf("%v: %.200s", err, line)
			}
			list = append(list, ev)
		}
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			s.Fatal(err)
		}
	}
}

func text(events []api.Event, typ string) string {
	var b strings.Builder
	for _, ev := range events {
		if ev.Type == typ {
			b.WriteString(ev.Text)
			b.Write(ev.Raw)
		}
	}
	return b.String()
}

// shell runs a shell command to its end.
func (s *sandbox) shell(cmd string, change ...func(*guestapi.StartProcess)) ([]api.Event, api.Exit) {
	s.Helper()
	p := s.start(cmd, change...)
	return s.finish(p)
}

func (s *sandbox) start(cmd string, change ...func(*guestapi.StartProcess)) api.Process {
	s.Helper()
	req := guestapi.StartProcess{Argv: []string{"/bin/bash", "-c", cmd}}
	for _, f := range change {
		f(&req)
	}
	var p api.Process
	s.do("POST", "/processes", req, &p)
	return p
}

func (s *sandbox) finish(p api.Process) ([]api.Event, api.Exit) {
	s.Helper()
	events := s.events(s.request("GET", fmt.Sprintf("/processes/%d/events?follow=1", p.PID), nil))
	if len(events) == 0 || events[len(events)-1].Exit == nil {
		s.Fatalf("no exit: %+v", events)
	}
	return events, *events[len(events)-1].Exit
}

func (s *sandbox) warm(change ...func(*guestapi.WarmRequest)) guestapi.WarmResponse {
	s.Helper()
	req := guestapi.WarmRequest{Python: "/usr/bin/python3", Imports: []string{"json"}}
	for _, f := range change {
		f(&req)
	}
	var resp guestapi.WarmResponse
	s.do("POST", "/warm", req, &resp)
	return resp
}

func (s *sandbox) context(id string) api.Context {
	s.Helper()
	var c api.Context
	s.do("POST", "/contexts", api.CreateContextRequest{ID: id}, &c)
	return c
}

func newID() string { return fmt.Sprintf("e-%x", randomBytes(8)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func (s *sandbox) run(cid, code string, change ...func(*guestapi.RunRequest)) ([]api.Event, api.Execution) {
	s.Helper()
	req := guestapi.RunRequest{ExecutionID: newID(), Code: code, TimeoutMS: 60_000, Follow: true}
	for _, f := range change {
		f(&req)
	}
	return s.ended(s.events(s.request("POST", "/contexts/"+cid+"/executions", req)))
}

func (s *sandbox) ended(events []api.Event) ([]api.Event, api.Execution) {
	s.Helper()
	if len(events) == 0 || events[len(events)-1].Execution == nil {
		s.Fatalf("no end: %+v", events)
	}
	return events, *events[len(events)-1].Execution
}

// eventually waits until ok holds, which depends on processes of the system.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("it never came true: %s", what)
}

// breakLink closes the host's end of the newest link and waits for the next.
func (s *sandbox) breakLink() {
	s.Helper()
	s.host.mu.Lock()
	before := s.host.linked
	for _, c := range s.host.all {
		c.Close()
	}
	s.host.all, s.host.conn = nil, nil
	s.host.mu.Unlock()
	s.host.wait(func() bool { return s.host.linked > before })
}

// memoryGauge is what the sandbox uses, as far as the watchdog is told.
type memoryGauge struct {
	mu   sync.Mutex
	used int64
	drop bool
}

func (g *memoryGauge) set(n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used = n
}

// dropAfterNextRead makes the memory free once it was seen to be used up.
func (g *memoryGauge) dropAfterNextRead() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop = true
}

func (g *memoryGauge) read() (used, total int64, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	used = g.used
	if g.drop && used > 0 {
		g.used, g.drop = 0, false
	}
	return used, 1 << 40, nil
}

func devNull(t *testing.T) *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
