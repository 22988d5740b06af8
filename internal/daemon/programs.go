package daemon

import (
	"embed"
	"errors"
	"io/fs"
	"path"
	"runtime"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Programs gives what runs inside sandboxes: guest, the static agent, and
// kernel/, the interpreter side. `make build` lays them out before this
// program is compiled; one compiled without it serves all but template builds.
func Programs() (fs.FS, error) { return programsIn(embedded) }

func programsIn(all embed.FS) (fs.FS, error) {
	sub, err := fs.Sub(all, path.Join("programs", runtime.GOARCH))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"guest", "kernel"} {
		if _, err := fs.Stat(sub, name); errors.Is(err, fs.ErrNotExist) {
			return nil, fault.New(api.CodeUnsupported, "this program was compiled without the guest agent").
				WithHint("compile it with: make build")
		}
	}
	return sub, nil
}
