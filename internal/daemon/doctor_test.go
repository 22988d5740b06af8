package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatAChrootLacksIsSaid(t *testing.T) {
	root := t.TempDir()
	if c := checkMounts(root); c.OK || c.Fix != "mount -t proc proc "+root+"/proc" {
		t.Errorf("without /proc: %+v", c)
	}
	if err := os.Symlink("/proc", filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	null := filepath.Join(root, "dev", "null")
	for _, make := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(null, nil, 0o600) }, // what `> /dev/null` leaves where there was none
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if c := checkMounts(root); c.OK || !strings.Contains(c.Fix, "mknod") {
			t.Errorf("without /dev/null: %+v", c)
		}
	}
	if c := checkMounts("/"); !c.OK {
		t.Errorf("here: %+v", c)
	}
}
