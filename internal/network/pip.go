package network

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

//go:embed pip.py
var pipScript string

// PipIndex asks the pip of this machine's python3, the same that makes templates.
func PipIndex(ctx context.Context) (Index, error) {
	out, err := ask(ctx, "python3", "-c", pipScript)
	if err != nil {
		return Index{}, err
	}
	var in Index
	if err := json.Unmarshal(out, &in); err != nil {
		return Index{}, fmt.Errorf("what pip is set to cannot be read: %w", err)
	}
	return in, nil
}

const answerMost = 1 << 20 // bytes that a package manager may say

// inURL is a user and password in a URL.
var inURL = regexp.MustCompile(`//[^/\s@]*@`)

// ask runs a program and gives what it said. The error has the last line of what
// it complained about, without passwords.
func ask(ctx context.Context, name string, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/" // what lies in the daemon's folder is no setting of the machine's
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("the program %s is not there", name)
	case err != nil:
		lines := strings.Split(strings.TrimSpace(complaint.String()), "\n")
		return nil, fmt.Errorf("%s: %w: %s", name, err, inURL.ReplaceAllString(lines[len(lines)-1], "//"))
	case out.Len() > answerMost:
		return nil, fmt.Errorf("%s said too much", name)
	}
	return out.Bytes(), nil
}
