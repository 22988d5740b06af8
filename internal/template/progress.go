package template

import "time"

// The steps that every build has, in order; a recipe's own come after compile.
const (
	StepBootstrap = "bootstrap" // lay out the distribution's packages
	StepWheels    = "wheels"    // download what Python needs, beside bootstrap
	StepSystem    = "system"    // users, folders, mount points
	StepInstall   = "install"   // make the virtual environment
	StepCompile   = "compile"   // compile Python's modules
	StepWarm      = "warm"      // start the agent and the interpreter
	StepSnapshot  = "snapshot"  // write the memory
	StepCheck     = "check"     // restore a copy and hear from its agent
)

var reservedSteps = []string{StepBootstrap, StepWheels, StepSystem, StepInstall, StepCompile, StepWarm, StepSnapshot, StepCheck}

// EventKind says how far a step is.
type EventKind string

// A step has a start, any number of progress, and one of done, skip and fail.
const (
	EventStart    EventKind = "start"
	EventProgress EventKind = "progress"
	EventDone     EventKind = "done"
	EventSkip     EventKind = "skip" // there already
	EventFail     EventKind = "fail"
)

// Event is one piece of news of a build.
type Event struct {
	Kind    EventKind
	Step    string        // "" for news of the build as a whole
	N, Of   int           // the step's place among all of this build
	Elapsed time.Duration // since the step's start
	Bytes   int64         // laid out, downloaded or written so far, 0 when that says nothing
	Text    string        // one line: what it is doing, why it was skipped, how it failed
}
