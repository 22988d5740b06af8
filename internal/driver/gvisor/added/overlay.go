//go:build ignore

package overlay

import "gvisor.dev/gvisor/pkg/sentry/vfs"

// Upper gives the file system that holds what is written to an overlay, nil
// for any other.
func Upper(fs *vfs.Filesystem) *vfs.Filesystem {
	o, ok := fs.Impl().(*filesystem)
	if !ok || !o.opts.UpperRoot.Ok() {
		return nil
	}
	return o.opts.UpperRoot.Mount().Filesystem()
}
