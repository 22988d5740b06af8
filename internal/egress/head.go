package egress

import (
	"bytes"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// head is what decides about an HTTP/1 request.
type head struct {
	method, target, host string
}

const (
	maxHead   = 64 << 10
	maxMethod = 8 << 10 // no server takes a longer one

	maxAuthority = 300 // bytes of host:port
)

// prefaceH2 begins HTTP/2 without TLS.
var prefaceH2 = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

type headError string

func (e headError) Error() string { return "malformed HTTP request: " + string(e) }

// parseHead reads an HTTP/1 request head from the first bytes of a connection,
// more strictly than servers do: what two of them could read differently is an
// error. errMore says that it goes on.
func parseHead(b []byte) (h head, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	text := b
	if end >= 0 {
		text = b[:end+2]
	}
	// Look at what there is, so that something wrong is not waited for.
	lines, err := splitLines(text, end >= 0)
	if err != nil {
		return h, err
	}
	if len(lines) > 0 {
		if h, err = parseRequestLine(lines[0]); err != nil {
			return h, err
		}
	}
	if end < 0 {
		if len(b) > maxHead {
			return h, headError("its head is too long")
		}
		return h, errMore
	}
	return h, h.parseFields(lines[1:])
}

// splitLines gives the lines that are whole.
func splitLines(b []byte, whole bool) ([]string, error) {
	var lines []string
	for len(b) > 0 {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		if !found {
			break
		}
		if !bytes.HasSuffix(line, []byte("\r")) {
			return nil, headError("a line ends without a carriage return")
		}
		line = line[:len(line)-1]
		if bytes.ContainsAny(line, "\r\x00") {
			return nil, headError("a line holds a carriage return or a NUL")
		}
		lines = append(lines, string(line))
		b = rest
	}
	if whole && len(lines) == 0 {
		return nil, headError("there is no request line")
	}
	return lines, nil
}

func parseRequestLine(line string) (h head, err error) {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !token(method) || target == "" || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return h, headError("its first line")
	}
	if strings.ContainsFunc(target, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return h, headError("its target")
	}
	return head{method: method, target: target}, nil
}

func (h *head) parseFields(lines []string) error {
	seen := map[string]string{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !token(name) { // a folded line, or a space before the colon
			return headError("a header line")
		}
		value = strings.Trim(value, " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return headError("the value of the header " + name)
		}
		key := strings.ToLower(name)
		before, twice := seen[key]
		switch key {
		case "host", "content-length", "transfer-encoding":
			if twice && (key != "content-length" || before != value) {
				return headError("it has the header " + name + " twice")
			}
		}
		seen[key] = value
	}
	length, hasLength := seen["content-length"]
	coding, hasCoding := seen["transfer-encoding"]
	switch {
	case hasLength && hasCoding:
		return headError("it has both Content-Length and Transfer-Encoding")
	case hasCoding && !strings.EqualFold(coding, "chunked"):
		return headError("its Transfer-Encoding is not chunked")
	case hasLength && (length == "" || strings.Trim(length, "0123456789") != ""):
		return headError("its Content-Length is not a number")
	}
	h.host = seen["host"]
	return nil
}

// startsHTTP says whether bytes begin an HTTP request, errMore while it is open.
// Empty lines before it are taken for a part of it, because servers skip them,
// and so are spaces in its target, which some let pass.
func startsHTTP(b []byte) (bool, error) {
	b = bytes.TrimLeft(b, "\r\n \t")
	end := bytes.IndexFunc(b, func(c rune) bool { return !httpguts.IsTokenRune(c) })
	switch {
	case end < 0 && len(b) <= maxMethod:
		return false, errMore
	case end <= 0 || end > maxMethod || b[end] != ' ' && b[end] != '\t':
		return false, nil
	}
	line, _, whole := bytes.Cut(bytes.TrimLeft(b[end:], " \t"), []byte("\n"))
	if bytes.Contains(bytes.ToUpper(line), []byte("HTTP/")) {
		return true, nil
	}
	if whole {
		return false, nil
	}
	if len(line) > 0 && !bytes.ContainsRune([]byte("/*hH"), rune(line[0])) {
		// No target that a server knows but CONNECT's, after which comes the version.
		_, after, found := bytes.Cut(line, []byte(" "))
		if found && !bytes.HasPrefix([]byte("HTTP/"), bytes.ToUpper(after[:min(len(after), 5)])) {
			return false, nil
		}
		if !found && len(line) > maxAuthority {
			return false, nil
		}
	}
	if len(b) > maxHead {
		return true, nil // to be refused for its length
	}
	return false, errMore
}
