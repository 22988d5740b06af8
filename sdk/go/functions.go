package pandastack

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/pandastack/pandastack/api"
)

// Function is a function of this program that Python in a sandbox can call. [Func]
// makes one of a function with types; Risky and TimeoutSeconds may be set on it.
type Function struct {
	api.ToolFunction

	// Do carries out a call. What it gives is encoded as JSON. An error whose type
	// is *ToolError keeps its kind, that of others is "failed". The context ends when
	// nobody waits for the result any more. A panic is the program's, and ends it.
	Do ToolFunc
}

// Func makes a function of this program a tool, named as an identifier, or as
// NAMESPACE.IDENTIFIER. The description is the docstring in Python, and what a model
// is told.
//
// Its arguments are the fields of In, a struct, with the names of their json tags;
// those with omitempty or omitzero may be left out, and a jsonschema tag is the
// description. Arguments that do not fit are errors of the kind "invalid", for which
// f is not called. Func panics when In or Out have no JSON schema, as a channel has
// none, or that of In is not one of an object.
//
//	type Find struct {
//		Email string `json:"email" jsonschema:"mail address"`
//	}
//	find := pandastack.Func("find_customer", "Find a customer.", func(ctx context.Context, in Find) (Customer, error) { … })
func Func[In, Out any](name, description string, f func(ctx context.Context, in In) (Out, error)) Function {
	parameters := schemaOf(name, reflect.TypeFor[In]())
	if parameters.Type != "object" {
		panic(fmt.Sprintf("pandastack: %s: its arguments must be a struct, not %v", name, reflect.TypeFor[In]()))
	}
	plainLists(parameters)
	out := Function{ToolFunction: api.ToolFunction{Name: name, Description: description, Parameters: encoded(name, parameters)}}
	if t := reflect.TypeFor[Out](); t.Kind() != reflect.Interface {
		returns := schemaOf(name, t)
		if t.Kind() == reflect.Slice {
			returns.Type, returns.Types = "array", nil // see listed
		}
		out.Returns = encoded(name, returns)
	}
	out.Do = func(ctx context.Context, call api.ToolMessage) (any, error) {
		var in In
		if len(call.Arguments) > 0 {
			if err := json.Unmarshal(call.Arguments, &in); err != nil {
				return nil, &ToolError{Kind: "invalid", Message: "its arguments do not fit: " + strings.TrimPrefix(err.Error(), "json: ")}
			}
		}
		value, err := f(ctx, in)
		return listed(value), err
	}
	return out
}

// listed gives an empty list for none, which would be None in Python.
func listed(value any) any {
	if v := reflect.ValueOf(value); v.IsValid() && v.Kind() == reflect.Slice && v.IsNil() {
		return []struct{}{}
	}
	return value
}

func schemaOf(name string, t reflect.Type) *jsonschema.Schema {
	s, err := jsonschema.ForType(t, nil)
	if err != nil {
		panic(fmt.Sprintf("pandastack: %s: %v has no JSON schema: %v", name, t, err))
	}
	return s
}

func encoded(name string, s *jsonschema.Schema) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("pandastack: %s: %v", name, err))
	}
	return raw
}

// plainLists takes null from lists of arguments: nobody means to give it.
func plainLists(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	plainLists(s.Items)
	plainLists(s.AdditionalProperties)
	for _, property := range s.Properties {
		plainLists(property)
	}
}

// with gives tools with functions of this program among them.
func with(tools *api.Tools, functions []Function) *api.Tools {
	if len(functions) == 0 {
		return tools
	}
	var out api.Tools
	if tools != nil {
		out = *tools
	}
	out.Functions = slices.Clone(out.Functions)
	for _, f := range functions {
		out.Functions = append(out.Functions, f.ToolFunction)
	}
	return &out
}

// keepServing has functions called until the server does not want them any more, or
// stop is called; it returns when calls are taken. The context is for that alone.
func (c *Client) keepServing(ctx context.Context, path string, functions []Function) (stop func(), err error) {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	ready, over := make(chan struct{}), make(chan error, 1)
	go func() { over <- c.serveTools(own, path, functions, func() { close(ready) }) }()
	select {
	case <-ready:
		return stop, nil
	case err = <-over:
	case <-ctx.Done():
		err = fmt.Errorf("pandastack: connecting for tools: %w", context.Cause(ctx))
	}
	stop()
	return nil, err
}

// connect has calls of functions come here, from now on.
func (s *Sandbox) connect(ctx context.Context, functions []Function) (err error) {
	s.CloseTools()
	if len(functions) == 0 {
		return nil
	}
	s.functions = functions
	s.stop, err = s.client.keepServing(ctx, s.path+"/tools/connect", functions)
	return err
}

// CloseTools takes this program's functions away, those of Create and SetTools: calls
// of them fail from then on, and those in flight are interrupted.
func (s *Sandbox) CloseTools() {
	if s.stop != nil {
		s.stop()
	}
	s.stop, s.functions = nil, nil
}

// lacking is an error when the code of a run calls functions of a program that are
// not among these: each call of a fork, a replay or a follow-up would fail.
func (c *Client) lacking(ctx context.Context, run string, functions []Function) error {
	r, err := c.GetAgent(ctx, run)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(r.Info.Functions), func(name string) bool {
		return slices.ContainsFunc(functions, func(f Function) bool { return f.Name == name })
	})
	if len(missing) == 0 {
		return nil
	}
	return &Error{
		Code: api.CodeInvalid, Field: "functions", Message: fmt.Sprintf("pandastack: the code of %s calls functions of a program that are not here: %s", run, strings.Join(missing, ", ")),
		Hint: "give them, from a program that has them: AgentOptions.Functions in Go, Agent(tools=[…]).get(id) in Python, new Agent({ tools: […] }).get(id) in TypeScript",
	}
}
