package pandastack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/sdk/go/tree"
)

// Progress is what a copy of a folder has done so far.
type Progress = tree.Done

// DirOptions say how a folder is copied. The zero value copies in silence.
type DirOptions struct {
	Progress func(Progress)         // told after every piece
	LeftOut  func(name, why string) // told of what is not copied
}

// UploadDir copies what is in a folder of this machine into one of the sandbox,
// which is made: files, folders and links, with permissions and times. What is
// there besides stays. When the disk fills up, the error says how much was
// written.
func (s *Sandbox) UploadDir(ctx context.Context, local, remote string, o DirOptions) (api.TarResult, error) {
	root, err := os.OpenRoot(local)
	if err != nil {
		return api.TarResult{}, err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		_, err := tree.Pack(w, root, tree.Options{Progress: o.Progress, LeftOut: o.LeftOut})
		w.CloseWithError(err)
		packed <- err
	}()
	var res api.TarResult
	err = s.client.send(ctx, http.MethodPut, s.path+"/fs/tar", pathQuery(remote), r, &res)
	r.CloseWithError(errNotSent)
	if perr := <-packed; perr != nil && !errors.Is(perr, errNotSent) {
		return res, fmt.Errorf("reading %s: %w", local, perr) // which is why the rest failed
	}
	return res, err
}

var errNotSent = errors.New("the upload has ended")

// DownloadDir copies what is in a folder of the sandbox into one of this
// machine, which is made: files, folders and links, with permissions and times.
// What comes is a stranger's: nothing is written outside of the folder, and
// links that lead out of it are left out. What was copied before a failure stays.
func (s *Sandbox) DownloadDir(ctx context.Context, remote, local string, o DirOptions) (Progress, error) {
	res, err := s.client.request(ctx, http.MethodGet, s.path+"/fs/tar", pathQuery(remote), nil, nil)
	if err != nil {
		return Progress{}, err
	}
	defer res.Body.Close()
	if err := os.MkdirAll(local, 0o777); err != nil {
		return Progress{}, err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return Progress{}, err
	}
	defer root.Close()
	body := &watchedBody{Reader: res.Body}
	done, err := tree.Unpack(body, root, tree.Options{Foreign: true, Progress: o.Progress, LeftOut: o.LeftOut})
	if err == nil {
		_, err = io.Copy(io.Discard, body) // what is broken behind the end is broken, too
	}
	if body.err != nil {
		return done, connectionError(ctx, s.client.root, body.err)
	}
	return done, err
}

// watchedBody remembers why a body ended early.
type watchedBody struct {
	io.Reader
	err error
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
