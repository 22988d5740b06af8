package fault

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestKindSurvivesWrapping(t *testing.T) {
	err := fmt.Errorf("outer: %w", New(api.CodeNotFound, "no sandbox %q", "x"))
	if !errors.Is(err, NotFound) {
		t.Error("wrapped not_found is not fault.NotFound")
	}
	if errors.Is(err, Conflict) {
		t.Error("not_found is taken for conflict")
	}
	if got := CodeOf(err); got != api.CodeNotFound {
		t.Errorf("CodeOf = %q", got)
	}
	if got := CodeOf(errors.New("x")); got != api.CodeInternal {
		t.Errorf("CodeOf of a plain error = %q, want internal", got)
	}
}
