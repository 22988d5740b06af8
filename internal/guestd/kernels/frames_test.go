package kernels

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func TestFramesAreCutAnywhere(t *testing.T) {
	var all []byte
	for _, f := range []frame{{Op: "ready", Next: 1}, {Op: "result", ID: "a", Data: map[string]string{"text/plain": "é"}}, {Op: "end", ID: "a", Status: "ok"}} {
		b, err := encodeFrame(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	var r frameReader
	var ops []string
	for _, b := range all {
		r.feed([]byte{b})
		for {
			f, ok, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			ops = append(ops, f.Op)
		}
	}
	if len(ops) != 3 || ops[0] != "ready" || ops[2] != "end" {
		t.Errorf("got %v", ops)
	}
}

func TestFrameThatIsTooLong(t *testing.T) {
	var r frameReader
	r.feed(binary.BigEndian.AppendUint32(nil, maxFrame+1))
	if _, _, err := r.next(); !errors.Is(err, errFrameTooLong) {
		t.Errorf("got %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	ok, _ := encodeFrame(frame{Op: "ready", Next: 1})
	f.Add(ok, uint8(3))
	f.Add([]byte{0, 0, 0, 2, '{', '}', 0xff}, uint8(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		var r frameReader
		for chunk := range bytes.SplitSeq(b, []byte{step}) {
			r.feed(chunk)
			for {
				before := len(r.buf)
				_, ok, err := r.next()
				if err != nil {
					return
				}
				if !ok {
					break
				}
				if len(r.buf) >= before {
					t.Fatal("no progress")
				}
			}
		}
	})
}
