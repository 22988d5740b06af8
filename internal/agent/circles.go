package agent

import "fmt"

// step is what one turn did, for comparing.
type step struct {
	turn    int
	action  string // digest of its code
	outcome string // digest of what happened
	failure string // name and value of the error it ended with; "" for none
}

// How often the same may happen.
const (
	tellAt    = 3 // the model is told
	rewindAt  = 4 // and is set back
	failTell  = 4 // the same error, whatever the code
	failBack  = 6
	swingTell = 6 // steps of going back and forth between two
	swingBack = 8
	maxBacks  = 2 // then the run ends
)

// circle is a run that goes in circles: since which turn, and what to say.
type circle struct {
	since int
	words string
	back  bool // telling was not enough
}

// repeats is how many of the latest steps are of one kind.
type repeats struct {
	same   int // did the same with the same outcome
	failed int // ended with the same error
	swing  int // went back and forth between two
}

func repeatsOf(steps []step) (r repeats) {
	n := len(steps)
	if n == 0 {
		return r
	}
	last := steps[n-1]
	r.same = trailing(steps, func(s step) bool { return s.action == last.action && s.outcome == last.outcome })
	if last.failure != "" {
		r.failed = trailing(steps, func(s step) bool { return s.failure == last.failure })
	}
	for i := n - 1; i >= 0; i-- {
		want := steps[n-1-(n-1-i)%2]
		if i < n-2 && (steps[i].action != want.action || steps[i].outcome != want.outcome) {
			break
		}
		r.swing++
	}
	return r
}

// mayHaveBegun is the turn with which a circle may have begun at the earliest,
// if what comes now goes on with it. States from before that are not needed.
func mayHaveBegun(steps []step) int {
	if len(steps) == 0 {
		return 0
	}
	r := repeatsOf(steps)
	return steps[len(steps)-max(r.same, r.failed, r.swing)].turn
}

// goingInCircles looks at the latest steps; nil when they lead somewhere.
func goingInCircles(steps []step) *circle {
	n, r := len(steps), repeatsOf(steps)
	switch {
	case r.same >= tellAt:
		return &circle{steps[n-r.same].turn, fmt.Sprintf("You ran the same code %d times, and the same happened each time. It will not change.", r.same), r.same >= rewindAt}
	case r.failed >= failTell:
		return &circle{steps[n-r.failed].turn, fmt.Sprintf("The last %d turns ended with the same error, %s. What you change does not reach its cause.", r.failed, steps[n-1].failure), r.failed >= failBack}
	case r.swing >= swingTell && steps[n-1].action != steps[n-2].action:
		return &circle{steps[n-r.swing].turn, fmt.Sprintf("For %d turns you went back and forth between two cells, with the same outcomes.", r.swing), r.swing >= swingBack}
	}
	return nil
}

func trailing(steps []step, alike func(step) bool) int {
	n := 0
	for i := len(steps) - 1; i >= 0 && alike(steps[i]); i-- {
		n++
	}
	return n
}
