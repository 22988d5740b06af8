package tools

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// Secrets gives the values that are added to requests. It is network.Secrets.
type Secrets interface {
	Value(ctx context.Context, owner, name string) (string, error)
}

// Options is what a Service works with. Zero values mean the defaults beside them.
type Options struct {
	Store    Store
	Secrets  Secrets
	Declared api.Tools // by the server's settings; sandboxes name them in use
	Own      []Tool    // functions of the daemon itself, that sandboxes name in use
	Log      *slog.Logger
	Audit    io.Writer         // gets a line of JSON for each call; default none
	Client   http.RoundTripper // to services; default one of its own, which follows no redirect to another host
	Now      func() time.Time
}

// Service has the tools of all sandboxes of a daemon.
type Service struct {
	o    Options
	log  *slog.Logger
	http *http.Client

	mu     sync.Mutex
	came   chan struct{}                         // closed and replaced when a program connects
	boxes  map[string]*box                       // by sandbox
	conns  map[string]*Connection                // of programs, by sandbox or by agent's run
	loaded map[string]*loaded                    // sources that were looked at lately, by what they are
	waits  map[string]chan api.Approval          // for decisions, by approval
	runs   map[string]map[chan api.Approval]bool // who wants to hear of approvals, by agent's run

	auditing sync.Mutex
}

// box is what is known of one sandbox.
type box struct {
	making   chan struct{} // holds a token while the set is made, which services take part in
	checking sync.Mutex    // held while arguments are held against a schema: a sandbox has one core for that

	mu      sync.Mutex
	from    *api.Tools // what the set was made from, or the same in other memory
	digest  string     // of that
	set     *set
	calls   int
	limit   *rate.Limiter
	places  chan struct{}
	lines   []api.ToolCall // the last ones
	met     bool           // a program was connected for it, or was waited for
	held    time.Duration  // in which calls waited for decisions, all together
	holds   int
	since   time.Time
	advice  []api.AgentAdvice // what reading the cell that runs noticed
	reading chan struct{}     // closed when that is known; nil where no cell is read
	run     string            // the agent's run that it belongs to
	ended   bool
}

// set is the tools of one sandbox.
type set struct {
	tools  []*Tool
	byName map[string]*Tool
	close  []func()
}

func (s *set) end() {
	for _, f := range s.close {
		f()
	}
}

const (
	atOnce    = 128  // calls of one sandbox that are carried out; more wait
	keepLines = 1000 // of the log of one sandbox, at least; twice as many at most
	maxAnswer = guestapi.MaxCallAnswer - 4096
)

// New makes a Service. It checks what the settings declare.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Client == nil {
		o.Client = &http.Transport{
			Proxy: nil, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: maxTimeout, ForceAttemptHTTP2: true,
		}
	}
	if err := check(&o.Declared, true); err != nil {
		return nil, err
	}
	if len(o.Declared.Functions) > 0 || len(o.Declared.Use) > 0 {
		return nil, fault.InvalidField("tools", "the settings declare http and mcp, and a policy; functions come from programs that connect")
	}
	for i := range o.Own {
		o.Own[i].stub = newStub(o.Own[i])
	}
	return &Service{
		o: o, log: o.Log, came: make(chan struct{}), boxes: map[string]*box{}, conns: map[string]*Connection{}, loaded: map[string]*loaded{},
		waits: map[string]chan api.Approval{}, runs: map[string]map[chan api.Approval]bool{},
		http: &http.Client{Transport: o.Client, CheckRedirect: sameHost},
	}, nil
}

// sameHost keeps headers with secrets at the host that they are meant for.
func sameHost(req *http.Request, via []*http.Request) error {
	if len(via) > 5 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// Close ends the programs that it started.
func (s *Service) Close() {
	s.mu.Lock()
	boxes := s.boxes
	s.boxes = map[string]*box{}
	s.mu.Unlock()
	for _, b := range boxes {
		b.end()
	}
}

func (b *box) end() {
	b.mu.Lock()
	set := b.set
	b.set, b.ended = nil, true
	b.mu.Unlock()
	if set != nil {
		set.end()
	}
}

// Plan checks what a sandbox is to be given, looking at the services and servers
// that it names, and gives what is to be kept. The error names the field at fault.
func (s *Service) Plan(ctx context.Context, owner string, t *api.Tools) (*api.Tools, error) {
	if t == nil {
		return nil, nil
	}
	if err := check(t, false); err != nil {
		return nil, err
	}
	for _, name := range t.Use {
		if !s.Declares(name) {
			return nil, fault.InvalidField("tools.use", "this server declares no tools %.80q", name).WithHint("declared are: %s", strings.Join(s.names(), ", "))
		}
	}
	set, err := s.resolve(ctx, owner, "", t)
	if err != nil {
		return nil, err
	}
	set.end()
	return t, nil
}

// Check refuses tools that no caller could have given, such as a program to start,
// without looking whether what they name is here.
func (s *Service) Check(t *api.Tools) error { return check(t, false) }

// Declares tells whether a namespace can be named in use.
func (s *Service) Declares(space string) bool {
	_, isHTTP := s.o.Declared.HTTP[space]
	_, isMCP := s.o.Declared.MCP[space]
	return isHTTP || isMCP || s.own(space)
}

// own tells whether the daemon has functions in a namespace.
func (s *Service) own(space string) bool {
	return slices.ContainsFunc(s.o.Own, func(t Tool) bool { return t.Name == space || strings.HasPrefix(t.Name, space+".") })
}

// names are the namespaces that the settings declare.
func (s *Service) names() []string {
	var out []string
	for n := range s.o.Declared.HTTP {
		out = append(out, n)
	}
	for n := range s.o.Declared.MCP {
		out = append(out, n)
	}
	for _, t := range s.o.Own {
		if space, _, _ := strings.Cut(t.Name, "."); !slices.Contains(out, space) {
			out = append(out, space)
		}
	}
	slices.Sort(out)
	return out
}

// resolve makes the tools of a sandbox.
func (s *Service) resolve(ctx context.Context, owner, sandbox string, t *api.Tools) (out *set, err error) {
	out = &set{byName: map[string]*Tool{}}
	defer func() {
		if err != nil {
			out.end()
		}
	}()
	add := func(field string, tools []Tool) error {
		for _, one := range tools {
			if out.byName[one.Name] != nil {
				return fault.InvalidField(field, "there are two tools %s", one.Name)
			}
			if one.stub.Source == "" {
				one.stub = newStub(one)
			}
			if one.schema == nil && len(one.Parameters) > 0 {
				one.schema = compiled(one.Parameters)
			}
			out.tools = append(out.tools, &one)
			out.byName[one.Name] = &one
		}
		if len(out.tools) > maxTools {
			return fault.InvalidField(field, "there are more than %d tools", maxTools).WithHint("name those that are needed in include")
		}
		return nil
	}
	if err := add("tools.functions", s.functions(t.Functions)); err != nil {
		return out, err
	}
	for name, h := range t.HTTP {
		tools, err := s.httpTools(ctx, owner, name, h)
		if err == nil {
			err = add("tools.http."+name, tools)
		}
		if err != nil {
			return out, err
		}
	}
	for name, m := range t.MCP {
		if err := s.addMCP(ctx, owner, sandbox, name, m, out, add); err != nil {
			return out, err
		}
	}
	for _, name := range t.Use {
		var own []Tool
		for _, one := range s.o.Own {
			if one.Name == name || strings.HasPrefix(one.Name, name+".") {
				own = append(own, one)
			}
		}
		err := add("tools.use", own)
		if h, ok := s.o.Declared.HTTP[name]; ok && err == nil {
			var tools []Tool
			if tools, err = s.httpTools(ctx, owner, name, h); err == nil {
				err = add("tools.use", tools)
			}
		}
		if m, ok := s.o.Declared.MCP[name]; ok && err == nil {
			err = s.addMCP(ctx, owner, sandbox, name, m, out, add)
		}
		if err != nil {
			return out, err
		}
	}
	slices.SortFunc(out.tools, func(a, b *Tool) int { return strings.Compare(a.Name, b.Name) })
	for _, one := range out.tools {
		if other, _, in := strings.Cut(one.Name, "."); in && out.byName[other] != nil {
			return out, fault.InvalidField("tools", "%s is the name of a function and of a namespace", other)
		}
	}
	return out, nil
}

// box gives what is known of a sandbox.
func (s *Service) box(id string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil {
		b = &box{making: make(chan struct{}, 1), places: make(chan struct{}, atOnce)}
		s.boxes[id] = b
	}
	return b
}

// known is box for one that was called or attached before, nil of others.
func (s *Service) known(id string) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[id]
}

// Forget says that a sandbox has ended.
func (s *Service) Forget(id string) {
	s.mu.Lock()
	b, c := s.boxes[id], s.conns[id]
	delete(s.boxes, id)
	delete(s.conns, id)
	s.mu.Unlock()
	if b != nil {
		b.end()
	}
	if c != nil {
		c.end(errors.New("the sandbox has ended"))
	}
	if b != nil && s.o.Store != nil {
		if err := s.o.Store.CancelApprovals(context.Background(), id, s.o.Now()); err != nil {
			s.log.Error("the approvals of a sandbox that has ended stay open", "sandbox", id, "error", err)
		}
	}
}

// tools gives the tools of a sandbox as its row has them now.
func (s *Service) tools(ctx context.Context, sb store.Sandbox) (*box, *set, error) {
	switch sb.State {
	case store.Stopping, store.Deleted, store.Failed: // it may be forgotten by now, and would be for ever
		return nil, nil, errEnded()
	}
	b := s.box(sb.ID)
	t := sb.Tools
	if t == nil {
		t = &api.Tools{}
	}
	if set := b.madeFrom(t); set != nil {
		return b, set, nil
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return b, nil, err
	}
	sum := sha256.Sum256(raw)
	digest := hex.EncodeToString(sum[:])
	if set := b.made(digest, t); set != nil {
		return b, set, nil
	}
	select {
	case b.making <- struct{}{}:
		defer func() { <-b.making }()
	case <-ctx.Done():
		return b, nil, context.Cause(ctx)
	}
	if set := b.made(digest, t); set != nil {
		return b, set, nil
	}
	set, err := s.resolve(ctx, sb.Owner, sb.ID, t)
	if err != nil {
		return b, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		set.end()
		return b, nil, errEnded()
	}
	if b.set != nil {
		b.set.end()
	}
	b.set, b.digest, b.from, b.limit = set, digest, t, nil
	if r := t.Policy.Rate; r > 0 {
		b.limit = rate.NewLimiter(rate.Limit(r), max(1, int(r)))
	}
	return b, set, nil
}

func errEnded() error { return failed(KindUnavailable, "the sandbox has ended") }

// madeFrom gives the set that was made from these very tools, which nobody
// changes where they are: most calls find it without looking into them.
func (b *box) madeFrom(t *api.Tools) *set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from != t {
		return nil
	}
	return b.set
}

// made gives the set that was made from what has this digest, nil when it was
// made from something else.
func (b *box) made(digest string, t *api.Tools) *set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.digest != digest {
		return nil
	}
	b.from = t
	return b.set
}

// Show lists the tools of a sandbox.
func (s *Service) Show(ctx context.Context, sb store.Sandbox) (api.ToolList, error) {
	out := api.ToolList{Tools: []api.ToolInfo{}}
	if sb.Tools != nil {
		out.Policy = sb.Tools.Policy
	}
	_, set, err := s.tools(ctx, sb)
	if err != nil {
		return out, err
	}
	connected := s.connection(sb) != nil
	for _, t := range set.tools {
		out.Tools = append(out.Tools, api.ToolInfo{
			Name: t.Name, Source: t.Source, Description: t.Description, Signature: t.stub.Signature, Parameters: t.Parameters, Risky: t.Risky,
			Connected: t.Source != "function" || connected,
		})
	}
	return out, nil
}

// Caller answers what programs in a sandbox call; row gives its row as it is then.
func (s *Service) Caller(row func() store.Sandbox) guest.Caller { return &calling{s, row} }

type calling struct {
	s   *Service
	row func() store.Sandbox
}

var _ guest.Caller = (*calling)(nil)

// asked is what a program in a sandbox says.
type asked struct {
	Op        string          `json:"op"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

// Call implements guest.Caller.
func (c *calling) Call(ctx context.Context, head guestapi.CallHead, request []byte, held func(bool)) []byte {
	var a asked
	if err := json.Unmarshal(request, &a); err != nil {
		return answerError(failed(KindInvalid, "the call is no JSON: %v", err))
	}
	sb := c.row()
	switch a.Op {
	case "list":
		return c.s.catalogue(ctx, sb)
	case "call":
		value, err := c.s.call(ctx, sb, head, a, held)
		if err != nil {
			return answerError(asError(err))
		}
		return slices.Concat([]byte(`{"value":`), value, []byte("}"))
	}
	return answerError(failed(KindInvalid, "there is no operation %.40q", a.Op))
}

func answerError(e *Error) []byte {
	raw, _ := json.Marshal(map[string]*Error{"error": e})
	return raw
}

// catalogue is what a sandbox is told of its tools.
func (s *Service) catalogue(ctx context.Context, sb store.Sandbox) []byte {
	_, set, err := s.tools(ctx, sb)
	if err != nil {
		return answerError(asError(err))
	}
	stubs := make([]stub, 0, len(set.tools))
	for _, t := range set.tools {
		stubs = append(stubs, t.stub)
	}
	raw, err := json.Marshal(map[string]any{"value": map[string]any{"tools": stubs}})
	if err != nil || len(raw) > maxAnswer {
		return answerError(failed(KindTooLarge, "the tools of this sandbox are too many to be listed"))
	}
	return raw
}

// call carries out one call, and writes it down.
func (s *Service) call(ctx context.Context, sb store.Sandbox, head guestapi.CallHead, a asked, held func(bool)) (json.RawMessage, error) {
	began := s.o.Now()
	line := api.ToolCall{
		ID: newID("tc-"), SandboxID: sb.ID, ContextID: head.Context, ExecutionID: head.ExecutionID, Tool: cut(a.Tool, 160), Time: began.UTC(), Kind: "ok",
	}
	value, err := s.decideAndDo(ctx, sb, head, a, &line, held)
	line.DurationMS = float64(s.o.Now().Sub(began).Microseconds()) / 1000
	line.Bytes = len(value)
	if err != nil {
		e := asError(err)
		line.Kind, line.Why = e.Kind, cut(e.Message, 500)
		if ctx.Err() != nil {
			line.Kind = KindInterrupted
		}
	}
	s.note(sb.ID, line)
	return value, err
}

func (s *Service) decideAndDo(ctx context.Context, sb store.Sandbox, head guestapi.CallHead, a asked, line *api.ToolCall, held func(bool)) (json.RawMessage, error) {
	b, set, err := s.tools(ctx, sb)
	if err != nil {
		return nil, err
	}
	t := set.byName[a.Tool]
	if t == nil {
		return nil, failed(KindNotFound, "there is no tool %.160q", a.Tool)
	}
	var policy api.ToolPolicy
	if sb.Tools != nil {
		policy = sb.Tools.Policy
	}
	if len(a.Arguments) == 0 {
		a.Arguments = json.RawMessage("{}")
	}
	b.checking.Lock()
	a.Arguments, err = checkArguments(t, a.Arguments)
	b.checking.Unlock()
	if err != nil {
		return nil, err
	}
	if err := b.count(policy); err != nil {
		return nil, err
	}
	f := facts{tool: t, arguments: a.Arguments}
	if slices.ContainsFunc(policy.Rules, func(r api.ToolRule) bool { return r.Advice != "" }) {
		f.unread = !b.read(ctx)
	}
	f.advice = b.noticed()
	action, rule := decide(policy, f)
	line.Rule = rule
	switch action {
	case api.RuleDeny:
		return nil, failed(KindDenied, "the policy of this sandbox denies it (%s)", rule)
	case api.RuleAsk:
		decided, err := s.ask(ctx, sb, b, head, t, a.Arguments, policy, rule, held)
		line.By = decided.By
		if err != nil {
			return nil, err
		}
	}
	limit := t.Timeout
	if limit == 0 {
		limit = seconds(policy.TimeoutSeconds, defaultTimeout)
	}
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	case <-ctx.Done():
		return nil, failed(KindInterrupted, "the cell was interrupted before the call began")
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	value, err := t.Do(limited, Call{
		ID: line.ID, Owner: sb.Owner, SandboxID: sb.ID, ContextID: head.Context, ExecutionID: head.ExecutionID, Tool: t.Name, Arguments: a.Arguments,
	})
	switch {
	case ctx.Err() != nil:
		return nil, failed(KindInterrupted, "the call was interrupted; whether it was carried out is not known")
	case limited.Err() != nil && err != nil:
		return nil, failed(KindTimeout, "it did not answer within %v; whether it was carried out is not known", limit)
	case err != nil:
		return nil, err
	case len(value) == 0:
		return json.RawMessage("null"), nil
	case len(value) > maxAnswer:
		return nil, failed(KindTooLarge, "its result has %d bytes of JSON; at most %d are passed on", len(value), maxAnswer).hint("ask for less, or in parts")
	case !json.Valid(value):
		return nil, failed(KindBadResult, "its result is no JSON: %.100q", value)
	}
	return value, nil
}

// count holds a sandbox to how many calls it may make.
func (b *box) count(p api.ToolPolicy) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.MaxCalls > 0 && b.calls >= p.MaxCalls {
		return failed(KindRateLimited, "this sandbox has made its %d calls of tools (policy.max_calls)", p.MaxCalls)
	}
	if b.limit != nil && !b.limit.Allow() {
		return failed(KindRateLimited, "this sandbox may make %v calls of tools a second (policy.rate)", p.Rate).hint("wait, and try again")
	}
	b.calls++
	return nil
}

func seconds(n float64, def time.Duration) time.Duration {
	if n <= 0 {
		return def
	}
	return time.Duration(n * float64(time.Second))
}

// note writes down a call.
func (s *Service) note(id string, line api.ToolCall) {
	if b := s.known(id); b != nil { // the sandbox has not ended meanwhile
		b.mu.Lock()
		if b.lines = append(b.lines, line); len(b.lines) == 2*keepLines { // not for each: that copied all of them
			b.lines = slices.Clone(b.lines[len(b.lines)-keepLines:])
		}
		b.mu.Unlock()
	}
	if s.o.Audit == nil {
		return
	}
	raw, err := json.Marshal(line)
	if err == nil {
		s.auditing.Lock()
		_, err = s.o.Audit.Write(append(raw, '\n'))
		s.auditing.Unlock()
	}
	if err != nil {
		s.log.Error("a call of a tool is not in the log", "sandbox", id, "tool", line.Tool, "error", err)
	}
}

// Calls gives the last calls of a sandbox, since the daemon was started.
func (s *Service) Calls(id string, n int) []api.ToolCall {
	b := s.known(id)
	if b == nil {
		return []api.ToolCall{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]api.ToolCall{}, b.lines[max(0, len(b.lines)-min(n, keepLines)):]...)
}

func newID(kind string) string {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return kind + hex.EncodeToString(b)
}

var errNoStore = fmt.Errorf("approvals need a store")
