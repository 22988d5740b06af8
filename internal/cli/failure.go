package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// The exit codes.
const (
	exitOK         = 0
	exitFailed     = 1 // the work failed: a cell raised
	exitUsage      = 2
	exitNotFound   = 3
	exitDenied     = 4
	exitTimeout    = 5
	exitNoCapacity = 6
	exitNoDaemon   = 7
	exitInternal   = 70
	exitSignal     = 130
)

// exitMeanings is the table of the manual page.
var exitMeanings = []struct {
	code  int
	means string
}{
	{exitOK, "All went well."},
	{exitFailed, "The work failed: a cell raised, the state of a sandbox forbade it. A command's own code comes through exec, attach and run."},
	{exitUsage, "The command line or a value is wrong."},
	{exitNotFound, "What was named is not there."},
	{exitDenied, "The key is missing or wrong, or may not do this."},
	{exitTimeout, "A deadline was reached."},
	{exitNoCapacity, "There is no room, or too much at once."},
	{exitNoDaemon, "No daemon was reached."},
	{exitInternal, "Something broke inside."},
	{exitSignal, "Interrupted."},
}

// exitOf is the one table from error codes to exit codes.
var exitOf = map[api.Code]int{
	api.CodeInvalid:         exitUsage,
	api.CodeUnauthenticated: exitDenied,
	api.CodeDenied:          exitDenied,
	api.CodeNotFound:        exitNotFound,
	api.CodeConflict:        exitFailed,
	api.CodeTooLarge:        exitUsage,
	api.CodeRateLimited:     exitNoCapacity,
	api.CodeInternal:        exitInternal,
	api.CodeUnsupported:     exitFailed,
	api.CodeUnreachable:     exitFailed,
	api.CodeNoCapacity:      exitNoCapacity,
	api.CodeTimeout:         exitTimeout,
	api.CodeNoSpace:         exitNoCapacity,
}

// hintOf is what to do about an error whose maker does not say it.
var hintOf = map[api.Code]string{
	api.CodeInvalid:         "pandastack --help shows how",
	api.CodeUnauthenticated: "set PANDASTACK_API_KEY, name a --profile of ~/.config/pandastack/config.json, or be in the group that may read /etc/pandastack/client.json",
	api.CodeDenied:          "use another key, or have one made that may do this: pandastack key create --scope",
	api.CodeNotFound:        "ids and names are in the lists: pandastack sandbox ls, snapshot ls, template ls, agent ls, secret ls, key ls",
	api.CodeConflict:        "look at what it is doing: pandastack sandbox get ID, pandastack sandbox events ID",
	api.CodeTooLarge:        "send less at once; files of any size go with pandastack sandbox cp",
	api.CodeRateLimited:     "wait a moment, and try again",
	api.CodeInternal:        "what the daemon's log says of this request is the reason",
	api.CodeUnsupported:     "pandastack doctor says what this machine can do",
	api.CodeUnreachable:     "see what listens in it: pandastack sandbox ports ID",
	api.CodeNoCapacity:      "end what is not needed: pandastack sandbox top, pandastack sandbox kill ID",
	api.CodeTimeout:         "give it more time (--timeout), or start it with --detach",
	api.CodeNoSpace:         "remove what is not needed, in the sandbox or of pandastack snapshot ls",
}

// exitCode is that of an error's code; one of a newer server is no success either.
func exitCode(code api.Code) int {
	if exit, ok := exitOf[code]; ok {
		return exit
	}
	return exitInternal
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// failed is an exit code whose reason was already shown.
type failed int

func (f failed) Error() string { return fmt.Sprintf("exit code %d", int(f)) }

// report shows an error and gives its exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	var f failed
	if errors.As(err, &f) {
		return int(f)
	}
	body, code := explain(err)
	if body.Hint == "" {
		body.Hint = hintOf[body.Code]
	}
	body.Message = strings.TrimPrefix(body.Message, "pandastack: ") // as the SDK's errors begin, too
	if a.flags.JSON {
		raw, _ := json.Marshal(body) // of strings alone
		if a.ErrTerm {
			raw = []byte(escaped(string(raw)))
		}
		fmt.Fprintln(a.Err, string(raw))
		return code
	}
	fmt.Fprintln(a.Err, "pandastack:", text(body.Message)) // which names files and more of sandboxes
	if body.Hint != "" {
		fmt.Fprintln(a.Err, "  "+text(body.Hint))
	}
	return code
}

func explain(err error) (api.Error, int) {
	var (
		remote *pandastack.Error
		local  *fault.Error
		usage  usageError
		file   *fs.PathError // of this machine
	)
	switch {
	case errors.As(err, &remote):
		e := api.Error{Message: remote.Message, Code: remote.Code, Hint: remote.Hint, Field: remote.Field, RequestID: remote.RequestID}
		if remote.Code == api.CodeUnauthenticated {
			e.Message, e.Hint = "the server does not accept the key", ""
		}
		return e, exitCode(remote.Code)
	case errors.As(err, &local):
		return api.Error{Message: err.Error(), Code: local.Code, Hint: local.Hint, Field: local.Field}, exitCode(local.Code)
	case errors.As(err, &usage):
		return api.Error{Message: err.Error(), Code: api.CodeInvalid}, exitUsage
	case errors.Is(err, pandastack.ErrConnection):
		return api.Error{Message: err.Error(), Hint: "start it with: pandastack serve"}, exitNoDaemon
	case errors.Is(err, syscall.ENOSPC):
		return api.Error{Message: err.Error(), Code: api.CodeNoSpace, Hint: "make room on this machine's disk"}, exitNoCapacity
	case errors.As(err, &file):
		return api.Error{Message: err.Error(), Code: api.CodeInvalid, Hint: "look at the path, and at who may read and write there"}, exitUsage
	case errors.Is(err, context.Canceled):
		return api.Error{Message: "interrupted"}, exitSignal
	}
	return api.Error{Message: err.Error(), Code: api.CodeInternal}, exitInternal
}
