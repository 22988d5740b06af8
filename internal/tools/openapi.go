package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// httpTools are the operations of a service with an OpenAPI 3 document.
func (s *Service) httpTools(ctx context.Context, owner, space string, h api.ToolHTTP) ([]Tool, error) {
	field := "tools.http." + space
	tools, err := s.load(ctx, owner, "http", space, h, func(ctx context.Context) ([]Tool, error) {
		doc := h.OpenAPI
		from := ""
		if h.URL != "" {
			var err error
			if doc, err = s.fetch(ctx, owner, h); err != nil {
				return nil, err
			}
			from = h.URL
		}
		return s.operations(space, h, doc, from)
	})
	if err == nil {
		return tools, nil
	}
	var e *Error
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return nil, err
	case errors.As(err, &e):
		return nil, fault.InvalidField(field, "the service %s: %s", space, e.Message)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, fault.InvalidField(field, "the service %s cannot be used: %v", space, err)
}

// fetch reads a document.
func (s *Service) fetch(ctx context.Context, owner string, h api.ToolHTTP) (json.RawMessage, error) {
	headers, hidden, err := headersOf(ctx, s.o.Secrets, owner, h.Headers)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL, nil)
	if err != nil {
		return nil, failed(KindInvalid, "its url is none: %s", without([]byte(withoutURL(err).Error()), secretsIn(h.URL)))
	}
	req.Header = headers
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, failed(KindUnavailable, "its document cannot be read: %v", withoutURL(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, failed(KindUnavailable, "its document cannot be read: %s answers %s", api.ShownURL(h.URL), resp.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxSpec+1))
	if err != nil {
		return nil, failed(KindUnavailable, "its document cannot be read: %v", err)
	}
	raw = without(raw, hidden)
	if len(raw) > maxSpec {
		return nil, failed(KindTooLarge, "its document has more than %d MiB", maxSpec>>20)
	}
	if json.Valid(raw) {
		return raw, nil
	}
	out, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return nil, failed(KindInvalid, "its document is neither JSON nor YAML")
	}
	return out, nil
}

// withoutURL takes the address out of an error of net/http, which may have a
// secret in it.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

type openAPI struct {
	OpenAPI string `json:"openapi"`
	Servers []struct {
		URL string `json:"url"`
	} `json:"servers"`
	Paths map[string]json.RawMessage `json:"paths"`
}

type operation struct {
	OperationID string                     `json:"operationId"`
	Summary     string                     `json:"summary"`
	Description string                     `json:"description"`
	Deprecated  bool                       `json:"deprecated"`
	Parameters  []parameter                `json:"parameters"`
	RequestBody json.RawMessage            `json:"requestBody"`
	Responses   map[string]json.RawMessage `json:"responses"`
}

type parameter struct {
	Ref         string          `json:"$ref"`
	Name        string          `json:"name"`
	In          string          `json:"in"`
	Description string          `json:"description"`
	Required    bool            `json:"required"`
	Style       string          `json:"style"`
	Explode     *bool           `json:"explode"`
	Schema      json.RawMessage `json:"schema"`
}

type content struct {
	Description string `json:"description"`
	Required    bool   `json:"required"`
	Content     map[string]struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"content"`
}

var methods = []string{"get", "post", "put", "patch", "delete", "head", "options"}

// operations makes tools of a document.
func (s *Service) operations(space string, h api.ToolHTTP, raw json.RawMessage, from string) ([]Tool, error) {
	var doc openAPI
	if err := json.Unmarshal(raw, &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.") || len(doc.Paths) == 0 {
		return nil, failed(KindInvalid, "that is no OpenAPI 3 document with paths")
	}
	base, err := baseURL(h, doc, from)
	if err != nil {
		return nil, err
	}
	var tools []Tool
	taken := map[string]bool{}
	for _, p := range ordered(member{schema: raw}.at("paths")) {
		var item map[string]json.RawMessage
		if json.Unmarshal(p.schema, &item) != nil {
			continue
		}
		var shared []parameter
		_ = json.Unmarshal(item["parameters"], &shared) // what is none is none
		for _, method := range methods {
			var op operation
			if item[method] == nil || json.Unmarshal(item[method], &op) != nil {
				continue
			}
			name := op.OperationID
			if name == "" {
				name = method + "_" + p.name
			}
			name = pyName(name)
			if !anyGlob(h.Include, name) && !anyGlob(h.Include, op.OperationID) {
				continue
			}
			for base, n := name, 2; taken[name]; n++ {
				name = fmt.Sprint(base, n)
			}
			taken[name] = true
			r := &route{service: s, raw: raw, base: base, method: strings.ToUpper(method), path: p.name, headers: h.Headers}
			t := r.tool(op, shared)
			t.Name = space + "." + name
			tools = append(tools, t)
		}
	}
	if len(tools) == 0 {
		return nil, failed(KindInvalid, "no operation of it is in include: %s", strings.Join(h.Include, ", "))
	}
	return tools, nil
}

func (m member) at(name string) json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(m.schema, &all)
	return all[name]
}

func baseURL(h api.ToolHTTP, doc openAPI, from string) (*url.URL, error) {
	text := h.BaseURL
	if text == "" && len(doc.Servers) > 0 {
		text = doc.Servers[0].URL
	}
	u, err := url.Parse(text)
	if err == nil && !u.IsAbs() && from != "" {
		var f *url.URL
		if f, err = url.Parse(from); err == nil {
			u = f.ResolveReference(u)
		}
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Contains(text, "{") {
		return nil, failed(KindInvalid, "it names no server: give base_url, as https://api.example.com")
	}
	u.RawQuery, u.Fragment = "", ""
	return u, nil
}

// route is how one operation is called.
type route struct {
	service *Service
	raw     json.RawMessage // the document
	base    *url.URL
	method  string
	path    string
	headers map[string]api.ToolHeader
	params  []parameter
	body    string // name of the argument that is the whole body; "" for none
	fields  []string
	media   string
}

// tool makes the schema of an operation's arguments: parameters, and the fields
// of a JSON body, which are arguments of their own unless a name is there twice.
func (r *route) tool(op operation, shared []parameter) Tool {
	props, required := []member{}, []string{}
	seen := map[string]bool{}
	for _, p := range append(slices.Clone(op.Parameters), shared...) {
		if p.Ref != "" {
			target := pointer(r.raw, p.Ref)
			p = parameter{}
			if json.Unmarshal(target, &p) != nil {
				continue
			}
		}
		if p.In != "path" && p.In != "query" && p.In != "header" || seen[p.Name] || p.Name == "" {
			continue
		}
		seen[p.Name] = true
		r.params = append(r.params, p)
		props = append(props, member{name: p.Name, schema: described(p.Schema, p.Description)})
		if p.Required || p.In == "path" {
			required = append(required, p.Name)
		}
	}
	if media, body, must := r.bodyOf(op.RequestBody); media != "" {
		r.media = media
		flat := resolved(r.raw, body)
		fields := ordered(parse(flat).Properties)
		clash := slices.ContainsFunc(fields, func(m member) bool { return seen[m.name] })
		if len(fields) > 0 && !clash && media == "application/json" {
			for _, m := range fields {
				r.fields = append(r.fields, m.name)
				props = append(props, m)
			}
			if must {
				required = append(required, parse(flat).Required...)
			}
		} else {
			r.body = "body"
			for seen[r.body] {
				r.body += "_"
			}
			props = append(props, member{name: r.body, schema: described(body, "The body of the request, as "+media+".")})
			if must {
				required = append(required, r.body)
			}
		}
	}
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	for i, m := range props {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name)
		b.Write(name)
		b.WriteByte(':')
		b.Write(orAny(m.schema))
	}
	must, _ := json.Marshal(required)
	fmt.Fprintf(&b, `},"required":%s,"additionalProperties":false}`, must)
	return Tool{
		Source: "http", Description: strings.TrimSpace(op.Summary + "\n\n" + op.Description), Host: r.base.Hostname(),
		Parameters: r.standalone(b.Bytes()), Returns: r.standalone(r.returns(op.Responses)),
		Risky: r.method != http.MethodGet && r.method != http.MethodHead && r.method != http.MethodOptions,
		Do:    r.do,
	}
}

func orAny(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// described adds a description to a schema that has none.
func described(schema json.RawMessage, text string) json.RawMessage {
	m := map[string]json.RawMessage{}
	if json.Unmarshal(orAny(schema), &m) != nil || text == "" || m["description"] != nil {
		return schema
	}
	m["description"], _ = json.Marshal(text)
	out, err := json.Marshal(m)
	if err != nil {
		return schema
	}
	return out
}

// resolved follows a schema that is a reference.
func resolved(root, schema json.RawMessage) json.RawMessage {
	for range 8 {
		ref := parse(schema).Ref
		if ref == "" {
			return schema
		}
		if schema = pointer(root, ref); schema == nil {
			return nil
		}
	}
	return nil
}

// standalone makes a schema whole: what it refers to in the document goes with it.
func (r *route) standalone(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 {
		return nil
	}
	defs := map[string]json.RawMessage{}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && strings.HasPrefix(ref, "#/components/") {
				name := strings.ReplaceAll(strings.TrimPrefix(ref, "#/components/"), "/", ".")
				name = strings.TrimPrefix(name, "schemas.")
				if _, known := defs[name]; !known {
					defs[name] = json.RawMessage("true")
					var target any
					if t := pointer(r.raw, ref); t != nil && json.Unmarshal(t, &target) == nil {
						if raw, err := json.Marshal(walk(target)); err == nil {
							defs[name] = raw
						}
					}
				}
				return map[string]any{"$ref": "#/$defs/" + name}
			}
			for k := range v {
				v[k] = walk(v[k])
			}
			if v["nullable"] == true { // of OpenAPI 3.0
				delete(v, "nullable")
				return map[string]any{"anyOf": []any{v, map[string]any{"type": "null"}}}
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	order := ordered(member{schema: schema}.at("properties"))
	var doc map[string]any
	if json.Unmarshal(schema, &doc) != nil {
		return nil
	}
	out, _ := walk(doc).(map[string]any)
	if len(defs) > 0 {
		out["$defs"] = defs
	}
	// Maps lose the order of the arguments, which is that of the function.
	if props, ok := out["properties"].(map[string]any); ok {
		var b bytes.Buffer
		b.WriteByte('{')
		for i, m := range order {
			if i > 0 {
				b.WriteByte(',')
			}
			name, _ := json.Marshal(m.name)
			value, _ := json.Marshal(props[m.name])
			b.Write(name)
			b.WriteByte(':')
			b.Write(value)
		}
		b.WriteByte('}')
		out["properties"] = json.RawMessage(b.Bytes())
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil
	}
	return raw
}

// bodyOf gives the form and the schema of a request's body.
func (r *route) bodyOf(raw json.RawMessage) (media string, schema json.RawMessage, required bool) {
	if len(raw) == 0 {
		return "", nil, false
	}
	var c content
	if json.Unmarshal(resolved(r.raw, raw), &c) != nil {
		return "", nil, false
	}
	for _, m := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain"} {
		if t, ok := c.Content[m]; ok {
			return m, t.Schema, c.Required
		}
	}
	for m, t := range c.Content {
		if strings.HasSuffix(m, "+json") {
			return m, t.Schema, c.Required
		}
	}
	return "", nil, false
}

// returns is the schema of an answer that is a success.
func (r *route) returns(responses map[string]json.RawMessage) json.RawMessage {
	for _, status := range []string{"200", "201", "202", "2XX", "default"} {
		raw := responses[status]
		if raw == nil {
			continue
		}
		var c content
		if json.Unmarshal(resolved(r.raw, raw), &c) != nil {
			continue
		}
		for m, t := range c.Content {
			if m == "application/json" || strings.HasSuffix(m, "+json") {
				return t.Schema
			}
		}
		return nil
	}
	return nil
}

// do calls the operation.
func (r *route) do(ctx context.Context, c Call) (json.RawMessage, error) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return nil, err
	}
	headers, hidden, err := headersOf(ctx, r.service.o.Secrets, c.Owner, r.headers)
	if err != nil {
		return nil, err
	}
	target, query := r.path, url.Values{}
	for _, p := range r.params {
		raw, given := args[p.Name]
		if !given || string(raw) == "null" {
			continue
		}
		switch p.In {
		case "path":
			text := plainText(raw)
			if text == "" || text == "." || leadsUp(text) {
				return nil, failed(KindInvalid, "%s cannot be part of a path: %q", p.Name, text)
			}
			target = strings.ReplaceAll(target, "{"+p.Name+"}", url.PathEscape(text))
		case "query":
			var list []json.RawMessage
			if json.Unmarshal(raw, &list) == nil && list != nil {
				var parts []string
				for _, one := range list {
					parts = append(parts, plainText(one))
				}
				if p.Explode != nil && !*p.Explode {
					parts = []string{strings.Join(parts, ",")}
				}
				query[p.Name] = parts
				continue
			}
			query.Set(p.Name, plainText(raw))
		case "header":
			text := plainText(raw)
			if strings.ContainsAny(text, "\r\n\x00") {
				return nil, failed(KindInvalid, "%s cannot be a header: it has a line end in it", p.Name)
			}
			if headers.Get(p.Name) == "" { // those of the server's side are not the sandbox's to change
				headers.Set(p.Name, text)
			}
		}
	}
	body, err := r.encode(args, headers)
	if err != nil {
		return nil, err
	}
	u := *r.base
	u.RawPath = strings.TrimRight(u.EscapedPath(), "/") + target
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		return nil, failed(KindInvalid, "its path %q cannot be called", r.path)
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, failed(KindInvalid, "the request cannot be made: %v", err)
	}
	req.Header = headers
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, text/*;q=0.5")
	}
	return r.service.exchange(req, hidden)
}

// leadsUp tells whether a part of a path would lead out of its place at a server
// that undoes its quoting early.
func leadsUp(text string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}

// encode writes the body of a request.
func (r *route) encode(args map[string]json.RawMessage, headers http.Header) (io.Reader, error) {
	var raw json.RawMessage
	if r.body != "" {
		raw = args[r.body]
	} else if len(r.fields) > 0 {
		fields := map[string]json.RawMessage{}
		for _, name := range r.fields {
			if v, given := args[name]; given {
				fields[name] = v
			}
		}
		var err error
		if raw, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	if len(raw) == 0 {
		return nil, nil
	}
	headers.Set("Content-Type", r.media)
	switch r.media {
	case "text/plain":
		return strings.NewReader(plainText(raw)), nil
	case "application/x-www-form-urlencoded":
		var fields map[string]json.RawMessage
		if json.Unmarshal(raw, &fields) != nil {
			return nil, failed(KindInvalid, "%s must be an object", r.body)
		}
		form := url.Values{}
		for name, v := range fields {
			form.Set(name, plainText(v))
		}
		return strings.NewReader(form.Encode()), nil
	}
	return bytes.NewReader(raw), nil
}

// plainText is a value as it stands in a path or a query.
func plainText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// exchange sends a request and gives the answer as JSON: what is none is a
// string. Statuses of 400 and more are failures.
func (s *Service) exchange(req *http.Request, hidden []string) (json.RawMessage, error) {
	resp, err := s.http.Do(req)
	if err != nil {
		if req.Context().Err() != nil {
			return nil, req.Context().Err()
		}
		return nil, failed(KindUnavailable, "%s cannot be reached: %v", req.URL.Host, withoutURL(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	raw = without(raw, hidden)
	switch {
	case err != nil && req.Context().Err() != nil:
		return nil, req.Context().Err()
	case err != nil:
		return nil, failed(KindInterrupted, "the answer of %s broke off: %v", req.URL.Host, err)
	case len(raw) > maxAnswer:
		return nil, failed(KindTooLarge, "the answer of %s has more than %d bytes", req.URL.Host, maxAnswer).hint("ask for less, or in parts")
	case resp.StatusCode >= 300:
		return nil, failed(KindFailed, "%s %s: %s: %s", req.Method, path.Clean(req.URL.Path), resp.Status, cut(oneLine(strings.ToValidUTF8(string(raw), "\ufffd")), 2000))
	case len(raw) == 0:
		return json.RawMessage("null"), nil
	case json.Valid(raw):
		return raw, nil
	case strings.Contains(resp.Header.Get("Content-Type"), "json"):
		return nil, failed(KindBadResult, "%s says that its answer is JSON, and it is not: %.100q", req.URL.Host, raw)
	}
	return json.Marshal(strings.ToValidUTF8(string(raw), "\ufffd"))
}
