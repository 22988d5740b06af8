//go:build ignore

package tmpfs

import (
	"fmt"
	"strings"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// Sized is a file system in memory whose size can be changed.
type Sized struct{ fs *filesystem }

// SizedOf finds the file system in memory behind a vfs.Filesystem. That of
// devices keeps its size.
func SizedOf(fs *vfs.Filesystem) (Sized, bool) {
	t, ok := fs.Impl().(*filesystem)
	return Sized{t}, ok && fs.FilesystemType().Name() == Name
}

// Explicit reports whether it was mounted with a size.
func (s Sized) Explicit() bool { return strings.Contains(s.fs.mopts, optSize+"=") }

// Size gives what is used and may be used, in bytes, and how often more was
// refused.
func (s Sized) Size() (used, limit, refused uint64) {
	return s.fs.pagesUsed.Load() * hostarch.PageSize, s.fs.maxSizeInPages * hostarch.PageSize, s.fs.refused.Load()
}

// Resize gives it another size, which must not be less than what is used. The
// number is one word that is read without a lock: whoever writes at this moment
// is held to the old size or to the new one.
func (s Sized) Resize(bytes uint64) error {
	pages := bytes / hostarch.PageSize
	if used := s.fs.pagesUsed.Load(); used > pages {
		return fmt.Errorf("too small for the %d bytes that are used", used*hostarch.PageSize)
	}
	s.fs.maxSizeInPages = pages
	return nil
}
