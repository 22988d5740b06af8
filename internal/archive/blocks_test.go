package archive

import (
	"io/fs"
	"syscall"
)

// blocks are those of 512 bytes that a file takes.
func blocks(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks }
