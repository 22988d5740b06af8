package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/pandastack/pandastack/internal/fault"
)

const (
	maxWindow = 8 << 20   // that a compressed stream may ask for
	slack     = 256 << 10 // headers of members, blocks of zeros, and what compression adds to what cannot be compressed
)

// Reader reads an archive once, from its beginning to its end.
type Reader struct {
	Manifest Manifest
	Key      Key // whose signature it has

	in  *bounded // compressed
	out *bounded // not any more
	z   *zstd.Decoder
	tar *tar.Reader
}

// bounded is a stream that may not be longer than it was said to be.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBad("it goes on behind its end")
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// Open reads the manifest and holds it against its signature. Nothing of the
// files was read then. What is signed with a key that trusted refuses is not taken
// apart: a manifest can be made that needs many times its size. Close it.
func Open(in io.Reader, trusted func(Key) error) (*Reader, error) {
	r := &Reader{in: &bounded{in, maxManifest + slack}}
	var err error
	r.z, err = zstd.NewReader(r.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, broken(err)
	}
	r.out = &bounded{r.z, maxManifest + slack}
	r.tar = tar.NewReader(r.out)
	if err := r.open(trusted); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) open(trusted func(Key) error) error {
	raw, err := r.member(manifestName, maxManifest)
	if err != nil {
		return err
	}
	sig, err := r.member(signatureName, maxSignature)
	if err != nil {
		return err
	}
	format, err := formatOf(raw)
	if err != nil {
		return err
	}
	if format > Format {
		return fault.New("conflict", "the archive has the format %d, and this server reads none above %d: a newer one wrote it", format, Format).
			WithHint("import it where a version as new runs, or bring this server up to date")
	}
	if r.Key, err = verify(raw, sig); err != nil {
		return err
	}
	if err := trusted(r.Key); err != nil {
		return err
	}
	if r.Manifest, err = parse(raw); err != nil {
		return err
	}
	r.out.left = r.Manifest.Bytes + slack
	r.in.left = r.Manifest.Bytes + r.Manifest.Bytes/64 + slack
	return nil
}

// Close frees what reading took.
func (r *Reader) Close() { r.z.Close() }

// next goes to the next member, which must be this one.
func (r *Reader) next(name string) (int64, error) {
	h, err := r.tar.Next()
	if errors.Is(err, io.EOF) {
		return 0, errBad("%s is missing", name)
	}
	if err != nil {
		return 0, broken(err)
	}
	// What else a tar can hold is not looked at: links, holes, names of its own.
	if h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 || h.Name != name {
		return 0, errBad("%.80q is where the file %s should be", h.Name, name)
	}
	return h.Size, nil
}

// member reads a small member.
func (r *Reader) member(name string, most int64) ([]byte, error) {
	size, err := r.next(name)
	if err != nil {
		return nil, err
	}
	if size > most {
		return nil, errBad("%s has %d bytes", name, size)
	}
	raw, err := io.ReadAll(r.tar)
	return raw, broken(err)
}

// Extract writes the files into a folder, which is empty, and reads to the end.
// When it fails some may be there; what they hold is not to be used.
func (r *Reader) Extract(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range r.Manifest.Files {
		size, err := r.next(f.Name)
		if err != nil {
			return err
		}
		if size != f.Bytes {
			return errBad("%s has %d bytes, and %d were signed", f.Name, size, f.Bytes)
		}
		if err := r.extract(ctx, root, f); err != nil {
			return err
		}
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		if err == nil {
			return errBad("it has more members than it says")
		}
		return broken(err)
	}
	rest := &failing{Reader: r.out} // zeros, and the end of the compressed stream with its sum
	if _, err := copyAll(ctx, io.Discard, rest); err != nil && rest.err == nil {
		return err
	}
	return broken(rest.err)
}

func (r *Reader) extract(ctx context.Context, root *os.Root, f File) (err error) {
	to, err := root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	h := sha256.New()
	holes := &holes{f: to}
	source := &failing{Reader: r.tar}
	n, err := copyAll(ctx, io.MultiWriter(h, holes), source)
	if source.err != nil {
		return broken(source.err)
	}
	if err != nil {
		return err
	}
	if n != f.Bytes || hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return errBad("%s is not what was signed", f.Name)
	}
	if err := to.Truncate(f.Bytes); err != nil {
		return err
	}
	return to.Sync()
}

// failing remembers that reading failed, and not writing.
type failing struct {
	io.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// holes writes a file and leaves out pages of zeros, which take no disk then.
type holes struct {
	f  *os.File
	at int64
}

const page = 4 << 10

var zeros [page]byte

func (h *holes) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n, empty := run(rest)
		if !empty {
			if _, err := h.f.WriteAt(rest[:n], h.at); err != nil {
				return 0, err
			}
		}
		h.at += int64(n)
		rest = rest[n:]
	}
	return len(p), nil
}

// run is how many bytes at the beginning are of pages of one kind.
func run(p []byte) (n int, empty bool) {
	empty = blank(p)
	for n = min(page, len(p)); n < len(p) && blank(p[n:]) == empty; {
		n += min(page, len(p)-n)
	}
	return n, empty
}

func blank(p []byte) bool {
	k := min(page, len(p))
	return bytes.Equal(p[:k], zeros[:k])
}

// broken gives what reading failed with words of its own.
func broken(err error) error {
	var known *fault.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Wrap(err, "timeout", "the archive did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errBad("it is cut off")
	}
	return errBad("%v", err)
}
