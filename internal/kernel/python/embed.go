// Package python holds the interpreter side of a kernel: the Python package pandastack_kernel, embedded so that the
// guest agent can put it beside itself in a sandbox. Template builds and the guest agent read it; nothing here runs it.
package python

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"sync"
)

// FS is the program folder's kernel/ directory, which PYTHONPATH has to name: it holds pandastack_kernel/.
//
//go:embed pandastack_kernel/*.py
var FS embed.FS

// Hash names the content: it changes with every byte and every name of the package, so that a template built with
// another kernel is another template.
func Hash() string { return hash() }

var hash = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(FS, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(FS, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s\x00%d\x00", path, len(body))
		sum.Write(body)
		return nil
	})
	if err != nil {
		panic("embedded files cannot be read: " + err.Error()) // they are in the binary
	}
	return hex.EncodeToString(sum.Sum(nil))
})
