package template

import (
	"bufio"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// aptSource is one entry of the machine's package configuration: where from,
// which suites, and what vouches for it.
type aptSource struct {
	File       string
	URIs       []string
	Suites     []string
	Components []string
	SignedBy   string   // path, fingerprint or key block, "" for the machine's trusted keys
	Options    []string // further options as in [a=b]
}

// readAptSources reads sources.list and sources.list.d under a folder that
// stands for /etc/apt. Entries for sources, other architectures' and disabled
// ones are left out.
func readAptSources(etcApt fs.FS) ([]aptSource, error) {
	var all []aptSource
	if raw, err := fs.ReadFile(etcApt, "sources.list"); err == nil {
		all = append(all, parseOneLine("sources.list", string(raw))...)
	}
	entries, err := fs.ReadDir(etcApt, "sources.list.d")
	if err != nil && len(all) == 0 {
		return nil, fmt.Errorf("read the machine's package sources: %w", err)
	}
	for _, entry := range entries {
		file := path.Join("sources.list.d", entry.Name())
		ext := path.Ext(file)
		if ext != ".list" && ext != ".sources" {
			continue
		}
		raw, err := fs.ReadFile(etcApt, file)
		if err != nil {
			return nil, fmt.Errorf("read the machine's package sources: %w", err)
		}
		if ext == ".list" {
			all = append(all, parseOneLine(file, string(raw))...)
		} else {
			all = append(all, parseDeb822(file, string(raw))...)
		}
	}
	return all, nil
}

// parseOneLine reads lines such as "deb [signed-by=/k.gpg] URI suite main".
func parseOneLine(file, text string) []aptSource {
	var out []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, isDeb := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !isDeb || rest == "" || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '[') {
			continue
		}
		rest = strings.TrimSpace(rest)
		src := aptSource{File: file}
		if options, after, found := strings.Cut(rest, "]"); found && strings.HasPrefix(options, "[") {
			rest = after
			for option := range strings.FieldsSeq(options[1:]) {
				src.addOption(option)
			}
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		src.URIs, src.Suites, src.Components = fields[:1], fields[1:2], fields[2:]
		out = append(out, src)
	}
	return out
}

func (s *aptSource) addOption(option string) {
	key, value, _ := strings.Cut(option, "=")
	switch strings.ToLower(key) {
	case "signed-by":
		s.SignedBy = value
	case "arch", "lang", "target": // of the machine, not of the template
	default:
		s.Options = append(s.Options, option)
	}
}

// parseDeb822 reads stanzas such as "Types: deb\nURIs: …\nSuites: …".
func parseDeb822(file, text string) []aptSource {
	var out []aptSource
	flush := func(fields map[string]string) {
		if src, ok := deb822Source(file, fields); ok {
			out = append(out, src)
		}
	}
	fields, last := map[string]string{}, ""
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush(fields)
			fields, last = map[string]string{}, ""
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += "\n" + line
			}
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(key))
			fields[last] = strings.TrimSpace(value)
		}
	}
	flush(fields)
	return out
}

func deb822Source(file string, fields map[string]string) (aptSource, bool) {
	if !slices.Contains(strings.Fields(fields["types"]), "deb") {
		return aptSource{}, false
	}
	if enabled := strings.ToLower(fields["enabled"]); enabled == "no" || enabled == "false" || enabled == "0" || enabled == "off" {
		return aptSource{}, false
	}
	src := aptSource{
		File:       file,
		URIs:       strings.Fields(fields["uris"]),
		Suites:     strings.Fields(fields["suites"]),
		Components: strings.Fields(fields["components"]),
		SignedBy:   strings.TrimSpace(fields["signed-by"]),
	}
	for field, option := range map[string]string{
		"trusted": "trusted", "check-valid-until": "check-valid-until", "check-date": "check-date", "by-hash": "by-hash",
		"allow-insecure": "allow-insecure", "allow-weak": "allow-weak",
	} {
		if value := fields[field]; value != "" {
			src.Options = append(src.Options, option+"="+value)
		}
	}
	slices.Sort(src.Options)
	return src, len(src.URIs) > 0 && len(src.Suites) > 0
}

// debianSuites are names that a Debian archive goes by; third parties use them
// too, which is why debianKeys decides between several.
var debianSuites = []string{
	"stable", "oldstable", "oldoldstable", "testing", "unstable", "sid",
	"bullseye", "bookworm", "trixie", "forky", "duke",
}

const debianKeys = "debian-archive"

// bootstrapSources gives the machine's own Debian archives with the suite
// replaced: the release itself first, then its updates and security, as far as
// the machine has them.
func bootstrapSources(all []aptSource, suite string) ([]aptSource, error) {
	var found []aptSource
	byDebian := false
	for _, src := range all {
		if !slices.Contains(src.Components, "main") {
			continue
		}
		for _, have := range src.Suites {
			base, pocket, _ := strings.Cut(strings.Replace(have, "/updates", "-security", 1), "-")
			if !slices.Contains(debianSuites, base) || (pocket != "" && pocket != "updates" && pocket != "security") {
				continue
			}
			one := src
			one.Suites, one.Components = []string{suite}, []string{"main"}
			if pocket != "" {
				one.Suites = []string{suite + "-" + pocket}
			}
			one.URIs = slices.DeleteFunc(slices.Clone(src.URIs), func(uri string) bool { return strings.HasPrefix(uri, "cdrom:") })
			if len(one.URIs) == 0 {
				continue
			}
			byDebian = byDebian || strings.Contains(src.SignedBy, debianKeys)
			found = append(found, one)
		}
	}
	if byDebian {
		found = slices.DeleteFunc(found, func(src aptSource) bool { return !strings.Contains(src.SignedBy, debianKeys) })
	}
	var out []aptSource
	for _, want := range []string{suite, suite + "-updates", suite + "-security"} {
		for _, src := range found {
			if src.Suites[0] == want {
				out = append(out, src)
				break
			}
		}
	}
	if len(out) == 0 || out[0].Suites[0] != suite {
		return nil, fault.New(api.CodeUnsupported, "the machine's package sources name no Debian archive to take %s from", suite).
			WithHint("add one under /etc/apt/sources.list.d, or set the template mirror in the configuration")
	}
	return out, nil
}

// line gives the source as a line of sources.list. signedBy replaces a key
// block by the path of a file that holds it.
func (s aptSource) line(signedBy string) string {
	options := slices.Clone(s.Options)
	if signedBy != "" {
		options = append([]string{"signed-by=" + signedBy}, options...)
	}
	var b strings.Builder
	for _, uri := range s.URIs {
		b.WriteString("deb ")
		if len(options) > 0 {
			fmt.Fprintf(&b, "[%s] ", strings.Join(options, " "))
		}
		fmt.Fprintf(&b, "%s %s %s\n", uri, s.Suites[0], strings.Join(s.Components, " "))
	}
	return b.String()
}

// keyBlock gives the key that stands in the entry itself, unfolded.
func (s aptSource) keyBlock() (string, bool) {
	if !strings.Contains(s.SignedBy, "BEGIN PGP PUBLIC KEY BLOCK") {
		return "", false
	}
	var b strings.Builder
	for line := range strings.Lines(s.SignedBy) {
		line = strings.TrimSpace(line)
		if line == "." {
			line = ""
		}
		b.WriteString(line + "\n")
	}
	return b.String(), true
}

// withoutCredentials takes user names and passwords out of the URIs.
func withoutCredentials(src aptSource) aptSource {
	src.URIs = slices.Clone(src.URIs)
	for i, uri := range src.URIs {
		scheme, rest, found := strings.Cut(uri, "://")
		if !found {
			continue
		}
		host, below, _ := strings.Cut(rest, "/")
		host = host[strings.LastIndexByte(host, '@')+1:]
		src.URIs[i] = scheme + "://" + host + "/" + below
	}
	return src
}
