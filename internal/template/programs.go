package template

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// guestProgram is the name of the agent among the programs.
const guestProgram = "guest"

// putPrograms writes the guest programs into a folder named for their content
// and gives that name. The folder is readable for everyone, as sandboxes' root
// is nobody on the host, and is never changed once it is there.
func (s *Store) putPrograms(programs fs.FS) (digest string, err error) {
	files, err := readPrograms(programs)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%q %d\n", f.name, len(f.content))
		h.Write(f.content)
	}
	digest = hex.EncodeToString(h.Sum(nil)[:16])
	dir := s.programsDir(digest)
	if _, err := os.Stat(dir); err == nil {
		return digest, nil
	}
	tmp, err := s.stage("programs-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, removeTree(tmp)) }()
	out := filepath.Join(tmp, "out")
	for _, f := range files {
		file := filepath.Join(out, f.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", fmt.Errorf("write the guest programs: %w", err)
		}
		mode := fs.FileMode(0o644)
		if f.name == guestProgram {
			mode = 0o755
		}
		if err := os.WriteFile(file, f.content, mode); err != nil {
			return "", fmt.Errorf("write the guest programs: %w", err)
		}
	}
	return digest, publish(out, dir)
}

type programFile struct {
	name    string
	content []byte
}

// readPrograms reads what goes into sandboxes, in the order of names: no
// compiled files, no tests, no documents.
func readPrograms(programs fs.FS) ([]programFile, error) {
	var files []programFile
	err := fs.WalkDir(programs, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() {
			if base == "__pycache__" || base == "tests" || (base != "." && strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if name != guestProgram && path.Ext(base) != ".py" {
			return nil
		}
		content, err := fs.ReadFile(programs, name)
		if err != nil {
			return err
		}
		files = append(files, programFile{name, content})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the guest programs: %w", err)
	}
	for _, f := range files {
		if f.name == guestProgram && bytes.HasPrefix(f.content, []byte("\x7fELF")) {
			return files, nil
		}
	}
	return nil, fault.New(api.CodeUnsupported, "this program was built without the guest agent").WithHint("build it with `make build`")
}
