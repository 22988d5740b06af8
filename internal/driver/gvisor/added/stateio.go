//go:build ignore

package stateio

import (
	"io"

	"golang.org/x/sys/unix"
)

// ReadNow fills dst from an offset of the file, beside what AddRead has begun.
func (r *FDReader) ReadNow(dst []byte, off uint64) error {
	for len(dst) > 0 {
		n, err := unix.Pread(int(r.fd), dst, int64(off))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		dst, off = dst[n:], off+uint64(n)
	}
	return nil
}
