package guestd_test

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	s := start(t)
	ev, exit := s.shell("echo hi; echo err >&2; exit 3")
	t.Log(ev, exit)
	t.Log(s.warm())
	t.Log(s.context("default"))
	e, x := s.run("default", "print('hi')\n1+1")
	t.Logf("%+v %+v", e, x)
}
