package template

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// Programs and libraries are what a root filesystem is known by; what Python
// compiles, and what stands elsewhere, is not.
func TestContents(t *testing.T) {
	made := func(files map[string]string) string {
		t.Helper()
		root := t.TempDir()
		for name, text := range files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("lib.so.1", filepath.Join(root, "usr", "lib.so")); err != nil {
			t.Fatal(err)
		}
		sum, err := contents(context.Background(), root)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	first := made(map[string]string{"usr/lib.so.1": "abc"})
	for what, files := range map[string]map[string]string{
		"the same": {"usr/lib.so.1": "abc"},
		"compiled": {"usr/lib.so.1": "abc", "usr/__pycache__/x.pyc": "y"},
		"a log":    {"usr/lib.so.1": "abc", "var/log/x": "y"},
	} {
		if got := made(files); got != first {
			t.Errorf("%s: %s, not %s", what, got, first)
		}
	}
	for what, files := range map[string]map[string]string{
		"another size": {"usr/lib.so.1": "abcd"},
		"another name": {"usr/lib.so.2": "abc"},
		"one more":     {"usr/lib.so.1": "abc", "opt/venv/x.py": ""},
	} {
		if got := made(files); got == first {
			t.Errorf("%s is not seen", what)
		}
	}
}
