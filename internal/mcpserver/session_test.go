package mcpserver

import (
	"context"
	"errors"
	"testing"
)

// Names of contexts are the client's, of any number and length.
func TestTurnsAreForgotten(t *testing.T) {
	all := turns{of: map[string]*turn{}}
	done, err := all.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := all.take(gone, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("two are in: %v", err)
	}
	if len(all.of) != 1 {
		t.Errorf("one is in, and %d are kept", len(all.of))
	}
	next := make(chan func())
	go func() {
		done, err := all.take(t.Context(), "a")
		if err != nil {
			t.Error(err)
		}
		next <- done
	}()
	done()
	(<-next)()
	if len(all.of) != 0 {
		t.Errorf("nobody is in, and %d are kept", len(all.of))
	}
}
