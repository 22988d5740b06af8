package python

import (
	"io/fs"
	"strings"
	"testing"
)

func TestFilesHoldThePackage(t *testing.T) {
	for _, name := range []string{"__init__.py", "zygote.py", "context.py", "warmup.py", "matplotlib_backend.py"} {
		if _, err := fs.Stat(FS, "pandastack_kernel/"+name); err != nil {
			t.Errorf("%s is not embedded: %v", name, err)
		}
	}
	err := fs.WalkDir(FS, ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, "__pycache__") || strings.HasSuffix(path, ".pyc") {
			t.Errorf("%s must not be embedded", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestHashIsStable(t *testing.T) {
	if first := Hash(); len(first) != 64 || first != Hash() {
		t.Fatalf("Hash() = %q", Hash())
	}
}
