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
