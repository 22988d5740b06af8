package guestapi

import (
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// MaxID is the length of the longest id of a context or an execution.
const MaxID = 128

// ValidID reports whether s can name a context or an execution. Ids stand in
// paths of URLs and files, so none begins with a dot.
func ValidID(s string) bool {
	if s == "" || len(s) > MaxID || s[0] == '.' {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r)) {
			return false
		}
	}
	return true
}

// CheckID refuses an id, or another name that a client chose, that is none.
func CheckID(field, s string) error {
	switch {
	case s == "":
		return fault.InvalidField(field, "%s is missing", field)
	case !ValidID(s):
		return fault.InvalidField(field, "%s must be 1 to %d letters, digits or -_.: and not begin with a dot, but is %.80q", field, MaxID, s)
	}
	return nil
}

// Asks are the requests of notebooks, besides cells, that a context answers.
var Asks = []string{
	"kernel_info_request", "complete_request", "inspect_request", "is_complete_request", "history_request", "comm_info_request",
	"comm_open", "comm_msg", "comm_close",
}

// CheckAsk refuses what is no request of a notebook.
func CheckAsk(a Ask) error {
	switch {
	case !slices.Contains(Asks, a.Type):
		return fault.InvalidField("ask", "a context does not answer %.80q", a.Type)
	case len(a.Content) == 0 || a.Content[0] != '{' || Depth(a.Content) > MaxDepth:
		return fault.InvalidField("ask", "the content must be an object, at most %d deep", MaxDepth)
	case len(a.Buffers) > MaxBuffers:
		return fault.InvalidField("ask", "%d buffers are too many: there may be %d", len(a.Buffers), MaxBuffers)
	}
	return nil
}

// Messages are the types that an event "message" may have.
var Messages = []string{"display_data", "update_display_data", "clear_output", "comm_open", "comm_msg", "comm_close"}

// CheckCode refuses code that cannot be a cell.
func CheckCode(code string) error {
	switch {
	case strings.TrimSpace(code) == "":
		return fault.InvalidField("code", "code is empty")
	case len(code) > MaxCode:
		e := fault.New(api.CodeTooLarge, "code has %d bytes; at most %d MiB are taken", len(code), MaxCode>>20)
		e.Field = "code"
		return e.WithHint("write data to a file in the sandbox and read it from there")
	}
	return nil
}
