package tools

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schemas and arguments are of strangers, and the library that holds one against
// the other can be made to do it for ever. What it will take is counted first.
const (
	maxSteps    = 1 << 20 // each a schema against a value, or against 1 KiB of a string
	maxDigits   = 1000    // of a number
	maxExponent = 1000    // of a number: what is larger is no double, and takes megabytes as an integer
)

// affordable refuses arguments that take too long to be held against a schema.
func affordable(s *jsonschema.Schema, doc any) error {
	v, err := measured(doc)
	if err != nil {
		return err
	}
	e := effort{known: map[pair]int{}}
	if e.of(s, v) > maxSteps {
		return failed(KindTooLarge, "it takes more than %d steps to hold the arguments against the schema, the most there may be", maxSteps).
			hint("give less in one call, or write it to a file or a place that both sides reach")
	}
	return nil
}

// value is what counts of an argument.
type value struct {
	members map[string]*value
	items   []*value
	kib     int // of a string
}

// plain are all values that are small and have nothing in them.
var plain = &value{}

func measured(doc any) (*value, error) {
	switch doc := doc.(type) {
	case map[string]any:
		v := &value{members: make(map[string]*value, len(doc))}
		for name, one := range doc {
			m, err := measured(one)
			if err != nil {
				return nil, err
			}
			v.members[name] = m
		}
		return v, nil
	case []any:
		v := &value{items: make([]*value, 0, len(doc))}
		for _, one := range doc {
			m, err := measured(one)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, m)
		}
		return v, nil
	case string:
		if kib := len(doc) >> 10; kib > 0 {
			return &value{kib: kib}, nil
		}
	case json.Number:
		_, exponent, _ := strings.Cut(strings.ToLower(doc.String()), "e")
		n, err := strconv.Atoi(exponent)
		if exponent != "" && (err != nil || n > maxExponent || n < -maxExponent) || len(doc) > maxDigits {
			return nil, failed(KindTooLarge, "the arguments have a number of more than %d digits: %.40s…", maxDigits, doc).hint("give it as a string")
		}
	}
	return plain, nil
}

type pair struct {
	schema *jsonschema.Schema
	value  *value
}

// effort counts steps. It looks at a schema with a value once, however often
// the library will.
type effort struct{ known map[pair]int }

const (
	under = -1           // a pair that is being looked at
	never = maxSteps + 1 // it is too much, or would not end
)

func (e *effort) of(s *jsonschema.Schema, v *value) int {
	if s == nil {
		return 0
	}
	at := pair{s, v}
	switch n, seen := e.known[at]; {
	case n == under, s.DynamicRef != nil, s.RecursiveRef != nil: // the last two lead where only the library knows
		return never
	case seen:
		return n
	}
	e.known[at] = under
	n := 1 + v.kib + len(s.Required)
	if s.Enum != nil {
		n += len(s.Enum.Values)
	}
	add := func(s *jsonschema.Schema, v *value) {
		if n <= maxSteps {
			n += e.of(s, v)
		}
	}
	for _, same := range [][]*jsonschema.Schema{{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf} {
		for _, one := range same {
			add(one, v)
		}
	}
	for _, one := range s.DependentSchemas {
		add(one, v)
	}
	for _, one := range s.Dependencies {
		add(asSchema(one), v)
	}
	for name, m := range v.members {
		n += len(s.PatternProperties)
		for _, one := range []*jsonschema.Schema{s.Properties[name], asSchema(s.AdditionalProperties), s.UnevaluatedProperties} {
			add(one, m)
		}
		for _, one := range s.PatternProperties {
			add(one, m)
		}
		add(s.PropertyNames, plain)
	}
	listed, _ := s.Items.([]*jsonschema.Schema)
	listed = append(listed[:len(listed):len(listed)], s.PrefixItems...)
	for i, m := range v.items {
		if i < len(listed) {
			add(listed[i], m)
		}
		for _, one := range []*jsonschema.Schema{asSchema(s.Items), asSchema(s.AdditionalItems), s.Items2020, s.Contains, s.UnevaluatedItems} {
			add(one, m)
		}
	}
	e.known[at] = min(n, never)
	return e.known[at]
}

// asSchema is one where the library says that there may be something else.
func asSchema(v any) *jsonschema.Schema {
	s, _ := v.(*jsonschema.Schema)
	return s
}
