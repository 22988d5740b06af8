package egress

import (
	"errors"
	"strings"
	"testing"
)

func TestStartsHTTP(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "more",
		"G":                                    "more",
		"GET":                                  "more",
		"GET ":                                 "more",
		"GET /":                                "more",
		"GET / HTTP/1.1":                       "yes",
		"get / http/1.1\r\n":                   "yes",
		"GET\t/\tHTTP/1.1\r\n":                 "yes",
		"\r\n\r\nGET / HTTP/1.1\r\n":           "yes",
		"\r\n":                                 "more",
		"GET /a b c HTTP/1.1\r\n":              "yes",
		"GET /a b c":                           "more",
		"GET http://a/ b":                      "more",
		"OPTIONS * ":                           "more",
		"CONNECT a:443 HT":                     "more",
		"CONNECT a:443 HTTP/1.1\r\n":           "yes",
		"CONNECT a:443 X":                      "no",
		"all of it":                            "no",
		"all of ":                              "more",
		"GET /\r\n":                            "no", // a version before there were hosts
		"EHLO sandbox\r\n":                     "no",
		"SSH-2.0-x\r\n":                        "no",
		"\x00\x00\x00\x08":                     "no",
		"{\"a\": 1}":                           "no",
		strings.Repeat("A", 8<<10):             "more",
		strings.Repeat("A", 9<<10):             "no",
		"X " + strings.Repeat("b", 400):        "no",
		"GET /" + strings.Repeat("a", maxHead): "yes", // to be refused for its length
	} {
		got, err := startsHTTP([]byte(in))
		said := map[bool]string{true: "yes", false: "no"}[got]
		if errors.Is(err, errMore) {
			said = "more"
		}
		if said != want {
			t.Errorf("%.60q: %s, want %s", in, said, want)
		}
	}
}
