package config

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value reads and writes one setting in the Config it points into.
type value interface {
	Set(string) error
	String() string
	toml() string
}

type textValue struct{ p *string }

func text(p *string) value { return textValue{p} }

func (v textValue) Set(s string) error { *v.p = s; return nil }
func (v textValue) String() string     { return *v.p }
func (v textValue) toml() string       { return strconv.Quote(*v.p) }

// secretValue is a text that is not shown.
type secretValue struct{ p *string }

func secret(p *string) value { return secretValue{p} }

func (v secretValue) Set(s string) error { *v.p = s; return nil }
func (v secretValue) String() string {
	if *v.p == "" {
		return ""
	}
	return "(set)"
}
func (v secretValue) toml() string { return strconv.Quote(v.String()) }

type choiceValue struct {
	p       *string
	allowed []string
}

func choice(p *string, allowed ...string) value { return choiceValue{p, allowed} }

func (v choiceValue) Set(s string) error {
	if !slices.Contains(v.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.allowed, ", "))
	}
	*v.p = s
	return nil
}
func (v choiceValue) String() string { return *v.p }
func (v choiceValue) toml() string   { return strconv.Quote(*v.p) }

type listValue struct{ p *[]string }

func list(p *[]string) value { return listValue{p} }

func (v listValue) Set(s string) error {
	*v.p = nil
	for word := range strings.SplitSeq(s, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*v.p = append(*v.p, word)
		}
	}
	return nil
}
func (v listValue) String() string { return strings.Join(*v.p, ",") }
func (v listValue) toml() string   { return strconv.Quote(v.String()) }

type originsValue struct{ listValue }

func origins(p *[]string) value { return originsValue{listValue{p}} }

// Set reads origins as browsers send them: scheme, name and port, nothing else.
func (v originsValue) Set(s string) error {
	if err := v.listValue.Set(strings.ToLower(s)); err != nil {
		return err
	}
	for _, origin := range *v.p {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Contains(u.Host, "*") || origin != u.Scheme+"://"+u.Host {
			return fmt.Errorf("%q is not an origin such as https://app.example.com: scheme, name and port, with no path, user or \"*\"", origin)
		}
	}
	return nil
}

type durationValue struct{ p *time.Duration }

func duration(p *time.Duration) value { return durationValue{p} }

// Set reads "5m" or a bare number of seconds.
func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		n, nerr := strconv.ParseUint(s, 10, 31)
		if nerr != nil {
			return fmt.Errorf("must be a duration such as 90s, 5m or 24h")
		}
		d = time.Duration(n) * time.Second
	}
	if d < 0 {
		return fmt.Errorf("must not be negative")
	}
	*v.p = d
	return nil
}
func (v durationValue) String() string { return v.p.String() }
func (v durationValue) toml() string   { return strconv.Quote(v.String()) }

type booleanValue struct{ p *bool }

func boolean(p *bool) value { return booleanValue{p} }

func (v booleanValue) Set(s string) error {
	switch s {
	case "true":
		*v.p = true
	case "false":
		*v.p = false
	default:
		return fmt.Errorf("must be true or false")
	}
	return nil
}
func (v booleanValue) String() string { return strconv.FormatBool(*v.p) }
func (v booleanValue) toml() string   { return v.String() }

type numberValue struct{ p *int }

func number(p *int) value { return numberValue{p} }

func (v numberValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return fmt.Errorf("must be a whole number, 0 or more")
	}
	*v.p = n
	return nil
}
func (v numberValue) String() string { return strconv.Itoa(*v.p) }
func (v numberValue) toml() string   { return v.String() }

type decimalValue struct{ p *float64 }

func decimal(p *float64) value { return decimalValue{p} }

func (v decimalValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		return fmt.Errorf("must be a number between 0 and 1000000")
	}
	*v.p = n
	return nil
}
func (v decimalValue) String() string { return strconv.FormatFloat(*v.p, 'f', -1, 64) }
func (v decimalValue) toml() string   { return v.String() }
