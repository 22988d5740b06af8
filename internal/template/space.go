package template

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// rootfsSpace is what making a root filesystem of the larger recipe takes on
// the way: the bootstrapper's copy, ours, the cache, the wheels.
const rootfsSpace = 6 << 30

// checkSpace says that a disk is too full before minutes of work find out.
func checkSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask how much of the disk is free: %w", err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fault.New(api.CodeNoSpace, "%s has %d MB free, and a build needs up to %d", filepath.Clean(dir), free>>20, need>>20).
			WithHint("make room, or put the data directory on another disk")
	}
	return nil
}
