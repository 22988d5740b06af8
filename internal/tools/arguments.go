package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// nothing loads no schema from anywhere: what a schema refers to stands in it.
type nothing struct{}

func (nothing) Load(url string) (any, error) { return nil, fmt.Errorf("%s is not in the schema", url) }

// compiled gives the schema of a tool's arguments, nil when it is one that cannot
// be used: then the tool itself says what is wrong.
func compiled(raw json.RawMessage) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	if c.AddResource("tool:arguments", doc) != nil {
		return nil
	}
	s, err := c.Compile("tool:arguments")
	if err != nil {
		return nil
	}
	return s
}

// checkArguments holds arguments against the tool's schema. It gives them in a
// form in which no name is there twice, so that what a policy looks at is what
// the tool gets.
func checkArguments(t *Tool, raw json.RawMessage) (json.RawMessage, error) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(raw, &args); err != nil || args == nil {
		return nil, failed(KindInvalid, "the arguments are no JSON object")
	}
	plain, err := json.Marshal(args)
	if err != nil {
		return nil, failed(KindInvalid, "the arguments are no JSON: %v", err)
	}
	if len(t.Parameters) == 0 && len(args) > 0 {
		return nil, failed(KindInvalid, "it takes no arguments")
	}
	var required []string
	if t.schema != nil {
		required = t.schema.Required
	} else {
		required = parse(t.Parameters).Required
	}
	for _, name := range required {
		if _, there := args[name]; !there {
			return nil, failed(KindInvalid, "the argument %s is missing", name).hint("%s%s", t.Name, t.stub.Signature)
		}
	}
	if t.schema == nil {
		return plain, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return nil, failed(KindInvalid, "the arguments are no JSON: %v", err)
	}
	if err := affordable(t.schema, doc); err != nil {
		return nil, err
	}
	if err := t.schema.Validate(doc); err != nil {
		return nil, failed(KindInvalid, "%s", wrongWords(err)).hint("%s%s", t.Name, t.stub.Signature)
	}
	return plain, nil
}

var english = message.NewPrinter(language.English)

// wrongWords says what does not fit: the deepest causes, a line.
func wrongWords(err error) string {
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return err.Error()
	}
	var out []string
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 && len(out) < 5 {
			where := strings.Join(e.InstanceLocation, ".")
			if where == "" {
				where = "the arguments"
			}
			out = append(out, where+": "+e.ErrorKind.LocalizedString(english))
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(v)
	return cut(strings.Join(out, "; "), 1000)
}
