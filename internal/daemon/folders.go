package daemon

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
)

var _ agent.Folders = guestFiles{}

// Sum implements agent.Folders.
func (f guestFiles) Sum(ctx context.Context, owner, sid, dir string, mostBytes int64, mostFiles int) (sum string, bytes int64, err error) {
	client, done, err := f.manager.Guest(ctx, owner, sid)
	if err != nil {
		return "", 0, err
	}
	defer done()
	h, files := sha256.New(), 0
	err = walk(ctx, client, dir, mostFiles, func(at string, e api.FileInfo) error {
		if e.Mode == "f" {
			bytes += e.Size
		}
		if files++; files > mostFiles || bytes > mostBytes {
			return fault.New(api.CodeTooLarge, "%s holds more than %d bytes or %d files", dir, mostBytes, mostFiles)
		}
		fmt.Fprintf(h, "%q %s %s %d %d %d %d %q\n", at, e.Mode, e.Permissions, e.Size, e.ModifiedAt.UnixNano(), e.UID, e.GID, e.Target)
		return nil
	})
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), bytes, nil
}

// walk gives what is in a folder and below, each folder before what is in it. It
// fails on names that no path can hold, and when one folder holds more than most.
func walk(ctx context.Context, client *guest.Client, dir string, most int, see func(at string, e api.FileInfo) error) error {
	for folders := []string{dir}; len(folders) > 0; folders = folders[1:] {
		list, err := client.ListDir(ctx, folders[0], "", most+1)
		if err != nil {
			return err
		}
		if list.Truncated || len(list.Entries) > most {
			return fault.New(api.CodeTooLarge, "%s holds more than %d files", folders[0], most)
		}
		for _, e := range list.Entries {
			if e.RawName != nil {
				return fault.New(api.CodeUnsupported, "%s holds a file whose name is not UTF-8", folders[0])
			}
			at := path.Join(folders[0], e.Name)
			if err := see(at, e); err != nil {
				return err
			}
			if e.IsDir && e.Mode == "d" {
				folders = append(folders, at)
			}
		}
	}
	return nil
}

// Pack implements agent.Folders.
func (f guestFiles) Pack(ctx context.Context, owner, sid, dir string) (io.ReadCloser, error) {
	client, done, err := f.manager.Guest(ctx, owner, sid)
	if err != nil {
		return nil, err
	}
	r, err := client.ReadTar(ctx, dir)
	if err != nil {
		done()
		return nil, err
	}
	return &packed{r, done}, nil
}

// packed holds on to its sandbox until it was read.
type packed struct {
	io.ReadCloser
	done func()
}

func (p *packed) Close() error {
	defer p.done()
	return p.ReadCloser.Close()
}

// mostReplaced bounds the files of a folder that Replace looks at.
const mostReplaced = 10_000

// Replace implements agent.Folders. Folders that stay are not made anew: programs
// may be in them.
func (f guestFiles) Replace(ctx context.Context, owner, sid, dir string, r io.ReadSeeker) error {
	wanted, err := kinds(r)
	if err != nil {
		return err
	}
	client, done, err := f.manager.Guest(ctx, owner, sid)
	if err != nil {
		return err
	}
	defer done()
	var others []string
	err = walk(ctx, client, dir, mostReplaced-1, func(at string, e api.FileInfo) error {
		name := strings.TrimPrefix(at, dir+"/")
		if isDir, there := wanted[name]; !there || isDir != (e.Mode == "d") {
			others = append(others, at)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, at := range others { // some go with their folders
		if err := client.RemoveFile(ctx, at, true); err != nil && !errors.Is(err, fault.NotFound) {
			return err
		}
	}
	_, err = client.WriteTar(ctx, dir, r)
	return err
}

// kinds gives the names in a tar stream, and whether they are folders.
func kinds(r io.ReadSeeker) (map[string]bool, error) {
	out := map[string]bool{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading a folder that was packed: %w", err)
		}
		out[path.Clean(h.Name)] = h.Typeflag == tar.TypeDir
	}
	_, err := r.Seek(0, io.SeekStart)
	return out, err
}
