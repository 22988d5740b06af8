package daemon

import "embed"

//go:embed all:programs/amd64
var embedded embed.FS
