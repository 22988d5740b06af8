package httpapi

import (
	"bytes"
	_ "embed" // for the page
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/pandastack/pandastack/api"
)

//go:embed openapi.html
var docsPage string

// openapiJSON is the document for machines.
var openapiJSON = sync.OnceValues(func() ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(api.OpenAPI, &doc); err != nil {
		return nil, fmt.Errorf("reading the embedded API document: %w", err)
	}
	delete(doc, "x-failures") // only there to be merged into routes
	nullsAreLeftOut(doc)
	return json.Marshal(doc)
})

// nullsAreLeftOut says of every request what the document says once: a field
// that may be left out may be null.
func nullsAreLeftOut(doc map[string]any) {
	components, _ := doc["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, s := range schemas {
		if !strings.HasSuffix(name, "Request") && !strings.HasSuffix(name, "Patch") {
			continue
		}
		schema, _ := s.(map[string]any)
		required, _ := schema["required"].([]any)
		properties, _ := schema["properties"].(map[string]any)
		for field, p := range properties {
			property, _ := p.(map[string]any)
			if slices.Contains(required, any(field)) {
				continue
			}
			if kind, simple := property["type"].(string); simple && property["enum"] == nil {
				property["type"] = []string{kind, "null"}
			} else {
				properties[field] = map[string]any{"anyOf": []any{property, map[string]any{"type": "null"}}}
			}
		}
	}
}

// openapiHTML is the document for people: made from it, without scripts.
var openapiHTML = sync.OnceValues(func() ([]byte, error) {
	raw, err := yaml.YAMLToJSON(api.OpenAPI) // keeps the order
	if err != nil {
		return nil, fmt.Errorf("reading the embedded API document: %w", err)
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("reading the embedded API document: %w", err)
	}
	page, err := template.New("docs").Funcs(template.FuncMap{
		"text": prose, "type": typeName, "name": refName, "upper": strings.ToUpper,
		"has": func(list []string, s string) bool { return slices.Contains(list, s) },
	}).Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := page.Execute(&out, doc); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
})

func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) error {
	raw, err := openapiJSON()
	if err != nil {
		return err
	}
	return ok(w, json.RawMessage(raw))
}

func (s *Server) docs(w http.ResponseWriter, _ *http.Request) error {
	page, err := openapiHTML()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page) // a client that is gone is noticed by the server
	return nil
}

// What the page shows of the document.
type (
	document struct {
		Info struct{ Title, Version, Summary, Description string }
		Tags []struct{ Name, Description string }

		Paths      ordered[pathItem]
		Components struct {
			Schemas    ordered[schema]
			Responses  ordered[response]
			Parameters map[string]parameter
		}
	}
	pathItem struct {
		Parameters                    []parameter
		Get, Post, Put, Patch, Delete *operation
	}
	operation struct {
		Method, Path         string `json:"-"`
		Tags                 []string
		OperationID          string `json:"operationId"`
		Summary, Description string
		Parameters           []parameter
		RequestBody          *struct{ Content ordered[media] }
		Responses            ordered[response]
		Failures             []failureLink `json:"-"`
	}
	failureLink struct{ Status, Code string }
	parameter   struct {
		Ref                   string `json:"$ref"`
		Name, In, Description string
		Required              bool
		Schema                schema
	}
	response struct {
		Ref         string `json:"$ref"`
		Description string
		Content     ordered[media]
	}
	media struct {
		Schema schema
		Events ordered[schema] `json:"x-events"`
	}
	schema struct {
		Ref, Type, Description, Format string
		Default                        any
		Enum, Required                 []string
		Items                          *schema
		AnyOf                          []schema
		OneOf                          []schema
		Minimum, Maximum               *json.Number
		AdditionalProperties           json.RawMessage
		Properties                     ordered[schema]
	}
)

// UnmarshalJSON reads a schema; only "$ref" has a name that Go would not find.
func (s *schema) UnmarshalJSON(b []byte) error {
	type plain schema
	if err := json.Unmarshal(b, (*plain)(s)); err != nil {
		return err
	}
	var ref struct {
		Ref string `json:"$ref"`
	}
	if err := json.Unmarshal(b, &ref); err != nil {
		return err
	}
	s.Ref = ref.Ref
	return nil
}

// Operations lists a tag's routes in the document's order, with what is
// written once for several filled in.
func (d document) Operations(tag string) []operation {
	var list []operation
	for _, path := range d.Paths.Keys {
		item := d.Paths.Of[path]
		for _, m := range []struct {
			method string
			op     *operation
		}{{"get", item.Get}, {"post", item.Post}, {"put", item.Put}, {"patch", item.Patch}, {"delete", item.Delete}} {
			if m.op == nil || !slices.Contains(m.op.Tags, tag) {
				continue
			}
			op := *m.op
			op.Method, op.Path = m.method, path
			op.Parameters = nil
			for _, p := range slices.Concat(item.Parameters, m.op.Parameters) {
				if p.Ref != "" {
					p = d.Components.Parameters[refName(p.Ref)]
				}
				op.Parameters = append(op.Parameters, p)
			}
			op.settle()
			list = append(list, op)
		}
	}
	return list
}

// settle sorts the responses and takes those apart that are the same for many
// routes: the failures.
func (op *operation) settle() {
	slices.Sort(op.Responses.Keys)
	var own []string
	for _, status := range op.Responses.Keys {
		if ref := op.Responses.Of[status].Ref; ref != "" {
			op.Failures = append(op.Failures, failureLink{status, refName(ref)})
		} else {
			own = append(own, status)
		}
	}
	op.Responses.Keys = own
}

// ordered is a JSON object whose order matters to a reader.
type ordered[T any] struct {
	Keys []string
	Of   map[string]T
}

// UnmarshalJSON reads an object.
func (o *ordered[T]) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &o.Of); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if _, err := dec.Token(); err != nil { // {
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var skipped json.RawMessage
		if err := dec.Decode(&skipped); err != nil {
			return err
		}
		if name := fmt.Sprint(key); !slices.Contains(o.Keys, name) { // a merged key may be overridden
			o.Keys = append(o.Keys, name)
		}
	}
	return nil
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

var code = regexp.MustCompile("`([^`]+)`")

// prose is a description as HTML: paragraphs by line, and words in backticks.
func prose(s string) template.HTML {
	s = code.ReplaceAllString(html.EscapeString(strings.TrimSpace(s)), "<code>$1</code>")
	return template.HTML(strings.ReplaceAll(s, "\n", "<br>")) //nolint:gosec // escaped above
}

// typeName says what a schema takes, with a link to a type of its own.
func typeName(s schema) template.HTML {
	switch {
	case s.Ref != "":
		name := html.EscapeString(refName(s.Ref))
		return template.HTML(`<a href="#` + name + `">` + name + `</a>`) //nolint:gosec // escaped above
	case len(s.AnyOf)+len(s.OneOf) > 0:
		var words []string
		for _, one := range slices.Concat(s.AnyOf, s.OneOf) {
			words = append(words, string(typeName(one)))
		}
		return template.HTML(strings.Join(words, " or ")) //nolint:gosec // escaped below
	case s.Type == "array" && s.Items != nil:
		return "array of " + typeName(*s.Items)
	case s.Type == "object" && len(s.Properties.Keys) == 0:
		var values schema
		if json.Unmarshal(s.AdditionalProperties, &values) == nil && values.Type != "" {
			return "object of " + typeName(values)
		}
	}
	words := s.Type
	if s.Format != "" {
		words = s.Format
	}
	if s.Minimum != nil {
		words += ", from " + s.Minimum.String()
	}
	if s.Maximum != nil {
		words += " to " + s.Maximum.String()
	}
	if s.Default != nil {
		words += fmt.Sprintf(", default %v", s.Default)
	}
	return template.HTML(html.EscapeString(words)) //nolint:gosec // escaped
}
