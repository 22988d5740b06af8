// Package archive is the file in which a snapshot travels from one server to
// another: a tar stream, compressed with zstd, of a manifest, its signature and
// the files of the snapshot in the order of the manifest. Package sandbox writes
// and reads it.
//
// What is read was made by others: nothing of it names a path, everything is of
// a size that was said and signed before, and the memory that reading takes does
// not depend on it. Which signatures are trusted is not decided here.
package archive

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Format is the number of the format that this version writes, and the newest
// that it reads. It is raised when an older version would misunderstand.
const Format = 1

const (
	manifestName  = "manifest.json"
	signatureName = "manifest.sig"

	maxManifest  = 16 << 20 // bytes
	maxSignature = 1 << 10
	maxFiles     = 64
	maxNames     = 16_384
	maxBytes     = 1 << 46 // of all files; keeps sums of sizes from overflowing
)

// Manifest is the first member.
type Manifest struct {
	Format     int       `json:"format"`
	Version    string    `json:"version"` // of the server that wrote it
	ExportedAt time.Time `json:"exported_at"`
	Workspace  string    `json:"workspace"`

	Snapshot Snapshot `json:"snapshot"`
	Template Template `json:"template"`
	Driver   Driver   `json:"driver"`
	Limits   Limits   `json:"limits"`
	Network  Network  `json:"network"`

	Tools   *api.Tools            `json:"tools,omitempty"`    // without values of headers
	LeftOut []api.SnapshotMissing `json:"left_out,omitempty"` // values that were secret

	Bytes int64  `json:"bytes"` // of all files
	Files []File `json:"files"` // in the order of the members
}

// Snapshot is what is kept of a snapshot beside its files.
type Snapshot struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	SandboxID  string            `json:"sandbox_id"`
	ParentID   string            `json:"parent_id,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Generation int               `json:"generation"`
	CreatedAt  time.Time         `json:"created_at"`
	DurationMS float64           `json:"duration_ms"`
	Contexts   []string          `json:"contexts,omitempty"` // ids of code contexts, as the sandbox said
}

// Template is what a snapshot lies on top of: the same files must be where it is
// restored.
type Template struct {
	Name     string `json:"name"`
	Digest   string `json:"digest"`
	Rootfs   string `json:"rootfs,omitempty"`   // digest of what the root filesystem was made from
	Programs string `json:"programs,omitempty"` // digest of the guest agent and the kernel
	Contents string `json:"contents,omitempty"` // names and sizes of the files that came of it
}

// Driver is what a machine must have.
type Driver struct {
	Name     string   `json:"name"`
	Made     string   `json:"made"` // what wrote it, as the driver describes itself
	Arch     string   `json:"arch"`
	Features []string `json:"features,omitempty"` // of the processor
}

// Limits are those of the sandbox.
type Limits struct {
	CPU      float64 `json:"cpu"`
	MemoryMB int     `json:"memory_mb"`
	DiskMB   int     `json:"disk_mb"`
	PIDs     int     `json:"pids"`
}

// Network is what the sandbox might reach. It has no secret's value in it.
type Network struct {
	Policy  *api.NetworkPolicy         `json:"policy,omitempty"`
	Secrets map[string]api.SecretShown `json:"secrets,omitempty"` // by host; names of those that a server keeps
	Names   []string                   `json:"names,omitempty"`   // in the order of the addresses that programs inside hold
}

// File is a file of the snapshot.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // in hexadecimal
}

var (
	fileForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$`)
	sumForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	idForm   = regexp.MustCompile(`^[A-Za-z0-9_.:+-]{1,128}$`)
)

// errBad is for a file that is no archive, or is not whole any more.
func errBad(format string, args ...any) *fault.Error {
	return fault.New(api.CodeInvalid, "the archive is damaged or none: %s", fmt.Sprintf(format, args...)).
		WithHint("copy it again, or export the snapshot again")
}

// parse reads a manifest whose signature is right.
func parse(raw []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, errBad("%s cannot be read: %v", manifestName, err)
	}
	return m, m.check()
}

// formatOf is the number of a manifest's format; what stands beside it may be unknown.
func formatOf(raw []byte) (int, error) {
	var m struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(raw, &m); err != nil || m.Format < 1 {
		return 0, errBad("%s names no format", manifestName)
	}
	return m.Format, nil
}

// check holds a manifest against what one can say.
func (m Manifest) check() error {
	for what, word := range map[string]string{
		"snapshot.id": m.Snapshot.ID, "snapshot.sandbox_id": m.Snapshot.SandboxID, "template.name": m.Template.Name, "template.digest": m.Template.Digest,
		"driver.name": m.Driver.Name, "workspace": m.Workspace,
	} {
		if !idForm.MatchString(word) {
			return errBad("%s is %.80q", what, word)
		}
	}
	if p := m.Snapshot.ParentID; p != "" && !idForm.MatchString(p) {
		return errBad("snapshot.parent_id is %.80q", p)
	}
	if l := m.Limits; l.CPU <= 0 || l.MemoryMB <= 0 || l.DiskMB < 0 || l.PIDs < 0 || m.Snapshot.Generation < 0 {
		return errBad("the limits %+v cannot be those of a sandbox", l)
	}
	if n := len(m.Network.Names); n > maxNames {
		return errBad("its network remembers %d names", n)
	}
	for _, name := range m.Network.Names {
		if len(name) > 255 || strings.ContainsAny(name, "\x00\r\n") {
			return errBad("%.80q cannot be a name", name)
		}
	}
	if n := len(m.Files); n == 0 || n > maxFiles {
		return errBad("it has %d files", n)
	}
	var total int64
	seen := map[string]bool{}
	for _, f := range m.Files {
		switch {
		case len(f.Name) > 64 || !fileForm.MatchString(f.Name):
			return errBad("%.80q cannot be the name of a file", f.Name)
		case seen[f.Name]:
			return errBad("%s is in it twice", f.Name)
		case f.Bytes < 0 || f.Bytes > maxBytes:
			return errBad("%s has %d bytes", f.Name, f.Bytes)
		case !sumForm.MatchString(f.SHA256):
			return errBad("%s has no sum", f.Name)
		}
		seen[f.Name] = true
		total += f.Bytes
	}
	if total != m.Bytes || total > maxBytes {
		return errBad("its files have %d bytes, and it says %d", total, m.Bytes)
	}
	return nil
}
