package daemon

import "embed"

//go:embed all:programs/arm64
var embedded embed.FS
