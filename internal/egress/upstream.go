package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/proxy"
)

// proxyFor gives the upstream proxy for a target, nil for none.
func (e *Engine) proxyFor(scheme string, t target) (*url.URL, error) {
	if e.proxy == nil {
		return nil, nil
	}
	u, err := e.proxy(&url.URL{Scheme: scheme, Host: t.hostPort()})
	if err != nil {
		return nil, fmt.Errorf("the host's proxy: %w", err)
	}
	return u, nil
}

// connectThrough has a proxy connect to host:port.
func (e *Engine) connectThrough(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	port := via.Port()
	switch via.Scheme {
	case "socks5", "socks5h":
		var auth *proxy.Auth
		if u := via.User; u != nil {
			password, _ := u.Password()
			auth = &proxy.Auth{User: u.Username(), Password: password}
		}
		// What comes back hides that it is TCP, which has two directions to close.
		to := &keeping{dial: e.opt.Dial}
		d, err := proxy.SOCKS5("tcp", net.JoinHostPort(via.Hostname(), orElse(port, "1080")), auth, to)
		if err != nil {
			return nil, err
		}
		if _, err := d.(proxy.ContextDialer).DialContext(ctx, "tcp", address); err != nil { //nolint:forcetypeassert // as the package says
			return nil, fmt.Errorf("the host's proxy: %w", err)
		}
		return to.conn, nil
	case "http":
		port = orElse(port, "80")
	case "https":
		port = orElse(port, "443")
	default:
		return nil, fmt.Errorf("the host's proxy: there is no support for %s", via.Scheme)
	}
	dialled, err := e.opt.Dial(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("the host's proxy: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = dialled.Close() })()
	conn := dialled
	if via.Scheme == "https" {
		conn = tls.Client(dialled, &tls.Config{ServerName: via.Hostname(), RootCAs: e.opt.Roots})
	}
	out, err := connect(conn, via, address)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the host's proxy: %w", err)
	}
	return out, nil
}

// connect asks a proxy at the other end of conn for a tunnel.
func connect(conn net.Conn, via *url.URL, address string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if u := via.User; u != nil {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 4<<10)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %s", res.Status)
	}
	if n := r.Buffered(); n > 0 { // the server spoke at once
		first, _ := r.Peek(n)
		return &replayed{conn, first}, nil
	}
	return conn, nil
}

// keeping is a dialling function as package proxy wants it, which keeps what it dialled.
type keeping struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	conn net.Conn
}

func (k *keeping) Dial(network, address string) (net.Conn, error) {
	return k.DialContext(context.Background(), network, address)
}

func (k *keeping) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var err error
	k.conn, err = k.dial(ctx, network, address)
	return k.conn, err
}
