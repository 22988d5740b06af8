package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Serve implements Flow.
func (f *flow) Serve(ctx context.Context, inside net.Conn) {
	defer f.end()
	defer context.AfterFunc(ctx, func() { f.cancel(context.Cause(ctx)) })()
	defer context.AfterFunc(f.ctx, func() {
		abort(inside)
		if up := f.upstream(); up != nil {
			abort(up)
		}
	})()
	conn := &metered{Conn: inside, ctx: f.ctx, meter: f.s.meter, spent: f.s.exhausted, out: &f.a.out, in: &f.a.in}
	defer conn.Close()
	if f.refused != nil {
		f.tellRefusal(conn)
		return
	}
	http := f.opened || f.t.port == 80
	var p *pump
	var spoken func() bool
	if !http {
		p = startPump(f, conn) // the server may be the one that speaks first
		spoken = p.spoken
	} else {
		_ = inside.SetReadDeadline(time.Now().Add(headTime))
	}
	first, err := sniff(conn, spoken)
	if http {
		_ = inside.SetReadDeadline(time.Time{})
	}
	f.a.event.ECH = first.hello.ech
	switch first.kind {
	case overTLS:
		f.a.event.Protocol = "tls"
	case overHTTP, overHTTP2:
		f.a.event.Protocol = "http"
		f.a.event.Method, f.a.event.Path = clip(first.head.method, maxWord), withoutQuery(first.head.target)
	}
	if err != nil {
		f.broken(conn, first, err)
		return
	}
	if r := f.seen(first); r != nil {
		f.tell(conn, first.kind, r)
		return
	}
	if first.kind == overHTTP2 {
		if !f.s.meter.enterHTTP2() {
			f.tell(conn, other, &refusal{reason: "too many HTTP/2 connections at once", limit: limitFlows})
			return
		}
		defer f.s.meter.http2.Add(-1)
	}
	switch {
	case first.kind == overTLS && f.opened:
		f.openTLS(&replayed{conn, first.bytes})
	case (first.kind == overHTTP || first.kind == overHTTP2) && (p == nil || p.stop()):
		f.serveHTTP(&replayed{conn, first.bytes})
	default:
		f.relay(conn, p, first)
	}
}

// broken ends a flow whose first bytes were wrong, or did not come.
func (f *flow) broken(conn *metered, first sniffed, err error) {
	var malformed headError
	switch {
	case errors.Is(err, errHello), errors.Is(err, errTooLong), errors.As(err, &malformed):
		f.tell(conn, first.kind, &refusal{reason: err.Error()})
	case f.opened && len(first.bytes) == 0 && errors.Is(err, io.EOF): // it only looked whether it can connect
		f.a.allow(f.decision.rule)
	default:
		f.a.fail(f.decision.rule, f.why(err))
	}
}

// why is the reason that a flow ended, for the audit.
func (f *flow) why(err error) string {
	if cause := context.Cause(f.ctx); cause != nil {
		return brief(cause)
	}
	return brief(err)
}

// seen decides about the name that the client says.
func (f *flow) seen(first sniffed) *refusal {
	if first.kind != overTLS || first.hello.name == "" {
		return nil // of HTTP each request is looked at
	}
	return f.agrees("the name in TLS", first.hello.name)
}

// agrees says whether a name that the client sends is the one that it connected
// to. Behind an address that was allowed as such there may be any name that is
// not denied.
func (f *flow) agrees(where, said string) *refusal {
	name, err := onWire(said)
	if f.t.name != "" {
		if err != nil || name != f.t.name {
			return &refusal{reason: where + ", " + printable(said) + ", does not agree with " + f.t.name}
		}
		return nil
	}
	if err != nil {
		return nil // an address
	}
	if d := f.s.policy.Load().name(name, f.t.port); !d.allowed && d.rule != nil {
		return &refusal{rule: d.rule, reason: "a rule denies " + name + ", " + where}
	}
	return nil
}

// printable bounds what the sandbox said for the audit.
func printable(s string) string {
	out := []rune(s)
	if len(out) > 100 {
		out = append(out[:100], '…')
	}
	for i, c := range out {
		if c < ' ' || c == 0x7f || c == '"' {
			out[i] = '?'
		}
	}
	return `"` + string(out) + `"`
}

// relay passes bytes both ways.
func (f *flow) relay(conn *metered, p *pump, first sniffed) {
	if f.up == nil {
		if err := f.dial(f.ctx, f.s.policy.Load()); err != nil {
			f.tell(conn, other, err)
			return
		}
	}
	if p == nil {
		p = startPump(f, conn)
	}
	err := f.send(conn, first)
	if err != nil {
		f.cancel(err)
	}
	if e := <-p.ended; err == nil {
		err = e
	}
	reason := ""
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		f.a.turnDown(refused)
		return
	}
	if err != nil {
		if reason = f.why(err); errors.Is(context.Cause(f.ctx), errGone) {
			reason = ""
		}
	}
	f.a.end(api.NetworkAllowed, f.decision.rule, reason)
}

func (f *flow) send(conn *metered, first sniffed) error {
	if len(first.bytes) > 0 {
		if _, err := f.up.Write(first.bytes); err != nil {
			return err
		}
	}
	var from io.Reader = fromInside{conn}
	if first.open {
		from = &guarded{from, first.bytes}
	}
	if err := f.s.meter.move(f.up, from); err != nil {
		return err
	}
	_ = closeWrite(f.up) // the peer may have closed already
	return nil
}

// pump passes on what the host sends.
type pump struct {
	up    net.Conn
	ended chan error
	mu    sync.Mutex
	moved bool
	held  bool
}

func startPump(f *flow, conn *metered) *pump {
	p := &pump{up: f.up, ended: make(chan error, 1)}
	go func() {
		err := f.s.meter.move(watched{conn, p}, f.up)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		switch {
		case held:
			err = nil
		case err != nil:
			f.cancel(err)
		default:
			_ = conn.CloseWrite() // the sandbox may have closed already
		}
		p.ended <- err
	}()
	return p
}

// stop ends a pump that has moved nothing and leaves its connection as it was.
// It says false for one that has: a server that speaks first does not speak HTTP.
func (p *pump) stop() bool {
	p.mu.Lock()
	if p.moved {
		p.mu.Unlock()
		return false
	}
	p.held = true
	p.mu.Unlock()
	_ = p.up.SetReadDeadline(time.Unix(1, 0))
	<-p.ended
	_ = p.up.SetReadDeadline(time.Time{})
	return true
}

// spoken says whether something was moved.
func (p *pump) spoken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
}

// watched notes when a pump begins to move.
type watched struct {
	io.Writer
	p *pump
}

func (w watched) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	w.p.moved = true
	w.p.mu.Unlock()
	n, err := w.Writer.Write(b)
	return n, gone(err)
}

// errGone is that the sandbox has closed or reset its connection, which is
// nothing to report.
var errGone = errors.New("the sandbox has closed the connection")

func gone(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, errBudget) {
		return err
	}
	return errGone
}

type fromInside struct{ io.Reader }

func (r fromInside) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	return n, gone(err)
}

// exhausted cuts everything when the budget is used up.
func (s *Sandbox) exhausted() {
	s.limited(limitBytes, errBudget.Error())
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.live {
		f.cancel(errBudget)
	}
}
