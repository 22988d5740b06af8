package pandastack

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
)

// FileEvent is a change of a file that is watched.
type FileEvent = api.FileEvent

// WatchOptions say what is watched. The zero value is a file, or what is in one
// folder.
type WatchOptions struct {
	Recursive bool // with all folders below it, at most 10,000
}

// Watch gives changes of a file, or of what is in a folder, as they happen; see
// api.FileEvent for the types. What changes after the first event, of type
// "started", is told. A connection that breaks, and a server that is started
// anew, are not noticed; whatever may be missing is said by an event of type
// "overflow". It goes on until the context ends, or until the event "ended",
// which says why: what is watched is gone, or the sandbox is, or was put to sleep.
func (s *Sandbox) Watch(ctx context.Context, path string, o WatchOptions) iter.Seq2[FileEvent, error] {
	q := pathQuery(path)
	q.Set("watch_id", newID())
	if o.Recursive {
		q.Set("recursive", "1")
	}
	return func(yield func(FileEvent, error) bool) {
		err := s.client.stayOn(ctx, s.path+"/fs/watch", q, func(raw sseEvent) (more bool, err error) {
			var e FileEvent
			if err := json.Unmarshal(raw.data, &e); err != nil {
				return false, fmt.Errorf("pandastack: an event cannot be read: %w", err)
			}
			if e.RawPath != nil {
				e.Path = string(e.RawPath)
			}
			if e.RawFrom != nil {
				e.From = string(e.RawFrom)
			}
			return yield(e, nil) && e.Type != api.FileEnded, nil
		})
		if err != nil {
			yield(FileEvent{}, err)
		}
	}
}

// LinkOptions say how far a link goes. The zero value is an hour, and 1 GiB of
// an upload.
type LinkOptions struct {
	TTL      time.Duration // whole seconds, at most 7 days
	MaxBytes int64         // of an upload; a larger file is refused
}

// DownloadURL makes a link that gives a file to whoever has it, without a key,
// until it expires, the client's key ends, or the sandbox does. Browsers save
// the file. A sandbox that sleeps is woken.
func (s *Sandbox) DownloadURL(ctx context.Context, path string, o LinkOptions) (api.FileLink, error) {
	return s.fileLink(ctx, api.FileLinkRequest{Path: path, Method: api.LinkDownload}, o)
}

// UploadURL makes a link with which whoever has it writes one file, by PUT or
// POST of its bytes or by a form, for as long as that of DownloadURL.
func (s *Sandbox) UploadURL(ctx context.Context, path string, o LinkOptions) (api.FileLink, error) {
	return s.fileLink(ctx, api.FileLinkRequest{Path: path, Method: api.LinkUpload}, o)
}

func (s *Sandbox) fileLink(ctx context.Context, req api.FileLinkRequest, o LinkOptions) (api.FileLink, error) {
	if o.TTL != 0 {
		n := int(o.TTL / time.Second)
		req.TTLSeconds = &n
	}
	if o.MaxBytes != 0 {
		req.MaxBytes = &o.MaxBytes
	}
	var l api.FileLink
	return l, s.client.call(ctx, http.MethodPost, s.path+"/fs/link", nil, req, &l)
}
