package api_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/httpapi"
)

type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	var doc object
	if err := yaml.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	noNulls(t, "openapi.yaml", doc)
	return doc
}

// noNulls finds keys without a value, which is what a comma in words without
// quotes makes inside braces.
func noNulls(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil:
		t.Errorf("%s has no value: put words with a comma in quotes", path)
	case object:
		for key, each := range v {
			noNulls(t, path+" "+key, each)
		}
	case []any:
		for i, each := range v {
			noNulls(t, fmt.Sprint(path, " ", i), each)
		}
	}
}

// at goes down into the document; nil when there is nothing.
func at(v object, path ...string) object {
	for _, key := range path {
		v, _ = v[key].(object)
	}
	return v
}

// Every route that the server has is in openapi.yaml, and the other way round.
func TestRoutes(t *testing.T) {
	var written, served []string
	for path, item := range at(document(t), "paths") {
		for method := range item.(object) {
			if method != "parameters" {
				written = append(written, strings.ToUpper(method)+" "+path)
			}
		}
	}
	served = httpapi.New(httpapi.Options{}).Routes()
	for _, r := range served {
		if !slices.Contains(written, r) {
			t.Errorf("%s is served and not in openapi.yaml: describe it there", r)
		}
	}
	for _, r := range written {
		if !slices.Contains(served, r) {
			t.Errorf("%s is in openapi.yaml and not served", r)
		}
	}
}

// Each route says what can go wrong, as far as that follows from what it is.
func TestFailuresOfRoutes(t *testing.T) {
	doc := document(t)
	codes := slices.Sorted(maps.Keys(at(doc, "components", "responses")))
	for _, c := range at(doc, "components", "schemas", "Code")["enum"].([]any) {
		if !slices.Contains(codes, c.(string)) {
			t.Errorf("the code %s has no response in components", c)
		}
	}
	ids := map[string]string{}
	operations(doc, func(name string, item, op object) {
		id, _ := op["operationId"].(string)
		if other := ids[id]; id == "" || other != "" {
			t.Errorf("%s: operationId %q is missing or the same as that of %s", name, id, other)
		}
		ids[id] = name
		want := []string{"denied", "internal", "no_capacity"}
		if op["security"] == nil {
			want = append(want, "unauthenticated")
		}
		if strings.Contains(name, "/sandboxes/{id}/") {
			want = append(want, "not_found")
		}
		if at(op, "requestBody", "content", "application/json") != nil {
			want = append(want, "invalid", "too_large")
		}
		var has []string
		for status, r := range at(op, "responses") {
			ref, _ := r.(object)["$ref"].(string)
			code, _ := r.(object)["x-code"].(string) // of a response of the route's own
			has = append(has, ref[strings.LastIndexByte(ref, '/')+1:], code)
			if len(status) != 3 {
				t.Errorf("%s: status %q", name, status)
			}
			if events := at(r.(object), "content", "text/event-stream"); events != nil && (events["x-events"] == nil || events["schema"] != nil) {
				t.Errorf("%s: a stream has its events under x-events, and no schema", name)
			}
		}
		for _, code := range want {
			if code == "no_capacity" && strings.HasSuffix(name, "/readyz") {
				continue // it has more to say, in words of its own
			}
			if !slices.Contains(has, code) {
				t.Errorf("%s does not say that it can be answered %s: merge a group of x-failures", name, code)
			}
		}
		for _, p := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(name, -1) {
			if !slices.ContainsFunc(params(doc, item, op), func(q object) bool { return q["in"] == "path" && q["name"] == p[1] }) {
				t.Errorf("%s does not describe its parameter %s", name, p[1])
			}
		}
	})
}

// The status of each code's response is the one that the server sends.
func TestStatusOfCodes(t *testing.T) {
	operations(document(t), func(name string, _, op object) {
		for status, r := range at(op, "responses") {
			ref, _ := r.(object)["$ref"].(string)
			code, isError := strings.CutPrefix(ref, "#/components/responses/")
			if own, ok := r.(object)["x-code"].(string); ok {
				code, isError = own, true
			}
			if isError && strconv.Itoa(httpapi.StatusOf(api.Code(code))) != status {
				t.Errorf("%s: %s is answered with %d, not %s", name, code, httpapi.StatusOf(api.Code(code)), status)
			}
		}
	})
}

func operations(doc object, visit func(name string, item, op object)) {
	for path, item := range at(doc, "paths") {
		for method, op := range item.(object) {
			if method != "parameters" {
				visit(strings.ToUpper(method)+" "+path, item.(object), op.(object))
			}
		}
	}
}

func params(doc, item, op object) (list []object) {
	for _, where := range []object{item, op} {
		all, _ := where["parameters"].([]any)
		for _, p := range all {
			q := p.(object)
			if ref, ok := q["$ref"].(string); ok {
				q = at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
			list = append(list, q)
		}
	}
	return list
}

// What has a schema by another name, or none.
var (
	ofHTTP = map[string]string{ // Go type of internal/httpapi → schema
		"wsRequest": "ExecSocketRequest", "wsOutput": "ExecSocketOutput", "wsEnd": "ExecSocketEnd", "ptySaid": "TerminalRequest", "ptyNumber": "TerminalNumber", "ptyGap": "TerminalGap", "ptyExit": "TerminalExit", "ptyError": "TerminalError", "chunkData": "ChunkEvent", "exitData": "ExecExitEvent", "startedData": "StartedEvent",
		"textData": "OutputEvent", "resultData": "ResultEvent", "promptData": "InputRequestEvent", "gapData": "GapEvent", "endData": "EndEvent",
	}
	notSent = []string{"Event", "NotebookMessage"} // the server takes events apart: see the schemas above
)

// Every type of this package is a schema of openapi.yaml with the same name and
// the same fields, and the other way round. A field is required when it is
// never left out: when it has no omitempty.
func TestTypes(t *testing.T) {
	schemas := at(document(t), "components", "schemas")
	want := map[string]object{}
	src := sources(t, ".")
	for name, spec := range src.types {
		switch {
		case !ast.IsExported(name) || slices.Contains(notSent, name):
		case src.custom[name]:
			want[name] = object{}
		default:
			want[name] = src.schema(t, spec.Type)
		}
	}
	http := sources(t, "../internal/httpapi")
	for name, spec := range src.types {
		http.types["api."+name], http.types[name] = spec, spec // embedded ones name others without the package
	}
	for name, schema := range ofHTTP {
		want[schema] = http.schema(t, http.types[name].Type)
	}
	for name, w := range want {
		got, _ := schemas[name].(object)
		if got == nil {
			t.Errorf("the Go type %s has no schema", name)
			continue
		}
		if w["type"] == "string" { // a named string
			if cs := src.constants[name]; !reflect.DeepEqual(cs, stringsOf(got["enum"])) {
				t.Errorf("%s is one of %q in Go, of %q in openapi.yaml", name, cs, got["enum"])
			}
			continue
		}
		if w["properties"] == nil { // encodes itself, or is a map
			continue
		}
		compare(t, name, w, got)
	}
	for name := range schemas {
		if want[name] == nil {
			t.Errorf("the schema %s has no Go type in api/", name)
		}
	}
}

func compare(t *testing.T, name string, want, got object) {
	t.Helper()
	w, g := at(want, "properties"), at(got, "properties")
	for field := range w {
		if g[field] == nil {
			t.Errorf("%s.%s is in Go and not in openapi.yaml", name, field)
		}
	}
	for field, p := range g {
		if w[field] == nil {
			t.Errorf("%s.%s is in openapi.yaml and not in Go", name, field)
		} else if a, b := shape(w[field].(object)), shape(p.(object)); a != b {
			t.Errorf("%s.%s is %s in Go, %s in openapi.yaml", name, field, a, b)
		}
	}
	if a, b := stringsOf(want["required"]), stringsOf(got["required"]); !reflect.DeepEqual(a, b) {
		t.Errorf("%s: fields without omitempty are %q, required are %q", name, a, b)
	}
}

// shape is the part of a schema that Go types determine.
func shape(s object) string {
	kept := object{}
	for _, key := range []string{"$ref", "type", "format"} {
		if s[key] != nil {
			kept[key] = s[key]
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		switch inner := s[key].(type) {
		case object:
			kept[key] = shape(inner)
		case bool:
			kept[key] = inner
		}
	}
	b, _ := json.Marshal(kept)
	return string(b)
}

func stringsOf(v any) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, s := range v {
			list = append(list, fmt.Sprint(s))
		}
	case []string:
		list = slices.Clone(v)
	}
	slices.Sort(list)
	return list
}

// source is the types of a folder of Go files.
type source struct {
	types     map[string]*ast.TypeSpec
	constants map[string][]string // by their type, sorted
	custom    map[string]bool     // has a MarshalJSON of its own
}

func sources(t *testing.T, dir string) source {
	t.Helper()
	pkgs, err := parser.ParseDir(token.NewFileSet(), dir, nil, 0) //nolint:staticcheck // no build tags here
	if err != nil {
		t.Fatal(err)
	}
	s := source{map[string]*ast.TypeSpec{}, map[string][]string{}, map[string]bool{}}
	for name, pkg := range pkgs {
		if strings.HasSuffix(name, "_test") {
			continue
		}
		for file, f := range pkg.Files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			ast.Inspect(f, s.visit)
		}
	}
	return s
}

func (s source) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Name.Name == "MarshalJSON" && n.Recv != nil {
			s.custom[strings.TrimPrefix(types.ExprString(n.Recv.List[0].Type), "*")] = true
		}
		return false
	case *ast.TypeSpec:
		s.types[n.Name.Name] = n
	case *ast.ValueSpec:
		if len(n.Values) == 1 && n.Type != nil {
			if lit, ok := n.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				value, _ := strconv.Unquote(lit.Value)
				of := types.ExprString(n.Type)
				s.constants[of] = append(s.constants[of], value)
				slices.Sort(s.constants[of])
			}
		}
	}
	return true
}

// schema is what a Go type says of its JSON.
func (s source) schema(t *testing.T, typ ast.Expr) object {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return s.schema(t, typ.X)
	case *ast.ArrayType:
		if types.ExprString(typ.Elt) == "byte" {
			return object{"type": "string"}
		}
		return object{"type": "array", "items": s.schema(t, typ.Elt)}
	case *ast.MapType:
		return object{"type": "object", "additionalProperties": s.schema(t, typ.Value)}
	case *ast.StructType:
		out := object{"properties": object{}, "required": []string(nil)}
		s.fields(t, typ, out)
		return out
	}
	switch name := types.ExprString(typ); name {
	case "string":
		return object{"type": "string"}
	case "bool":
		return object{"type": "boolean"}
	case "int", "int64":
		return object{"type": "integer"}
	case "float64":
		return object{"type": "number"}
	case "any", "json.RawMessage":
		return object{}
	case "time.Time":
		return object{"type": "string", "format": "date-time"}
	default:
		if s.types[name] == nil {
			t.Fatalf("there is no rule for the Go type %s: teach this test", name)
		}
		return object{"$ref": "#/components/schemas/" + strings.TrimPrefix(name, "api.")}
	}
}

func (s source) fields(t *testing.T, typ *ast.StructType, out object) {
	props := at(out, "properties")
	own := map[string]bool{} // written in this struct: they win over embedded ones
	for _, f := range typ.Fields.List {
		if len(f.Names) > 0 && f.Tag != nil {
			tag, _ := strconv.Unquote(f.Tag.Value)
			name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			own[name] = true
		}
	}
	for _, f := range typ.Fields.List {
		if len(f.Names) == 0 {
			name := strings.TrimPrefix(types.ExprString(f.Type), "*")
			inner := object{"properties": object{}, "required": []string(nil)}
			s.fields(t, s.types[name].Type.(*ast.StructType), inner)
			for field, p := range at(inner, "properties") {
				if !own[field] {
					props[field] = p
				}
			}
			for _, r := range inner["required"].([]string) {
				if !own[r] {
					out["required"] = append(out["required"].([]string), r)
				}
			}
			continue
		}
		if f.Tag == nil {
			t.Fatalf("a field without a json tag: %v", f.Names)
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if types.ExprString(f.Type) == "*struct{}" || name == "-" { // hides an embedded field, or travels elsewhere
			continue
		}
		props[name] = s.schema(t, f.Type)
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
			out["required"] = append(out["required"].([]string), name)
		}
	}
}
