package network

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// The words in allow that stand for where this machine's own package managers
// get packages from.
const (
	wordPyPI = "pypi" // what pip is set to, see pip.go
	wordNPM  = "npm"  // what npm is set to, see npm.go
)

// Index is what a package manager of this machine is set to.
type Index struct {
	URLs      []string `json:"urls"`       // where packages are asked for, the main one first; they may hold a user and a password
	FindLinks []string `json:"find_links"` // pages with links to packages (pip)
	Hosts     []string `json:"hosts"`      // further hosts that packages come from over TLS
	CA        string   `json:"ca"`         // file with the authorities that are trusted for all of these; empty: those of the system
	Files     bool     `json:"files"`      // packages may lie beside the URLs, anywhere on their hosts
	Default   string   `json:"default"`    // what is used on a machine that is set to nothing

	Authorization map[string]string `json:"-"` // that header by the host of a URL, where no password stands in it
}

// FindIndex asks a package manager of this machine what it is set to.
type FindIndex func(ctx context.Context) (Index, error)

const (
	indexAge  = time.Minute      // after which a package manager is asked again: passwords change
	indexTime = 20 * time.Second // for it to answer
)

// index remembers what a package manager said.
type index struct {
	find FindIndex

	asking singleflight.Group

	mu    sync.Mutex
	asked time.Time // when it last answered, or did not
	found *located
}

// located is an Index taken apart: what may be told to a sandbox, and what not.
type located struct {
	urls, findLinks []string // without users and passwords
	rules           []api.NetworkRule
	hosts           []place
	roots           *x509.CertPool
	fallback        place
}

type place struct {
	host string
	port uint16
	path string // below which auth holds
	tls  bool
	auth string // value of the header Authorization; empty: none
}

// get gives what the package manager is set to. One that answered before and
// does not now is believed to be set as it was.
func (x *index) get(ctx context.Context, age time.Duration) (*located, error) {
	if found := x.known(age); found != nil {
		return found, nil
	}
	// All that ask at once are answered at once, and each may leave.
	answer := x.asking.DoChan("", func() (any, error) {
		if found := x.known(age); found != nil { // another answer came in between
			return found, nil
		}
		return x.ask(context.WithoutCancel(ctx))
	})
	select {
	case got := <-answer:
		if got.Err != nil {
			return nil, got.Err
		}
		return got.Val.(*located), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// known is what was said within so long, or nil.
func (x *index) known(age time.Duration) *located {
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Since(x.asked) >= age {
		return nil
	}
	return x.found
}

// ask asks the package manager.
func (x *index) ask(ctx context.Context) (*located, error) {
	ctx, cancel := context.WithTimeout(ctx, indexTime)
	defer cancel()
	said, err := x.find(ctx)
	var l *located
	if err == nil {
		l, err = locate(said)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = time.Now()
	if err == nil {
		x.found = l
	} else if x.found == nil {
		return nil, err
	}
	return x.found, nil
}

// locate takes an Index apart.
func locate(in Index) (*located, error) {
	l := &located{}
	if in.CA != "" {
		pem, err := os.ReadFile(in.CA)
		if err != nil {
			return nil, fmt.Errorf("the authorities that it is set to trust: %w", err)
		}
		l.roots = x509.NewCertPool()
		if !l.roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the file %s of authorities holds no certificate", in.CA)
		}
	}
	for i, raw := range append(append([]string{}, in.URLs...), in.FindLinks...) {
		at, plain, err := takeApart(raw, in.Authorization)
		if err != nil {
			return nil, err
		}
		l.add(at)
		if at.auth != "" && in.Files { // the first with a password gives it for what lies elsewhere on the host
			at.path = ""
			l.add(at)
		}
		if i < len(in.URLs) {
			l.urls = append(l.urls, plain)
		} else {
			l.findLinks = append(l.findLinks, plain)
		}
	}
	for _, host := range in.Hosts {
		l.add(place{host: host, port: 443, tls: true})
	}
	if len(l.urls) == 0 {
		return nil, errors.New("it is set to no index that can be reached")
	}
	if in.Default != "" {
		var err error
		if l.fallback, _, err = takeApart(in.Default, nil); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// add takes a place once, and its host and port.
func (l *located) add(at place) {
	if l.find(at) >= 0 {
		return
	}
	if !slices.ContainsFunc(l.hosts, func(have place) bool { return have.host == at.host && have.port == at.port }) {
		l.rules = append(l.rules, api.NetworkRule{Host: at.host, Ports: []int{int(at.port)}})
	}
	l.hosts = append(l.hosts, at)
}

func (l *located) find(at place) int {
	return slices.IndexFunc(l.hosts, func(have place) bool { return have.host == at.host && have.port == at.port && have.path == at.path })
}

// takeApart gives the host of a URL and the URL without user and password. Its
// errors do not hold these.
func takeApart(raw string, known map[string]string) (at place, plain string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return at, "", errors.New("one of the URLs that it is set to cannot be read")
	}
	user := u.User
	u.User, u.Fragment = nil, ""
	plain = u.String()
	port := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	if port == "" || u.Hostname() == "" {
		return at, "", fmt.Errorf("it is set to %s, and sandboxes reach only http and https", plain)
	}
	if p := u.Port(); p != "" {
		port = p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return at, "", fmt.Errorf("it is set to %s, which has no such port", plain)
	}
	at = place{host: strings.ToLower(u.Hostname()), port: uint16(n), path: u.Path, tls: u.Scheme == "https"}
	if at.host == "localhost" || net.ParseIP(at.host) != nil {
		return at, "", fmt.Errorf("it is set to %s, and inside a sandbox that would be somewhere else: name its host", plain)
	}
	at.auth = known[u.Host]
	if user != nil {
		password, _ := user.Password()
		at.auth = basic(user.Username(), password)
	}
	if at.auth != "" && !at.tls {
		return at, "", fmt.Errorf("it is set to %s with a password, and passwords are added over https alone", plain)
	}
	return at, plain, nil
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// sources gives the hosts for the engine. Passwords are looked up for each
// request, so that a changed one holds soon.
func (x *index) sources(l *located) []egress.Source {
	var out []egress.Source
	for _, h := range l.hosts {
		s := egress.Source{Host: h.host, Port: h.port, Open: h.tls, Roots: l.roots, Below: h.path}
		if h.auth != "" {
			s.Authorization = func(ctx context.Context) (string, error) {
				now, err := x.get(ctx, indexAge)
				if err != nil {
					return "", err
				}
				if i := now.find(h); i >= 0 && now.hosts[i].auth != "" {
					return now.hosts[i].auth, nil
				}
				return "", errors.New("this machine is not set to a password for the host any more")
			}
		}
		out = append(out, s)
	}
	return out
}

// expand puts what the words stand for in their places. The first host takes the
// place of the word, so that the rules of the user keep their numbers.
func (s *Service) expand(ctx context.Context, where string, p api.NetworkPolicy) (api.NetworkPolicy, []egress.Source, error) {
	var rules, more []api.NetworkRule
	var sources []egress.Source
	for i, r := range p.Allow {
		x := s.indexes[r.Text]
		if x == nil {
			rules = append(rules, r)
			continue
		}
		l, err := x.get(ctx, indexAge)
		if err != nil {
			return p, nil, fault.InvalidField(fmt.Sprintf("%s.allow[%d]", where, i), "%q is what the package manager of the server's machine is set to: %v", r.Text, err).
				WithHint("name the hosts instead; a host that is called %s is {\"host\": %q}", r.Text, r.Text)
		}
		rules = append(rules, l.rules[0])
		more = append(more, l.rules[1:]...)
		sources = append(sources, x.sources(l)...)
	}
	p.Allow = append(rules, more...)
	return p, sources, nil
}

// closedForPip is said by pip, in the place of an index, where nothing that it needs is open. Its first word looks like the scheme of a URL, which pip misses otherwise.
const closedForPip = `none: the network of this sandbox is closed for packages; open it with network={"allow": ["pypi"]}`

// Packages says where package managers in a sandbox get packages from. A sandbox
// that can reach what pip is set to by itself is told nothing.
func (s *Service) Packages(ctx context.Context, sb store.Sandbox) (guestapi.Packages, error) {
	var out guestapi.Packages
	p := sb.Network.Policy
	if p == nil {
		p = &api.NetworkPolicy{}
	}
	words := map[string]*index{}
	for _, r := range append(slices.Clone(p.Allow), s.named[p.Policy].Allow...) {
		words[r.Text] = s.indexes[r.Text]
	}
	if x := words[wordNPM]; x != nil {
		l, err := x.get(ctx, indexAge)
		if err != nil {
			return out, err
		}
		out.Registry = l.urls[0]
	}
	if x := words[wordPyPI]; x != nil {
		l, err := x.get(ctx, indexAge)
		if err != nil {
			return out, err
		}
		out.Indexes, out.FindLinks = l.urls, l.findLinks
		return out, nil
	}
	if p.Mode == api.NetworkDeny || len(p.Allow)+len(p.Policy)+len(p.Mode) == 0 { // as most are
		out.Closed = closedForPip
		return out, nil
	}
	compiled, err := s.compiled(ctx, sb)
	if err != nil {
		return out, err
	}
	// Which host that would be is what the machine's own pip knows. Without one
	// pip inside says what it can.
	if x := s.indexes[wordPyPI]; x != nil {
		l, err := x.get(ctx, math.MaxInt64)
		if err == nil && l.fallback.host != "" && !compiled.AllowsName(l.fallback.host, l.fallback.port) {
			out.Closed = closedForPip
		}
	}
	return out, nil
}
