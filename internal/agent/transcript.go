package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	transcriptName = "transcript.jsonl"
	figuresDir     = "figures"
)

// transcript is the file of one run: a line an entry, written as things happen
// and never changed. What was written is what a run goes on from.
type transcript struct {
	dir    string
	file   *os.File
	redact *redactor
	size   int64 // of what is whole

	syncing chan error // from syncAside
}

// openTranscript opens a run's transcript for writing and gives what is in it.
// A last line that a crash left torn is taken off.
func openTranscript(dir string, redact *redactor) (*transcript, []api.AgentEvent, error) {
	if err := os.MkdirAll(filepath.Join(dir, figuresDir), 0o700); err != nil {
		return nil, nil, fmt.Errorf("making the folder of a run: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, transcriptName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a transcript: %w", err)
	}
	entries, whole, err := readEntries(f)
	if err == nil {
		err = f.Truncate(whole)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("reading the transcript %s: %w", dir, err)
	}
	if err := keepReserve(dir); err != nil {
		f.Close()
		return nil, nil, err
	}
	return &transcript{dir: dir, file: f, redact: redact, size: whole}, entries, nil
}

// readTranscript gives the entries of a run that nobody may be writing.
func readTranscript(dir string) ([]api.AgentEvent, error) {
	f, err := os.Open(filepath.Join(dir, transcriptName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, _, err := readEntries(f)
	return entries, err
}

// lastBytes is where the last entry of a run that ended is looked for.
const lastBytes = 64 << 10

// lastEntry gives the last entry of a transcript, when it is whole and not long.
func lastEntry(dir string) (api.AgentEvent, error) {
	var e api.AgentEvent
	f, err := os.Open(filepath.Join(dir, transcriptName))
	if err != nil {
		return e, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return e, err
	}
	raw := make([]byte, min(size, lastBytes))
	if _, err := f.ReadAt(raw, size-int64(len(raw))); err != nil {
		return e, err
	}
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	return e, json.Unmarshal(raw[bytes.LastIndexByte(raw, '\n')+1:], &e)
}

// readEntries reads whole lines, and gives their length in bytes.
func readEntries(f io.Reader) (entries []api.AgentEvent, whole int64, err error) {
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		raw, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, whole, nil // what is left is torn
		}
		if err != nil {
			return nil, 0, err
		}
		var e api.AgentEvent
		if err := json.Unmarshal(raw, &e); err != nil {
			if _, perr := in.Peek(1); errors.Is(perr, io.EOF) {
				return entries, whole, nil
			}
			return nil, 0, fmt.Errorf("entry %d: %w", len(entries)+1, err)
		}
		if what := lacks(e); what != "" {
			return nil, 0, fmt.Errorf("entry %d (%s) has no %s", len(entries)+1, e.Type, what)
		}
		entries, whole = append(entries, e), whole+int64(len(raw))
	}
}

// lacks names what an entry of its type has and this one does not.
func lacks(e api.AgentEvent) string {
	switch {
	case e.Type == api.AgentEventStarted && e.Request == nil:
		return "request"
	case (e.Type == api.AgentEventStarted || e.Type == api.AgentEventEnded) && e.Run == nil:
		return "run"
	case e.Type == api.AgentEventLoaded && e.Loaded == nil:
		return "loaded"
	case e.Type == api.AgentEventAsked && e.Asked == nil:
		return "asked"
	case e.Type == api.AgentEventReply && e.Reply == nil:
		return "reply"
	case e.Type == api.AgentEventCell && e.Cell == nil:
		return "cell"
	case e.Type == api.AgentEventOutcome && e.Outcome == nil:
		return "outcome"
	case e.Type == api.AgentEventRewound && e.Rewound == nil:
		return "rewound"
	case e.Type == api.AgentEventForked && e.Forked == nil:
		return "forked"
	}
	return ""
}

// append writes an entry and gives it as it was written, without secrets.
func (t *transcript) append(e api.AgentEvent) (api.AgentEvent, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return e, fmt.Errorf("writing a transcript: %w", err)
	}
	raw := b.Bytes()
	if clean := t.redact.bytes(raw); !bytes.Equal(clean, raw) {
		raw, e = clean, api.AgentEvent{}
		if err := json.Unmarshal(raw, &e); err != nil {
			return e, fmt.Errorf("writing a transcript: taking out secrets: %w", err)
		}
	}
	if _, err := t.file.Write(raw); err != nil {
		if terr := t.file.Truncate(t.size); terr != nil { // what follows would not be read behind half an entry
			err = errors.Join(err, terr)
		}
		return e, full(err, "writing a transcript")
	}
	t.size += int64(len(raw))
	return e, nil
}

// full tells a full disk from other troubles.
func full(err error, doing string) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.Wrap(err, api.CodeNoSpace, "the server's disk is full, and what an agent does cannot be written down any more").WithHint("the operator has to make room")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// reserveName is a file that is there to be removed: when the disk is full, the
// end of a run still has room.
const (
	reserveName  = "reserve"
	reserveBytes = 64 << 10
)

func keepReserve(dir string) error {
	name := filepath.Join(dir, reserveName)
	if info, err := os.Stat(name); err == nil && info.Size() == reserveBytes {
		return nil
	}
	if err := os.WriteFile(name, make([]byte, reserveBytes), 0o600); err != nil {
		return full(err, "reserving room for the end of a transcript")
	}
	return nil
}

func (t *transcript) useReserve() error { return os.Remove(filepath.Join(t.dir, reserveName)) }

// sync makes what was written survive the machine, not only the daemon.
func (t *transcript) sync() error { return t.file.Sync() }

// syncAside does that while other things happen; synced waits for it.
func (t *transcript) syncAside() {
	t.syncing = make(chan error, 1)
	go func(done chan<- error) { done <- t.sync() }(t.syncing)
}

func (t *transcript) synced() error {
	if t.syncing == nil {
		return nil
	}
	err := <-t.syncing
	t.syncing = nil
	return err
}

func (t *transcript) close() error { return errors.Join(t.synced(), t.file.Close()) }

// figure keeps a picture beside the transcript.
func (t *transcript) figure(name string, data []byte) error {
	if err := os.WriteFile(filepath.Join(t.dir, figuresDir, name), data, 0o600); err != nil {
		return full(err, "keeping a figure")
	}
	return nil
}

func readFigure(dir, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(dir, figuresDir, name))
}

// redactor takes secrets out of what is written: those that are known, and what
// has the form of one.
type redactor struct{ known []string }

const redacted = "[redacted]"

var secretForms = regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}|\bpds_[0-9a-f]{32,}\b|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}|\bgithub_pat_[A-Za-z0-9_]{22,}` +
	`|\bxox[baprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{35}|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}` +
	`|-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s-]|\\n|\\r)*?-----END [A-Z ]*PRIVATE KEY-----`)

// with gives a redactor that knows more secrets. Short ones are left: they would
// take words apart.
func (r *redactor) with(secrets ...string) *redactor {
	out := &redactor{}
	if r != nil {
		out.known = append(out.known, r.known...)
	}
	for _, s := range secrets {
		if len(s) >= 8 {
			out.known = append(out.known, forms(s)...)
		}
	}
	return out
}

// forms are how a secret is found again: as it is, and as others quote it.
func forms(secret string) []string {
	html, _ := json.Marshal(secret) // a string always can be
	out := []string{secret}
	for _, f := range []string{quoted(secret), string(html[1 : len(html)-1]), url.QueryEscape(secret), url.PathEscape(secret)} {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// quoted is a text as it stands in an entry, without the marks around it.
func quoted(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always can be
	return strings.TrimSuffix(strings.TrimSpace(b.String())[1:], `"`)
}

func (r *redactor) bytes(raw []byte) []byte {
	for _, s := range r.known {
		raw = bytes.ReplaceAll(raw, []byte(quoted(s)), []byte(redacted))
	}
	return secretForms.ReplaceAll(raw, []byte(redacted))
}

func (r *redactor) text(s string) string {
	for _, k := range r.known {
		s = strings.ReplaceAll(s, k, redacted)
	}
	return secretForms.ReplaceAllString(s, redacted)
}
