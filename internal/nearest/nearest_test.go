package nearest

import (
	"slices"
	"testing"
)

func TestNames(t *testing.T) {
	have := []string{"base", "code-interpreter", "node-22", "ubuntu-24.04"}
	for _, tc := range []struct {
		want string
		near []string
	}{
		{"code-interpeter", []string{"code-interpreter"}},
		{"code_interpreter", []string{"code-interpreter"}},
		{"Code-Interpreter", []string{"code-interpreter"}},
		{"ubuntu", []string{"ubuntu-24.04"}},
		{"baes", []string{"base"}},
		{"python", nil},
		{"", nil},
	} {
		if got := Names(tc.want, have); !slices.Equal(got, tc.near) {
			t.Errorf("Names(%q) = %q, want %q", tc.want, got, tc.near)
		}
	}
}

func TestHintNamesWhatThereIsWhenNothingIsNear(t *testing.T) {
	if got, want := Hint("python", []string{"base", "node"}, "templates"), "there is base, node"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Hint("x", nil, "templates"); got != "" {
		t.Errorf("got %q for nothing", got)
	}
}
