// Package pandastack is the Go client of PandaStack: sandboxes for AI agents
// with warm Python kernels.
//
//	c, err := pandastack.NewClient()
//	sb, err := c.Create(ctx, pandastack.CreateOptions{Template: "code-interpreter"})
//	defer sb.Kill(context.WithoutCancel(ctx))
//	ex, err := sb.RunCode(ctx, "import math; math.pi")
//	fmt.Println(ex.Text())
//
// A cell that raises is an outcome, not an error: look at Execution.Error.
// Errors of the API are *Error, and errors.Is tells their kinds apart. What
// comes bit by bit is an iter.Seq2: range over it; leaving the loop ends it.
package pandastack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

const userAgent = "pandastack-go"

// Client speaks to one PandaStack server. It may be used by several goroutines.
type Client struct {
	base string // with /v1
	root string // without
	key  string
	with http.Header // of the caller's, for what stands before the server
	http *http.Client
}

// Option changes how a Client finds and reaches its server.
type Option func(*options)

type options struct {
	apiURL, apiKey string
	profile        string
	http           *http.Client
	with           http.Header
	file           string
}

// WithAPIURL sets the server's address, before environment and file.
func WithAPIURL(u string) Option { return func(o *options) { o.apiURL = u } }

// WithAPIKey sets the key, before environment and file.
func WithAPIKey(k string) Option { return func(o *options) { o.apiKey = k } }

// WithProfile takes address and key from a profile of the client
// configuration, before the environment.
func WithProfile(name string) Option { return func(o *options) { o.profile = name } }

// WithHeader adds a header to every request, as a proxy before the server asks
// for. What the SDK sends itself it cannot replace.
func WithHeader(name, value string) Option {
	return func(o *options) {
		if o.with == nil {
			o.with = http.Header{}
		}
		o.with.Add(name, value)
	}
}

// WithHTTPClient sets the HTTP client. It should have no timeout of its own:
// calls take as long as their context allows.
func WithHTTPClient(c *http.Client) Option { return func(o *options) { o.http = c } }

// NewClient makes a client. The server is found by option, PANDASTACK_API or
// PANDASTACK_API_URL, the file ~/.config/pandastack/config.json, and is
// http://127.0.0.1:8080 otherwise; the key by option, PANDASTACK_API_KEY, the
// same file.
func NewClient(opts ...Option) (*Client, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	apiURL, apiKey, err := find(o)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("pandastack: the address %q of the server is not of the form http://host:port", apiURL)
	}
	root := strings.TrimSuffix(strings.TrimRight(apiURL, "/"), "/v1")
	c := &Client{root: root, base: root + "/v1", key: apiKey, with: o.with, http: o.http}
	if c.http == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		t.ResponseHeaderTimeout = 0
		c.http = &http.Client{Transport: t}
	}
	return c, nil
}

// APIURL is the address of the server, without /v1.
func (c *Client) APIURL() string { return c.root }

// headers are those of every request, sockets too.
func (c *Client) headers() http.Header {
	h := c.with.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("User-Agent", userAgent)
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	return h
}

// request makes one and gives the response when its status is a success.
func (c *Client) request(ctx context.Context, method, path string, q url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	u := c.base + path
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, fmt.Errorf("pandastack: %w", err)
	}
	req.Header = c.headers()
	for k, v := range header {
		req.Header[k] = v
	}
	for began := time.Now(); ; {
		res, err := c.http.Do(req)
		if err != nil {
			return nil, connectionError(ctx, c.root, err)
		}
		if res.StatusCode < 300 {
			return res, nil
		}
		err = readError(res)
		res.Body.Close()
		wait, again := throttled(res, req, time.Since(began))
		if !again || pause(ctx, wait) != nil {
			return nil, err
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, fmt.Errorf("pandastack: %w", err)
			}
		}
	}
}

const (
	longestWait  = 2 * time.Second  // that a server may ask for and get
	throttleTime = 30 * time.Second // that a call waits in all
)

// throttled tells whether a server refused a call only because there were too
// many in a second, which is before it did anything of it. Then the call waits
// and is sent again, unless its body came from elsewhere and is used up. Other
// limits are the caller's to wait for: their Retry-After is longer.
func throttled(res *http.Response, req *http.Request, waited time.Duration) (time.Duration, bool) {
	if res.StatusCode != http.StatusTooManyRequests || req.Body != nil && req.GetBody == nil {
		return 0, false
	}
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	wait := time.Duration(seconds) * time.Second
	if err != nil || wait <= 0 || wait > longestWait || waited+wait > throttleTime {
		return 0, false
	}
	return wait + rand.N(wait/2), true // not all at once
}

// call sends in as JSON, when it is not nil, and reads the answer into out.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, in, out any) error {
	return c.callWith(ctx, method, path, q, http.Header{}, in, out)
}

// callWith is call with headers of its own.
func (c *Client) callWith(ctx context.Context, method, path string, q url.Values, header http.Header, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("pandastack: %w", err)
		}
		body = bytes.NewReader(raw)
		header.Set("Content-Type", "application/json")
	}
	if out != nil {
		header.Set("Accept", "application/json")
	}
	res, err := c.request(ctx, method, path, q, body, header)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil || res.StatusCode == http.StatusNoContent {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)) // so that the connection can be used again
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return connectionError(ctx, c.root, fmt.Errorf("reading the answer: %w", err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10))
	return nil
}

// Version asks the server what it is.
func (c *Client) Version(ctx context.Context) (api.Version, error) {
	var v api.Version
	return v, c.call(ctx, http.MethodGet, "/version", nil, nil, &v)
}

// Me asks whose key the client has.
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	var m api.Me
	return m, c.call(ctx, http.MethodGet, "/me", nil, nil, &m)
}

// Templates lists what sandboxes can be made from.
func (c *Client) Templates(ctx context.Context) ([]api.TemplateInfo, error) {
	var list []api.TemplateInfo
	return list, c.call(ctx, http.MethodGet, "/templates", nil, nil, &list)
}

// Template describes one template.
func (c *Client) Template(ctx context.Context, name string) (api.TemplateInfo, error) {
	var t api.TemplateInfo
	return t, c.call(ctx, http.MethodGet, "/templates/"+url.PathEscape(name), nil, nil, &t)
}

// Keys lists the API keys of a workspace, "" meaning the client's own and "*"
// all; needs the scope admin. Expired ones are there for another 30 days.
func (c *Client) Keys(ctx context.Context, workspace string) ([]api.KeyInfo, error) {
	q := url.Values{}
	if workspace != "" {
		q.Set("workspace", workspace)
	}
	var list []api.KeyInfo
	return list, c.call(ctx, http.MethodGet, "/me/tokens", q, nil, &list)
}

// KeyOptions say what a key is to be. The zero value is a key that may run
// sandboxes of the client's workspace and never expires.
type KeyOptions = api.CreateKeyRequest

// CreateKey makes an API key; needs the scope admin, and gives no more than
// the client's own key has. Its secret is in the answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, o KeyOptions) (api.NewKey, error) {
	var k api.NewKey
	return k, c.call(ctx, http.MethodPost, "/me/tokens", nil, o, &k)
}

// RevokeKey ends an API key at once, with all that is in progress with it;
// needs the scope admin.
func (c *Client) RevokeKey(ctx context.Context, prefix string) error {
	return c.call(ctx, http.MethodDelete, "/me/tokens/"+url.PathEscape(prefix), nil, nil, nil)
}

// CreateOptions say what a sandbox is to be. The zero value is a sandbox of
// the template "base" with the server's default time to live.
type CreateOptions = api.CreateSandboxRequest

// Create makes a sandbox and returns when its guest answers. When the
// connection breaks it asks again, for a minute, with the same idempotency key,
// of its own making unless the options have one: there is never a second one.
//
// Functions of this program are tools besides those of the options: Python in the
// sandbox, and in its forks, calls them as from tools import NAME, until it ends, this
// program does, or CloseTools is called; the context is for the making alone. A
// connection that breaks is made again. Calls that were in flight then have failed
// with "interrupted", and are never carried out again.
func (c *Client) Create(ctx context.Context, o CreateOptions, functions ...Function) (*Sandbox, error) {
	o.Tools = with(o.Tools, functions)
	header := http.Header{"Idempotency-Key": {first(o.IdempotencyKey, newID())}}
	var info api.SandboxInfo
	err := again(ctx, func() error { return c.callWith(ctx, http.MethodPost, "/sandboxes", nil, header, o, &info) })
	if err != nil {
		return nil, err
	}
	sb := c.sandbox(info)
	if err := sb.connect(ctx, functions); err != nil {
		return nil, errors.Join(err, sb.Kill(context.WithoutCancel(ctx)))
	}
	return sb, nil
}

// again makes a call that may be made twice until its connection holds, unless
// the first attempt reached no server at all.
func again(ctx context.Context, call func() error) error {
	var broken time.Time
	for first, wait := true, firstPause; ; first, wait = false, min(2*wait, lastPause) {
		err := call()
		if err == nil {
			return nil
		}
		if broken.IsZero() {
			broken = time.Now()
		}
		if !errors.Is(err, ErrConnection) || first && unreached(err) || time.Since(broken) > reattach || pause(ctx, wait) != nil {
			return err
		}
	}
}

// Get finds a sandbox.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	var info api.SandboxInfo
	if err := c.call(ctx, http.MethodGet, "/sandboxes/"+url.PathEscape(id), nil, nil, &info); err != nil {
		return nil, err
	}
	return c.sandbox(info), nil
}

// ListOptions narrow a list of sandboxes. Zero values mean everything.
type ListOptions struct {
	Metadata map[string]string // each pair must match
	Status   api.Status
	Template string // its name or an alias
	Limit    int
}

// page is how many sandboxes one answer brings.
const page = 500

// List describes the sandboxes of the key's workspace, the newest first. It
// fetches them page by page.
func (c *Client) List(ctx context.Context, o ListOptions) ([]api.SandboxInfo, error) {
	q := url.Values{}
	for k, v := range o.Metadata {
		q.Set("metadata."+k, v)
	}
	if o.Status != "" {
		q.Set("status", string(o.Status))
	}
	if o.Template != "" {
		q.Set("template", o.Template)
	}
	list := []api.SandboxInfo{}
	for {
		size := page
		if o.Limit > 0 {
			size = min(page, o.Limit-len(list))
		}
		q.Set("limit", strconv.Itoa(size))
		next, err := c.page(ctx, q, &list)
		if err != nil {
			return nil, err
		}
		if next == "" || o.Limit > 0 && len(list) >= o.Limit {
			return list, nil
		}
		q.Set("cursor", next)
	}
}

// page adds one page to a list and gives the cursor of the next.
func (c *Client) page(ctx context.Context, q url.Values, list *[]api.SandboxInfo) (next string, err error) {
	res, err := c.request(ctx, http.MethodGet, "/sandboxes", q, nil, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var more []api.SandboxInfo
	if err := json.NewDecoder(res.Body).Decode(&more); err != nil {
		return "", connectionError(ctx, c.root, fmt.Errorf("reading the answer: %w", err))
	}
	*list = append(*list, more...)
	return res.Header.Get("X-Next-Cursor"), nil
}

// Sandbox gives a handle on a sandbox without asking whether it exists.
func (c *Client) Sandbox(id string) *Sandbox {
	return c.sandbox(api.SandboxInfo{ID: id})
}

func (c *Client) sandbox(info api.SandboxInfo) *Sandbox {
	return &Sandbox{ID: info.ID, Info: info, client: c, path: "/sandboxes/" + url.PathEscape(info.ID)}
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
