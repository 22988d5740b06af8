package api

import "time"

// FileInfo describes a file or folder in a sandbox.
type FileInfo struct {
	Name        string    `json:"name"`
	RawName     []byte    `json:"raw_name,omitempty"` // of a name that is not UTF-8; Name and Path have U+FFFD then
	Path        string    `json:"path,omitempty"`
	IsDir       bool      `json:"is_dir"`
	Size        int64     `json:"size"`
	Mode        string    `json:"mode"`        // type letter: f, d, l, p, s, b, c
	Permissions string    `json:"permissions"` // octal, "0644"
	Symbolic    string    `json:"symbolic"`    // as ls shows it, "-rw-r--r--"
	UID         int       `json:"uid"`
	GID         int       `json:"gid"`
	Owner       string    `json:"owner,omitempty"` // names of UID and GID in the sandbox, "" without one
	Group       string    `json:"group,omitempty"`
	MTime       int64     `json:"mtime"` // seconds since 1970: published clients read a number
	ModifiedAt  time.Time `json:"modified_at"`
	Target      string    `json:"target,omitempty"` // of a symbolic link
}

// DirListing is the answer of GET …/fs/dir: entries in the order of their
// names' bytes, at most 10,000. When it is truncated, ?after= with the last
// name gives the next ones.
type DirListing struct {
	Path      string     `json:"path"`
	Entries   []FileInfo `json:"entries"`
	Truncated bool       `json:"truncated,omitempty"`
}

// WriteResult is the answer of PUT …/fs.
type WriteResult struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

// TarResult is the answer of PUT …/fs/tar.
type TarResult struct {
	Path    string `json:"path"`
	Files   int    `json:"files"`
	Folders int    `json:"folders"`
	Links   int    `json:"links"`
	Bytes   int64  `json:"bytes"`    // of the files
	LeftOut int    `json:"left_out"` // entries that are no file, folder or link
}

// MkdirRequest is the body of POST …/fs/dir.
type MkdirRequest struct {
	Path string `json:"path"`
}

// MoveRequest is the body of POST …/fs/move. What is at To is a conflict, or
// with Overwrite replaced: a file or link by a file or link, an empty folder by
// a folder. The folders above To are made.
type MoveRequest struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
}

// The types of a FileEvent. Types are added over time: ignore those that you do
// not know.
const (
	FileStarted  = "started"  // watch_id: from now on changes are told; the first event of a watch
	FileCreate   = "create"   // a file or folder is new at path, made there or moved there from outside
	FileWrite    = "write"    // the content of a file changed; several in a row may be told as one
	FileClose    = "close"    // a program that could write to the file has closed it: it is whole
	FileRename   = "rename"   // from → path, both inside of what is watched
	FileRemove   = "remove"   // it is gone from path, removed or moved outside
	FileChmod    = "chmod"    // permissions, owner or times changed
	FileOverflow = "overflow" // reason, dropped: changes may be missing here; look at the files themselves
	FileEnded    = "ended"    // reason; the last event
)

// The reasons of an overflow.
const (
	OverflowQueue   = "queue"   // changes came faster than they could be looked at; the watch was set up anew
	OverflowSlow    = "slow"    // they came faster than this stream was read, or nobody was connected for too long
	OverflowFolders = "folders" // there are more folders than one watch may have: path and what is below it is not watched
	OverflowLost    = "lost"    // the watch that was to be gone on with is no more, and was begun anew
)

// The reasons of the end of a watch.
const (
	WatchRemoved    = "removed"       // what was watched was removed or moved away
	WatchHibernated = "hibernated"    // the sandbox sleeps; a new watch wakes it
	WatchSandbox    = "sandbox_ended" // the sandbox is no more
)

// FileEvent is a change of a file that is watched: an event of GET …/fs/watch.
type FileEvent struct {
	Seq     int64  `json:"seq"` // rises; a stream goes on after it with watch_id and Last-Event-ID
	Type    string `json:"type"`
	Path    string `json:"path,omitempty"`     // absolute, below the path that is watched
	RawPath []byte `json:"raw_path,omitempty"` // of a path that is not UTF-8; Path has U+FFFD then
	From    string `json:"from,omitempty"`     // of a rename: the path before
	RawFrom []byte `json:"raw_from,omitempty"`
	IsDir   bool   `json:"is_dir"`
	Reason  string `json:"reason,omitempty"`
	Dropped int64  `json:"dropped,omitempty"`  // of an overflow: so many events were not kept, 0 when nobody knows
	WatchID string `json:"watch_id,omitempty"` // of started
}

// What a link may do.
const (
	LinkDownload = "GET"
	LinkUpload   = "PUT"
)

// FileLinkRequest is the body of POST …/fs/link.
type FileLinkRequest struct {
	Path       string `json:"path"`
	Method     string `json:"method,omitempty"`      // "GET" (the default) reads the file, "PUT" writes it
	TTLSeconds *int   `json:"ttl_seconds,omitempty"` // default 3600, at most 604800
	MaxBytes   *int64 `json:"max_bytes,omitempty"`   // of an upload; default 1 GiB, at most 1 TiB
}

// FileLink is a signed link to one file: whoever has it reads the file, or
// replaces it, without a key, until it expires, the key that made it ends, or
// the sandbox does.
type FileLink struct {
	URL       string    `json:"url"`
	SandboxID string    `json:"sandbox_id"`
	Path      string    `json:"path"`
	Method    string    `json:"method"`
	MaxBytes  int64     `json:"max_bytes,omitempty"` // of an upload: a larger file is refused with 413
	ExpiresAt time.Time `json:"expires_at"`
}
