package template

import "time"

// Event is one piece of news of a build. Every step has a "start", any number
// of "progress" and one of "done", "skip" and "fail".
type Event struct {
	Kind    string        // "start", "progress", "done", "skip", "fail"
	Step    string        // "bootstrap", "wheels", "install", …
	N, Of   int           // the step's place among all of this build
	Elapsed time.Duration // since the step's start
	Bytes   int64         // moved so far, 0 when that says nothing
	Text    string        // one line: what it is doing, why it was skipped, how it failed
}
