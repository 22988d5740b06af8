package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	walHeader   = 32
	frameHeader = 24
)

// checkWAL reads SQLite's write-ahead log. SQLite itself takes the first frame
// with a wrong sum for the end and forgets what follows. That is right for the
// last frame of a process that was killed while it wrote. It is damage when
// frames of the same log follow.
func checkWAL(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the database's log: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	head := make([]byte, walHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return ignoreEOF(err) // no log yet
	}
	magic := binary.BigEndian.Uint32(head)
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	page := binary.BigEndian.Uint32(head[8:])
	sum := walSum(order, [2]uint32{}, head[:24])
	if magic&^1 != 0x377f0682 || page < 512 || page > 65536 || page&(page-1) != 0 || sum != sumAt(head[24:]) {
		return damagedLog(path, 0)
	}
	salts := string(head[16:24])
	frame := make([]byte, frameHeader+page)
	for at, broken := int64(walHeader), int64(-1); ; at += int64(len(frame)) {
		if _, err := io.ReadFull(r, frame); err != nil {
			return ignoreEOF(err)
		}
		if string(frame[8:16]) != salts {
			return nil // left over from before the log was begun again
		}
		if broken >= 0 {
			return damagedLog(path, broken)
		}
		next := walSum(order, walSum(order, sum, frame[:8]), frame[frameHeader:])
		if next != sumAt(frame[16:]) {
			broken = at
			continue
		}
		sum = next
	}
}

func damagedLog(path string, whole int64) error {
	return fault.New(api.CodeConflict, "the database's log %s is damaged at byte %d", path, whole).
		WithHint("go on with what it says up to there; what was changed later is lost: cp %s %s && truncate -s %d %s", quote(path), quote(path+".damaged"), whole, quote(path))
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("reading the database's log: %w", err)
}

func sumAt(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// walSum is SQLite's sum over 8-byte pieces, each adding to the one before.
func walSum(order binary.ByteOrder, s [2]uint32, data []byte) [2]uint32 {
	for ; len(data) >= 8; data = data[8:] {
		s[0] += order.Uint32(data) + s[1]
		s[1] += order.Uint32(data[4:]) + s[0]
	}
	return s
}
