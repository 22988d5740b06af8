// Command pandastack is the daemon and the command line in one program.
package main

import (
	"os"

	"github.com/pandastack/pandastack/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.OS()))
}
