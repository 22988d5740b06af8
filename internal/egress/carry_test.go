package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pandastack/pandastack/api"
)

// What the engine adds to a request and takes from a transfer, without the stack
// below it: beside the same without an engine.
func BenchmarkCarry(b *testing.B) {
	w := newWorld(b)
	for _, c := range []struct {
		name, url string
		secrets   api.Secrets
		direct    bool
	}{
		{"http/direct", "http://example.com", nil, true},
		{"http/inspected", "http://example.com", nil, false},
		{"https/direct", "https://example.com", nil, true},
		{"https/untouched", "https://example.com", nil, false},
		{"https/opened", "https://example.com", api.Secrets{"example.com": {Header: "Authorization", Value: "Bearer x"}}, false},
	} {
		p, err := Compile(api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com")}, FlowRate: 1e6}, c.secrets, nil)
		if err != nil {
			b.Fatal(err)
		}
		s, err := w.engine().Open(Identity{}, p, nil)
		if err != nil {
			b.Fatal(err)
		}
		s.Resolve(context.Background(), ask("example.com.", dnsmessage.TypeA, dnsmessage.ClassINET, false), false)
		roots := w.roots.Clone()
		roots.AppendCertsFromPEM(w.own.PEM())
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableCompression: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if c.direct {
				return w.dial(ctx, network, net.JoinHostPort("93.184.216.34", port))
			}
			f, err := s.Admit(ctx, netip.MustParseAddrPort("198.18.1.0:"+port))
			if err != nil {
				return nil, err
			}
			outside, inside := pair(b)
			go f.Serve(context.Background(), inside)
			return outside, nil
		}}
		get := func(b *testing.B, path string) int64 {
			res, err := (&http.Client{Transport: tr}).Get(c.url + path)
			if err != nil {
				b.Fatal(err)
			}
			defer res.Body.Close()
			n, err := io.Copy(io.Discard, res.Body)
			if err != nil || res.StatusCode != http.StatusOK {
				b.Fatal(res.Status, err)
			}
			return n
		}
		b.Run("kept/"+c.name, func(b *testing.B) {
			get(b, "/small")
			for b.Loop() {
				get(b, "/small")
			}
		})
		b.Run("new/"+c.name, func(b *testing.B) {
			for b.Loop() {
				get(b, "/small")
				tr.CloseIdleConnections()
			}
		})
		b.Run("transfer/"+c.name, func(b *testing.B) {
			b.SetBytes(64 << 20)
			for b.Loop() {
				if n := get(b, "/huge"); n != 64<<20 {
					b.Fatal(n)
				}
			}
		})
		tr.CloseIdleConnections()
		s.Close()
	}
}
