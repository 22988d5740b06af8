package auth

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const masterLen = 32

// Master is the secret of a data directory, from which the keys are derived
// that sign and encrypt. Whoever has it and the store has all.
type Master struct{ secret []byte }

// OpenMaster reads the secret in a folder, and makes it when there is none.
func OpenMaster(dir string) (Master, error) {
	path := filepath.Join(dir, "master.key")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		raw = make([]byte, masterLen)
		rand.Read(raw) // never fails
		err = writeNew(path, raw)
	}
	if err != nil {
		return Master{}, fmt.Errorf("the master key of the data directory: %w", err)
	}
	if len(raw) != masterLen {
		return Master{}, fmt.Errorf("the master key %s has %d bytes, and should have %d: put the right one back, or remove it and with it all signed links and stored secrets", path, len(raw), masterLen)
	}
	return Master{raw}, nil
}

// writeNew writes a file of the owner's alone, whole or not at all.
func writeNew(path string, raw []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".master-*") // 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(raw)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// Derive gives the 32 bytes that are this purpose's own.
func (m Master) Derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, m.secret, nil, "pandastack "+purpose, masterLen)
	if err != nil {
		panic(err) // the length is one that SHA-256 has
	}
	return key
}
