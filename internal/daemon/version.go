package daemon

import (
	"runtime"
	"runtime/debug"

	"github.com/pandastack/pandastack/api"
)

// version is set by the linker.
var version = "dev"

// Version says what this program is.
func Version(driver string) api.Version {
	v := api.Version{Version: version, Go: runtime.Version(), Driver: driver}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return v
}
