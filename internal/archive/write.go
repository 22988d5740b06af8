package archive

import (
	"archive/tar"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/pandastack/pandastack/internal/fault"
)

const piece = 256 << 10 // bytes that are copied at once

// Sum describes a file under a name.
func Sum(ctx context.Context, name string, f *os.File) (File, error) {
	h := sha256.New()
	n, err := copyAll(ctx, h, io.NewSectionReader(f, 0, maxBytes))
	return File{Name: name, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, err
}

// copyAll copies until the end, or until nobody wants it any more.
func copyAll(ctx context.Context, to io.Writer, from io.Reader) (n int64, err error) {
	buf := make([]byte, piece)
	for {
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		k, err := from.Read(buf)
		if k > 0 {
			if _, werr := to.Write(buf[:k]); werr != nil {
				return n, werr
			}
			n += int64(k)
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// Write writes an archive: the files are those of the manifest, in its order.
// One that changed since it was described makes it fail, and whoever reads what
// came so far sees that it is not whole.
func Write(ctx context.Context, w io.Writer, signer ed25519.PrivateKey, m Manifest, files []*os.File) error {
	m.Format = Format
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(raw) > maxManifest {
		return fault.New("too_large", "the description of the snapshot has %d bytes; at most %d are exported", len(raw), maxManifest).
			WithHint("take it of a sandbox with smaller tools")
	}
	if _, err := parse(raw); err != nil {
		return fmt.Errorf("what would be exported could not be imported: %w", err)
	}
	sig, err := sign(signer, raw)
	if err != nil {
		return err
	}
	// One goroutine and a small window: what it takes is the same for all sizes.
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	if err := writeMember(t, manifestName, raw, m.ExportedAt); err != nil {
		return err
	}
	if err := writeMember(t, signatureName, sig, m.ExportedAt); err != nil {
		return err
	}
	for i, f := range m.Files {
		if err := writeFile(ctx, t, f, files[i], m.ExportedAt); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

func header(name string, size int64, at time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: at.Truncate(time.Second), Format: tar.FormatGNU}
}

func writeMember(t *tar.Writer, name string, content []byte, at time.Time) error {
	if err := t.WriteHeader(header(name, int64(len(content)), at)); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

func writeFile(ctx context.Context, t *tar.Writer, f File, from *os.File, at time.Time) error {
	if err := t.WriteHeader(header(f.Name, f.Bytes, at)); err != nil {
		return err
	}
	h := sha256.New()
	n, err := copyAll(ctx, io.MultiWriter(t, h), io.NewSectionReader(from, 0, f.Bytes))
	if err != nil {
		return err
	}
	if n != f.Bytes || hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fault.New("conflict", "the file %s of the snapshot changed while it was exported", f.Name)
	}
	return nil
}
