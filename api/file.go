package api

import "time"

// FileInfo describes a file or folder in a sandbox.
type FileInfo struct {
	Name        string    `json:"name"`
	Path        string    `json:"path,omitempty"`
	IsDir       bool      `json:"is_dir"`
	Size        int64     `json:"size"`
	Mode        string    `json:"mode"`        // type letter: f, d, l, p, s, b, c
	Permissions string    `json:"permissions"` // octal, "0644"
	Owner       int       `json:"uid"`
	Group       int       `json:"gid"`
	MTime       int64     `json:"mtime"` // seconds since 1970: published clients read a number
	ModifiedAt  time.Time `json:"modified_at"`
	Target      string    `json:"target,omitempty"` // of a symbolic link
}

// DirListing is the answer of GET …/fs/dir.
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

// MkdirRequest is the body of POST …/fs/dir.
type MkdirRequest struct {
	Path string `json:"path"`
}

// MoveRequest is the body of POST …/fs/move.
type MoveRequest struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Overwrite bool   `json:"overwrite,omitempty"`
}
