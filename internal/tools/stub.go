package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// stub is the Python of a function, made of its schema. Names, documentation and
// schemas come from strangers: whatever they hold, it is quoted.
type stub struct {
	Name      string `json:"name"`   // of the tool
	Python    string `json:"python"` // of the function
	Signature string `json:"signature"`
	Summary   string `json:"summary"`
	Doc       string `json:"doc,omitempty"`
	Types     string `json:"types,omitempty"` // classes that the signature names
	Source    string `json:"source"`
}

const (
	maxDoc     = 4000 // bytes of documentation
	maxNesting = 6    // of types; below it is Any
	maxClasses = 30   // of one function
	maxLiteral = 20   // values of an enumeration that are listed
)

var keywords = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield") {
		m[w] = true
	}
	return m
}()

// pyName makes an identifier of a name.
func pyName(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 128 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "_"):
			b.WriteByte('_')
		}
	}
	name := strings.TrimRight(b.String(), "_")
	if len(name) > 64 {
		name = name[:64]
	}
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "n" + name
	}
	if keywords[name] || strings.HasPrefix(name, "_") {
		name += "_"
	}
	return name
}

// pyString quotes a string for Python.
func pyString(s string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(s, "\ufffd")) }

// pyDoc makes the text of a docstring.
func pyDoc(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "\ufffd"))
	return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"""`, `'''`)
}

func docstring(indent, s string) string {
	s = pyDoc(s)
	if strings.HasSuffix(s, `"`) {
		s += " "
	}
	var b strings.Builder
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteByte('\n')
			if strings.TrimSpace(line) != "" {
				b.WriteString(indent)
			}
		}
		b.WriteString(strings.TrimRight(line, " \t"))
	}
	text := b.String()
	if strings.Contains(text, "\n") {
		text += "\n" + indent
	}
	return indent + `"""` + text + `"""` + "\n"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// member is one property of an object, in the order of the schema.
type member struct {
	name     string
	schema   json.RawMessage
	required bool
}

// ordered gives the members of a JSON object in their order.
func ordered(raw json.RawMessage) (out []member) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var v json.RawMessage
		if err != nil || !ok || dec.Decode(&v) != nil {
			return out
		}
		out = append(out, member{name: name, schema: v})
	}
	return out
}

// schema is what is read of a JSON schema.
type schema struct {
	Ref                  string            `json:"$ref"`
	Type                 json.RawMessage   `json:"type"`
	Description          string            `json:"description"`
	Title                string            `json:"title"`
	Enum                 []json.RawMessage `json:"enum"`
	Const                json.RawMessage   `json:"const"`
	Default              json.RawMessage   `json:"default"`
	Properties           json.RawMessage   `json:"properties"`
	Required             []string          `json:"required"`
	Items                json.RawMessage   `json:"items"`
	AdditionalProperties json.RawMessage   `json:"additionalProperties"`
	AnyOf                []json.RawMessage `json:"anyOf"`
	OneOf                []json.RawMessage `json:"oneOf"`
	AllOf                []json.RawMessage `json:"allOf"`
	Nullable             bool              `json:"nullable"`
}

func parse(raw json.RawMessage) (s schema) {
	_ = json.Unmarshal(raw, &s) // what is no schema says nothing
	return s
}

// members gives the properties of an object, the required ones first.
func (s schema) members() []member {
	all := ordered(s.Properties)
	for i := range all {
		all[i].required = slices.Contains(s.Required, all[i].name)
	}
	slices.SortStableFunc(all, func(a, b member) int {
		switch {
		case a.required == b.required:
			return 0
		case a.required:
			return -1
		}
		return 1
	})
	return all
}

// fielded tells whether it names any property.
func (s schema) fielded() bool { return len(ordered(s.Properties)) > 0 }

// typing turns schemas into annotations, and objects in them into classes.
type typing struct {
	root    json.RawMessage // that references are found in
	classes []string
	names   map[string]bool
	refs    map[string]string // to classes
}

func (t *typing) annotation(raw json.RawMessage, hint string, depth int) string {
	if depth > maxNesting || len(raw) == 0 || raw[0] != '{' {
		return "Any"
	}
	s := parse(raw)
	if s.Ref != "" {
		if name := t.refs[s.Ref]; name != "" {
			return name
		}
		target := pointer(t.root, s.Ref)
		if target == nil {
			return "Any"
		}
		at := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		if p := parse(target); p.fielded() {
			return t.class(p, at, s.Ref, depth)
		}
		return t.annotation(target, at, depth+1)
	}
	kind := t.kind(s, hint, depth)
	if s.Nullable && kind != "Any" && kind != "None" {
		kind += " | None"
	}
	return kind
}

func (t *typing) kind(s schema, hint string, depth int) string {
	values := s.Enum
	if len(s.Const) > 0 {
		values = []json.RawMessage{s.Const}
	}
	if lit := literals(values); lit != "" {
		return lit
	}
	for _, options := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		if len(options) > 0 {
			return t.union(options, hint, depth)
		}
	}
	if len(s.AllOf) > 0 && !s.fielded() {
		if len(s.AllOf) == 1 {
			return t.annotation(s.AllOf[0], hint, depth+1)
		}
		return "dict[str, Any]"
	}
	var several []string
	if json.Unmarshal(s.Type, &several) == nil && len(several) > 0 {
		var options []json.RawMessage
		for _, one := range several {
			quoted, _ := json.Marshal(one)
			part := s
			part.Type = quoted
			options = append(options, partOf(part))
		}
		return t.union(options, hint, depth)
	}
	var one string
	_ = json.Unmarshal(s.Type, &one)
	switch one {
	case "string":
		return "str"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "boolean":
		return "bool"
	case "null":
		return "None"
	case "array":
		if item := t.annotation(s.Items, hint+"Item", depth+1); item != "Any" {
			return "list[" + item + "]"
		}
		return "list"
	}
	if one != "object" && !s.fielded() {
		return "Any"
	}
	if s.fielded() {
		return t.class(s, hint, "", depth)
	}
	if v := t.annotation(s.AdditionalProperties, hint+"Value", depth+1); v != "Any" {
		return "dict[str, " + v + "]"
	}
	return "dict[str, Any]"
}

// partOf is a schema of one of several types.
func partOf(s schema) json.RawMessage {
	m := map[string]any{"type": s.Type}
	if len(s.Items) > 0 {
		m["items"] = s.Items
	}
	if len(s.Properties) > 0 {
		m["properties"], m["required"] = s.Properties, s.Required
	}
	raw, _ := json.Marshal(m)
	return raw
}

func (t *typing) union(options []json.RawMessage, hint string, depth int) string {
	var parts []string
	for _, o := range options {
		p := t.annotation(o, hint, depth+1)
		if p == "Any" {
			return "Any"
		}
		if !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " | ")
}

func literals(values []json.RawMessage) string {
	if len(values) == 0 || len(values) > maxLiteral {
		return ""
	}
	var parts []string
	for _, raw := range values {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return ""
		}
		switch v := v.(type) {
		case string:
			parts = append(parts, pyString(cut(v, 200)))
		case bool:
			parts = append(parts, map[bool]string{true: "True", false: "False"}[v])
		case nil:
			parts = append(parts, "None")
		case float64:
			if v != float64(int64(v)) {
				return ""
			}
			parts = append(parts, strconv.FormatInt(int64(v), 10))
		default:
			return ""
		}
	}
	return "Literal[" + strings.Join(parts, ", ") + "]"
}

// class writes a TypedDict and gives its name.
func (t *typing) class(s schema, hint, ref string, depth int) string {
	if len(t.classes) >= maxClasses {
		return "dict[str, Any]"
	}
	name := pyName(hint)
	name = strings.ToUpper(name[:1]) + name[1:]
	for base, n := name, 2; t.names[name]; n++ {
		name = base + strconv.Itoa(n)
	}
	t.names[name] = true
	if ref != "" {
		t.refs[ref] = name
	}
	at := len(t.classes)
	t.classes = append(t.classes, "") // its own place, before those it names
	plain := true
	var fields []string
	for _, m := range s.members() {
		a := t.annotation(m.schema, name+"_"+m.name, depth+1)
		if !m.required {
			a = "NotRequired[" + a + "]"
		}
		if pyName(m.name) != m.name || strings.HasPrefix(m.name, "_") {
			plain = false
		}
		fields = append(fields, m.name+"\x00"+a)
	}
	var b strings.Builder
	if plain {
		fmt.Fprintf(&b, "class %s(TypedDict):\n", name)
		for _, f := range fields {
			n, a, _ := strings.Cut(f, "\x00")
			fmt.Fprintf(&b, "    %s: %s\n", n, a)
		}
	} else {
		fmt.Fprintf(&b, "%s = TypedDict(%s, {", name, pyString(name))
		for i, f := range fields {
			n, a, _ := strings.Cut(f, "\x00")
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s: %s", pyString(n), pyString(a))
		}
		b.WriteString("})\n")
	}
	t.classes[at] = b.String()
	return name
}

// pointer follows a reference within a document, nil when it leads nowhere.
func pointer(root json.RawMessage, ref string) json.RawMessage {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok || len(root) == 0 {
		return nil
	}
	at := root
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		var m map[string]json.RawMessage
		if json.Unmarshal(at, &m) != nil {
			return nil
		}
		if at = m[part]; at == nil {
			return nil
		}
	}
	return at
}

// newStub writes the Python of a tool.
func newStub(t Tool) stub {
	last := t.Name[strings.LastIndexByte(t.Name, '.')+1:]
	ty := &typing{root: t.Parameters, names: map[string]bool{}, refs: map[string]string{}}
	params := parse(t.Parameters)
	var args, pairs, notes []string
	taken := map[string]bool{}
	for _, m := range params.members() {
		name := pyName(m.name)
		for taken[name] {
			name += "_"
		}
		taken[name] = true
		p := parse(m.schema)
		arg := name + ": " + ty.annotation(m.schema, last+"_"+m.name, 0)
		if !m.required {
			arg += " = ..."
		}
		args = append(args, arg)
		pairs = append(pairs, pyString(m.name)+": "+name)
		note := oneLine(p.Description)
		if len(p.Default) > 0 && len(p.Default) < 100 {
			note = strings.TrimSpace(note + " Default: " + string(p.Default) + ".")
		}
		if note != "" {
			notes = append(notes, "    "+name+": "+cut(note, 500))
		}
	}
	returns := "Any"
	if len(t.Returns) > 0 {
		ty.root = t.Returns
		ty.refs = map[string]string{}
		returns = ty.annotation(t.Returns, last+"_result", 0)
	}
	signature := "(" + strings.Join(args, ", ") + ") -> " + returns
	doc := cut(strings.TrimSpace(t.Description), maxDoc)
	summary, _, _ := strings.Cut(doc, "\n")
	text := doc
	if len(notes) > 0 {
		text = strings.TrimSpace(doc + "\n\nArgs:\n" + strings.Join(notes, "\n"))
	}
	if r := oneLine(parse(t.Returns).Description); r != "" {
		text += "\n\nReturns:\n    " + cut(r, 500)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "def %s%s:\n", last, signature)
	if text = strings.TrimSpace(text); text != "" {
		b.WriteString(docstring("    ", text))
	}
	fmt.Fprintf(&b, "    return _call(%s, {%s})\n", pyString(t.Name), strings.Join(pairs, ", "))
	return stub{
		Name: t.Name, Python: last, Signature: signature, Summary: cut(oneLine(summary), 200), Doc: cut(doc, 500),
		Types: strings.Join(ty.classes, "\n"), Source: b.String(),
	}
}

// shown is a stub as a model is shown it: without the body that carries the call.
func (s stub) shown() string {
	head, _, _ := strings.Cut(s.Source, "    return _call(")
	if i := strings.LastIndex(s.Source, "    return _call("); i >= 0 {
		head = s.Source[:i]
	}
	if strings.HasSuffix(strings.TrimRight(head, "\n"), ":") && !strings.Contains(head, `"""`) {
		head = strings.TrimRight(head, "\n") + " ...\n"
	}
	if s.Types != "" {
		return s.Types + "\n" + head
	}
	return head
}
