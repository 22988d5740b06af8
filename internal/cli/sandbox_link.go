package cli

import (
	"fmt"
	"time"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxLinkCmd struct {
	ID       string `arg:"" help:"Id of the sandbox."`
	Path     string `arg:"" help:"The file."`
	Upload   bool   `help:"A link that writes the file; otherwise it reads it."`
	TTL      int    `name:"ttl" default:"3600" placeholder:"SECONDS" help:"How long it lives, at most 604800."`
	MaxBytes int64  `placeholder:"N" help:"With --upload: how large the file may be. Default: 1 GiB."`
}

func (c *sandboxLinkCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	make, o := sb.DownloadURL, pandastack.LinkOptions{TTL: time.Duration(c.TTL) * time.Second, MaxBytes: c.MaxBytes}
	if c.Upload {
		make = sb.UploadURL
	}
	link, err := make(a.ctx, c.Path, o)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(link)
	}
	fmt.Fprintln(a.Out, link.URL)
	if link.MaxBytes > 0 {
		a.say("takes %s of at most %d bytes by PUT, POST or a form; expires %s", plain(link.Path), link.MaxBytes, a.when(link.ExpiresAt))
	} else {
		a.say("gives %s; expires %s", plain(link.Path), a.when(link.ExpiresAt))
	}
	return nil
}
