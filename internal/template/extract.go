package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxID is the largest owner or group that a user namespace of 65536 ids holds.
const maxID = 1<<16 - 1

// extractor lays out a root filesystem from a tar stream, every owner raised by
// a fixed number, so that root in there is nobody on the host. It never leaves
// its folder, whatever the names and links in the stream say.
type extractor struct {
	root   *os.Root
	raise  int // added to owners and groups
	buffer []byte
	dirs   []*tar.Header // modes and times are set last: laying out files changes them
}

// extract reads the whole stream into dir, which must exist and be empty.
func extract(ctx context.Context, dir string, stream io.Reader, raise int) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the folder of the root filesystem: %w", err)
	}
	defer root.Close()
	x := &extractor{root: root, raise: raise, buffer: make([]byte, 1<<20)}
	archive := tar.NewReader(stream)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the root filesystem's archive: %w", err)
		}
		if err := x.entry(header, archive); err != nil {
			return fmt.Errorf("lay out %s: %w", header.Name, err)
		}
	}
	for i := len(x.dirs) - 1; i >= 0; i-- {
		if err := x.finishDir(x.dirs[i]); err != nil {
			return fmt.Errorf("lay out %s: %w", x.dirs[i].Name, err)
		}
	}
	return nil
}

func (x *extractor) entry(header *tar.Header, content io.Reader) error {
	name := path.Clean(strings.TrimPrefix(header.Name, "/"))
	if header.Uid < 0 || header.Uid > maxID || header.Gid < 0 || header.Gid > maxID {
		return fmt.Errorf("owner %d:%d does not fit a user namespace", header.Uid, header.Gid)
	}
	header.Name = name
	switch header.Typeflag {
	case tar.TypeDir:
		return x.dir(header)
	case tar.TypeReg:
		return x.file(header, content)
	case tar.TypeSymlink:
		if err := x.root.Symlink(header.Linkname, name); err != nil {
			return err
		}
		return x.root.Lchown(name, header.Uid+x.raise, header.Gid+x.raise)
	case tar.TypeLink:
		return x.root.Link(path.Clean(strings.TrimPrefix(header.Linkname, "/")), name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return nil // the sandbox has a /dev of its own
	default:
		return fmt.Errorf("entries of type %q are unknown", header.Typeflag)
	}
}

func (x *extractor) dir(header *tar.Header) error {
	if header.Name != "." {
		if err := x.root.Mkdir(header.Name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	x.dirs = append(x.dirs, header)
	return nil
}

func (x *extractor) finishDir(header *tar.Header) error {
	// Chown first: it takes the setuid and setgid bits away.
	if err := x.root.Lchown(header.Name, header.Uid+x.raise, header.Gid+x.raise); err != nil {
		return err
	}
	if err := x.root.Chmod(header.Name, fileMode(header.Mode)); err != nil {
		return err
	}
	return x.root.Chtimes(header.Name, time.Time{}, header.ModTime)
}

func (x *extractor) file(header *tar.Header, content io.Reader) (err error) {
	f, err := x.root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, content, x.buffer); err != nil {
		return err
	}
	if err := f.Chown(header.Uid+x.raise, header.Gid+x.raise); err != nil {
		return err
	}
	for key, value := range header.PAXRecords {
		attr, isAttr := strings.CutPrefix(key, "SCHILY.xattr.")
		if !isAttr || (attr != "security.capability" && !strings.HasPrefix(attr, "user.")) {
			continue // access lists and labels name ids and policies of the machine that packed them
		}
		if err := unix.Fsetxattr(int(f.Fd()), attr, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("attribute %s: %w", attr, err)
		}
	}
	if err := f.Chmod(fileMode(header.Mode)); err != nil {
		return err
	}
	return x.root.Chtimes(header.Name, time.Time{}, header.ModTime)
}

// fileMode translates the bits of a tar header, setuid, setgid and sticky too.
func fileMode(bits int64) os.FileMode {
	mode := os.FileMode(bits & 0o777)
	if bits&0o4000 != 0 {
		mode |= os.ModeSetuid
	}
	if bits&0o2000 != 0 {
		mode |= os.ModeSetgid
	}
	if bits&0o1000 != 0 {
		mode |= os.ModeSticky
	}
	return mode
}
