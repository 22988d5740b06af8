package guestapi

import (
	"fmt"
	"io"
)

// A flow is one connection to a port in the sandbox. What the host sends is the
// body of its request as it is. What it reads are frames: a kind, a length in
// three bytes, and for FlowData so many bytes.
//
// The host never has more than FlowWindow bytes on their way that the guest has
// not said to be taken. So a program that does not read holds up its own flow
// alone: the guest takes all of a body off the link at once, which it shares
// with every other call.
const (
	FlowData  = byte(0) // bytes from the program
	FlowEOF   = byte(1) // there will be no more of them; the length is 0
	FlowTaken = byte(2) // the program has taken so many of the host's bytes

	FlowHeader = 4
	FlowWindow = 128 << 10
	MaxFrame   = 1<<24 - 1
)

// PutFlowHeader writes the head of a frame.
func PutFlowHeader(b []byte, kind byte, length int) {
	b[0], b[1], b[2], b[3] = kind, byte(length>>16), byte(length>>8), byte(length)
}

// ReadFlowHeader reads the head of a frame. At the end of the stream it gives
// io.EOF.
func ReadFlowHeader(r io.Reader) (kind byte, length int, err error) {
	var b [FlowHeader]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	kind, length = b[0], int(b[1])<<16|int(b[2])<<8|int(b[3])
	if kind > FlowTaken || kind == FlowEOF && length != 0 {
		return 0, 0, fmt.Errorf("a frame of kind %d and length %d", kind, length)
	}
	return kind, length, nil
}
