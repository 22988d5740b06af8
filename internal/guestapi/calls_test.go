package guestapi

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// writes counts what comes in one piece.
type writes struct {
	bytes.Buffer
	n int
}

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return w.Buffer.Write(p)
}

// Whoever reads a short call is woken for it once, so it is one piece; a long
// one is as many as it needs.
func TestACallIsWrittenInFewPieces(t *testing.T) {
	for _, c := range []struct{ size, pieces int }{{0, 1}, {1, 1}, {CallPiece, 1}, {CallPiece + 1, 2}, {3 * CallPiece, 3}} {
		data := bytes.Repeat([]byte{'x'}, c.size)
		var w writes
		if err := WriteCall(func(f ...CallFrame) error { return WriteCallFrames(&w, f...) }, 7, data); err != nil {
			t.Fatal(err)
		}
		if w.n != c.pieces {
			t.Errorf("%d bytes: %d pieces, want %d", c.size, w.n, c.pieces)
		}
		var got []byte
		for {
			f, err := ReadCallFrame(&w.Buffer)
			if err != nil || f.Call != 7 {
				t.Fatalf("%d bytes: frame %v of call %d: %v", c.size, f.Kind, f.Call, err)
			}
			if f.Kind == CallEnd {
				break
			}
			got = append(got, f.Data...)
		}
		if _, err := ReadCallFrame(&w.Buffer); !errors.Is(err, io.EOF) || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %d came, then %v", c.size, len(got), err)
		}
	}
}
