package egress

import (
	"context"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	maxQuery  = 1232 // bytes of a question, more than any honest one
	maxUDP    = 512
	answerTTL = 60 // seconds; an address never changes, whether its name is still allowed is decided at every connection

	optExtendedError = 15 // RFC 8914
	edeBlocked       = 15
	edeNotReady      = 14
)

// question is what one DNS message asks.
type question struct {
	header dnsmessage.Header
	q      dnsmessage.Question
	edns   bool
}

// parseQuestion reads a message of the sandbox. Without ok there is nothing to answer.
func parseQuestion(msg []byte) (out question, code dnsmessage.RCode, ok bool) {
	if len(msg) < 12 {
		return out, 0, false
	}
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return out, 0, false
	}
	out.header = h
	if len(msg) > maxQuery {
		return out, dnsmessage.RCodeFormatError, true
	}
	if h.OpCode != 0 {
		return out, dnsmessage.RCodeNotImplemented, true
	}
	qs, err := p.AllQuestions()
	if err != nil || len(qs) != 1 {
		return out, dnsmessage.RCodeFormatError, true
	}
	out.q = qs[0]
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return out, dnsmessage.RCodeFormatError, true
	}
	for {
		rh, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone { //nolint:errorlint // as the package documents it
			break
		}
		if err != nil || p.SkipAdditional() != nil {
			return out, dnsmessage.RCodeFormatError, true
		}
		out.edns = out.edns || rh.Type == dnsmessage.TypeOPT
	}
	if out.q.Class != dnsmessage.ClassINET {
		return out, dnsmessage.RCodeRefused, true
	}
	return out, dnsmessage.RCodeSuccess, true
}

// answer puts an answer together. text explains a refusal to clients that speak EDNS.
func (q question) answer(code dnsmessage.RCode, ede uint16, text string, body dnsmessage.ResourceBody) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: q.header.ID, Response: true, OpCode: q.header.OpCode, RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true, RCode: code,
	}}
	if q.q.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{q.q}
	}
	if body != nil {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.q.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}, Body: body}}
	}
	if q.edns {
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(maxQuery, code, false) // never fails
		opt := &dnsmessage.OPTResource{}
		if text != "" {
			opt.Options = []dnsmessage.Option{{Code: optExtendedError, Data: append([]byte{byte(ede >> 8), byte(ede)}, text...)}}
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: opt}}
	}
	out, err := m.Pack()
	if err != nil || len(out) > maxUDP { // cannot be: names and text are bounded
		return nil
	}
	return out
}

// Resolve answers a DNS message: with the made-up address of a name that some
// rule allows, otherwise that there is no such name. Nothing is forwarded.
func (s *Sandbox) Resolve(_ context.Context, query []byte, _ bool) []byte {
	q, code, ok := parseQuestion(query)
	if !ok {
		return nil
	}
	a := s.attempt("dns")
	a.event.Method = typeName(q.q.Type)
	if code != dnsmessage.RCodeSuccess {
		a.refuse(nil, "malformed question")
		return q.answer(code, 0, "", nil)
	}
	if !s.questions.AllowN(s.engine.now(), 1) {
		a.turnDown(&refusal{reason: "too many questions", limit: limitQuestions})
		return q.answer(dnsmessage.RCodeRefused, edeNotReady, "too many questions", nil)
	}
	name, err := onWire(q.q.Name.String())
	if err != nil {
		a.refuse(nil, err.Error())
		return q.answer(dnsmessage.RCodeNameError, edeBlocked, "blocked by policy: not a host name", nil)
	}
	a.event.Name = name
	if q.q.Type == dnsmessage.TypePTR {
		return s.reverse(a, q, name)
	}
	d := s.policy.Load().resolves(name)
	if !d.allowed || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		a.refuse(d.rule, orElse(d.reason, "it is the sandbox itself"))
		return q.answer(dnsmessage.RCodeNameError, edeBlocked, "blocked by policy: "+name, nil)
	}
	var body dnsmessage.ResourceBody
	if t := q.q.Type; t == dnsmessage.TypeA || t == dnsmessage.TypeAAAA && s.engine.ipv6 {
		addr, err := s.addresses.of(name)
		if err != nil {
			a.turnDown(&refusal{rule: d.rule, reason: err.Error(), limit: limitNames})
			return q.answer(dnsmessage.RCodeServerFailure, edeNotReady, err.Error(), nil)
		}
		body = &dnsmessage.AResource{A: addr.As4()}
		if t == dnsmessage.TypeAAAA {
			body = &dnsmessage.AAAAResource{AAAA: inV6(addr).As16()}
		}
	}
	// Every other type: the name is there and has none of these. So clients fall
	// back to A, and no HTTPS record hands out keys for encrypted names.
	a.allow(d.rule)
	return q.answer(dnsmessage.RCodeSuccess, 0, "", body)
}

// reverse answers what name an address was made up for.
func (s *Sandbox) reverse(a *attempt, q question, name string) []byte {
	if addr, ok := fromReverse(name); ok {
		if host, _ := s.addresses.name(addr); host != "" {
			if ptr, err := dnsmessage.NewName(host + "."); err == nil {
				a.allow(nil)
				return q.answer(dnsmessage.RCodeSuccess, 0, "", &dnsmessage.PTRResource{PTR: ptr})
			}
		}
	}
	a.refuse(nil, "no name has that address here")
	return q.answer(dnsmessage.RCodeNameError, edeBlocked, "blocked by policy: "+name, nil)
}

// fromReverse reads 4.3.2.1.in-addr.arpa.
func fromReverse(name string) (netip.Addr, bool) {
	rest, ok := strings.CutSuffix(name, ".in-addr.arpa")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	return addr, err == nil
}

// typeName is a type as people write it.
func typeName(t dnsmessage.Type) string {
	if t == 0 {
		return ""
	}
	return strings.TrimPrefix(t.String(), "Type")
}
