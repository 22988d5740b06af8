package fake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const redialPause = 2 * time.Millisecond

// Guest is the agent in a fake sandbox.
type Guest struct {
	inst *instance
	mux  *http.ServeMux

	mu       sync.Mutex
	contexts map[string]*kernel
	procs    []*process
	files    map[string][]byte
	signals  map[string]chan struct{} // what wait('name') waits for
	assigned []guestapi.AssignRequest
	conn     net.Conn
	paused   chan struct{} // closed when it goes on; nil when not paused
	last     int           // generation
	short    int64         // of memory, so often
	lines    []guestapi.LogLine
	ports    map[int]string // what listens, and where that is on this machine
	printed  chan struct{}  // closed and replaced with every line
	watches  map[string]*watched
}

func newGuest(i *instance, im image) *Guest {
	g := &Guest{inst: i, mux: http.NewServeMux(), contexts: map[string]*kernel{}, files: map[string][]byte{}, signals: map[string]chan struct{}{}, printed: make(chan struct{})}
	for path, b := range im.Files {
		g.files[path] = b
	}
	for id, vars := range im.Contexts {
		k := newKernel(g, api.CreateContextRequest{ID: id})
		k.vars = vars
		g.contexts[id] = k
	}
	g.routes()
	return g
}

// NewGuest makes a guest without a sandbox, for tests of the link alone. Run
// it with Dial.
func NewGuest() *Guest {
	life, stop := context.WithCancel(context.Background())
	i := &instance{host: NewHost(), done: make(chan struct{}), life: life, stop: stop}
	i.guest = newGuest(i, image{})
	return i.guest
}

// Dial keeps the guest linked to the socket in a folder until the context ends.
func (g *Guest) Dial(ctx context.Context, linkDir string) {
	g.inst.spec.LinkDir = linkDir
	g.run(ctx)
	g.inst.stop()
}

func (g *Guest) image() image {
	g.mu.Lock()
	defer g.mu.Unlock()
	im := image{Files: map[string][]byte{}, Contexts: map[string]map[string]string{}}
	for path, b := range g.files {
		im.Files[path] = slices.Clone(b)
	}
	for id, k := range g.contexts {
		im.Contexts[id] = k.variables()
	}
	return im
}

// Signal lets every wait of this name go on, now and later.
func (g *Guest) Signal(name string) {
	ch := g.signal(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (g *Guest) signal(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.signals[name]
	if ch == nil {
		ch = make(chan struct{})
		g.signals[name] = ch
	}
	return ch
}

// File gives the content of a file.
func (g *Guest) File(path string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return string(g.files[path])
}

// ShortOfMemory says how often memory was short.
func (g *Guest) ShortOfMemory(times int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.short = times
}

// Assigned gives what the host said after the restore.
func (g *Guest) Assigned() []guestapi.AssignRequest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.assigned)
}

// BreakLink cuts the connection; the guest dials again at once.
func (g *Guest) BreakLink() { g.breakLink() }

func (g *Guest) breakLink() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		g.conn.Close()
	}
}

func (g *Guest) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused == nil {
		g.paused = make(chan struct{})
	}
}

func (g *Guest) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paused != nil {
		close(g.paused)
		g.paused = nil
	}
}

// run keeps the guest linked.
func (g *Guest) run(ctx context.Context) {
	defer g.killAll()
	for ctx.Err() == nil {
		if err := g.link(ctx); err != nil {
			select {
			case <-time.After(redialPause):
			case <-ctx.Done():
			}
		}
	}
}

// link dials, shakes hands and serves until the connection breaks.
func (g *Guest) link(ctx context.Context) error {
	g.mu.Lock()
	generation := g.last
	g.mu.Unlock()
	conn, welcome, err := Dial(ctx, g.inst.spec.LinkDir, guestapi.Hello{Protocol: guestapi.Protocol, Generation: generation, BootID: "fake"})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	g.mu.Lock()
	g.conn, g.last = conn, welcome.Generation
	g.mu.Unlock()
	Serve(conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		paused := g.paused
		g.mu.Unlock()
		if paused != nil {
			select {
			case <-paused:
			case <-r.Context().Done():
				return
			}
		}
		if f := g.inst.host.broken().Cut; f != nil && f(r.Method, r.URL.Path) {
			gone, cancel := context.WithCancel(r.Context())
			cancel()
			g.mux.ServeHTTP(&unheard{header: http.Header{}}, r.WithContext(gone))
			conn.Close()
			return
		}
		if id := r.Header.Get("X-Request-Id"); id != "" {
			g.Print("stderr", "request "+id+" "+r.Method+" "+r.URL.Path)
		}
		g.mux.ServeHTTP(w, r)
	}))
	return nil
}

// Print adds a line to the guest's log.
func (g *Guest) Print(stream, line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lines = append(g.lines, guestapi.LogLine{Seq: int64(len(g.lines) + 1), Time: time.Now().UTC(), Stream: stream, Line: line})
	close(g.printed)
	g.printed = make(chan struct{})
}

func (g *Guest) getLog(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.Atoi(r.URL.Query().Get("after"))
	if err != nil {
		return fault.InvalidField("after", "after is no number")
	}
	enc := json.NewEncoder(w)
	for {
		g.mu.Lock()
		lines, printed := slices.Clone(g.lines[min(after, len(g.lines)):]), g.printed
		g.mu.Unlock()
		for _, l := range lines {
			after = int(l.Seq)
			if err := enc.Encode(l); err != nil {
				return nil // the host is gone
			}
		}
		http.NewResponseController(w).Flush()
		if r.URL.Query().Get("follow") != "1" {
			return nil
		}
		select {
		case <-printed:
		case <-r.Context().Done():
			return nil
		}
	}
}

// unheard takes an answer that nobody gets.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}

// Dial does the guest's half of the handshake.
func Dial(ctx context.Context, linkDir string, hello guestapi.Hello) (net.Conn, guestapi.Welcome, error) {
	var welcome guestapi.Welcome
	dir, err := os.Open(linkDir)
	if err != nil {
		return nil, welcome, err
	}
	defer dir.Close()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(guestapi.LinkSocket)))
	if err != nil {
		return nil, welcome, err
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	b, err := json.Marshal(hello)
	if err == nil {
		_, err = conn.Write(append(b, '\n'))
	}
	if err == nil {
		// The host is silent after its line until it is spoken to in HTTP, but
		// may speak at once: so read one byte at a time.
		var line []byte
		if line, err = readLine(conn); err == nil {
			err = json.Unmarshal(line, &welcome)
		}
	}
	if err == nil && welcome.Error != "" {
		err = errors.New(welcome.Error)
	}
	if err != nil {
		conn.Close()
		return nil, welcome, err
	}
	return conn, welcome, nil
}

func readLine(conn net.Conn) ([]byte, error) {
	var line []byte
	var b [1]byte
	for len(line) < guestapi.MaxHandshake {
		if _, err := conn.Read(b[:]); err != nil {
			return nil, err
		}
		if b[0] == '\n' {
			return line, nil
		}
		line = append(line, b[0])
	}
	return nil, bufio.ErrTooLong
}

// Serve speaks HTTP/2 as the server on one connection, until it breaks.
func Serve(conn net.Conn, h http.Handler) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	l := &oneConn{conn: conn, done: make(chan struct{})}
	s := &http.Server{Handler: h, Protocols: &protocols, ConnState: func(_ net.Conn, st http.ConnState) {
		if st == http.StateClosed || st == http.StateHijacked {
			l.Close()
		}
	}}
	_ = s.Serve(l)
}

// oneConn is a listener with one connection to give.
type oneConn struct {
	mu   sync.Mutex
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	l.mu.Lock()
	c := l.conn
	l.conn = nil
	l.mu.Unlock()
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func (g *Guest) routes() {
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
		g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := f(w, r); err != nil {
				fail(w, err)
			}
		})
	}
	handle("GET /health", func(w http.ResponseWriter, r *http.Request) error {
		busy := slices.ContainsFunc(g.kernels(), func(k *kernel) bool { info := k.info(); return info.State == "busy" || info.Queued > 0 })
		g.mu.Lock()
		defer g.mu.Unlock()
		return answer(w, guestapi.Health{Ready: true, Contexts: len(g.contexts), Processes: len(g.procs), Busy: busy, MemoryHits: g.short})
	})
	handle("GET /log", g.getLog)
	handle("GET /watches/{id}", g.watch)
	handle("POST /assign", g.assign)
	handle("POST /hooks/snapshot", func(w http.ResponseWriter, r *http.Request) error { return answer(w, nil) })
	handle("GET /contexts", func(w http.ResponseWriter, r *http.Request) error {
		out := []api.Context{}
		for _, k := range g.kernels() {
			out = append(out, k.info())
		}
		return answer(w, out)
	})
	handle("POST /contexts", g.createContext)
	handle("GET /contexts/{cid}", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error { return answer(w, k.info()) }))
	handle("DELETE /contexts/{cid}", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		g.mu.Lock()
		delete(g.contexts, k.id)
		g.mu.Unlock()
		k.close()
		return answer(w, nil)
	}))
	handle("POST /contexts/{cid}/interrupt", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		k.interrupt("")
		return answer(w, nil)
	}))
	handle("POST /contexts/{cid}/restart", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		k.restart()
		return answer(w, k.info())
	}))
	handle("POST /contexts/{cid}/fork", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		var req guestapi.ForkRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		var resp guestapi.ForkResponse
		for _, id := range req.IDs {
			c := k.copy(id)
			g.mu.Lock()
			g.contexts[id] = c
			g.mu.Unlock()
			resp.Contexts = append(resp.Contexts, c.info())
		}
		return answer(w, resp)
	}))
	handle("POST /contexts/{cid}/executions", onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		var req guestapi.RunRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		e, err := k.submit(req)
		if err != nil {
			return err
		}
		return e.log.stream(w, r, req.After, req.Follow)
	}))
	handle("GET /contexts/{cid}/executions/{eid}", onExecution(g, func(w http.ResponseWriter, r *http.Request, k *kernel, e *execution) error {
		return e.log.stream(w, r, number(r, "after"), r.FormValue("follow") == "1")
	}))
	handle("POST /contexts/{cid}/executions/{eid}/interrupt", onExecution(g, func(w http.ResponseWriter, r *http.Request, k *kernel, e *execution) error {
		k.interrupt(e.id)
		return answer(w, nil)
	}))
	handle("GET /ports", g.listPorts)
	handle("POST /packages", func(w http.ResponseWriter, r *http.Request) error { return answer(w, nil) })
	handle("POST /trust", func(w http.ResponseWriter, r *http.Request) error { return answer(w, nil) })
	handle("POST /flows", g.flow)
	g.processRoutes(handle)
	g.fileRoutes(handle)
}

func (g *Guest) assign(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.AssignRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return fault.InvalidField("", "%v", err)
	}
	steps := []guestapi.Step{{Name: "clock", OK: true}, {Name: "random", OK: true}, {Name: "env", OK: true}, {Name: "hostname", OK: true}}
	if f := g.inst.host.broken().Assign; f != nil {
		if err := f(g.inst.spec.ID); err != nil {
			steps[1] = guestapi.Step{Name: "random", Detail: err.Error()}
		}
	}
	g.mu.Lock()
	g.assigned = append(g.assigned, req)
	g.mu.Unlock()
	return answer(w, guestapi.AssignResponse{Steps: steps})
}

func (g *Guest) createContext(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateContextRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return fault.InvalidField("", "%v", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.contexts[req.ID] != nil {
		return fault.New(api.CodeConflict, "context %s exists already", req.ID)
	}
	if len(g.contexts) >= guestapi.MaxContexts {
		return fault.New(api.CodeRateLimited, "there are %d contexts already", len(g.contexts))
	}
	k := newKernel(g, req)
	g.contexts[req.ID] = k
	return answer(w, k.info())
}

func (g *Guest) kernels() []*kernel {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []*kernel{}
	for _, k := range g.contexts {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b *kernel) int { return a.created.Compare(b.created) })
	return out
}

func (g *Guest) killAll() {
	for _, k := range g.kernels() {
		k.close()
	}
	g.mu.Lock()
	procs := slices.Clone(g.procs)
	g.mu.Unlock()
	for _, p := range procs {
		p.kill("SIGKILL", api.ReasonSignaled)
	}
}

func onKernel(g *Guest, f func(http.ResponseWriter, *http.Request, *kernel) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		g.mu.Lock()
		k := g.contexts[r.PathValue("cid")]
		g.mu.Unlock()
		if k == nil {
			return fault.New(api.CodeNotFound, "there is no context %q", r.PathValue("cid"))
		}
		return f(w, r, k)
	}
}

func onExecution(g *Guest, f func(http.ResponseWriter, *http.Request, *kernel, *execution) error) func(http.ResponseWriter, *http.Request) error {
	return onKernel(g, func(w http.ResponseWriter, r *http.Request, k *kernel) error {
		e := k.find(r.PathValue("eid"))
		if e == nil {
			return fault.New(api.CodeNotFound, "there is no execution %q", r.PathValue("eid"))
		}
		return f(w, r, k, e)
	})
}

func number(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.FormValue(name), 10, 64) // 0 will do
	return n
}

func answer(w http.ResponseWriter, v any) error {
	if v == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, err error) {
	e := api.Error{Message: err.Error(), Code: fault.CodeOf(err)}
	var f *fault.Error
	if errors.As(err, &f) {
		e.Field, e.Hint = f.Field, f.Hint
	}
	status := map[api.Code]int{api.CodeInvalid: 400, api.CodeNotFound: 404, api.CodeConflict: 409, api.CodeRateLimited: 429, api.CodeTooLarge: 413}[e.Code]
	if status == 0 {
		status = 500
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(e) // the connection may be gone
}

// crash ends the whole sandbox.
func (g *Guest) crash(reason string) {
	g.inst.end(driver.Exit{Code: 137, Reason: reason, Detail: "as the test asked for"})
}
