package gvisor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
)

// A sentry that somebody has broken does not have the daemon hear more than an answer.
func TestASentryThatSpeaksForEver(t *testing.T) {
	d := &Driver{dir: t.TempDir()}
	if err := os.Mkdir(d.root(), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", d.socket("sb"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	said := make(chan int64, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		words := io.MultiReader(bytes.NewReader([]byte(`{"success":false,"err":"`)), bytes.NewReader(bytes.Repeat([]byte("x"), 32<<20)), bytes.NewReader([]byte(`"}`)))
		n, _ := io.Copy(conn, words) // until nobody listens
		said <- n
	}()
	err = d.control(t.Context(), "sb", "Wait", "sb", nil)
	if refused := refusal(""); err == nil || errors.As(err, &refused) {
		t.Errorf("it was heard out, with an error of %d bytes", len(err.Error()))
	}
	if n := <-said; n > 16<<20 {
		t.Errorf("%d bytes were heard", n)
	}
}
