package cli

import (
	"fmt"
	"io"
	"time"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// meter shows how far a copy is, on a terminal, in one line that is gone in the
// end.
type meter struct {
	app     *app
	began   time.Time
	shown   time.Time
	done    pandastack.Progress
	leftOut int
}

const meterEvery = 100 * time.Millisecond

func (a *app) meter() *meter { return &meter{app: a, began: time.Now(), shown: time.Now()} }

func (m *meter) options() pandastack.DirOptions {
	return pandastack.DirOptions{
		Progress: m.show,
		LeftOut: func(name, why string) {
			m.leftOut++
			m.clear()
			m.app.say("%s was left out: %s", plain(name), why)
		},
	}
}

func (m *meter) show(d pandastack.Progress) {
	m.done = d
	now := time.Now()
	if !m.app.ErrTerm || m.app.flags.Quiet || now.Sub(m.shown) < meterEvery {
		return
	}
	m.shown = now
	files := ""
	if d.Files+d.Folders > 0 {
		files = fmt.Sprintf("%d files, ", d.Files)
	}
	rate := float64(d.Bytes) / now.Sub(m.began).Seconds()
	fmt.Fprintf(m.app.Err, "\r\x1b[K%s%s, %s/s", files, size(d.Bytes), size(int64(rate)))
}

func (m *meter) clear() {
	if !m.shown.Equal(m.began) && m.app.ErrTerm && !m.app.flags.Quiet {
		fmt.Fprint(m.app.Err, "\r\x1b[K")
	}
}

func (m *meter) end() { m.clear() }

// reader counts what is read.
func (m *meter) reader(r io.Reader) io.Reader { return &metered{r, m} }

type metered struct {
	io.Reader
	m *meter
}

func (r *metered) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.m.done.Bytes += int64(n)
	r.m.show(r.m.done)
	return n, err
}
